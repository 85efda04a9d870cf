# SPDX-License-Identifier: Apache-2.0
"""A tokenizer of every family, built with HF's own trainers on a small multilingual text."""

import functools
import json
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import tokenizers as hf
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests import charsmaps

_SAMPLE = Path(__file__).parents[2] / "configs" / "data" / "multilingual.jsonl"
_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
)
_CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def sample() -> list[str]:
    """The texts that the models are trained on."""
    lines = _SAMPLE.read_text(encoding="utf-8").splitlines()
    english = "The mill grinds text into tokens; it's what the miller's wheels do, don't they? 1234 and 5,678.\n\n" * 4
    return [json.loads(line)["text"] for line in lines] + [english, "def f(x):\n    return x ** 2  # squared\n" * 6]


def ids_of(tokenizer: hf.Tokenizer, texts: list[str], add_special_tokens: bool = True) -> Iterator[list[int]]:
    """Yields the ids of each text, a few texts at a time.

    HF's encodings take some hundred bytes for a token, and the allocator keeps for each of its threads what it had:
    for all of Unicode in one batch that was more than a gigabyte for every tokenizer.
    """
    for start in range(0, len(texts), 200):
        for encoding in tokenizer.encode_batch_fast(texts[start : start + 200], add_special_tokens=add_special_tokens):
            yield encoding.ids


def _train(tokenizer: hf.Tokenizer, trainer: trainers.Trainer) -> hf.Tokenizer:
    tokenizer.train_from_iterator(sample(), trainer)
    return tokenizer


def _byte_level(*splits: str, normalizer: object = None, **options: object) -> hf.Tokenizer:
    tokenizer = hf.Tokenizer(models.BPE(**options))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not splits)
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence([*(pre_tokenizers.Split(Regex(p), "isolated") for p in splits), byte_level])
        if splits
        else byte_level
    )
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"],
        show_progress=False,
    )  # fmt: skip
    return _train(tokenizer, trainer)


def _roberta() -> hf.Tokenizer:
    tokenizer = _byte_level()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    ids = {t: tokenizer.token_to_id(t) for t in ("<s>", "</s>")}
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]))
    return tokenizer


def _llama3() -> hf.Tokenizer:
    tokenizer = _byte_level(_CL100K, ignore_merges=True)
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(
                single="<|endoftext|> $A",
                pair="<|endoftext|> $A <|endoftext|>:1 $B:1",
                special_tokens=[("<|endoftext|>", 0)],
            ),
        ]
    )
    return tokenizer


def _clip(pattern: str = _CLIP, *, cuts_again: bool = False) -> hf.Tokenizer:
    tokenizer = hf.Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "removed", invert=True),
            pre_tokenizers.ByteLevel(False, use_regex=cuts_again),
        ]
    )
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return _train(
        tokenizer,
        trainers.BpeTrainer(
            vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), end_of_word_suffix="</w>",
            special_tokens=["<|endoftext|>"], show_progress=False,
        ),
    )  # fmt: skip


