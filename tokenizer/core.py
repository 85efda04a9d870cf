# SPDX-License-Identifier: Apache-2.0
"""`Tokenizer`: composes normalizer, pre-tokenizer, model, post-processor and decoder, under HF's method names."""

import codecs
import dataclasses
import functools
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.tokenizer.added_tokens import SpecialPolicy
from tokenmill.tokenizer.composition import DEFAULT_CACHE_BYTES
from tokenmill.tokenizer.compositions import bert_parts
from tokenmill.tokenizer.decoding import Decoder
from tokenmill.tokenizer.encoder import Encoder
from tokenmill.tokenizer.engines.choice import NO_NORMALIZER
from tokenmill.tokenizer.engines.tables import CacheInfo
from tokenmill.tokenizer.errors import check_list, check_strings
from tokenmill.tokenizer.models import WordPiece
from tokenmill.tokenizer.normalizers import BertNormalizer
from tokenmill.tokenizer.parts import OF_FILE, Parts
from tokenmill.tokenizer.pre_tokenizers import (
    BertPreTokenizer,
    ByteLevel,
    Digits,
    Metaspace,
    Split,
    WhitespaceSplit,
)
from tokenmill.tokenizer.pre_tokenizers.sequence import flat
from tokenmill.tokenizer.training import Trainable
from tokenmill.tokenizer.unicode import data as unicode_data
from tokenmill.tokenizer.unicode.tables import HF_1, check_bert_unicode

if TYPE_CHECKING:
    from tokenmill.tokenizer.adapters.sentencepiece import SentencePieceProcessor
    from tokenmill.tokenizer.adapters.tiktoken import TiktokenEncoding
    from tokenmill.tokenizer.adapters.tokenizers import HFTokenizer


