# SPDX-License-Identifier: Apache-2.0
"""From components to the engine that runs them."""

from typing import Any

from tokenizer.engines.base import Engine, WordCachePool
from tokenizer.engines.bert import BertEngine
from tokenizer.engines.models import model_runner
from tokenizer.engines.scanned import ScannedEngine
from tokenizer.engines.sentencepiece import SentencePieceEngine
from tokenizer.engines.staged import StagedEngine
from tokenizer.models import BPE, Unigram, WordPiece
from tokenizer.normalizers import BertNormalizer
from tokenizer.pre_tokenizers import BertPreTokenizer
from tokenizer.pre_tokenizers.sequence import scanner_of

NO_NORMALIZER = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
"""A BertNormalizer that changes nothing."""


def choose(normalizer: Any, pre_tokenizer: Any, model: Any, pool: WordCachePool) -> tuple[Engine, bool]:
    """Returns the engine for a composition, and whether it normalizes; if not, the normalizer is a stage before it."""
    if (
        isinstance(model, WordPiece)
        and isinstance(pre_tokenizer, BertPreTokenizer)
        and (normalizer is None or isinstance(normalizer, BertNormalizer))
    ):
        return BertEngine(normalizer or NO_NORMALIZER, model, pool), True
    if isinstance(model, Unigram) and model.piece_types is not None:
        return SentencePieceEngine(model, pool), False
    runner = model_runner(model)
    scanner = scanner_of(pre_tokenizer) if pre_tokenizer is not None else None
    if isinstance(model, BPE) and scanner is not None and ScannedEngine.has_kernel(scanner):
        return ScannedEngine(scanner, pre_tokenizer, runner, pool), False
    return StagedEngine(pre_tokenizer, runner, pool), False
