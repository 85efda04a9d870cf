# SPDX-License-Identifier: Apache-2.0
"""A folder as `transformers` saves it: `tokenizer.json`, or a slow tokenizer's files and what its class makes of them.

Source: transformers 4 and 5, `tokenization_*.py` of each model and `convert_slow_tokenizer.py`.
"""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tokenizer import decoders, normalizers, pre_tokenizers
from tokenizer.added_tokens import AddedToken
from tokenizer.core import Tokenizer
from tokenizer.errors import TokenizerFileError
from tokenizer.formats import bpe_files, files, sentencepiece, tokenizer_json, vocab_txt
from tokenizer.formats.sentencepiece import SentencePieceFile
from tokenizer.formats.transformers_settings import Settings, read_settings
from tokenizer.models import BPE
from tokenizer.models.unigram import PieceType
from tokenizer.models.vocabulary import Tokens
from tokenizer.post_processors import RobertaProcessing, SpecialToken, TemplatePiece, TemplateProcessing
from tokenizer.pre_tokenizers.scanner_patterns import TIKTOKEN_PATTERNS

MODEL_NAMES = ("tokenizer.model", "spiece.model", "spm.model", "sentencepiece.bpe.model", "sentencepiece.model")
_MAX_EXTRA_IDS = 1 << 16
"""T5 has a hundred; a file shall not decide how many tokens are made up."""
_BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_ANGLES = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
_ROBERTA = _ANGLES | {"sep": "</s>", "cls": "<s>", "mask": "<mask>"}
_MBART_LANGUAGES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
).split()


@dataclasses.dataclass(frozen=True)
class _Family:
    """What a class adds to a SentencePiece model or a `vocab.txt`."""

    roles: dict[str, str]
    """Default special tokens by role."""
    layout: tuple[str, str] = ("A", "A B:1")
    """Templates: roles, A and B in order, `:1` for type 1."""
    first: tuple[str, ...] = ()
    """fairseq: pieces that come before those of the model, and how many of the model they stand for."""
    n_replaced: int = 0
    last: tuple[str, ...] = ()
    """Pieces after those of the model."""
    cleans: bool = False
    """Quotes and accents are taken out as ALBERT and XLNet do."""


_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
_BERT_LAYOUT = ("cls A sep", "cls A sep B:1 sep:1")
_ROBERTA_LAYOUT = ("cls A sep", "cls A sep sep B sep")
_ALBERT = _BERT | {"unk": "<unk>", "pad": "<pad>", "bos": "[CLS]", "eos": "[SEP]"}
_T5 = _Family(_ANGLES, ("A eos", "A eos B eos"), last=tuple(f"<extra_id_{i}>" for i in reversed(range(100))))
_LLAMA = _Family({"bos": "<s>", "eos": "</s>", "unk": "<unk>"})
_XLM_R = _Family(_ROBERTA, _ROBERTA_LAYOUT, _FAIRSEQ, 3, ("<mask>",))
_SENTENCEPIECE = {
    "albert": _Family(_ALBERT, _BERT_LAYOUT, cleans=True),
    "bigbird": _Family(_ALBERT | {"bos": "<s>", "eos": "</s>"}, _BERT_LAYOUT),
    "camembert": _Family(
        _ROBERTA, _ROBERTA_LAYOUT, ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), 1, ("<mask>",)
    ),
    "debertav2": _Family(_BERT, _BERT_LAYOUT, last=("[MASK]",)),
    "gemma": _Family({"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"}),
    "llama": _LLAMA,
    "codellama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "mbart": _Family(_ROBERTA, ("A eos lang", "A B eos lang"), _FAIRSEQ, 3, (*_MBART_LANGUAGES, "<mask>")),
    "nllb": _Family(_ROBERTA, ("lang A eos", "lang A B eos"), _FAIRSEQ, 3),
    "mt5": _T5,
    "t5": _T5,
    "xlmroberta": _XLM_R,
    "xlnet": _Family(
        _ANGLES | {"sep": "<sep>", "cls": "<cls>", "mask": "<mask>"},
        ("A sep cls:2", "A sep B:1 sep:1 cls:2"),
        cleans=True,
    ),
}
_WORDPIECE = dict.fromkeys(
    "bert distilbert electra mobilebert squeezebert convbert layoutlm lxmert funnel splinter".split(),
    _Family(_BERT, _BERT_LAYOUT),
) | {"mpnet": _Family(_ROBERTA | {"unk": "[UNK]"}, _ROBERTA_LAYOUT)}