class Tokenizer(Encoder, Decoder, Trainable):
    """Turns text into token ids and back.

    Load one with `from_file` or `from_str`, or make one with `for_bert`. Its parts are attributes and may be replaced.
    Several threads may call its methods at once, but not while it is changed: by setting a part, `add_tokens`,
    `add_special_tokens`, `enable_truncation`, `no_truncation`, `enable_padding`, `no_padding`, `train` or
    `train_from_iterator`.

    The text of a special token in a document is text like any other, unless `special` says otherwise.
    """

    ignored_fields: tuple[str, ...] = ()
    """Fields of the `tokenizer.json` it was loaded from that have no meaning, in HF either; `explain` names them."""

    assumptions: tuple[str, ...] = ()
    """What its file does not say, and what was concluded from the vocabulary instead; `explain` and jobs show it."""

    # Making one.

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        lowercase: bool | None = None,
        strip_accents: bool | None = None,
        oov: str | None = None,
        special: SpecialPolicy = "plain",
        pattern: str | None = None,
        as_class: str | None = None,
        unicode: str | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> "Tokenizer":
        """Loads a tokenizer file of any kind, or a directory as `transformers` saves it.

        `tokenizer.json`, `vocab.txt`, `vocab.json` or `merges.txt` with the other beside it, a SentencePiece model,
        CLIP's gzip of merges, tiktoken's ranks, Mistral's `tekken.json`. The kind is recognized by the content, not by
        the name.

        Args:
          path: the file or directory.
          lowercase, strip_accents, oov: override what the file says; None keeps it. A `vocab.txt` says nothing of
            these; None then means BERT: text is lower-cased unless entries have capitals, its accents are stripped if
            it is, and oov is "word".
          special: as for the constructor.
          pattern: for tiktoken's ranks, the pattern that splits text: "r50k_base", "cl100k_base", "o200k_base", ..., or
            any regular expression as tiktoken takes it.
          as_class: for files of `transformers` without a `tokenizer.json`, the class that reads them, for example
            "T5Tokenizer"; needed if they name no class, or one that TokenMill does not know.
          unicode: the version of Unicode: "8" for the ids of HF tokenizers 0.23, which every tokenizer has; "17" for
            those of 1.0, for BERT's, which takes 141 characters more for punctuation and two no longer, and for
            patterns, to which 6,852 characters are new or of another category. None keeps what the file says, else "8".

        Raises:
          OSError: if it cannot be read; TokenizerFileError (a ValueError): if it is broken or not supported, or if
            `pattern` or `as_class` is given and does not apply to it.
        """
        from tokenmill.tokenizer.formats import loading

        if not os.path.lexists(path):
            raise FileNotFoundError(_missing(os.fspath(path)))
        tokenizer = cls.from_parts(loading.load(Path(path), pattern, as_class), cache_bytes=cache_bytes)
        return tokenizer._with_overrides(lowercase, strip_accents, oov, special, unicode)

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike[str], **options: Any) -> "Tokenizer":
        """Loads a folder that `save_pretrained` of `transformers` has written, or a file; otherwise as `from_file`.

        Raises:
          OSError: if nothing is there. A name on a hub is no path, and nothing here uses the network.
        """
        return cls.from_file(path, **options)

    @classmethod
    def from_str(cls, json: str) -> "Tokenizer":
        """Loads the text of a `tokenizer.json`.

        Raises:
          TokenizerFileError (a ValueError): if it is broken or not supported.
        """
        if not isinstance(json, str):
            raise TypeError(
                f"json must be the text of a tokenizer.json, got {type(json).__name__}; from_buffer takes bytes"
            )
        from tokenmill.tokenizer.formats import tokenizer_json

        data = json.encode("utf-8", "surrogatepass").removeprefix(codecs.BOM_UTF8)
        return cls.from_parts(tokenizer_json.read(data, "tokenizer.json"))

    @classmethod
    def from_buffer(cls, buffer: bytes, *, pattern: str | None = None) -> "Tokenizer":
        """Loads the bytes of one file of any kind, a `tokenizer.json` or a `.model` for example; as `from_file`."""
        from tokenmill.tokenizer.formats import loading

        return cls.from_parts(loading.load_buffer(bytes(buffer), pattern))

    @classmethod
    def from_parts(
        cls, parts: Parts, *, special: SpecialPolicy = "plain", cache_bytes: int = DEFAULT_CACHE_BYTES
    ) -> "Tokenizer":
        """Makes a tokenizer of parts as file readers return them; `special` and `cache_bytes` as in the constructor."""
        fields = {field.name: getattr(parts, field.name) for field in dataclasses.fields(parts)}
        of_file = {name: fields.pop(name) for name in OF_FILE}
        tokenizer = cls(**fields, special=special, cache_bytes=cache_bytes)
        tokenizer.__dict__.update(of_file)
        return tokenizer

    @property
    def parts(self) -> Parts:
        """The parts that go into a `tokenizer.json`; `from_parts` takes them back."""
        return Parts(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Parts)})

    @classmethod
    def for_bert(
        cls,
        vocab: Sequence[str] | Mapping[str, int],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        clean_text: bool = True,
        handle_chinese_chars: bool = True,
        oov: str = "word",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> "Tokenizer":
        """Makes BERT's tokenizer for a vocabulary, given as tokens in the order of their ids, or as token -> id.

        `[CLS]` and `[SEP]` are put around texts if the vocabulary has both.

        Source: HF tokenizers `BertWordPieceTokenizer`.
        """
        if not isinstance(vocab, Mapping):
            check_strings("vocab", vocab)
        normalizer = BertNormalizer(clean_text, handle_chinese_chars, strip_accents, lowercase)
        return cls.from_parts(bert_parts(vocab, normalizer, oov), cache_bytes=cache_bytes)

    @classmethod
    def untrained_bert(cls, *, lowercase: bool = True, strip_accents: bool | None = None) -> "Tokenizer":
        """Makes BERT's normalizer and pre-tokenizer without a model, to count words before there is a vocabulary."""
        normalizer = BertNormalizer(strip_accents=strip_accents, lowercase=lowercase)
        return cls(model=None, normalizer=normalizer, pre_tokenizer=BertPreTokenizer())

    def _with_overrides(
        self,
        lowercase: bool | None = None,
        strip_accents: bool | None = None,
        oov: str | None = None,
        special: SpecialPolicy = "plain",
        unicode: str | None = None,
    ) -> "Tokenizer":
        if (lowercase, strip_accents, oov, special, unicode) == (None, None, None, self.special, None):
            return self
        normalizer, pre_tokenizer, model = self.normalizer, self.pre_tokenizer, self.model
        if lowercase is not None or strip_accents is not None:
            given: dict[str, Any] = {"lowercase": lowercase, "strip_accents": strip_accents}
            normalizer = normalizer or NO_NORMALIZER
            if not isinstance(normalizer, BertNormalizer):
                raise ValueError(
                    f"lowercase and strip_accents are choices of BertNormalizer; the normalizer is {normalizer!r}"
                )
            normalizer = dataclasses.replace(normalizer, **{k: v for k, v in given.items() if v is not None})
        if oov is not None and model is not None:
            if not isinstance(model, WordPiece):
                raise ValueError(f"oov is a choice of WordPiece; the model is {model!r}")
            model = dataclasses.replace(model, oov_policy=oov)
        if unicode is not None:
            check_bert_unicode(unicode)
            normalizer, pre_tokenizer = _in_unicode(normalizer, unicode), _in_unicode(pre_tokenizer, unicode)
        tokenizer = self.replace(model=model, normalizer=normalizer, pre_tokenizer=pre_tokenizer, special=special)
        if lowercase is not None:
            tokenizer.assumptions = ()  # nothing is assumed where it was said
        return tokenizer

    def with_special_tokens(self, contents: Sequence[str]) -> "Tokenizer":
        """Returns this tokenizer with special tokens added; new ones get the next free ids, in order."""
        check_list("contents", contents)
        added = {token.content for token in self.added_tokens}
        if added.issuperset(contents):
            return self
        extended = self.replace()
        extended.add_special_tokens(content for content in contents if content not in added)
        return extended

    def replace(self, **parts: Any) -> "Tokenizer":
        """Returns a copy with some arguments of the constructor replaced."""
        kept = {field.name: getattr(self, field.name) for field in dataclasses.fields(Parts)}
        of_file = {name: kept.pop(name) for name in OF_FILE}
        tokenizer = Tokenizer(**(kept | {"special": self.special, "cache_bytes": self._cache_bytes} | parts))
        tokenizer.__dict__.update(of_file)
        return tokenizer

    def __reduce__(self) -> tuple[Callable[..., "Tokenizer"], tuple[str, SpecialPolicy, int]]:
        # Compact: nothing compiled is pickled; the other process compiles or loads its own.
        return _rebuild, (self.to_str(), self.special, self._cache_bytes)

    # Writing it.

    def to_str(self, pretty: bool = False) -> str:
        """Returns the tokenizer as the text of a `tokenizer.json`, which HF tokenizers reads too.

        OOV policies other than `word` are kept in a field of the model that HF ignores.
        """
        return _write(self, pretty=True) if pretty else self._text

    @functools.cached_property
    def _text(self) -> str:
        # Cached: digests and pickles need it too, and writing out half a million merges takes seconds.
        return _write(self, pretty=False)

    def save(self, path: str | os.PathLike[str], pretty: bool = True, *, format: str | None = None) -> None:
        """Writes a `tokenizer.json`, or a file in the format of another library; whole or not at all.

        Args:
          path: the file.
          pretty: whether to put line breaks into a `tokenizer.json`.
          format: "tokenizer.json"; "vocab.txt", which holds only a WordPiece vocabulary; "vocab.json", with
            `merges.txt` beside it; "sentencepiece"; "tiktoken", which holds no special tokens. None goes by the
            name: `vocab.json`, or the endings `.txt`, `.model`, `.tiktoken`, else `tokenizer.json`.

        Raises:
          ValueError: if the format cannot hold this tokenizer; the message says which part of it.
        """
        from tokenmill.tokenizer.formats import saving

        saving.save(self.parts, Path(path), format, pretty)

    def left_out(self, path: str | os.PathLike[str], *, format: str | None = None) -> list[str]:
        """Returns what the file that `save` would write leaves out, a phrase each: the special tokens of ranks, ..."""
        from tokenmill.tokenizer.formats import saving

        return saving.left_out(self.parts, Path(path), format)

    def files(self, name: str) -> dict[str, bytes]:
        """Returns the files that `save` writes to the path `name`, which goes by its end: what is in each, by name.

        Raises:
          ValueError: as of `save`.
        """
        from tokenmill.tokenizer.formats import saving

        return saving.contents(self.parts, Path(name))

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of `to_str()` and the Unicode versions, hexadecimal. Tokenizers with equal digests give equal ids."""
        versions = repr(sorted(unicode_data.UNICODE_VERSIONS.items()))
        return hashlib.sha256(f"{self._text}\n{versions}".encode()).hexdigest()

    # Explaining.

    def explain(self) -> str:
        """Says which stages run fused in a compiled kernel, which run outside it, and how full the word cache is.

        It also names the first eight fields of the `tokenizer.json` that were ignored, and what was assumed of a file.
        """
        plan, cache = self._plan.describe(), self.cache_info()
        return "\n".join(
            [
                f"kernel    {plan['kernel']}: {' + '.join(plan['fused'])}",
                f"stages    {', '.join(plan['stages']) or 'none beside the kernel'}",
                f"model     {self.model!r}",
                f"unicode   {', '.join(f'{k} {v}' for k, v in self.unicode_versions.items())}",
                f"cache     {cache.words} words in {cache.bytes / (1 << 20):.1f} of {cache.bound >> 20} MiB, "
                f"{cache.hits} hits and {cache.misses} misses so far",
                *([f"ignored   {', '.join(self.ignored_fields[:8])}"] if self.ignored_fields else []),
                *(f"assumed   {line}" for line in self.assumptions),
            ]
        )

    @property
    def unicode_versions(self) -> dict[str, str]:
        """The versions of Unicode that ids depend on, as in HF tokenizers 0.23, or 1.0 if `unicode` was said to be."""
        versions = dict(unicode_data.UNICODE_VERSIONS)
        steps = [] if self.pre_tokenizer is None else flat(self.pre_tokenizer)
        if any(getattr(step, "unicode", "8") == HF_1 for step in steps):
            versions |= {"categories": "17.0.0", "decompositions": "17.0.0"}
        return versions

    def as_tiktoken(self, name: str = "tokenmill") -> "TiktokenEncoding":
        """Returns this tokenizer, a byte-level BPE, with the interface of tiktoken's `Encoding`.

        Its added tokens are the special tokens; as in tiktoken, `encode` refuses a text that has one unless it is told
        what to do with it.

        Args:
          name: what the encoding is called.

        Raises:
          ValueError: if it is no byte-level BPE, or has a normalizer.
        """
        from tokenmill.tokenizer.adapters.tiktoken import TiktokenEncoding

        return TiktokenEncoding(self, name)

    def as_tokenizers(self) -> "HFTokenizer":
        """Returns a copy of this tokenizer with the interface of the `Tokenizer` of HF tokenizers.

        As there, special tokens in a text become their ids. Its components are HF's, made when they are asked for.
        """
        from tokenmill.tokenizer.adapters.tokenizers import HFTokenizer

        return HFTokenizer(self)

    def as_hf(self, like: Any = None, **options: Any) -> Any:
        """Returns a tokenizer of transformers that works on a copy of this one; needs transformers 5.

        It is one of transformers' own classes, so calls, padding, tensors, collators, chat templates and
        `save_pretrained` are theirs. As there, special tokens in a text become their ids.

        Args:
          like: a folder as `save_pretrained` writes it, or a fast tokenizer of transformers: its class, special tokens,
            lengths and chat template are taken. A warning says if it gives other ids, as classes that make their steps
            anew do. None makes a `PreTrainedTokenizerFast`, with BERT's names for BERT's special tokens.
          **options: as for transformers: `pad_token`, `model_max_length`, `padding_side`, ...

        Raises:
          ImportError: if transformers is missing. ValueError: if `like` has another vocabulary.
        """
        from tokenmill.tokenizer.adapters.transformers import fast_tokenizer

        return fast_tokenizer(self, like, options)

    def as_sentencepiece(self, *, seed: int = 0, **options: Any) -> "SentencePieceProcessor":
        """Returns this tokenizer, of a sentencepiece model, with the interface of its `SentencePieceProcessor`.

        Args:
          seed: of what is drawn at random.
          **options: what `encode` does unless it is told otherwise: `out_type`, `add_bos`, `add_eos`, `reverse`,
            `emit_unk_piece`, `enable_sampling`, `nbest_size`, `alpha`.

        Raises:
          ValueError: if no sentencepiece model does what it does; as `save` of one. TypeError: for another option.
        """
        from tokenmill.tokenizer.adapters.sentencepiece import SentencePieceProcessor

        return SentencePieceProcessor(self, seed=seed, **options)

    def cache_info(self) -> CacheInfo:
        """Returns the size, hits and misses of the word caches since this tokenizer was made or changed."""
        return self._plan.pool.info()

    def _repr_html_(self) -> str:
        """Shows the parts in a notebook, each cut to a few hundred characters."""
        from html import escape

        parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding")
        added = [f"{token.content!r} {token.id}" for token in self.added_tokens[:50]]
        rows = {
            "model": f"{type(self.model).__name__}, {self.get_vocab_size():,} tokens",
            **{name: repr(getattr(self, name)) for name in parts},
            "added tokens": f"{len(self.added_tokens):,}: {', '.join(added)}",
        }
        cells = (f"<tr><th>{name}</th><td>{escape(f'{text:.500}')}</td></tr>" for name, text in rows.items())
        return f'<table style="text-align:left">{"".join(cells)}</table>'

    def __len__(self) -> int:
        """The number of ids, added tokens included, as `len` of a tokenizer of `transformers`."""
        return self.n_ids

    def __bool__(self) -> bool:
        return True  # even if it has no vocabulary yet

    if not TYPE_CHECKING:  # else any name would be one

        def __getattr__(self, name: str) -> Any:
            """Says what to type instead of a name of another library."""
            from tokenmill.tokenizer.habits import missing

            raise AttributeError(missing(name), name=name, obj=self)

    def __iter__(self) -> Any:
        """Raises a TypeError that says what to go through."""
        raise TypeError("a Tokenizer is not gone through: get_vocab() is a dict of its tokens, token -> id")

    def __call__(self, *texts: Any, **options: Any) -> Any:
        """Raises a TypeError that says what to call."""
        raise TypeError(
            "a Tokenizer is not called: encode(text).ids gives the ids of a text, encode_batch(texts) those of a list, "
            "encode_arrow(column) those of a column; decode(ids) gives the text"
        )

    def __repr__(self) -> str:
        return (
            f"Tokenizer(normalizer={self.normalizer!r}, pre_tokenizer={self.pre_tokenizer!r}, model={self.model!r}, "
            f"post_processor={type(self.post_processor).__name__}, decoder={self.decoder!r})"
        )


def _in_unicode(part: Any, version: str) -> Any:
    """Returns a normalizer or pre-tokenizer with another version of Unicode; only some have data of 1.0's."""
    for steps in ("normalizers", "pretokenizers"):
        if found := getattr(part, steps, ()):
            return dataclasses.replace(part, **{steps: tuple(_in_unicode(step, version) for step in found)})
    if isinstance(part, BertNormalizer | BertPreTokenizer | ByteLevel | Split):
        return dataclasses.replace(part, unicode=version)
    if version == HF_1 and not isinstance(part, None | Digits | Metaspace | WhitespaceSplit):  # which are as in 0.23
        raise ValueError(
            f"unicode={version!r} is served for BertNormalizer, BertPreTokenizer and patterns; there is {part!r:.200}: "
            "leave out unicode, or take '8', the ids of HF tokenizers 0.23"
        )
    return part


def _missing(path: str) -> str:
    """Returns what to do where nothing is at a path: nothing here uses the network."""
    if len(path) > 4096 or "\n" in path or path.lstrip().startswith("{"):
        return (
            f"no such file or folder: {path[:80]!r}..., which has {len(path):,} characters and is no path; "
            "the text of a tokenizer.json is for Tokenizer.from_str, other text for a file"
        )
    said = f"no such file or folder: {path!r}"
    if "://" in path:
        return f"{said}; get what is at this address first, and give the path of the file"
    if not os.path.isabs(path):
        said = f"{said} in {os.getcwd()!r}"
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path):
        return said
    name = f"hf download {path} --include 'token*' 'vocab*' 'merges*' '*.model' --local-dir FOLDER"
    return f"{said}; if it is a name on the Hugging Face hub, get the folder first: {name}"


def _write(tokenizer: Tokenizer, *, pretty: bool) -> str:
    from tokenmill.tokenizer.formats import tokenizer_json

    return tokenizer_json.write(tokenizer.parts, pretty)


def _rebuild(json: str, special: SpecialPolicy, cache_bytes: int) -> Tokenizer:
    from tokenmill.tokenizer.formats import tokenizer_json

    parts = tokenizer_json.read(json.encode(), "pickled tokenizer")
    return Tokenizer.from_parts(parts, special=special, cache_bytes=cache_bytes)
