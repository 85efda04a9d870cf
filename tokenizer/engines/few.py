# SPDX-License-Identifier: Apache-2.0
"""`FewTexts`: a call of the encode loop for a few short texts, prepared before.

For one text the loop takes two microseconds; making its arrays and looking at their types would take twenty more. So
they are kept with the table that a call borrows: calls at the same time never share them. The ids returned are copies.

Its reference implementation is the engine's `encode`; `tests/tokenizer/engines/test_few.py` compares them.
"""

import array
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tokenmill.tokenizer.engines.steps import BoundSteps
from tokenmill.tokenizer.engines.tables import Lent, NewModel, TablePool
from tokenmill.tokenizer.kernels.encode_loop import AT_ID, READS, run
from tokenmill.tokenizer.ragged import Ragged, read_only

MOST_TEXTS, MOST_BYTES = 128, 1 << 13
"""What counts as few: beyond these, what could be saved does not matter."""
_NO_ADDED = read_only(np.empty(0, np.int32))


class FewTexts:
    """Encodes a few texts with the steps of an engine."""

    def __init__(
        self, new_steps: Callable[[Any], BoundSteps], new_model: NewModel, pool: TablePool, ratio: float,
        prefix: bytes = b"",
    ) -> None:  # fmt: skip
        """Prepares for an engine.

        Args:
          new_steps, new_model, pool: as for `tables.run_loop`.
          ratio: the most ids, and bytes of a span, that a byte of text can become.
          prefix: what is put before texts that are not empty and do not begin with it.
        """
        self._new_steps, self._pool, self._prefix = new_steps, pool, prefix
        self._room = int(MOST_BYTES * ratio) + 16, math.ceil(ratio), new_model

    def encode(self, texts: Sequence[bytes]) -> list[list[int]] | None:
        """Encodes up to MOST_TEXTS texts of valid UTF-8; None if these have more than MOST_BYTES."""
        if prefix := self._prefix:
            texts = [text if not text or text.startswith(prefix) else prefix + text for text in texts]
        data = texts[0] if len(texts) == 1 else b"".join(texts)
        if len(data) > MOST_BYTES:
            return None
        lent = self._pool.take(len(data))
        if lent.few is None:
            lent.make_room(*self._room)
            lent.few = _Prepared(lent, self._room[0] + MOST_TEXTS, self._new_steps(lent.model))
        ids: list[list[int]] = lent.few.run(data, texts)
        # As in `TablePool.borrow`, not reached after an exception.
        self._pool.give(lent)
        return ids


class _Prepared:
    """The arrays of a call, and calls for each number of texts."""

    def __init__(self, lent: Lent, n_ids: int, bound: BoundSteps) -> None:
        self._bound = bound
        text = np.zeros(MOST_BYTES + READS, np.uint8)
        self._offsets = np.zeros(MOST_TEXTS + 1, np.int64)
        self._work = lent.work(None, first=0, n_rows=MOST_TEXTS, n_ids=n_ids)
        self._values = read_only(text)
        # Views of plain memory: their elements are Python's numbers, and ten times as fast as NumPy's.
        views: list[Any] = [text, self._work.out, self._offsets, self._work.out_offsets, self._work.position]
        self._text, self._ids, *numbers = [memoryview(view) for view in views]
        self._begins, self._ends, self._position = (view.cast("B").cast("q") for view in numbers)
        self._start = array.array("q", bytes(8 * self._work.position.size))
        self._calls: dict[int, Callable[[], Any]] = {}

    def _call(self, n: int) -> Callable[[], Any]:
        rows = Ragged(self._values, read_only(self._offsets[: n + 1]))
        work = self._work._replace(out_offsets=self._work.out_offsets[: n + 1])
        self._calls[n] = run.bound(self._bound.steps, rows, _NO_ADDED).prepared(work)
        return self._calls[n]

    def run(self, data: bytes, texts: Sequence[bytes]) -> list[list[int]]:
        """Encodes texts; data: all of them joined."""
        n = len(texts)
        call = self._calls.get(n) or self._call(n)
        self._text[: len(data)] = data
        self._position[:] = self._start
        if n == 1:
            self._begins[1] = len(data)
            call()
            return [self._ids[: self._position[AT_ID]].tolist()]
        self._begins[1 : n + 1] = array.array("q", itertools.accumulate(map(len, texts)))
        call()
        ids, ends = self._ids[: self._position[AT_ID]].tolist(), self._ends[: n + 1].tolist()
        return [ids[begin:end] for begin, end in itertools.pairwise(ends)]