def _llama2() -> hf.Tokenizer:
    """SentencePiece BPE as Llama 2 has it in HF: no pre-tokenizer, byte fallback."""
    seed = hf.Tokenizer(models.BPE())
    seed.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False, limit_alphabet=120)
    seed.train_from_iterator(sample(), trainer)
    trained = json.loads(seed.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    tokens += [t for t, _ in sorted(trained["vocab"].items(), key=lambda item: item[1])]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in trained["merges"]]
    model = models.BPE(
        {t: i for i, t in enumerate(tokens)}, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tokenizer = hf.Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def _gemma() -> hf.Tokenizer:
    """As Gemma: only spaces are replaced, before a Split that merges with what is before."""
    tokenizer = _llama2()
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return tokenizer


def _metaspace_first() -> hf.Tokenizer:
    """As newer files of Llama 2 and its like: only the start of a text gets a space in front."""
    tokenizer = _llama2()
    tokenizer.normalizer = normalizers.StripAccents()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.add_tokens([hf.AddedToken("ab", normalized=False)])
    return tokenizer


def _unigram(*, byte_fallback: bool = False) -> hf.Tokenizer:
    tokenizer = hf.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>", *(f"<0x{b:02X}>" for b in range(256) if byte_fallback)]
    trainer = trainers.UnigramTrainer(vocab_size=1400, special_tokens=special, unk_token="<unk>", show_progress=False)
    _train(tokenizer, trainer)
    if byte_fallback:
        fields = json.loads(tokenizer.to_str())
        fields["model"]["byte_fallback"] = True
        fields["added_tokens"] = fields["added_tokens"][:3]
        tokenizer = hf.Tokenizer.from_str(json.dumps(fields))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return tokenizer


def _nllb() -> hf.Tokenizer:
    """NLLB, Seamless: BPE of characters behind a character map, of full-width and other characters here."""
    fields = json.loads(_llama2().to_str())
    fields["model"]["byte_fallback"] = False
    tokenizer = hf.Tokenizer.from_str(json.dumps(fields))
    points = [*range(0xA0, 0x180), *range(0x1E00, 0x1E40), *range(0x2150, 0x2170), *range(0xFF01, 0xFF5F)]
    texts = {chr(point).encode(): unicodedata.normalize("NFKC", chr(point)) for point in points}
    spaces = dict.fromkeys([b"\t", b"\n", b"\r", "\u3000".encode()], " ")
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(charsmaps.build(texts | spaces)),
            normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁"),
        ]
    )  # fmt: skip
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


def _every_space() -> hf.Tokenizer:
    """Unigram behind a normal form that leaves several spaces as they are."""
    tokenizer = _unigram()
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


def _wordlevel() -> hf.Tokenizer:
    tokenizer = hf.Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return _train(tokenizer, trainers.WordLevelTrainer(vocab_size=500, special_tokens=["[UNK]"], show_progress=False))


def _char_bpe() -> hf.Tokenizer:
    """GPT-1: characters, the last one of a word marked."""
    tokenizer = hf.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder()
    trainer = trainers.BpeTrainer(
        vocab_size=800, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    return _train(tokenizer, trainer)


def _wordpiece_with_other_parts() -> hf.Tokenizer:
    tokenizer = hf.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Punctuation("merged_with_previous"),
            pre_tokenizers.Digits(True),
        ]
    )
    tokenizer.decoder = decoders.WordPiece()
    return _train(tokenizer, trainers.WordPieceTrainer(vocab_size=700, special_tokens=["[UNK]"], show_progress=False))


def _bert_digits() -> hf.Tokenizer:
    """BERT's parts, and every digit a word of its own."""
    tokenizer = hf.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    steps = [pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Digits(individual_digits=True)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.WordPiece()
    return _train(tokenizer, trainers.WordPieceTrainer(vocab_size=900, special_tokens=["[UNK]"], show_progress=False))


def _added() -> hf.Tokenizer:
    """Qwen: NFC, and tokens that are added but not special."""
    tokenizer = _byte_level(_QWEN2, normalizer=normalizers.NFC())
    tokenizer.add_tokens([hf.AddedToken("<tool_call>", normalized=False), hf.AddedToken("  ", normalized=True)])
    return tokenizer


def _pre_tokenized(*steps: pre_tokenizers.PreTokenizer, **options: object) -> hf.Tokenizer:
    """Byte-level BPE behind the steps of a model whose pre-tokenizer is no single pattern."""
    tokenizer = hf.Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"],
        show_progress=False,
    )  # fmt: skip
    return _train(tokenizer, trainer)


def _splits(*patterns: str) -> list[pre_tokenizers.PreTokenizer]:
    return [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]


