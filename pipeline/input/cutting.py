# SPDX-License-Identifier: Apache-2.0
"""Cuts any stream into records: one loop for all formats of streams, and a scanner for each way to find records.

::

    Stream --chunks--> Scanner --places of records--> cut --Records, or Lost--> StreamReader.parse --Part-->

A scanner says where records are; `cut` gathers whole ones to blocks, and keeps the memory of a record bounded; the
`StreamReader` of a format has its scanner, and makes documents and rejects of a block.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.columns import stretches
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.batches import NO_FIELDS, Part, Source, rejected, skipped
from tokenmill.pipeline.input.record_kernels import AT, BASE, CELLS, LINE, START
from tokenmill.pipeline.input.rejects import (
    SAMPLE_BYTES,
    Mask,
    Positions,
    Rejects,
    invalid_utf8,
    too_large,
    too_large_all,
)
from tokenmill.pipeline.input.streams import BLANK, BYTE_ORDER_MARK, CHUNK_BYTES, Stream
from tokenmill.pipeline.input.transcoding import InvalidText
from tokenmill.tokenizer.utf8 import find_invalid_utf8

HEAD_BYTES = SAMPLE_BYTES + 2
"""How much is kept of a record that is too long: a sample, and its line end if that comes right after."""

MOST_RECORDS = 1 << 16
"""The most records of a block: what is made of one takes a hundred bytes or two, however short it is."""

_FIRST_BYTES = 1 << 20
"""How much is cut at once where only the first records are looked at."""


class Found(NamedTuple):
    """Records, in order: int64[n] each. Positions are those in the stream."""

    starts: Positions
    ends: Positions
    """Where they end without what ends them, such as a line end."""
    nexts: Positions
    """Where they end with it."""
    facts: Positions
    """What a scanner says of each besides."""

    def rows(self, start: int, stop: int, base: int = 0) -> "Found":
        """Returns some neighbours, with their positions from `base` on."""
        starts, ends, nexts = (each[start:stop] - base for each in (self.starts, self.ends, self.nexts))
        return Found(starts, ends, nexts, self.facts[start:stop])


class Scanned(NamedTuple):
    """What a scanner says of a chunk."""

    found: Found
    """The records that end in it."""
    start: int
    """Where the record begins that is not closed; where the next may begin, if none is open."""
    chunk: bytes | memoryview
    """The chunk as it is to be kept."""
    is_back: bool = False
    """Whether scanning must go on from `start`, before the chunk."""


class Scanner(ABC):
    """Finds records in the chunks of a stream, one after another."""

    fault = ""
    """Why no more records can be found: all of the stream from the open one on is one reject."""
    skips_blank = False
    """Whether a record of nothing but blanks is none."""

    def __init__(self, max_bytes: int) -> None:
        """Takes how large a record may be to be kept."""
        self.max_bytes = max_bytes

    @abstractmethod
    def scan(self, chunk: bytes | memoryview, position: int, start: int, is_last: bool) -> Scanned:
        """Scans a chunk.

        Args:
          chunk: the next bytes; none at the end of the stream.
          position: that of the chunk in the stream.
          start: where the open record begins, as the last call returned it; it is `position` if none is open.
          is_last: whether the stream has ended.
        """


@dataclass(frozen=True, slots=True)
class Records:
    """A stretch of a stream with whole records, in order; there may be none, and bytes between them."""

    offset: int
    data: bytes
    starts: Positions
    """int64[n] each, in bytes from `offset`; see `Found`."""
    ends: Positions
    nexts: Positions
    facts: Positions

    @property
    def n_between(self) -> int:
        """Bytes that belong to no record."""
        return len(self.data) - int((self.nexts - self.starts).sum())

    def take(self, rows: Mask | slice) -> "Records":
        """Returns the stretch with only some of its records."""
        columns = self.starts[rows], self.ends[rows], self.nexts[rows], self.facts[rows]
        return Records(self.offset, self.data, *columns)


@dataclass(frozen=True, slots=True)
class Lost:
    """Bytes that were not kept: a record that is too long, or what a damaged stream ends with."""

    offset: int
    n_bytes: int
    head: bytes
    """What they begin with."""
    reason: str
    """Why they are a reject; "" if they belong to no record."""
    detail: str


def cut(stream: Stream, scanner: Scanner, block_bytes: int, max_bytes: int) -> Iterator[Records | Lost]:
    """Yields a stream in order, as blocks of whole records, and what is lost of it.

    Memory: a record of `scanner.max_bytes`, or a block, and a chunk of the stream.

    Args:
      stream: the stream to cut.
      scanner: what finds records.
      block_bytes: the largest block, unless it is a single record. No block has more than `MOST_RECORDS` records.
      max_bytes: how large a record may be, for messages.
    """
    yield from _Cut(stream, scanner, block_bytes, max_bytes).run()


class _Cut:
    """The state of `cut`."""

    def __init__(self, stream: Stream, scanner: Scanner, block_bytes: int, max_bytes: int) -> None:
        self._stream, self._scanner, self._block_bytes, self._max_bytes = stream, scanner, block_bytes, max_bytes
        self._most = max(scanner.max_bytes, HEAD_BYTES)
        self._first = self._start = stream.offset  # of what is not yielded yet; of the open record
        self._parts: list[bytes | memoryview] = []  # from `_first` on; of a long record only the beginning
        self._found: list[Found] = []
        self._n_found = 0
        self._is_long = self._is_blank = False  # of the open record: is not kept any more; has nothing but blanks

    def run(self) -> Iterator[Records | Lost]:
        position = self._first
        chunks, again = self._stream.chunks(), deque[bytes | memoryview]()
        is_last = False
        while not is_last:
            if not again:  # a decompressor may give a hundred megabytes at once
                again.extend(_pieces(next(chunks, b"")))
            chunk = again.popleft() if again else b""
            is_last = not chunk
            if is_last and self._stream.damage is not None:
                break
            scanned = self._scanner.scan(chunk, position, self._start, is_last)
            if self._is_long:
                if scanned.start == self._first:
                    self._is_blank = self._is_blank and _is_blank(chunk)
                    position += len(chunk)
                    continue
                scanned = yield from self._close_long(scanned, position)
            if scanned.start - self._first > self._block_bytes:
                yield from self._flush()
            self._found.append(scanned.found)
            self._n_found += scanned.found.starts.size
            self._start = scanned.start
            if scanned.is_back:
                yield from self._flush()
                again.extendleft(reversed([*_pieces(b"".join(self._parts)), *([chunk] if chunk else [])]))
                position, self._parts, is_last = self._start, [], False
                continue
            self._parts.append(memoryview(scanned.chunk)[max(0, self._first - position) :])
            position += len(chunk)
            is_long = position - self._start > self._most
            if is_last or is_long or self._start - self._first >= self._block_bytes or self._n_found >= MOST_RECORDS:
                yield from self._flush()
            if is_long:
                self._is_long, self._is_blank = True, all(map(_is_blank, self._parts))
        yield from self._end(position)

    def _close_long(self, scanned: Scanned, position: int) -> Generator[Records | Lost, None, Scanned]:
        """Yields a record that is too long, once it has ended, and what is behind it up to the chunk.

        Returns:
          `scanned` without it.
        """
        found, kept = scanned.found, b"".join(self._parts)
        self._parts, self._is_long = [], False
        if found.starts.size and found.starts[0] == self._first:
            stop = int(found.nexts[0])
            if stop - self._first <= len(kept):  # blanks made it seem long
                yield Records(self._first, kept[: stop - self._first], *found.rows(0, 1, self._first))
            else:
                in_chunk = memoryview(scanned.chunk)[: max(0, stop - position)]
                is_none = self._scanner.skips_blank and self._is_blank and _is_blank(in_chunk)
                yield self._too_large(stop, kept, is_none)
            found, self._first = found.rows(1, found.starts.size), stop
        if self._first < position:
            yield Lost(self._first, position - self._first, b"", "", "")
            self._first = position
        self._start = self._first
        return scanned._replace(found=found)

    def _too_large(self, stop: int, kept: bytes, is_none: bool) -> Lost:
        n_bytes = stop - self._first
        if is_none:
            return Lost(self._first, n_bytes, b"", "", "")
        head = without_line_end(kept[:HEAD_BYTES])
        return Lost(self._first, n_bytes, head, "too_large", too_large(n_bytes, self._max_bytes))

    def _flush(self) -> Iterator[Records]:
        """Yields what is before the open record."""
        first, stop = self._first, self._start
        found = [each for each in self._found if each.starts.size]
        if stop == first and not found:  # a record may be empty
            return
        self._found, self._n_found, self._first = [], 0, stop
        if not found:
            none = np.zeros(0, np.int64)
            yield Records(first, self._take(stop - first), none, none, none, none)
            return
        whole = found[0] if len(found) == 1 else Found(*map(np.concatenate, zip(*found, strict=True)))
        n = whole.starts.size
        for start, end in stretches(np.diff(whole.nexts, prepend=first), self._block_bytes, MOST_RECORDS):
            cut_at = int(whole.nexts[end - 1]) if end < n else stop
            yield Records(first, self._take(cut_at - first), *whole.rows(start, end, first))
            first = cut_at

    def _take(self, n_bytes: int) -> bytes:
        """Returns the first bytes of what is kept, and keeps only the others."""
        taken, left = [], n_bytes
        n_parts = 0
        for part in self._parts:
            if len(part) > left:
                break
            taken.append(part)
            left -= len(part)
            n_parts += 1
        del self._parts[:n_parts]
        if left:
            taken.append(memoryview(self._parts[0])[:left])
            self._parts[0] = memoryview(self._parts[0])[left:]
        return b"".join(taken)

    def _end(self, position: int) -> Iterator[Records | Lost]:
        """Yields what is left where the stream is damaged, or no more records can be found in it."""
        damage, fault = self._stream.damage, self._scanner.fault
        yield from self._flush()
        reason, detail = (damage.reason, damage.detail) if damage is not None else ("corrupt_stream", fault)
        if damage is not None or fault:
            head = b"".join(self._parts)[:HEAD_BYTES]
            yield Lost(self._first, position - self._first, head, reason, detail)


def _pieces(data: bytes) -> list[bytes | memoryview]:
    if len(data) <= CHUNK_BYTES:
        return [data] if data else []
    return [memoryview(data)[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]


def _is_blank(data: bytes | memoryview) -> bool:
    return not bytes(data).strip(BLANK + b"\n")


class LineScanner(Scanner):
    r"""Finds lines that are not empty; they end with `\n` or `\r\n`, the last one of a file perhaps without."""

    def __init__(self, max_bytes: int, *, skips_blank: bool = False) -> None:
        """Takes how large a line may be to be kept, and whether one of nothing but blanks is no record."""
        super().__init__(max_bytes)
        self.skips_blank = skips_blank
        self._last = 0  # the byte before the chunk
        self._is_end = np.empty(0, np.bool_)  # memory that is used again: a new array takes longer than filling it

    def lines(self, chunk: bytes | memoryview, position: int, start: int, is_last: bool) -> Found:
        """Returns all lines that end in a chunk, empty ones, too."""
        values = np.frombuffer(chunk, np.uint8)
        if is_last:
            nexts = np.array([position] if start < position else [], np.int64)
            ends = nexts
        else:
            if self._is_end.size < values.size:
                self._is_end = np.empty(values.size, np.bool_)
            at = np.flatnonzero(np.equal(values, ord("\n"), out=self._is_end[: values.size]))
            nexts, ends = at + (position + 1), at + position
        starts = np.concatenate([np.array([start], np.int64), nexts[:-1]])[: nexts.size]
        if values.size and ends.size:
            # A carriage return is part of the line end only before a line feed.
            before = values[at - 1]
            if at[0] == 0:
                before[0] = self._last
            ends = ends - ((before == ord("\r")) & (ends > starts))
        if values.size:
            self._last = int(values[-1])
        return Found(starts, ends, nexts, np.zeros(nexts.size, np.int64))

    def scan(self, chunk: bytes | memoryview, position: int, start: int, is_last: bool) -> Scanned:
        """Scans a chunk; see `Scanner.scan`."""
        found = self.lines(chunk, position, start, is_last)
        start = int(found.nexts[-1]) if found.nexts.size else start
        is_empty = found.starts == found.ends
        if is_empty.any():
            found = Found(*(each[~is_empty] for each in found))
        return Scanned(found, start, chunk)


class Kernel(Protocol):
    """A kernel of `record_kernels`, which says where records are as that module describes."""

    def __call__(self, data: Any, is_last: bool, state: Any, found: Any) -> int: ...  # noqa: D102


class KernelScanner(Scanner):
    """Finds records by a kernel, which keeps its state."""

    def __init__(self, kernel: Kernel, max_bytes: int) -> None:
        """Takes the kernel, and how large a record may be to be kept."""
        super().__init__(max_bytes)
        self._kernel = kernel
        self._state = np.zeros(CELLS + 1, np.int64)
        self._state[[START, LINE]] = -1
        self._found = np.empty((MOST_RECORDS, 4), np.int64)

    def scan(self, chunk: bytes | memoryview, position: int, start: int, is_last: bool) -> Scanned:
        """Scans a chunk; see `Scanner.scan`."""
        values, state, found = np.frombuffer(chunk, np.uint8).copy(), self._state, self._found
        state[BASE], state[AT] = position, 0
        parts = []
        n = len(found)
        while n == len(found) or 0 <= state[AT] < values.size:
            n = self._kernel(values, is_last, state, found)
            parts.append(found[:n].copy())
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        start = int(state[START] if state[START] >= 0 else position + state[AT])
        return Scanned(Found(*rows.T), start, values.data, is_back=bool(state[AT] < 0))


class StreamReader(ABC):
    """Reads a file that is a stream of bytes, decompressed and in UTF-8: finds its records, and makes documents."""

    has_header = False
    """Whether the beginning of a file names its fields, which `check` compares with the config."""

    def __init__(
        self,
        config: InputConfig,
        fields: pa.Schema = NO_FIELDS,
        source: Source = Source(0, "", ""),  # noqa: B008
        invalid: InvalidText | None = None,
    ) -> None:
        """Takes how to read a file.

        Args:
          config: how to find documents in it, and how large a record may be.
          fields: the fields to keep, as the job has settled them.
          source: the file.
          invalid: explains records that are not UTF-8; needed to parse.
        """
        self._config, self._fields, self._source = config, fields, source
        self._invalid = invalid or InvalidText("utf-8", bytes)

    @abstractmethod
    def scanner(self) -> Scanner:
        """Returns what finds the records of a stream."""

    @abstractmethod
    def parse(self, records: Records) -> Part:
        """Returns the documents and rejects of a block, which has records; blocks are parsed in order."""

    @abstractmethod
    def names(self, records: Records) -> list[str]:
        """Returns the names of fields in the first of some records, in the order in which they are met."""

    def check(self, stream: Stream) -> pa.Schema | None:
        """Returns which of the fields to keep a file has by its header; None without one, or if the file is empty.

        Raises:
          ValueError: when the file cannot be read.
        """
        return None

    def first_names(self, stream: Stream) -> list[str]:
        """Returns the names of fields in the first records, in the order in which they are met."""
        for item in cut(stream, self.scanner(), _FIRST_BYTES, self._config.max_document_bytes):
            if isinstance(item, Records) and item.starts.size:
                return self.names(item)
        return []

    def read(self, stream: Stream, block_bytes: int) -> Iterator[Part]:
        """Yields the documents and rejects of a stream.

        Args:
          stream: the stream.
          block_bytes: how much is parsed at once; a longer record is parsed alone.
        """
        yield from skipped(stream.n_skipped)
        for item in cut(stream, self.scanner(), block_bytes, self._config.max_document_bytes):
            if isinstance(item, Records):
                yield self.parse(item) if item.starts.size else Part(None, None, len(item.data), len(item.data))
            elif item.reason:
                yield rejected(self._source, item.offset, item.n_bytes, item.reason, item.detail, item.head)
            else:
                yield from skipped(item.n_bytes)

    def _reject(self, rejects: Rejects, records: Records, rows: Mask, reason: str, details: pa.Array | str) -> None:
        """Adds the records marked in `rows`, bool[n], to rejects."""
        starts, ends = records.starts[rows], records.ends[rows]
        if starts.size:
            samples = take_stretches(records.data, starts, np.minimum(ends, starts + SAMPLE_BYTES), pa.binary())
            rejects.add_all(records.offset + starts, records.nexts[rows] - starts, reason, details, samples)

    def _reject_too_large(self, rejects: Rejects, records: Records) -> Mask:
        """Adds records that are too large to rejects, and returns them: bool[n]."""
        sizes, limit = records.nexts - records.starts, self._config.max_document_bytes
        rows = sizes > limit
        self._reject(rejects, records, rows, "too_large", too_large_all(sizes[rows], limit))
        return rows

    def _reject_invalid(self, rejects: Rejects, records: Records, among: Mask) -> Mask:
        """Adds the records marked in `among`, bool[n], that are not UTF-8 to rejects, and returns them: bool[n]."""
        data, starts = records.data, records.starts
        at = find_invalid_utf8(data, starts, records.nexts)
        if at is None:
            return np.zeros(starts.size, np.bool_)
        rows = among & (at >= 0)
        details = invalid_utf8(data, starts[rows], at[rows], "record")
        details = self._invalid.explain_all(data, starts[rows], records.ends[rows], details)
        self._reject(rejects, records, rows, "invalid_utf8", details)
        return rows


def without_line_end(line: bytes) -> bytes:
    r"""Returns a line without the `\n` or `\r\n` at its end."""
    return line[:-1].removesuffix(b"\r") if line.endswith(b"\n") else line


def skip_marks(data: bytes, starts: Positions, ends: Positions) -> Positions:
    """Returns int64[n]: where records begin without the byte order marks that they have where files were joined."""
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


def copied(data: bytes, starts: Sequence[int] | Positions, nexts: Sequence[int] | Positions) -> bytes:
    """Returns some stretches of bytes, in order, one after another; int64[n] each."""
    starts, nexts = np.asarray(starts), np.asarray(nexts)
    if not starts.size:
        return b""
    first = np.flatnonzero(np.append(-1, nexts[:-1]) != starts)  # of each run of neighbours
    last = np.append(first[1:], starts.size) - 1
    runs = zip(starts[first].tolist(), nexts[last].tolist(), strict=True)
    return b"".join(data[start:stop] for start, stop in runs)
