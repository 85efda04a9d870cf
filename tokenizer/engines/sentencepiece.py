# SPDX-License-Identifier: Apache-2.0
"""sentencepiece's normalizer and its models: from raw bytes to ids in one pass, or from whole normalized rows."""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.models import ModelRunner
from tokenmill.tokenizer.engines.sentencepiece_tables import RawTables
from tokenmill.tokenizer.engines.staged import StagedEngine, begin_with_space, with_rows
from tokenmill.tokenizer.engines.steps import CHECK, MISS, MODEL, SINK, SPANS, BoundSteps, steps_of
from tokenmill.tokenizer.engines.tables import TablePool, call_loop
from tokenmill.tokenizer.kernels import sentencepiece_spans as spans
from tokenmill.tokenizer.kernels import sentencepiece_unigram as kernels
from tokenmill.tokenizer.kernels import word_models
from tokenmill.tokenizer.kernels.by_address import NO_STEP, Bound
from tokenmill.tokenizer.kernels.encode_loop import AT_ID, FLAGGED, NEEDED
from tokenmill.tokenizer.kernels.sentencepiece_spans import IS_NOTING, MOST_PART_BYTES, N_NOTED, PartsState
from tokenmill.tokenizer.kernels.word_table import COUNTER_TOTAL
from tokenmill.tokenizer.models.unigram import SPACE, new_unigram_scratch
from tokenmill.tokenizer.normalizers import SentencePieceNormalizer
from tokenmill.tokenizer.pre_tokenizers import Metaspace
from tokenmill.tokenizer.ragged import Ragged, read_only

_PADDING = 64
"""Bytes beyond the longest text: words are read 16 bytes at a time, and a piece may begin at the very end."""
_SPARE_IDS, _SPARE_WORDS, _SPARE_ROWS = 4096, 4096, 4096
"""Room at the beginning: for ids, besides one per byte, for noted words, and for rows."""
_NO_SCORES = read_only(np.empty(0, np.float32))


class _Parts:
    """The steps of the loop with the state that they share, kept with a table from call to call."""

    def __init__(self, part_spans: Bound, tables: RawTables, runner: ModelRunner, n_bytes: int) -> None:
        """Makes the steps; n_bytes: of the longest normalized part."""
        self._spans, self._tables, self._runner = part_spans, tables, runner
        self._sums = runner.model_name == "unigram"
        self._values = runner.tables, new_unigram_scratch(n_bytes) if self._sums else runner.new_scratch(n_bytes)
        self.state = PartsState(
            cells=np.zeros(7, np.int64),
            sums=np.zeros(1, np.float32),
            irregular=np.zeros(_SPARE_ROWS, np.bool_),
            noted=np.empty(3 * _SPARE_WORDS, np.int64),
        )
        self.bound = self._bind()

    def _bind(self) -> BoundSteps:
        scores, from_sum, sink = _NO_SCORES, None, None
        if self._sums:
            values = *self._values, self.state
            model, from_sum = Bound(kernels.tokenize, MODEL, *values), Bound(kernels.from_sum, MODEL, *values)
            scores = self._runner.tables.steps
        else:
            model = Bound(word_models.tokenize_bpe, MODEL, *self._values)
        own = self._tables, scores, model, from_sum or NO_STEP, self.state
        if self._sums:
            sink = Bound(kernels.emit_summed, SINK, *own)
        has_room, end_row = Bound(spans.has_room, CHECK, *own), Bound(spans.end_row, CHECK, *own)
        return steps_of(FLAGGED, self._spans, Bound(spans.miss, MISS, *own), sink, has_room, end_row)

    def start(self, n_rows: int, *, is_noting: bool) -> None:
        """Prepares for a call."""
        self.state.cells[:] = self.state.sums[:] = 0
        self.state.cells[IS_NOTING] = is_noting
        if n_rows > self.state.irregular.size:
            self._enlarge(irregular=np.zeros(2 * n_rows, np.bool_))
        self.state.irregular[:n_rows] = False

    def make_room(self) -> None:
        """Makes room for more noted words."""
        self._enlarge(noted=np.append(self.state.noted, np.empty_like(self.state.noted)))

    def _enlarge(self, **arrays: npt.NDArray[Any]) -> None:
        self.state = self.state._replace(**arrays)
        self.bound = self._bind()


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
        self._new_parts = functools.partial(_Parts, Bound(spans.part_spans, SPANS, tables), tables, runner)

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
        with self._pool.borrow(None, rows.n_values) as lent:
            lent.make_room(n_bytes, 1, self._new_parts)
            parts: _Parts = lent.model
            parts.start(rows.n_rows, is_noting=tally is not None)
            met = lent.uncounted.state[COUNTER_TOTAL]
            # Enough for most text, which has fewer ids than bytes; the kernel may ask for more.
            n_ids = rows.n_values + 4 * rows.n_rows + _SPARE_IDS
            work = lent.work(None, first=int(rows.offsets[0]), n_rows=rows.n_rows, n_ids=n_ids)
            # The loop must see unknown tokens, tally or not, because several in a row become one.
            work = work._replace(tallying=True)
            while not call_loop(parts.bound, rows, added, work):
                needed = int(work.position[NEEDED])
                if needed:
                    longer = recycled.empty(2 * needed, np.int32)
                    longer[: work.position[AT_ID]] = work.out[: work.position[AT_ID]]
                    work = work._replace(out=longer)
                else:
                    parts.make_room()
            met = lent.uncounted.state[COUNTER_TOTAL] - met
            irregular = np.flatnonzero(parts.state.irregular[: rows.n_rows])
            if tally is not None:
                tally.counter.state[COUNTER_TOTAL] += met
                self._count_noted(rows, parts.state, tally)
        ids = Ragged(work.out[: work.position[AT_ID]], work.out_offsets)
        return self._with_irregular(ids, rows, irregular, tally)

    def _count_noted(self, rows: Ragged, state: PartsState, tally: Tally) -> None:
        """Counts the words with an unknown token."""
        n = int(state.cells[N_NOTED])
        longest = int((state.noted[1 : 3 * n : 3] - state.noted[: 3 * n : 3]).max(initial=0))
        text = recycled.empty(self._normalized_bytes(longest), np.uint8)
        k = 0
        while True:
            k = spans.count_noted(rows.values, self._tables, tally.counter, state.noted, k, n, text)
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
