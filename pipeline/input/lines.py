# SPDX-License-Identifier: Apache-2.0
"""Cuts a stream into blocks of whole lines, or of other records, and finds the lines of a block.

Of a long line or record only the beginning is kept.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline.input.record_kernels import AT, BASE, CELLS, LINE, START
from tokenmill.pipeline.input.rejects import SAMPLE_BYTES
from tokenmill.pipeline.input.streams import BLANK, BYTE_ORDER_MARK, CHUNK_BYTES, Stream

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

HEAD_BYTES = SAMPLE_BYTES + 2
"""How much is kept of a record that is too long: a sample, and its line end if that comes right after."""

MOST_LINES = 1 << 16
"""The most lines of a block: what is made of a line takes a hundred bytes or two, however short the line is."""

Scan = Callable[[npt.NDArray[np.uint8], bool, npt.NDArray[np.int64], npt.NDArray[np.int64]], int]
"""`scan(chunk, is_last, state, found)`: a kernel of `record_kernels`."""


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines; only the last line of a file may have no line end."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line that was not kept, because it is longer than a block and longer than a record may be."""

    offset: int
    n_bytes: int
    head: bytes
    is_blank: bool


@dataclass(frozen=True, slots=True)
class PartialLine:
    """The bytes after the last line end of a damaged stream; there may be none."""

    offset: int
    n_bytes: int
    head: bytes


def cut_lines(stream: Stream, block_bytes: int, max_bytes: int) -> Iterator[Block | LongLine | PartialLine]:
    """Yields a stream in order as blocks of whole lines.

    Args:
      stream: the stream to cut.
      block_bytes: the largest block, unless it is a single line. No block has more than `MOST_LINES` lines.
      max_bytes: lines longer than this and than `block_bytes` are read, but not kept.

    Yields:
      Blocks and long lines, then one `PartialLine` if the stream is damaged. Memory: `max_bytes`, or one block and one
      chunk of the stream where that is more.
    """
    complete: list[bytes | memoryview] = []  # whole lines at `offset`
    n_complete = 0
    offset = stream.offset
    line = OpenRecord(max(block_bytes, max_bytes))
    for chunk in stream.chunks():
        cut = chunk.rfind(b"\n") + 1
        if cut == 0:
            line.extend(chunk)
            continue
        start = 0
        if line.is_long:
            if n_complete:
                yield from _split(offset, b"".join(complete), block_bytes)
            offset += n_complete
            complete, n_complete = [], 0
            start = chunk.index(b"\n") + 1
            line.extend(chunk[:start])
            yield LongLine(offset, line.n_bytes, line.head(), line.is_blank())
            offset += line.n_bytes
            line.clear()
        n_new = line.n_bytes + cut - start
        if n_complete and n_complete + n_new > block_bytes:
            yield from _split(offset, b"".join(complete), block_bytes)
            offset += n_complete
            complete, n_complete = [], 0
        complete += line.parts
        complete.append(memoryview(chunk)[start:cut])
        n_complete += n_new
        line.clear()
        line.extend(chunk[cut:])
    if stream.damage is None and not line.is_long:
        complete += line.parts
        n_complete += line.n_bytes
        line.clear()
    if n_complete:
        yield from _split(offset, b"".join(complete), block_bytes)
        offset += n_complete
    if stream.damage is not None:
        yield PartialLine(offset, line.n_bytes, line.head())
    elif line.is_long:
        yield LongLine(offset, line.n_bytes, line.head(), line.is_blank())


class OpenRecord:
    """A record whose end is not read yet; beyond `max_bytes` only its size, its beginning and whether it is blank."""

    def __init__(self, max_bytes: int) -> None:
        """Starts with no record."""
        self._max_bytes = max_bytes
        self.clear()

    def clear(self) -> None:
        """Ends the record."""
        self.parts: list[bytes | memoryview] = []
        self.offset = self.n_bytes = 0
        self.is_long = False
        self._head = b""
        self._has_text = False

    def extend(self, chunk: bytes, offset: int = 0, n_bytes: int | None = None) -> None:
        """Adds bytes at a position; if they are too many, `chunk` may be the beginning of `n_bytes`."""
        if not self.n_bytes:
            self.offset = offset
        if chunk:
            self.n_bytes += len(chunk) if n_bytes is None else n_bytes
            self.parts.append(chunk)
        if self.n_bytes > self._max_bytes:
            self._summarize()

    def data(self) -> bytes:
        """Returns the record, or its beginning if it is too long to keep."""
        return self._head if self.is_long else b"".join(self.parts)

    def head(self) -> bytes:
        """Returns the beginning of the record."""
        self._summarize()
        return self._head

    def is_blank(self) -> bool:
        """Returns whether it has nothing but blanks."""
        self._summarize()
        return not self._has_text

    def _summarize(self) -> None:
        """Replaces the parts by their beginning and whether they are blank."""
        self.is_long = True
        for part in self.parts:
            self._head += bytes(part[: HEAD_BYTES - len(self._head)])
            self._has_text = self._has_text or bool(bytes(part).strip(BLANK + b"\n"))
        self.parts = []


