# SPDX-License-Identifier: Apache-2.0
"""Cuts a stream into stretches of whole records that are not lines. Of a long record only the beginning is kept."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.pipeline.input.lines import HEAD_BYTES, MOST_LINES, LongLine, PartialLine, Positions
from tokenmill.pipeline.input.record_kernels import AT, BASE, END, START
from tokenmill.pipeline.input.streams import Stream

Scan = Callable[[npt.NDArray[np.uint8], bool, npt.NDArray[np.int64], npt.NDArray[np.int64]], int]
"""`scan(chunk, is_last, state, found)`: a kernel of `record_kernels`."""


@dataclass(frozen=True, slots=True)
class Records:
    """A stretch of a stream with whole records, in order; there may be none, and bytes between them."""

    offset: int
    data: bytes
    starts: Positions
    """int64[n] each, in bytes from `offset`: where records begin, end, and end with what ends them."""
    ends: Positions
    nexts: Positions
    facts: Positions
    """What the kernel says of each record."""

    @property
    def n_between(self) -> int:
        """Bytes that belong to no record."""
        return len(self.data) - int((self.nexts - self.starts).sum())


def cut_records(stream: Stream, scan: Scan, max_bytes: int) -> Iterator[Records | LongLine | PartialLine]:
    """Yields a stream in order, and one `PartialLine` at its end if it is damaged.

    Memory: a record of `max_bytes`, and two chunks of the stream.

    Args:
      stream: the stream to cut.
      scan: what finds records.
      max_bytes: how large a record may be; longer ones are kept only if they end in the chunk in which they begin.
    """
    state = np.zeros(END + 1, np.int64)
    state[START] = -1
    found = np.empty((MOST_LINES, 4), np.int64)
    first = position = stream.offset  # of what is not yielded yet; of the chunk
    parts: list[bytes] = []  # what is before the chunk, from `first` on
    head: bytes | None = None  # of the open record, if it is long
    for chunk in itertools.chain(stream.chunks(), (b"",)):
        if not chunk and stream.damage is not None:
            break
        values = np.frombuffer(chunk, np.uint8).copy()
        state[BASE], state[AT] = position, 0
        n = len(found)
        while n == len(found):
            n = scan(values, not chunk, state, found)
            rows = found[:n].copy()
            if head is not None and n:
                yield LongLine(first, int(rows[0, 2]) - first, head, is_blank=False)
                first, rows, head = int(rows[0, 2]), rows[1:], None
            cut = int(state[START] if state[START] >= 0 else position + state[AT])
            if cut > first or len(rows):
                data = b"".join([*parts, values[max(0, first - position) : cut - position].tobytes()])
                starts, ends, nexts = (rows[:, :3] - first).T
                yield Records(first, data, starts, ends, nexts, rows[:, 3])
                first, parts = cut, []
        if head is None:
            parts.append(values[max(0, first - position) :].tobytes())
        position += len(chunk)
        if head is None and position - first > max_bytes:
            head, parts = b"".join(parts)[:HEAD_BYTES], []
    if stream.damage is not None:
        yield PartialLine(first, position - first, head or b"".join(parts)[:HEAD_BYTES])


def copied(records: Records, rows: npt.NDArray[np.bool_]) -> bytes:
    """Returns the bytes of some of the records, one after another.

    Args:
      records: a stretch of a stream.
      rows: bool[n]: which of them.
    """
    starts, nexts = records.starts[rows], records.nexts[rows]
    if not starts.size:
        return b""
    first = np.flatnonzero(np.append(-1, nexts[:-1]) != starts)  # of each run of neighbours
    last = np.append(first[1:], starts.size) - 1
    runs = zip(starts[first].tolist(), nexts[last].tolist(), strict=True)
    return b"".join(records.data[start:stop] for start, stop in runs)