def load_folder(folder: Path, cache_bytes: int, read_model: Callable[[SentencePieceFile, Path, int], Tokenizer]) -> Any:
    """Loads the first of `tokenizer.json`, `vocab.txt`, `vocab.json` with `merges.txt`, a SentencePiece model.

    Args:
      folder: where they are.
      cache_bytes: memory of one word cache.
      read_model: makes a tokenizer of a SentencePiece model.

    Returns:
      The tokenizer, None where there is none of them.
    """
    try:
        settings = read_settings(folder)
        if (path := folder / "tokenizer.json").is_file():
            tokenizer = tokenizer_json.read(files.read_bytes(path), str(path), cache_bytes)
            return _with_added(tokenizer, settings, settings.roles)
        if (path := folder / "vocab.txt").is_file():
            return _wordpiece(path, settings, cache_bytes)
        if (path := folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
            return _merges(path, settings, cache_bytes)
        for name in MODEL_NAMES:
            if (path := folder / name).is_file():
                return _sentencepiece(path, settings, cache_bytes, read_model)
    except TokenizerFileError:
        raise
    except ValueError as error:
        raise TokenizerFileError(f"{folder}: {error}") from error
    return None


def _with_added(tokenizer: Tokenizer, settings: Settings, roles: dict[str, AddedToken]) -> Tokenizer:
    """Adds the tokens of the folder's JSON files that the tokenizer lacks, and says of special ones that they are."""
    found = {token.content: token for token in tokenizer.added_tokens}
    for token in settings.added:
        found.setdefault(token.content, token)
    for token in roles.values():
        known = tokenizer.token_to_id(token.content)
        if known is not None and token.content not in found:
            found[token.content] = dataclasses.replace(token, id=known, normalized=False)
    names = settings.special | {token.content for token in roles.values()}
    for content in names & found.keys():
        found[content] = dataclasses.replace(found[content], special=True)
    tokens = sorted(found.values(), key=lambda token: token.id)
    return (
        tokenizer
        if tokens == sorted(tokenizer.added_tokens, key=lambda t: t.id)
        else tokenizer.replace(added_tokens=tokens)
    )


def _roles(settings: Settings, defaults: dict[str, str]) -> dict[str, AddedToken]:
    return {role: AddedToken(0, content) for role, content in defaults.items()} | settings.roles


def _template(layout: Iterable[str], roles: dict[str, str], tokenizer: Tokenizer, source: str) -> TemplateProcessing:
    """Makes a template of two strings such as "cls A sep" and "cls A sep B:1 sep:1".

    Raises:
      TokenizerFileError: if a token is not in the vocabulary.
    """
    special: dict[str, SpecialToken] = {}
    sides = []
    for text in layout:
        pieces = []
        for word in text.split():
            role, _, type_id = word.partition(":")
            name = role if role in "AB" else roles.get(role, role)
            if role not in "AB":
                known = tokenizer.token_to_id(name)
                if known is None:
                    raise TokenizerFileError(f"{source}: the vocabulary has no {role} token {name!r}")
                special[name] = SpecialToken((known,), (name,))
            pieces.append(TemplatePiece(name, int(type_id or 0), role in "AB"))
        sides.append(tuple(pieces))
    return TemplateProcessing(single=sides[0], pair=sides[1], special_tokens=special)


def _laid_out(tokenizer: Tokenizer, layout: Iterable[str], roles: dict[str, AddedToken], source: str) -> Tokenizer:
    if list(layout) == ["A", "A B:1"]:
        return tokenizer
    contents = {role: token.content for role, token in roles.items()}
    return tokenizer.replace(post_processor=_template(layout, contents, tokenizer, source))


def _wordpiece(path: Path, settings: Settings, cache_bytes: int) -> Tokenizer:
    vocab = vocab_txt.read(files.read_text(path), str(path))
    strip = settings.config.child("strip_accents", None)
    tokenizer = Tokenizer.for_bert(
        vocab,
        lowercase=settings.flag("do_lower_case", True),
        strip_accents=None if strip.value is None else strip.flag(),
        handle_chinese_chars=settings.flag("tokenize_chinese_chars", True),
        cache_bytes=cache_bytes,
    )
    family = _WORDPIECE.get(settings.family)
    if family is None:
        return _with_added(tokenizer, settings, settings.roles)
    roles = _roles(settings, family.roles)
    tokenizer = _with_added(tokenizer, settings, roles)
    if roles["cls"].content in vocab and roles["sep"].content in vocab and settings.family == "mpnet":
        return _laid_out(tokenizer, family.layout, roles, str(path))
    return tokenizer


def _merges(path: Path, settings: Settings, cache_bytes: int) -> Tokenizer:
    """GPT-2's files; the class says what is around them."""
    merges = path.with_name("merges.txt")
    parts = bpe_files.load_vocab_and_merges(path, merges)
    family = settings.family
    model: BPE = parts["model"]
    if family == "openaigpt":
        parts = _openai_gpt(model)
    elif model.suffix:
        roles = _roles(settings, {"bos": "<|startoftext|>", "eos": "<|endoftext|>"})
    elif family == "qwen2":
        split = pre_tokenizers.Split(TIKTOKEN_PATTERNS["qwen"], "isolated", is_regex=True)
        parts["normalizer"] = normalizers.NFC()
        parts["pre_tokenizer"] = pre_tokenizers.Sequence((split, pre_tokenizers.ByteLevel(False, use_regex=False)))
    else:
        parts["pre_tokenizer"] = pre_tokenizers.ByteLevel(settings.flag("add_prefix_space", False))
    roberta = family in ("roberta", "bart", "led", "longformer", "blenderbot", "mvp")
    if roberta:
        roles = _roles(settings, _ROBERTA)
        roles.setdefault("mask", AddedToken(0, "<mask>"))
        if "mask" not in settings.roles:
            roles["mask"] = dataclasses.replace(roles["mask"], lstrip=True)
    elif not model.suffix or family == "openaigpt":
        roles = _roles(settings, dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>"))
    tokenizer = _with_added(Tokenizer(**parts, cache_bytes=cache_bytes), settings, roles)
    if roberta or (model.suffix and family == "clip"):
        ends = []
        for role in _ENDS if roberta else _CLIP_ENDS:
            name = roles[role].content
            known = tokenizer.token_to_id(name)
            if known is None:
                raise TokenizerFileError(f"{path}: the vocabulary has no {name!r}")
            ends.append((name, known))
        prefix = settings.flag("add_prefix_space", False) if roberta else False
        return tokenizer.replace(post_processor=RobertaProcessing(ends[0], ends[1], roberta, prefix))
    if family == "whisper":
        return _laid_out(tokenizer, [_WHISPER, _WHISPER.replace("A", "A B")], roles, str(path))
    return _with_ends(tokenizer, settings, roles, False, str(path))


_ENDS, _CLIP_ENDS = ("sep", "cls"), ("eos", "bos")
_WHISPER = "<|startoftranscript|> <|notimestamps|> A <|endoftext|>"


def _openai_gpt(model: BPE) -> dict[str, Any]:
    """GPT-1: BERT's clean-up, characters, the last one of a word marked."""
    model = dataclasses.replace(model, unk_token="<unk>" if "<unk>" in model.vocab else None, byte_level=False)
    return {
        "model": model,
        "normalizer": normalizers.BertNormalizer(lowercase=True),
        "pre_tokenizer": pre_tokenizers.BertPreTokenizer(),
        "decoder": decoders.BPEDecoder("</w>"),
    }


def _with_ends(
    tokenizer: Tokenizer, settings: Settings, roles: dict[str, AddedToken], begins: bool, source: str
) -> Tokenizer:
    """Puts the first and the last token around texts that `add_bos_token` and `add_eos_token` ask for."""
    begins, ends = settings.flag("add_bos_token", begins), settings.flag("add_eos_token", False)
    first, last = "bos " if begins else "", " eos" if ends else ""
    pair = f"{first}A{last} {first.replace(' ', ':1 ')}B:1{last and ' eos:1'}"
    return _laid_out(tokenizer, [f"{first}A{last}", pair], roles, source)


def _sentencepiece(
    path: Path, settings: Settings, cache_bytes: int, read_model: Callable[[SentencePieceFile, Path, int], Tokenizer]
) -> Tokenizer:
    model = sentencepiece.read(files.read_bytes(path), str(path))
    family = _SENTENCEPIECE.get(settings.family)
    if family is None:
        return _with_added(read_model(model, path, cache_bytes), settings, settings.roles)
    roles = _roles(settings, family.roles)
    pieces = model.pieces.numbered or set(model.pieces)
    last = [t for t in family.last if t not in pieces]
    if settings.family in ("t5", "mt5"):
        n_extra = (node := settings.config.child("extra_ids", 100)).integer()
        if not 0 <= n_extra <= _MAX_EXTRA_IDS:
            raise node.fail(f"must be in 0..{_MAX_EXTRA_IDS}, got {n_extra!r}")
        last = [t for t in (f"<extra_id_{i}>" for i in reversed(range(n_extra))) if t not in pieces]
    if family.first or last:
        model = _rearranged(model, family, last)
    tokenizer = read_model(model, path, cache_bytes)
    if family.cleans:
        tokenizer = tokenizer.replace(normalizer=_cleaning(settings, tokenizer.normalizer))
    tokenizer = _with_added(tokenizer, settings, roles)
    if "lang" in family.layout[0]:
        language = settings.config.child("src_lang", None)
        default = "en_XX" if settings.family == "mbart" else "eng_Latn"
        name = default if language.value is None else language.text()
        roles = roles | {"lang": AddedToken(0, name)}
    if settings.family in ("llama", "codellama", "mistral", "mixtral", "gemma"):
        return _with_ends(tokenizer, settings, roles, True, str(path))
    return _laid_out(tokenizer, family.layout, roles, str(path))


def _rearranged(model: SentencePieceFile, family: _Family, last: list[str]) -> SentencePieceFile:
    """Returns a model with pieces before and after, as fairseq's vocabularies have them."""
    rest = slice(family.n_replaced, None)
    n, m = len(family.first), len(last)
    control = int(PieceType.CONTROL)
    first_types = [int(PieceType.UNKNOWN) if piece == "<unk>" else control for piece in family.first]
    kept = model.pieces.take(np.arange(len(model.pieces))[rest])
    return dataclasses.replace(
        model,
        pieces=Tokens.joined([Tokens.of(family.first), kept, Tokens.of(last)]),
        scores=np.concatenate([np.zeros(n), model.scores[rest], np.zeros(m)]),
        types=np.concatenate([np.array(first_types, np.int64), model.types[rest], np.full(m, control)]),
    )


def _cleaning(settings: Settings, normalizer: Any) -> Any:
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings.flag("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.flag("do_lower_case", settings.family == "albert"):
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence((*steps, normalizer))