def _split(offset: int, data: bytes, block_bytes: int) -> Iterator[Block]:
    start = 0
    while start < len(data):
        stop = len(data)
        if stop - start > block_bytes:
            stop = data.rfind(b"\n", start, start + block_bytes) + 1 or data.find(b"\n", start) + 1 or stop
        cuts: list[int] = []
        if data.count(b"\n", start, stop) > MOST_LINES:
            is_end = np.frombuffer(data, np.uint8, stop - start, start) == ord("\n")
            cuts = (np.flatnonzero(is_end)[MOST_LINES - 1 :: MOST_LINES] + start + 1).tolist()
        for cut in (*cuts, stop):
            if start < cut:
                yield Block(offset + start, data[start:cut])
            start = cut


def without_line_end(line: bytes) -> bytes:
    r"""Returns a line without the `\n` or `\r\n` at its end."""
    return line[:-1].removesuffix(b"\r") if line.endswith(b"\n") else line


def find_lines(data: bytes) -> tuple[Positions, Positions, Positions]:
    r"""Returns where the lines of a block are.

    Returns:
      starts, ends, nexts: int64[n_lines] each, in bytes from the start of the block. A line's content is
      `data[start:end]`, without its `\n` or `\r\n`; the line itself is `data[start:next]`.
    """
    values = np.frombuffer(data, np.uint8)
    line_ends = np.flatnonzero(values == ord("\n"))
    nexts = line_ends + 1
    ends = line_ends
    if len(data) and not data.endswith(b"\n"):
        nexts = np.append(nexts, len(data))
        ends = np.append(ends, len(data))
    starts = np.concatenate([np.zeros(min(len(nexts), 1), np.int64), nexts[:-1]])
    # A carriage return is part of the line end only before a line feed.
    has_return = (ends > starts) & (ends < nexts)
    if len(data):
        has_return &= values[ends - 1] == ord("\r")
    return starts, ends - has_return, nexts


def skip_marks(data: bytes, starts: Positions, ends: Positions) -> Positions:
    """Returns int64[n_lines]: where lines begin without the byte order marks that they have where files were joined."""
    rows = np.flatnonzero(ends - starts >= len(BYTE_ORDER_MARK))
    rows = rows[np.frombuffer(data, np.uint8)[starts[rows]] == BYTE_ORDER_MARK[0]]
    if not rows.size:
        return starts
    starts = starts.copy()
    for row in rows.tolist():
        while data.startswith(BYTE_ORDER_MARK, starts[row], ends[row]):
            starts[row] += len(BYTE_ORDER_MARK)
    return starts


def take_stretches(data: bytes, starts: Positions, stops: Positions, kind: pa.DataType) -> pa.Array:
    """Returns string[n] or binary[n]: the stretches `data[start:stop]`, which must be in order; strings valid UTF-8."""
    if not len(starts):
        return pa.array([], kind)
    # The offsets cut `data` into gaps and texts in turn; every second stretch is a text.
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2] = starts
    offsets[1::2] = stops
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    all_stretches = pa.Array.from_buffers(kind, len(offsets) - 1, buffers)
    return all_stretches.take(pa.array(np.arange(0, len(offsets) - 1, 2, dtype=np.int32)))


def take_samples(data: bytes, starts: Positions, ends: Positions) -> pa.BinaryArray:
    """Returns binary[n]: the beginning of each record, as rejects keep it."""
    return take_stretches(data, starts, np.minimum(ends, starts + SAMPLE_BYTES), pa.binary())


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

    Memory: two records of `max_bytes`, and two chunks of the stream.

    Args:
      stream: the stream to cut.
      scan: what finds records.
      max_bytes: how large a record may be; longer ones are kept only if they end in the chunk in which they begin.
    """
    state = np.zeros(CELLS + 1, np.int64)
    state[[START, LINE]] = -1
    found = np.empty((MOST_LINES, 4), np.int64)
    first = position = stream.offset  # of what is not yielded yet; of the chunk
    parts: list[bytes] = []  # what is before the chunk, from `first` on
    head: bytes | None = None  # of the open record, if it is long
    chunks, again = stream.chunks(), deque[memoryview]()  # the second is scanned once more, before the rest
    is_last = False
    while not is_last:
        chunk = again.popleft() if again else next(chunks, b"")
        is_last = not chunk
        if is_last and stream.damage is not None:
            break
        values = np.frombuffer(chunk, np.uint8).copy()
        state[BASE], state[AT] = position, 0
        n = len(found)
        while n == len(found) or 0 <= state[AT] < len(values):
            n = scan(values, is_last, state, found)
            rows = found[:n].copy()
            if head is not None and n:
                yield LongLine(first, int(rows[0, 2]) - first, head, is_blank=False)
                first, rows, head = int(rows[0, 2]), rows[1:], None
            cut = int(state[START] if state[START] >= 0 else position + state[AT])
            if cut > first or len(rows):
                taken = values[max(0, first - position) : max(0, cut - position)].tobytes()
                whole = b"".join([*parts, taken])
                starts, ends, nexts = (rows[:, :3] - first).T
                yield Records(first, whole[: cut - first], starts, ends, nexts, rows[:, 3])
                parts, first = [whole[cut - first :]], cut
        if state[AT] < 0:
            rest = memoryview(b"".join(parts))
            pieces = [rest[at : at + CHUNK_BYTES] for at in range(0, len(rest), CHUNK_BYTES)]
            again.extendleft(reversed([*pieces, memoryview(chunk)] if chunk else pieces))
            position, parts, is_last = first, [], False
            continue
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
