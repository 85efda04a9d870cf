# SPDX-License-Identifier: Apache-2.0
"""Normalizers and pre-tokenizers by name, and the parts that go with a trained model: before and after training."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenmill.tokenizer import decoders
from tokenmill.tokenizer import normalizers as nm
from tokenmill.tokenizer import pre_tokenizers as pt
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.models import BPE, Unigram, WordPiece
from tokenmill.tokenizer.models.unigram import PieceType
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.post_processors import BertProcessing, PostProcessor
from tokenmill.tokenizer.pre_tokenizers.known_patterns import CODE_PATTERN, TIKTOKEN_PATTERNS

BERT_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SPECIAL_TYPES = (PieceType.UNKNOWN, PieceType.CONTROL)
_BYTE_LEVEL = pt.ByteLevel(add_prefix_space=False, use_regex=False)


def _nmt_nfkc() -> nm.Normalizer:
    """Builds sentencepiece's `nmt_nfkc` from HF's parts: white space and controls, then NFKC."""
    return nm.Sequence((nm.Nmt(), nm.NFKC()))


_NORMALIZERS: Mapping[str, Callable[[], nm.Normalizer | None]] = {
    "bert": nm.BertNormalizer,
    "sentencepiece": nm.SentencePieceNormalizer,
    "nfc": nm.NFC,
    "nfkc": nm.NFKC,
    "nmt_nfkc": _nmt_nfkc,
    "none": lambda: None,
}
_PRE_TOKENIZERS: Mapping[str, Callable[[], pt.PreTokenizer | None]] = {
    "bert": pt.BertPreTokenizer,
    "whitespace": pt.Whitespace,
    "whitespace_split": pt.WhitespaceSplit,
    "metaspace": pt.Metaspace,
    "whitespace_metaspace": lambda: pt.Sequence((pt.WhitespaceSplit(), pt.Metaspace())),
    "code": lambda: pt.Split(CODE_PATTERN, "isolated", is_regex=True),
    "none": lambda: None,
}


def named_normalizer(
    name: str, lowercase: bool = False, strip_accents: bool | None = None, user_defined_symbols: Sequence[str] = ()
) -> nm.Normalizer | None:
    """Returns a normalizer by name.

    Args:
      name: "bert", "nfc", "nfkc", "nmt_nfkc" (sentencepiece's default, from HF's parts), "sentencepiece" (what
        sentencepiece does with white space, and nothing else), "none".
      lowercase: whether letters become lower-case.
      strip_accents: whether accents are removed; None means the value of `lowercase` for "bert", else no.
      user_defined_symbols: texts that "sentencepiece" leaves as they are.

    Raises:
      ValueError: if the name is unknown, or "sentencepiece" is to change case or accents, which takes a character map.
    """
    if name == "bert":
        return nm.BertNormalizer(strip_accents=strip_accents, lowercase=lowercase)
    if name == "sentencepiece":
        if lowercase or strip_accents:
            raise ValueError(
                "behind normalizer sentencepiece, lowercase and strip_accents need a character map, which is not "
                "written; change the texts by the text steps lowercase and strip_accents, or choose normalizer "
                "nmt_nfkc with pre-tokenizer whitespace_metaspace"
            )
        return nm.SentencePieceNormalizer(user_defined_symbols=tuple(user_defined_symbols))
    steps = [_named("normalizer", name, _NORMALIZERS)]
    if strip_accents:
        steps += [nm.NFD(), nm.StripAccents()]
    if lowercase:
        steps.append(nm.Lowercase())
    steps = [step for step in steps if step is not None]
    return nm.Sequence(tuple(steps)) if len(steps) > 1 else next(iter(steps), None)


def named_pre_tokenizer(name: str, byte_level: bool = False) -> pt.PreTokenizer | None:
    """Returns a pre-tokenizer by name.

    Args:
      name: "bert", "whitespace", "whitespace_split", "metaspace", "whitespace_metaspace" (one "▁" for white
        space of any length, as sentencepiece has it), "none", or a pattern of byte-level models: with numbers whole
        "gpt2", in threes "cl100k_base", "o200k_base", "llama3", by digits "qwen", "tekken" and "code", where the
        indentation of a line is one word, ...
      byte_level: whether a byte-level model follows, which HF marks by a `ByteLevel` pre-tokenizer. Without it, the
        words are the same, but the model reads their characters instead of their bytes.

    Raises:
      ValueError: if the name is unknown.
    """
    patterns = {
        key: (lambda key=key: pt.Split(TIKTOKEN_PATTERNS[key], "isolated", is_regex=True)) for key in TIKTOKEN_PATTERNS
    }
    found = _named("pre-tokenizer", name, {**patterns, **_PRE_TOKENIZERS})
    if not byte_level:
        return found
    if name == "gpt2":
        return pt.ByteLevel(add_prefix_space=False)
    return _BYTE_LEVEL if found is None else pt.Sequence((found, _BYTE_LEVEL))


def _named(kind: str, name: str, known: Mapping[str, Callable[[], Any]]) -> Any:
    if name not in known:
        raise ValueError(f"there is no {kind} {name!r}; choose one of {', '.join(sorted(known))}")
    return known[name]()


def bert_parts(
    vocab: Sequence[str] | Mapping[str, int], normalizer: nm.BertNormalizer | None = None, oov: str = "word"
) -> Parts:
    """Returns the parts of BERT's tokenizer for a vocabulary.

    Args:
      vocab: tokens in the order of their ids, or token -> id. `[CLS]` and `[SEP]` are put around texts if it has both.
      normalizer: None for one that lower-cases.
      oov: what happens to words that the vocabulary cannot spell, see `WordPiece`.

    Raises:
      ValueError: if a token occurs twice, or as `WordPiece`.
    """
    ids = dict(vocab) if isinstance(vocab, Mapping) else {token: i for i, token in enumerate(vocab)}
    if len(ids) != len(vocab):
        twice = next(token for i, token in enumerate(vocab) if ids[token] != i)
        raise ValueError(f"vocab holds token {twice!r} more than once")
    special = sorted((ids[t], t) for t in BERT_SPECIAL_TOKENS if t in ids)
    return Parts(
        model=WordPiece(ids, oov_policy=oov),
        normalizer=normalizer or nm.BertNormalizer(),
        pre_tokenizer=pt.BertPreTokenizer(),
        post_processor=_bert_layout(ids),
        decoder=decoders.WordPiece(),
        added_tokens=[AddedToken(i, t) for i, t in special],
    )


def _bert_layout(ids: Mapping[str, int]) -> BertProcessing | None:
    if "[CLS]" not in ids or "[SEP]" not in ids:
        return None
    return BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))


def parts_for(
    model: Any,
    normalizer: nm.Normalizer | None,
    pre_tokenizer: pt.PreTokenizer | None,
    special_tokens: Sequence[str],
    user_defined_symbols: Sequence[str] = (),
) -> Parts:
    """Returns the parts of a tokenizer around a model: these, and the decoder, layout and added tokens that fit them.

    After a `SentencePieceNormalizer`, Unigram and BPE keep sentencepiece's rules and get its decoder; after any other
    normalizer they follow HF's. The special and user-defined pieces of Unigram are those that training made.
    `[CLS]` and `[SEP]` are put around texts if a WordPiece vocabulary has both.
    """
    sentencepiece = _find(normalizer, nm.SentencePieceNormalizer)
    has_metaspace = _find(pre_tokenizer, pt.Metaspace) is not None
    if isinstance(model, Unigram):
        special_tokens = special_tokens or model.pieces_of_type(*_SPECIAL_TYPES)
        user_defined_symbols = model.pieces_of_type(PieceType.USER_DEFINED)
        if sentencepiece is None:
            model = dataclasses.replace(model, piece_types=None)
        ids = dict(model.piece_ids.items())
    else:
        ids = dict(model.vocab.items())
        if isinstance(model, BPE) and sentencepiece is not None:
            model = dataclasses.replace(model, fuse_unk=True)
    decoder: Any = None
    post_processor: PostProcessor | None = None
    if isinstance(model, WordPiece):
        decoder = _wordpiece_decoder(model, pre_tokenizer)
        post_processor = _bert_layout(ids)
    elif pt.is_byte_level(pre_tokenizer):
        decoder = decoders.ByteLevel()
    elif sentencepiece is not None:
        decoder = sentencepiece_decoder(
            has_bytes=getattr(model, "byte_fallback", False),
            adds_prefix=sentencepiece.add_dummy_prefix,
            removes_spaces=sentencepiece.remove_extra_whitespaces,
        )
    elif has_metaspace and getattr(model, "byte_fallback", False):
        decoder = sentencepiece_decoder(has_bytes=True, adds_prefix=True, removes_spaces=False)
    elif has_metaspace:
        decoder = decoders.Metaspace()
    elif isinstance(model, BPE) and model.end_of_word_suffix:
        decoder = decoders.BPEDecoder(model.end_of_word_suffix)
    elif pre_tokenizer is None or isinstance(pre_tokenizer, pt.Split):
        decoder = decoders.Fuse()  # words include their spaces
    added = [AddedToken(ids[token], token) for token in special_tokens if token in ids]
    if sentencepiece is None or not isinstance(model, Unigram):  # else the model keeps them whole itself
        added += [
            AddedToken(ids[token], token, normalized=sentencepiece is not None, special=False)
            for token in user_defined_symbols
            if token in ids
        ]
    return Parts(
        model=model,
        normalizer=normalizer,
        pre_tokenizer=pre_tokenizer,
        post_processor=post_processor,
        decoder=decoder,
        added_tokens=sorted(added, key=lambda token: token.id),
    )


_ALL_SPACES = (1 << 31) - 1


def sentencepiece_decoder(
    *, has_bytes: bool, adds_prefix: bool, removes_spaces: bool, denormalizer: nm.SentencePieceNormalizer | None = None
) -> decoders.Sequence:
    """Returns the decoder of sentencepiece's models; has_bytes: whether byte tokens become bytes.

    adds_prefix: whether normalization puts a "▁" in front, which is then removed; removes_spaces: whether it removes
    extra spaces; then all spaces in front of the text are removed. denormalizer: what the text goes through at last.
    """
    steps: list[decoders.Decoder] = [decoders.Replace("▁", " ")]
    steps += [decoders.ByteFallback(), decoders.Fuse()] if has_bytes else [decoders.Fuse()]
    if adds_prefix or removes_spaces:
        steps.append(decoders.Strip(" ", _ALL_SPACES if removes_spaces else 1, 0))
    if denormalizer is not None:
        steps.append(decoders.Denormalizer(denormalizer))
    return decoders.Sequence(tuple(steps))


def _wordpiece_decoder(model: WordPiece, pre_tokenizer: pt.PreTokenizer | None) -> decoders.Decoder:
    prefix = model.continuing_subword_prefix
    if not pt.is_byte_level(pre_tokenizer):
        return decoders.WordPiece(prefix)
    without = (decoders.Replace("^" + re.escape(prefix), "", is_regex=True),) if prefix else ()
    return decoders.Sequence((*without, decoders.ByteLevel()))


def _find(component: Any, kind: type) -> Any:
    """Returns the first component of a kind, itself or in a sequence, None if there is none."""
    if isinstance(component, kind):
        return component
    parts = getattr(component, "normalizers", None) or getattr(component, "pretokenizers", None) or ()
    return next((found for part in parts if (found := _find(part, kind)) is not None), None)
