# SPDX-License-Identifier: Apache-2.0
"""The sections `counts` and `tokenizer`: which words are counted, what is trained on them, and how long rows are."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, Tag, model_validator

from tokenmill.pipeline.config.sections import (
    ONE,
    ONE_OR_SEVERAL,
    SEVERAL,
    Broken,
    Natural,
    NonEmpty,
    PathText,
    Positive,
    Section,
    mistake,
)
from tokenmill.pipeline.config.text import unknown_codes

MAX_VOCAB_SIZE = 10_000_000

Label = Literal["source", "lang"]
Model = Literal["wordpiece", "bpe", "byte_level_bpe", "unigram", "wordlevel", "char"]
NormalizerName = Literal["bert", "nfc", "nfkc", "nmt_nfkc", "sentencepiece", "none"]
PreTokenizerName = Literal[
    "bert", "whitespace", "whitespace_split", "metaspace", "whitespace_metaspace", "gpt2", "cl100k_base", "o200k_base",
    "llama3", "qwen", "tekken", "code", "none",
]  # fmt: skip


class CountsConfig(Section):
    """Which words are counted, and how counts are grouped."""

    by: Annotated[list[Label], Field(max_length=1)] = []
    """`[source]` or `[lang]`: separate counts for every source, or every language, instead of for the whole input."""
    sources: dict[NonEmpty, NonEmpty] = {}
    """Maps names of sources to patterns of file names as in the manifest; the first match wins. Empty: those of
    `input.sources`, or a source per file."""
    languages: list[NonEmpty] = []
    """For `[lang]`: the languages that are counted by themselves; all others together are `default`. Empty: all are."""
    min_count: Positive = 1
    """Words that occur less often are left out."""
    max_words: Positive | None = None
    """At most this many distinct words are kept; the rarest are left out, equally rare ones together; null: all."""

    def _broken(self) -> Broken:
        if self.sources and "source" not in self.by:
            yield "sources", dict(self.sources), "needs `by: [source]`"
        yield from unknown_codes("languages", self.languages)
        if self.languages and "lang" not in self.by:
            yield "languages", self.languages, "needs `by: [lang]`"
        for label in self.sources:
            if "\0" in label or len(label) > 256:
                yield "sources", label, "labels must have no NUL and at most 256 characters"


_Size = Annotated[int, Field(ge=1, le=MAX_VOCAB_SIZE)]
Sizes = Annotated[
    Annotated[_Size, Tag(ONE)] | Annotated[list[_Size], Tag(SEVERAL), Field(min_length=1)], ONE_OR_SEVERAL
]

BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_SENTENCEPIECE_TOKENS = ["<unk>", "<s>", "</s>"]

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "wordpiece": {
        "rule": "frequency", "min_frequency": 2, "limit_alphabet": 1000, "initial_alphabet": [],
        "special_tokens": BERT_TOKENS, "unk_token": "[UNK]", "normalizer": "bert", "pre_tokenizer": "bert",
    },
    "bpe": {
        "min_frequency": 2, "limit_alphabet": None, "initial_alphabet": [], "max_token_length": None,
        "user_defined_symbols": [], "byte_fallback": False, "special_tokens": _SENTENCEPIECE_TOKENS,
        "unk_token": "<unk>", "normalizer": "nfkc",
        "pre_tokenizer": "whitespace_metaspace",
    },
    "byte_level_bpe": {
        "min_frequency": 2, "max_token_length": None, "special_tokens": ["<|endoftext|>"], "normalizer": "none",
        "pre_tokenizer": "cl100k_base",
    },
    "unigram": {
        "character_coverage": 0.9995, "shrinking_factor": 0.75, "num_sub_iterations": 2, "max_piece_length": 16,
        "seed_sentencepiece_size": 1_000_000, "hard_vocab_limit": True, "user_defined_symbols": [],
        "byte_fallback": False, "special_tokens": _SENTENCEPIECE_TOKENS, "unk_token": "<unk>",
        "normalizer": "nmt_nfkc", "pre_tokenizer": "whitespace_metaspace",
    },
    "wordlevel": {
        "min_frequency": 1, "special_tokens": ["<unk>"], "unk_token": "<unk>", "normalizer": "nfkc",
        "pre_tokenizer": "whitespace",
    },
    "char": {
        "min_frequency": 1, "character_coverage": 1.0, "byte_fallback": False, "special_tokens": ["<unk>"],
        "unk_token": "<unk>", "normalizer": "nfkc",
        "pre_tokenizer": "whitespace_metaspace",
    },
}  # fmt: skip
"""The options of each model, with their defaults."""


class TrainConfig(Section):
    """A vocabulary to train on word counts; the default of an option depends on the model."""

    model: Model = "wordpiece"
    """The kind of vocabulary; decides which of the options below are allowed."""
    vocab_size: Sizes = 30_000
    """At most this many entries, special tokens and alphabet included; or a list of sizes, all from one training."""
    counts: PathText | None = None
    """For the job `train`: a folder with word counts to train on, instead of the input."""
    normalizer: NormalizerName | None = None
    """How text is normalized; default: bert for wordpiece, nmt_nfkc for unigram, none for byte_level_bpe, else nfkc."""
    pre_tokenizer: PreTokenizerName | None = None
    """How text is split into words; default: bert for wordpiece, cl100k_base for byte_level_bpe, whitespace for
    wordlevel, else whitespace_metaspace. Numbers stay whole in `gpt2`, are cut into threes in `cl100k_base`,
    `o200k_base` and `llama3`, into digits in `qwen`, `tekken` and `code`, where an indentation is one word, too."""
    special_tokens: list[NonEmpty] | None = None
    """First entries of the vocabulary, in this order."""
    unk_token: NonEmpty | None = None
    """The special token that stands for unknown text."""
    rule: Literal["frequency", "likelihood"] | None = None
    """wordpiece: `frequency`: the most frequent pair merges first; `likelihood`: count(ab) / (count(a) * count(b))."""
    min_frequency: Positive | None = None
    """Pairs, words or characters that occur less often are not added to the vocabulary."""
    limit_alphabet: Positive | None = None
    """At most this many characters are kept, the most frequent first; null keeps all of them."""
    initial_alphabet: list[NonEmpty] | None = None
    """Characters to keep even if they do not occur."""
    max_token_length: Positive | None = None
    """bpe, byte_level_bpe: longer tokens are not made."""
    byte_fallback: bool | None = None
    """bpe, unigram, char: unknown characters are encoded as bytes, `<0x00>` to `<0xFF>` in the vocabulary."""
    character_coverage: Annotated[float, Field(gt=0, le=1)] | None = None
    """unigram, char: share of all characters that the alphabet covers."""
    shrinking_factor: Annotated[float, Field(gt=0, lt=1)] | None = None
    """unigram: share of the pieces that a round of pruning keeps."""
    num_sub_iterations: Annotated[int, Field(ge=1, le=100)] | None = None
    """unigram: rounds of EM between two rounds of pruning."""
    max_piece_length: Annotated[int, Field(ge=1, le=512)] | None = None
    """unigram: length of the longest piece, in characters."""
    seed_sentencepiece_size: Positive | None = None
    """unigram: how many pieces training starts from."""
    hard_vocab_limit: bool | None = None
    """unigram: fail if there are too few pieces for `vocab_size`; if false, the vocabulary is smaller."""
    user_defined_symbols: list[NonEmpty] | None = None
    """bpe, unigram: entries that are kept whole in text; they follow the special tokens."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> object:
        """Fills in the defaults of the model, so that a config has a value for every option in effect."""
        model = data.get("model", "wordpiece") if isinstance(data, dict) else None
        if not isinstance(model, str) or model not in OPTIONS:
            return data
        options = OPTIONS[model]
        for key in cls.model_fields:
            if key in _OF_EVERY_MODEL or key in options or data.get(key) is None:
                continue
            owners = ", ".join(name for name in OPTIONS if key in OPTIONS[name])
            raise mistake(key, data[key], f"is an option of {owners}, but model is {model!r}")
        return {**options, **data}

    def _broken(self) -> Broken:
        tokens, symbols = self.tokens, self.user_defined_symbols or []
        if twice := sorted({token for token in tokens if tokens.count(token) > 1}):
            yield "special_tokens", tokens, f"must name each token once; {', '.join(twice)} occurs again"
        if self.unk_token is not None and self.unk_token not in tokens:
            yield "special_tokens", tokens, f"must contain {self.unk_token!r}, the unknown token"
        yield from self._broken_words()
        first = {
            f"the {len(tokens)} special tokens": len(tokens),
            f"the {len(symbols)} user-defined symbols": len(symbols),
            "256 bytes": 256 * (self.byte_fallback or self.model == "byte_level_bpe"),
        }
        if min(self.sizes) < sum(first.values()):
            named = [name for name, n in first.items() if n or "special" in name]
            at_least = f"must be at least {sum(first.values())}, to leave room for {' and '.join(named)}"
            yield "vocab_size", self.vocab_size, at_least
        if len(set(self.sizes)) < len(self.sizes):
            yield "vocab_size", self.vocab_size, "must name each size once"

    def _broken_words(self) -> Broken:
        """Yields a normalizer or pre-tokenizer whose words the model cannot use."""
        if self.normalizer == "sentencepiece":
            if self.pre_tokenizer != "none":
                yield "pre_tokenizer", self.pre_tokenizer, "must be none: normalizer sentencepiece cuts words itself"
            if self.model not in _OF_SENTENCEPIECE:
                of = ", ".join(_OF_SENTENCEPIECE)
                yield "normalizer", self.normalizer, f"is for {of}, but model is {self.model!r}"
        elif self.model == "unigram" and self.pre_tokenizer not in _WITHOUT_SPACES:
            allowed = f"must be one of {', '.join(_WITHOUT_SPACES)} for unigram, whose words have no spaces; or none "
            yield "pre_tokenizer", self.pre_tokenizer, f"{allowed}with normalizer sentencepiece"

    @property
    def sizes(self) -> list[int]:
        """The sizes asked for, in the order of the config."""
        return self.vocab_size if isinstance(self.vocab_size, list) else [self.vocab_size]

    @property
    def tokens(self) -> list[str]:
        """The special tokens."""
        return list(self.special_tokens or ())

    @property
    def has_padding(self) -> bool:
        """Whether one of the special tokens is for padding by its name."""
        from tokenmill.tokenizer import PAD_NAMES

        return not set(PAD_NAMES).isdisjoint(self.tokens)

    @property
    def trainer_options(self) -> dict[str, Any]:
        """The options of the model's trainer, except the vocabulary size."""
        return {key: getattr(self, key) for key in OPTIONS[self.model] if key not in ("normalizer", "pre_tokenizer")}


