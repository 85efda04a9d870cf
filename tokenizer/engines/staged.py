# SPDX-License-Identifier: Apache-2.0
"""Any pre-tokenizer and any model, one after the other over whole columns; or a scanner and a model in one kernel.

The second runs GPT-2 and its successors, CLIP, and other models after `Whitespace`.
"""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.few import FewTexts
from tokenmill.tokenizer.engines.models import ModelRunner
from tokenmill.tokenizer.engines.steps import SPANS, BoundSteps, steps_of
from tokenmill.tokenizer.engines.tables import TablePool
from tokenmill.tokenizer.kernels.by_address import Bound
from tokenmill.tokenizer.kernels.encode_loop import APART, FLAGGED, JOINED
from tokenmill.tokenizer.kernels.pattern_spans import pattern_spans
from tokenmill.tokenizer.normalizers.edits import prepend
from tokenmill.tokenizer.pre_tokenizers.scanners import Scanner
from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.row_kernels import insert_rows
from tokenmill.tokenizer.words import Words, begins_with, whole_rows

_NAMES = {"bpe": "BPE", "wordlevel": "WordLevel", "wordpiece": "WordPiece", "unigram": "Unigram"}
"""The models that have kernels with scanners."""


class StagedEngine:
    """Runs the pre-tokenizer as a stage that finds words, then the model's kernel on them."""

    few: Any = None

    def __init__(self, pre_tokenizer: Any, runner: ModelRunner, pool: TablePool) -> None:
        self._pre_tokenizer = pre_tokenizer
        self._runner = runner
        self._pool = pool
        self.stages = pre_tokenizer, runner

    def new_tally(self) -> Tally:
        """Returns an empty tally."""
        return self._runner.new_tally()

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows; see `tables.Engine`."""
        return self._runner.encode(self.words(rows, is_first), added, self._pool, tally)

    def words(self, rows: Ragged, is_first: npt.NDArray[np.bool_]) -> Words:
        """Finds the words of rows."""
        if self._pre_tokenizer is None:
            return whole_rows(rows)
        return self._pre_tokenizer.split_rows(rows, is_first)

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the kernel, the components fused into it, and the stages before it."""
        name = type(self._pre_tokenizer).__name__ if self._pre_tokenizer is not None else None
        return self._runner.name_after("encode_found"), [], [name] if name else []


def with_rows(ids: Ragged, which: npt.NDArray[np.int64], more: Ragged) -> Ragged:
    """Returns rows of ids in which those with the numbers `which`, empty so far, are the rows of `more`.

    `ids.offsets` is changed.
    """
    out = recycled.empty(ids.n_values + more.n_values, np.int32)
    out[: ids.n_values] = ids.values
    insert_rows(out, ids.offsets, which, more.values, more.offsets)
    return Ragged(out, ids.offsets)


def begin_with_space(rows: Ragged, *spellings: bytes, where: npt.NDArray[np.bool_] | None = None) -> Ragged:
    """Puts a space before every row that is not empty and begins with none of `spellings`.

    where: bool[n_rows], the rows to consider; all if None.
    """
    starts, stops = rows.offsets[:-1], rows.offsets[1:]
    wanted = starts < stops if where is None else where & (starts < stops)
    for spelling in spellings:
        wanted &= ~begins_with(rows.values, starts, stops, spelling)
    return prepend(rows, wanted, " ").rows if wanted.any() else rows


def _scanning(scanner: Scanner, runner: ModelRunner, miss: Bound) -> BoundSteps:
    kind = FLAGGED if runner.flags_parts else APART if scanner.are_apart else JOINED
    return steps_of(kind, Bound(pattern_spans, SPANS, scanner.new_cuts(), runner.cuts), miss)


class ScannedEngine(StagedEngine):
    """Finds words with a scanner and encodes them in the same pass."""

    def __init__(
        self, scanner: Scanner, pre_tokenizer: Any, runner: ModelRunner, pool: TablePool, *, prefix_space: bool
    ) -> None:
        """Prepares an engine.

        prefix_space: whether rows that do not begin with a space get one before they are scanned.
        """
        super().__init__(pre_tokenizer, runner, pool)
        self._prefix_space, self._scanner = prefix_space, scanner
        # Without a reference to the engine: there would be a cycle, and its tables would outlive it.
        self._new_steps = functools.partial(_scanning, scanner, runner)
        if runner.knows_all:
            room = runner.max_ids_per_byte, b" " * prefix_space
            self.few = FewTexts(self._new_steps, runner.new_miss, pool, *room)

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows; see `tables.Engine`."""
        if self._prefix_space:
            rows = begin_with_space(rows, b" ")
        return self._runner.run(
            self._new_steps, rows, added, self._pool, tally, n_bytes=rows.n_values, longest=rows.max_row
        )

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the kernel, the components fused into it, and the stages before it."""
        fused = [type(self._pre_tokenizer).__name__, _NAMES[self._runner.model_name]]
        found = "encode_apart" if self._scanner.are_apart else "encode_joined"
        return self._runner.name_after(found), fused, []
