# SPDX-License-Identifier: Apache-2.0
"""sentencepiece's normalizer and its models: from raw bytes to ids in one pass, or from whole normalized rows."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.models import ModelRunner
from tokenmill.tokenizer.engines.sentencepiece_tables import RawTables
from tokenmill.tokenizer.engines.staged import StagedEngine, begin_with_space, with_rows
from tokenmill.tokenizer.engines.tables import TablePool
from tokenmill.tokenizer.kernels import sentencepiece_bpe, sentencepiece_spans, sentencepiece_unigram
from tokenmill.tokenizer.kernels.encode_loop import AT_ID, NEEDED
from tokenmill.tokenizer.kernels.sentencepiece_spans import MOST_PART_BYTES, N_NOTED, PartsState
from tokenmill.tokenizer.kernels.word_table import COUNTER_TOTAL
from tokenmill.tokenizer.models import Unigram
from tokenmill.tokenizer.models.unigram import SPACE, new_unigram_scratch
from tokenmill.tokenizer.normalizers import SentencePieceNormalizer
from tokenmill.tokenizer.pre_tokenizers import Metaspace
from tokenmill.tokenizer.ragged import Ragged

_PADDING = 64
"""Bytes beyond the longest text: words are read 16 bytes at a time, and a piece may begin at the very end."""
_SPARE_IDS, _SPARE_WORDS = 4096, 4096
"""Room at the beginning: for ids, besides one per byte, and for noted words."""


class SentencePieceEngine:
    """Normalizes and encodes rows like sentencepiece. A tally counts the stretches between white space as words."""

    few: Any = None

    def __init__(
        self, parts: tuple[Any, Any], normalizer: SentencePieceNormalizer, model: Any, tables: RawTables,
        runner: ModelRunner, pool: TablePool,
    ) -> None:  # fmt: skip
        """Prepares an engine.

        parts: the normalizer and the pre-tokenizer of the tokenizer: `normalizer` and None, or HF's that give the same
        ids. The normalizer is None if there is none or a stage before runs it; the pre-tokenizer is then a Metaspace.
        """
        self._parts, self._normalizer, self._model, self._tables = parts, normalizer, model, tables
        self._runner = runner
        self.stages: Any = parts[1], runner
        self._scheme = parts[1].prepend_scheme if isinstance(parts[1], Metaspace) else "never"
        self._pool = pool
        # Another pool: whole rows are looked up normalized, words raw.
        self._whole = StagedEngine(None, runner, pool.another())
        is_unigram = isinstance(model, Unigram)
        self._encode = (sentencepiece_unigram if is_unigram else sentencepiece_bpe).encode.bound(tables, runner.tables)
        self._new_scratch = new_unigram_scratch if is_unigram else runner.new_scratch

    def new_tally(self) -> Tally:
        """Returns an empty tally that can tell what this model's unknown token swallows."""
        return self._runner.new_tally()

    def _normalized_bytes(self, n_bytes: int) -> int:
        """Returns the room that the normalized text of `n_bytes` raw bytes needs."""
        return self._normalizer.normalized_bytes(n_bytes) + _PADDING

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows; see `tables.Engine`."""
        if self._scheme != "never":
            rows = begin_with_space(rows, b" ", SPACE.encode(), where=is_first if self._scheme == "first" else None)
        n_bytes = self._normalized_bytes(min(rows.max_row, MOST_PART_BYTES))
        state = PartsState(
            cells=np.zeros(5, np.int64),
            sums=np.zeros(1, np.float32),
            irregular=np.zeros(rows.n_rows, np.bool_),
            noting=tally is not None,
            noted=np.empty(0 if tally is None else 3 * _SPARE_WORDS, np.int64),
        )
        with self._pool.borrow(None) as lent:
            lent.make_room(n_bytes, 1, self._new_scratch)
            met = lent.uncounted.state[COUNTER_TOTAL]
            # Enough for most text, which has fewer ids than bytes; the kernel may ask for more.
            n_ids = rows.n_values + 4 * rows.n_rows + _SPARE_IDS
            work = lent.work(None, first=int(rows.offsets[0]), n_rows=rows.n_rows, n_ids=n_ids)
            # The loop must see unknown tokens, tally or not, because several in a row become one.
            work = work._replace(tallying=True)
            while not self._encode(rows, added, *lent.model_scratch, state, work):
                needed = int(work.position[NEEDED])
                if needed:
                    longer = recycled.empty(2 * needed, np.int32)
                    longer[: work.position[AT_ID]] = work.out[: work.position[AT_ID]]
                    work = work._replace(out=longer)
                else:
                    state = state._replace(noted=np.append(state.noted, np.empty_like(state.noted)))
            met = lent.uncounted.state[COUNTER_TOTAL] - met
        ids = Ragged(work.out[: work.position[AT_ID]], work.out_offsets)
        if tally is not None:
            tally.counter.state[COUNTER_TOTAL] += met
            self._count_noted(rows, state, tally)
        return self._with_irregular(ids, rows, np.flatnonzero(state.irregular), tally)

    def _count_noted(self, rows: Ragged, state: PartsState, tally: Tally) -> None:
        """Counts the words with an unknown token."""
        n = int(state.cells[N_NOTED])
        longest = int((state.noted[1 : 3 * n : 3] - state.noted[: 3 * n : 3]).max(initial=0))
        text = recycled.empty(self._normalized_bytes(longest), np.uint8)
        k = 0
        while True:
            k = sentencepiece_spans.count_noted(rows.values, self._tables, tally.counter, state.noted, k, n, text)
            if k == n:
                return
            tally.make_room(text.size)

    def _with_irregular(self, ids: Ragged, rows: Ragged, numbers: npt.NDArray[np.int64], tally: Tally | None) -> Ragged:
        """Adds the ids of the rows `numbers`, which must be encoded whole; if unknown, each counts as one word."""
        if not numbers.size:
            return ids
        normalized = self._normalizer.normalize_rows(rows.take(numbers))
        counted = None if tally is None else self.new_tally()
        whole = self._whole.encode(normalized, np.empty(0, np.int32), np.ones(numbers.size, np.bool_), counted)
        if tally is not None and counted is not None:
            # The kernel has counted the words of these rows already.
            counted.counter.state[COUNTER_TOTAL] = 0
            tally.add(counted)
        return with_rows(ids, numbers, whole)

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the kernel, the components fused into it, and the stages before it."""
        fused = [type(part).__name__ for part in (*self._parts, self._model) if part is not None]
        return f"sentencepiece_{self._runner.model_name}", fused, []
