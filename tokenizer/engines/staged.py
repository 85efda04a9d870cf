# SPDX-License-Identifier: Apache-2.0
"""Any pre-tokenizer and any model, run one after the other over whole columns; the model runs in the encode loop."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.models import ModelRunner
from tokenmill.tokenizer.engines.tables import TablePool
from tokenmill.tokenizer.normalizers.edit_lists import prepend
from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.row_kernels import insert_rows
from tokenmill.tokenizer.words import Words, begins_with, whole_rows


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
        """Encodes rows; see `base.Engine`."""
        return self._runner.encode(self.words(rows, is_first), added, self._pool, tally)

    def words(self, rows: Ragged, is_first: npt.NDArray[np.bool_]) -> Words:
        """Finds the words of rows."""
        if self._pre_tokenizer is None:
            return whole_rows(rows)
        return self._pre_tokenizer.split_rows(rows, is_first)

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the kernel, the components fused into it, and the stages before it."""
        name = type(self._pre_tokenizer).__name__ if self._pre_tokenizer is not None else None
        return self._runner.found_kernel.__name__, [], [name] if name else []


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
