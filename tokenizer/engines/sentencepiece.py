# SPDX-License-Identifier: Apache-2.0
"""sentencepiece's normalizer and its models: from raw bytes to ids in one pass, or whole normalized rows."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenizer import recycled
from tokenizer.aligned import AlignedText
from tokenizer.counting import Tally
from tokenizer.engines.base import AlignedToken, WordCachePool
from tokenizer.engines.models import ModelRunner
from tokenizer.engines.prefixes import begin_with_space
from tokenizer.engines.sentencepiece_tables import (
    RawTables,
    RawWork,
    new_merging_scratch,
    new_scored_scratch,
    scored_unigram,
)
from tokenizer.engines.staged import StagedEngine
from tokenizer.kernels import caches, sentencepiece_bpe, sentencepiece_cache, sentencepiece_rows, sentencepiece_unigram
from tokenizer.kernels.sentencepiece_known import N_NOTES
from tokenizer.kernels.word_cache import IN_ROW
from tokenizer.models import Unigram
from tokenizer.models.unigram import SPACE
from tokenizer.normalizers import SentencePieceNormalizer
from tokenizer.pre_tokenizers import Metaspace
from tokenizer.ragged import Ragged
from tokenizer.words import Words

_PADDING = 64
"""Bytes beyond the longest text: words are read 16 at a time, and a piece may begin at the very end."""
_PART_BYTES = 1 << 14
"""Of parts that there is room for to begin with."""


class RawSentencePieceEngine:
    """Normalizes and encodes raw rows. What no white space interrupts counts as a word in a tally."""

    def __init__(
        self, normalizer: SentencePieceNormalizer, model: Any, tables: RawTables, runner: ModelRunner,
        pool: WordCachePool,
    ) -> None:  # fmt: skip
        self._normalizer = normalizer
        self._model = model
        self._tables = tables
        self._runner = runner
        self._pool = pool
        if isinstance(model, Unigram):
            self._kernel = sentencepiece_unigram.encode_raw_rows
            self._lowered: Any = scored_unigram(model)
        else:
            self._kernel = sentencepiece_bpe.encode_raw_rows
            self._lowered = runner.tables

    @property
    def unk_id(self) -> int:
        """The unknown token, -1 where there is none."""
        return self._runner.unk_id

    def new_tally(self) -> Tally:
        """Returns an empty tally that knows what this model swallows."""
        return self._runner.new_tally()

    def _normalized_bytes(self, n_bytes: int) -> int:
        """Returns room for what so many bytes become."""
        return self._normalizer.normalized_bytes(n_bytes) + _PADDING

    def _scratch(self, n_bytes: int) -> Any:
        if isinstance(self._model, Unigram):
            return new_scored_scratch(n_bytes)
        return new_merging_scratch(n_bytes, self._lowered)

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes raw rows; see `base.Engine`."""
        longest = rows.max_row
        # For text as it mostly is, which has fewer ids than bytes, and parts as they mostly are: the kernel may ask for
        # more. What the longest row could want would be memory that no call before has touched.
        n_ids = rows.n_values + 4 * rows.n_rows + self._tables.known.spare_ids
        most_bytes = min(longest, _PART_BYTES)
        n_bytes = self._normalized_bytes(most_bytes)
        with self._pool.borrow(rows.n_values, tally) as lent:
            work = RawWork(
                cache=lent.cache,
                tally=lent.counter,
                position=np.zeros(6, np.int64),
                most_bytes=most_bytes,
                text=recycled.empty(n_bytes, np.uint8),
                text_offsets=np.empty(2, np.int64),
                noted=recycled.empty(0 if tally is None else 3 * (longest + 1), np.int64),
                notes=np.zeros(N_NOTES, np.int64),
                out=recycled.empty(n_ids, np.int32),
                out_offsets=np.zeros(rows.n_rows + 1, np.int64),
            )
            scratch = self._scratch(n_bytes)
            while not self._kernel(rows, added, self._tables, self._lowered, scratch, work, tally is not None):
                needed, needed_bytes = work.position[sentencepiece_rows.NEEDED :].tolist()
                work.position[sentencepiece_rows.NEEDED :] = 0
                if needed > work.out.size:
                    longer = recycled.empty(2 * needed, np.int32)
                    longer[: work.out.size] = work.out
                    work = work._replace(out=longer)
                if needed_bytes > most_bytes:
                    most_bytes = max(needed_bytes, min(2 * most_bytes, longest))
                    n_bytes = self._normalized_bytes(most_bytes)
                    work = work._replace(most_bytes=most_bytes, text=recycled.empty(n_bytes, np.uint8))
                    scratch = self._scratch(n_bytes)
                if needed or needed_bytes:
                    continue
                if work.position[IN_ROW] == 0:
                    lent.cache = caches.grown(lent.cache, sentencepiece_cache.spread)
                    work = work._replace(cache=lent.cache)
                else:
                    assert tally is not None
                    tally.make_room(self._normalized_bytes(longest))
                    work = work._replace(tally=tally.counter)
        return Ragged(work.out[: work.out_offsets[-1]], work.out_offsets)

    def align(self, text: AlignedText, is_first: bool, first_word: int) -> tuple[list[AlignedToken], int]:
        """Encodes one raw row with where each token came from; see `base.Engine`."""
        normalized = self._normalizer.normalize_aligned(text)
        if isinstance(self._model, Unigram):
            return _align_whole(self._model, normalized, first_word)
        return StagedEngine(None, self._runner, self._pool).align(normalized, is_first, first_word)

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns kernel, fused components, stages beside it."""
        kernel = self._kernel.__name__
        module = self._kernel.__module__.rpartition(".")[2]
        return f"{module}.{kernel}", [type(self._normalizer).__name__, type(self._model).__name__], []


class LikeSentencePieceEngine(RawSentencePieceEngine):
    """Encodes as sentencepiece would, for HF's parts that come to the same; these say where each token came from."""

    def __init__(
        self, parts: tuple[Any, Any], normalizer: SentencePieceNormalizer, model: Any, tables: RawTables,
        runner: ModelRunner, pool: WordCachePool,
    ) -> None:  # fmt: skip
        """Prepares an engine.

        parts: HF's normalizer and pre-tokenizer. Without a normalizer rows are as a stage before has left them, and the
        pre-tokenizer is a Metaspace.
        """
        super().__init__(normalizer, model, tables, runner, pool)
        self._parts = parts
        self._scheme = parts[1].prepend_scheme if isinstance(parts[1], Metaspace) else "never"

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows; see `base.Engine`."""
        if self._scheme != "never":
            rows = begin_with_space(rows, b" ", SPACE.encode(), where=is_first if self._scheme == "first" else None)
        return super().encode(rows, added, is_first, tally)

    def words(self, rows: Ragged, is_first: npt.NDArray[np.bool_]) -> Words:
        """Finds the words of normalized rows."""
        return StagedEngine(self._parts[1], self._runner, self._pool).words(rows, is_first)

    def align(self, text: AlignedText, is_first: bool, first_word: int) -> tuple[list[AlignedToken], int]:
        """Encodes one raw row with where each token came from; see `base.Engine`."""
        normalizer, pre_tokenizer = self._parts
        staged = StagedEngine(pre_tokenizer, self._runner, self._pool)
        if normalizer is not None:
            text = normalizer.normalize_aligned(text)
        return staged.align(text, is_first, first_word)

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns kernel, fused components, stages beside it."""
        kernel, _, stages = super().describe()
        names = [type(part).__name__ for part in (*self._parts, self._model) if part is not None]
        return kernel, names, stages


class WholeRowEngine(StagedEngine):
    """Encodes normalized rows with Unigram under sentencepiece's rules, each as one word."""

    def __init__(self, model: Unigram, runner: ModelRunner, pool: WordCachePool) -> None:
        super().__init__(None, runner, pool)
        self._model = model

    def align(self, text: AlignedText, is_first: bool, first_word: int) -> tuple[list[AlignedToken], int]:
        """Encodes one normalized row with where each token came from; see `base.Engine`."""
        return _align_whole(self._model, text, first_word)


def _align_whole(model: Unigram, text: AlignedText, word: int) -> tuple[list[AlignedToken], int]:
    tokens: list[AlignedToken] = []
    begin = 0
    for token_id, end in model.tokenize(text.text):
        part = text[begin:end]
        # Of the bytes of a character the first one has it; as everywhere, the others come from the same place.
        tokens.append(AlignedToken(token_id, part.span() if part.text or not tokens else tokens[-1].span, word))
        begin = max(begin, end)
    return tokens, word + 1