_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
_GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
_BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
_DEEPSEEK_LLM = (
    r"[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽ]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", r"[一-龥ࠀ-一가-퟿]+",
)  # fmt: skip
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+")
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SEED = _QWEN2.replace(r"\p{N}|", r"\p{N}{1}|").replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+")
_NOT_HAN = _UPPER[:-1] + r"&&[^\p{Han}]]", _LOWER[:-1] + r"&&[^\p{Han}]]"
_KIMI = (
    r"[\p{Han}]+|" + "|".join(
        rf"[^\r\n\p{{L}}\p{{N}}]?{_NOT_HAN[0]}{a}{_NOT_HAN[1]}{b}(?i:'s|'t|'re|'ve|'m|'ll|'d)?" for a, b in ("*+", "+*")
    )
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)  # fmt: skip
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"


def _falcon() -> hf.Tokenizer:
    return _pre_tokenized(
        pre_tokenizers.Punctuation("contiguous"), _GPT2, pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
    )  # fmt: skip


def _modernbert() -> hf.Tokenizer:
    tokenizer = _byte_level(normalizer=normalizers.NFC())
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", hf.AddedToken("[MASK]", lstrip=True)])
    tokenizer.add_tokens([hf.AddedToken(" " * n, normalized=False) for n in (2, 4, 8)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def _framed(tokenizer: hf.Tokenizer, start: str, *special: str, added: tuple[str, ...] = ()) -> hf.Tokenizer:
    """Adds special tokens, of which `start` are in front of every text, and others that are found in text."""
    tokenizer.add_special_tokens([*start.split(), *special])
    tokenizer.add_tokens([hf.AddedToken(token, normalized=False) for token in added])
    template = processors.TemplateProcessing(
        single=f"{start} $A", pair=f"{start} $A {start}:1 $B:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in start.split()],
    )  # fmt: skip
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def _glm() -> hf.Tokenizer:
    """GLM-4: two tokens in front, and added tokens that are not special."""
    return _framed(_byte_level(_CL100K), "[gMASK] <sop>", "<|user|>", added=("<tool_call>", "<think>", "/nothink"))


def _mistral() -> hf.Tokenizer:
    """Mistral's Tekken as a `tokenizer.json`: tokens in brackets."""
    return _framed(_byte_level(_TEKKEN, ignore_merges=True), "<s>", "</s>", "[INST]", "[/INST]")


def _kimi() -> hf.Tokenizer:
    return _framed(
        _byte_level(_KIMI, ignore_merges=True), "[BOS]", "[EOS]", "<|im_user|>", added=("<|tool_call_begin|>",)
    )


def _gemma3() -> hf.Tokenizer:
    """Gemma 3: as Gemma, with tokens of several line ends, tabs and "▁", and unused ones."""
    runs = *("\n" * n for n in (1, 2, 3, 5)), "\t\t", "▁▁", "▁▁▁▁", "<unused0>", "<start_of_turn>"
    return _framed(_gemma(), "<s>", added=runs)


def _whisper() -> hf.Tokenizer:
    tokenizer = _byte_level()
    tokenizer.add_special_tokens(["<|startoftranscript|>", "<|notimestamps|>"])
    tokenizer.add_tokens([hf.AddedToken(f"<|{n}.00|>", normalized=False) for n in range(3)])
    start = "<|startoftranscript|> <|notimestamps|>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A <|endoftext|>",
        pair=f"{start} $A $B <|endoftext|>",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in (*start.split(), "<|endoftext|>")],
    )
    return tokenizer


def _albert() -> hf.Tokenizer:
    tokenizer = _unigram()
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
            normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )  # fmt: skip
    return tokenizer


def _of_letters(model: models.Model, trainer: trainers.Trainer, *steps: pre_tokenizers.PreTokenizer) -> hf.Tokenizer:
    """A model that is no byte-level BPE behind a ByteLevel, as in HF's guide to training: bytes are letters to it."""
    tokenizer = hf.Tokenizer(model)
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps])
    tokenizer.decoder = decoders.ByteLevel()
    return _train(tokenizer, trainer)


