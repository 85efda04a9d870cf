# SPDX-License-Identifier: Apache-2.0
"""From components to the engine that runs them."""

from typing import Any

from tokenizer.engines.base import Engine, WordCachePool
from tokenizer.engines.bert import BertEngine
from tokenizer.engines.models import model_runner
from tokenizer.engines.scanned import ScannedEngine
from tokenizer.engines.sentencepiece import RawSentencePieceEngine, WholeRowEngine
from tokenizer.engines.sentencepiece_tables import raw_tables
from tokenizer.engines.staged import StagedEngine
from tokenizer.models import BPE, Unigram, WordPiece
from tokenizer.normalizers import BertNormalizer, SentencePieceNormalizer
from tokenizer.pre_tokenizers import BertPreTokenizer
from tokenizer.pre_tokenizers.sequence import scanner_of

NO_NORMALIZER = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
"""A BertNormalizer that changes nothing."""


def choose(
    normalizer: Any, pre_tokenizer: Any, model: Any, pool: WordCachePool, *, raw: bool = True
) -> tuple[Engine, bool]:
    """Returns the engine for a composition, and whether it normalizes; if not, the normalizer is a stage before it.

    raw: whether the engine gets raw text if it wants it. Not so where added tokens are looked for in normalized text.
    """
    if (
        isinstance(model, WordPiece)
        and isinstance(pre_tokenizer, BertPreTokenizer)
        and (normalizer is None or isinstance(normalizer, BertNormalizer))
    ):
        return BertEngine(normalizer or NO_NORMALIZER, model, pool), True
    runner = model_runner(model)
    if raw and isinstance(normalizer, SentencePieceNormalizer) and pre_tokenizer is None and _is_sentencepiece(model):
        tables = raw_tables(normalizer, model)
        if tables is not None:
            return RawSentencePieceEngine(normalizer, model, tables, runner, pool), True
    if isinstance(model, Unigram) and model.piece_types is not None:
        return WholeRowEngine(model, runner, pool), False
    scanner = scanner_of(pre_tokenizer) if pre_tokenizer is not None else None
    if isinstance(model, BPE) and scanner is not None and ScannedEngine.has_kernel(scanner):
        return ScannedEngine(scanner, pre_tokenizer, runner, pool), False
    return StagedEngine(pre_tokenizer, runner, pool), False


def _is_sentencepiece(model: Any) -> bool:
    """Whether a model works by sentencepiece's rules, and these are in the kernels for raw text."""
    if isinstance(model, BPE):
        return model.merge_ranks is not None and model.tied_tables is None
    return isinstance(model, Unigram) and model.piece_types is not None