_OF_SENTENCEPIECE = ("bpe", "unigram", "char")
"""Models that can train on the output of normalizer sentencepiece, where a whole text is one word."""
_WITHOUT_SPACES = ("whitespace_metaspace", "metaspace", "whitespace", "whitespace_split", "bert")
"""Pre-tokenizers that leave no space in a word."""
_OF_EVERY_MODEL = {"model", "vocab_size", "counts", "normalizer", "pre_tokenizer", "special_tokens"}
assert set(get_args(Model)) == set(OPTIONS)

BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The vocabulary entries that the OOV policy `byte` emits."""


class TruncationConfig(Section):
    """Rows have at most `max_length` tokens; what becomes of longer documents, `overflow` says."""

    max_length: Positive
    """At most this many tokens per row, special tokens included."""
    side: Literal["right", "left"] = "right"
    """The end that is cut off."""
    overflow: Literal["cut", "rows", "leave_out"] = "cut"
    """`cut` drops the rest of a longer document. `rows` makes several rows of it, windows of at most `max_length`
    tokens. `leave_out`, for conversations, leaves the longer ones out, whole; they are counted under `too_long`."""
    stride: Natural = 0
    """For `rows`: how many tokens neighbouring windows have in common."""
    warn_above: Annotated[float, Field(ge=0, le=1)] = 0.01
    """The job warns if more than this share of the tokens was cut off; 1: never."""

    def _broken(self) -> Broken:
        if self.overflow != "rows" and self.stride:
            yield "stride", self.stride, "applies to overflow: rows; what is cut off is in no row"
        if self.overflow != "cut" and self.side == "left":
            why = "windows hold all of a document, from its beginning" if self.overflow == "rows" else "nothing is cut"
            yield "side", self.side, f"{why}; remove it"
        if self.stride >= self.max_length:
            yield "stride", self.stride, f"must be less than max_length, which is {self.max_length}"


class PaddingConfig(Section):
    """Rows shorter than `length` tokens are filled up with the padding token."""

    length: Annotated[int, Field(ge=1, le=1 << 24)]
    """Rows shorter than this are padded up to it; longer rows are an error unless truncation is on."""
    side: Literal["right", "left"] = "right"
    """The end that is filled."""
    pad_token: NonEmpty | None = None
    """The token that fills rows up; null: the tokenizer's padding token."""