def _unigram_of_letters() -> hf.Tokenizer:
    trainer = trainers.UnigramTrainer(
        vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<unk>", "<pad>"],
        unk_token="<unk>", show_progress=False,
    )  # fmt: skip
    return _of_letters(models.Unigram(), trainer, pre_tokenizers.ByteLevel())


def _wordlevel_of_letters() -> hf.Tokenizer:
    trainer = trainers.WordLevelTrainer(vocab_size=400, special_tokens=["<unk>"], show_progress=False)
    return _of_letters(models.WordLevel(unk_token="<unk>"), trainer, _GPT2)


def _wordpiece_of_letters() -> hf.Tokenizer:
    trainer = trainers.WordPieceTrainer(
        vocab_size=600, limit_alphabet=90, special_tokens=["[UNK]"], show_progress=False
    )
    steps = pre_tokenizers.Punctuation(), _GPT2, pre_tokenizers.Digits(individual_digits=True)
    return _of_letters(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20), trainer, *steps)


FAMILIES: dict[str, Callable[[], hf.Tokenizer]] = {
    "gpt2": _byte_level,
    "roberta": _roberta,
    "cl100k": lambda: _byte_level(_CL100K),
    "llama3": _llama3,
    "qwen2": lambda: _byte_level(_QWEN2, normalizer=normalizers.NFC()),
    "o200k": lambda: _byte_level(_O200K),
    "deepseek": lambda: _byte_level(*_DEEPSEEK),
    "unknown pattern": lambda: _byte_level(r"\p{Lu}\p{Ll}+|\d\d?|\s+|."),
    "added tokens": _added,
    "clip": _clip,
    "clip of transformers 5": lambda: _clip(rf"<\|startoftext\|>|<\|endoftext\|>|{_CLIP}", cuts_again=True),
    "glm": _glm,
    "mistral": _mistral,
    "kimi with a frame": _kimi,
    "gemma 3": _gemma3,
    "char bpe": _char_bpe,
    "llama2": _llama2,
    "gemma": _gemma,
    "t5": _unigram,
    "xlm-r": lambda: _unigram(byte_fallback=True),
    "nllb": _nllb,
    "every space": _every_space,
    "metaspace first": _metaspace_first,
    "word level": _wordlevel,
    "wordpiece": _wordpiece_with_other_parts,
    "bert and digits": _bert_digits,
    "starcoder": lambda: _pre_tokenized(pre_tokenizers.Digits(individual_digits=True), _GPT2),
    "falcon": _falcon,
    "bloom": lambda: _pre_tokenized(*_splits(_BLOOM), _BYTES),
    "viking": lambda: _pre_tokenized(*_splits(_BLOOM, r"\p{N}"), _BYTES),
    "deepseek llm": lambda: _pre_tokenized(*_splits(*_DEEPSEEK_LLM), pre_tokenizers.Digits(True), _BYTES),
    "deepseek coder": lambda: _pre_tokenized(*_splits(*_DEEPSEEK_CODER), pre_tokenizers.Digits(True), _BYTES),
    "tekken": lambda: _byte_level(_TEKKEN, ignore_merges=True),
    "qwen3.5": lambda: _byte_level(_QWEN35, normalizer=normalizers.NFC()),
    "kimi": lambda: _byte_level(_KIMI),
    "seed coder": lambda: _byte_level(_SEED),
    "bailing": lambda: _byte_level(_BAILING),
    "modernbert": _modernbert,
    "whisper": _whisper,
    "albert": _albert,
    "unigram of letters": _unigram_of_letters,
    "word level of letters": _wordlevel_of_letters,
    "wordpiece of letters": _wordpiece_of_letters,
    "letters of letters": lambda: _pre_tokenized(_GPT2, _GPT2),
}
"""How to make a tokenizer of each family."""


@functools.cache
def family(name: str) -> str:
    """Returns the `tokenizer.json` of a family, made once."""
    return FAMILIES[name]().to_str()
