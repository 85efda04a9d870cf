# SPDX-License-Identifier: Apache-2.0
"""Chooses the engine that runs a composition of components."""

import dataclasses
from typing import Any

from tokenmill.tokenizer.engines.bert import BertEngine
from tokenmill.tokenizer.engines.models import model_runner
from tokenmill.tokenizer.engines.normalized_words import NormalizedWordsEngine, merges_like_sentencepiece
from tokenmill.tokenizer.engines.sentencepiece import SentencePieceEngine
from tokenmill.tokenizer.engines.sentencepiece_tables import raw_tables
from tokenmill.tokenizer.engines.staged import ScannedEngine, StagedEngine
from tokenmill.tokenizer.engines.tables import Engine, TablePool
from tokenmill.tokenizer.models import BPE, Unigram, WordPiece
from tokenmill.tokenizer.models.unigram import SPACE
from tokenmill.tokenizer.normalizers import BertNormalizer, Prepend, Replace, SentencePieceNormalizer, Sequence
from tokenmill.tokenizer.pre_tokenizers import BertPreTokenizer, ByteLevel, Digits, Metaspace, Split
from tokenmill.tokenizer.pre_tokenizers import Sequence as PreTokenizers
from tokenmill.tokenizer.pre_tokenizers.sequence import is_byte_level, one_step, scanner_of

_SPACES = SentencePieceNormalizer(b"", add_dummy_prefix=False, remove_extra_whitespaces=False)
"""A normalizer of sentencepiece that only replaces spaces by "▁"."""

_BERT_AND_DIGITS = (
    PreTokenizers((BertPreTokenizer(), Digits(individual_digits=True))),
    PreTokenizers((Digits(individual_digits=True), BertPreTokenizer())),
)

NO_NORMALIZER = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
"""A BertNormalizer that changes nothing."""


def fused_with_bert(normalizer: Any, pre_tokenizer: Any) -> BertNormalizer | None:
    """Returns the normalizer that one kernel does with BERT's pre-tokenizer, as `one_step` has it; None if none."""
    if not isinstance(pre_tokenizer, BertPreTokenizer):
        if pre_tokenizer not in _BERT_AND_DIGITS:
            return None
        pre_tokenizer = BertPreTokenizer()
    if normalizer is None:
        return dataclasses.replace(NO_NORMALIZER, unicode=pre_tokenizer.unicode)
    is_one = isinstance(normalizer, BertNormalizer) and normalizer.unicode == pre_tokenizer.unicode
    return normalizer if is_one else None


def choose(
    normalizer: Any, pre_tokenizer: Any, model: Any, pool: TablePool, *, raw: bool = True
) -> tuple[Engine, bool]:
    """Returns the engine for a composition, and whether it normalizes; if not, the normalizer is a stage before it.

    raw: whether the engine may get raw text. It may not if added tokens are looked for in normalized text.
    """
    pre_tokenizer = one_step(pre_tokenizer)
    # Normalized text stays as it is: BERT's normalizer would reorder marks anew where it removed what was between them.
    is_bert = isinstance(model, WordPiece) and model.unk_token in model.vocab  # its loop cannot refuse a text
    bert = fused_with_bert(normalizer if raw else None, pre_tokenizer) if is_bert else None
    if bert is not None:
        return BertEngine(bert, pre_tokenizer, model, pool), raw
    runner = model_runner(model, reads_bytes=is_byte_level(pre_tokenizer))
    like = _like_sentencepiece(normalizer, pre_tokenizer, model) if raw else None
    if like is not None and (tables := raw_tables(like, model)) is not None:
        return SentencePieceEngine((normalizer, pre_tokenizer), like, model, tables, runner, pool), True
    only_spaces = _is_only_spaces(pre_tokenizer, model)
    if raw and not (only_spaces and normalizer is None):
        fused = NormalizedWordsEngine.of(normalizer, pre_tokenizer, model, runner, pool)
        if fused is not None:
            return fused, True
    if only_spaces and (tables := raw_tables(_SPACES, model)) is not None:
        return SentencePieceEngine((None, pre_tokenizer), _SPACES, model, tables, runner, pool), False
    prefix_space = isinstance(pre_tokenizer, ByteLevel) and pre_tokenizer.add_prefix_space
    scans = dataclasses.replace(pre_tokenizer, add_prefix_space=False) if prefix_space else pre_tokenizer
    scanner = scanner_of(scans) if scans is not None else None
    if scanner is not None:
        return ScannedEngine(scanner, pre_tokenizer, runner, pool, prefix_space=prefix_space), False
    return StagedEngine(pre_tokenizer, runner, pool), False


def _like_sentencepiece(normalizer: Any, pre_tokenizer: Any, model: Any) -> SentencePieceNormalizer | None:
    """Returns a sentencepiece normalizer that does what all parts before the model do; None if there is none.

    HF's parts do so in Llama 2's and Gemma's files: they replace spaces by "▁", and may put one in front; then nothing
    is left for the pre-tokenizer to cut at.
    """
    if isinstance(normalizer, SentencePieceNormalizer):
        return normalizer if pre_tokenizer is None and _is_sentencepiece(model) else None
    if not merges_like_sentencepiece(model):
        return None
    steps = list(normalizer.normalizers) if isinstance(normalizer, Sequence) else [normalizer]
    has_prefix = steps[:1] == [Prepend(SPACE)]
    if steps[has_prefix:] != [Replace(" ", SPACE)]:
        return None
    cuts_nothing = (
        pre_tokenizer is None
        or pre_tokenizer == Metaspace(SPACE, prepend_scheme="never", split=False)
        or (isinstance(pre_tokenizer, Split) and pre_tokenizer == Split(" ", pre_tokenizer.behavior))
    )
    if not cuts_nothing:
        return None
    return SentencePieceNormalizer(b"", add_dummy_prefix=has_prefix, remove_extra_whitespaces=False)


def _is_only_spaces(pre_tokenizer: Any, model: Any) -> bool:
    """Whether a pre-tokenizer only replaces spaces by "▁", and cuts at most where no token of BPE reaches across."""
    if not isinstance(pre_tokenizer, Metaspace) or pre_tokenizer.replacement != SPACE:
        return False
    if not merges_like_sentencepiece(model):
        return False
    return not (pre_tokenizer.split and model.columns.tokens.characters.has_inside(SPACE))


def _is_sentencepiece(model: Any) -> bool:
    """Whether a model follows sentencepiece's rules, which the kernels for raw text implement."""
    if isinstance(model, BPE):
        return model.merge_ranks is not None
    return isinstance(model, Unigram) and model.piece_types is not None