class TokenizerConfig(Section):
    """Either `file`, an existing tokenizer, or `train`, one trained on the input."""

    file: PathText | None = None
    """A tokenizer file of any supported format, such as `tokenizer.json` or `vocab.txt`, or a folder with one."""
    pattern: str | None = None
    """For rank files of tiktoken, which do not contain it: the pattern that splits text, or its name."""
    as_class: str | None = None
    """For files of `transformers` without a `tokenizer.json`: the class that reads them, if they do not name it."""
    unicode: Literal["8", "17"] | None = None
    """The version of Unicode that says what BERT's punctuation and accents, and the letters of patterns are. `"8"`: the
    ids of HF tokenizers 0.23, for any tokenizer; `"17"`: those of 1.0. null: what the file says, else `"8"`."""
    train: TrainConfig | None = None
    lowercase: bool | None = None
    """null: what the file says; for `vocab.txt`, true unless its entries have capitals; for `train` with normalizer
    bert, true; for others false."""
    strip_accents: bool | None = None
    """null: what the file says, else as `lowercase`."""
    oov: Literal["word", "contain", "char", "byte"] | None = None
    """WordPiece only: how a word with unknown characters is encoded. `word`: as one unknown token; `contain`: with one
    unknown token for each run of them, keeping the rest; `char`: character by character; `byte`: as `contain`, but with
    byte tokens for unknown characters. null: as the file says; for `train`, `word`."""
    add_special_tokens: bool = False
    """Add the special tokens of the tokenizer's template to every row, for BERT `[CLS] ... [SEP]`."""
    max_unknown_fraction: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The job fails at its end if more than this share of its tokens is unknown; 1: never. You can raise it and resume
    the job. From 1 % on, it warns."""
    truncation: TruncationConfig | None = None
    padding: PaddingConfig | None = None

    @property
    def has_windows(self) -> bool:
        """Whether rows are windows of documents."""
        return self.truncation is not None and self.truncation.overflow == "rows"

    def _broken(self) -> Broken:
        if self.padding and self.truncation and self.padding.length < (least := self.truncation.max_length):
            yield "padding.length", self.padding.length, f"must be at least truncation.max_length, which is {least}"
        if self.train is None:
            return
        tokens, model = self.train.tokens, self.train.model
        for name in ("lowercase", "strip_accents") if self.train.normalizer == "sentencepiece" else ():
            if getattr(self, name):
                allowed = (
                    f"must be false for train.normalizer sentencepiece, which changes no letters; put {name} into "
                )
                allowed += "normalize, or choose normalizer nmt_nfkc with pre_tokenizer whitespace_metaspace"
                yield name, True, allowed
        for name in ("oov", "add_special_tokens"):
            if getattr(self, name) and model != "wordpiece":
                yield name, getattr(self, name), f"is for wordpiece, but train.model is {model!r}; remove it"
        token = self.padding and (self.padding.pad_token or (None if self.train.has_padding else "[PAD]"))
        needed = {"padding": [token] if token else []}
        needed["add_special_tokens"] = ["[CLS]", "[SEP]"] if self.add_special_tokens else []
        needed["oov: byte"] = list(BYTE_TOKENS) if self.oov == "byte" else []
        for why, names in needed.items():
            if missing := [name for name in names if name not in tokens]:
                more = f" and {len(missing) - 2} more" if len(missing) > 2 else ""
                listed = ", ".join(missing[:2]) + more
                yield "train.special_tokens", tokens, f"must contain {listed} because `{why}` needs them"
