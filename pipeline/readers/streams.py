# SPDX-License-Identifier: Apache-2.0
"""The decompressed bytes of a file, or of the records of a byte range, in chunks of bounded memory.

A range holds the records whose first byte is in it, so its bytes reach from the first record boundary at or after its
start to the first one at or after its stop; neighbouring ranges agree on where that is and share no byte.
"""

import bz2
import itertools
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import zstandard

if TYPE_CHECKING:  # pipeline.splits imports the readers
    from pipeline.splits import Piece

CHUNK_BYTES = 1 << 20
"""How much of an uncompressed file is read at once, and the most that one step of gzip or bz2 may expand to."""

HEAD_BYTES = 18
"""Enough of the beginning of a file to tell its compression and the memory that it asks for."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK = b" \t\r"
"""The bytes a blank line may hold."""

MAX_EXPANSION = 1000
"""A compressed file that gives more than this many bytes for one of its own is a bomb: text gives 3 to 30."""

FREE_BYTES = 1 << 28
"""What a compressed file may expand to whatever its size."""

_COMPRESSED_BYTES = 1 << 16
# One zstd block of four bytes may expand to 128 KiB, so that 1 KiB of a bomb gives 32 MiB, and no more is asked for.
_ZSTD_BYTES = 1 << 10
_ZSTD_WINDOW_BYTES = 1 << 27
_PROBE_BYTES = 1 << 16
_COALESCED_BYTES = 1 << 18
_BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")


@dataclass(frozen=True, slots=True)
class Damage:
    """Why a stream ended before its end; `reason` is a key of `rejects.REASONS`."""

    reason: str
    detail: str


def detect_compression(head: bytes) -> str:
    """Returns the compression that the first `HEAD_BYTES` bytes of a file show: none, gzip, zstd or bz2."""
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    # A skippable frame (0x184D2A50 to 5F) may come first: pzstd writes one.
    if head.startswith(b"\x28\xb5\x2f\xfd") or re.match(rb"[\x50-\x5f]\x2a\x4d\x18", head, re.DOTALL):
        return "zstd"
    # A text may begin with "BZh9"; a bz2 file goes on with the mark of a block or of the end.
    if re.match(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", head, re.DOTALL):
        return "bz2"
    return "none"


def check_window(head: bytes) -> None:
    """Raises if a zstd file asks for more memory than a worker may spend on it.

    Raises:
      ValueError: when the first frame needs a window of more than 128 MiB (`zstd --long=28` and more).
    """
    try:
        window = zstandard.get_frame_parameters(head).window_size
    except zstandard.ZstdError:
        return  # A skippable frame or a damaged one: the reader reports what it meets.
    if window > _ZSTD_WINDOW_BYTES:
        raise ValueError(
            f"needs a zstd window of {window} bytes, at most {_ZSTD_WINDOW_BYTES} are allowed; "
            "compress it again with --long=27 or less"
        )


class Stream:
    """The decompressed bytes of a piece's records, to be read once.

    After `chunks` is exhausted `damage` says whether, and why, the stream ended early.
    """

    def __init__(self, handle: BinaryIO, piece: "Piece", paragraphs: bool = False, digest: Any = None) -> None:
        """Opens the stream; `handle` is the file, uncompressed as stored, and stays the caller's.

        Args:
          handle: seekable; nobody else moves it while the stream is read.
          piece: which file and range; a compressed file is read whole.
          paragraphs: whether records are separated by blank lines instead of line ends.
          digest: of `hashlib`, takes all bytes that are read, a byte order mark too; None: nobody asks.
        """
        self.damage: Damage | None = None
        self._digest = digest
        if piece.compression == "none":
            self.offset, stop = _record_range(handle, piece, paragraphs)
            self._source = _read_range(handle, piece, self.offset, stop)
        else:
            self.offset = 0
            self._source = self._undo(decompress(handle, piece.compression))
        self._first = b""
        while len(self._first) < len(BYTE_ORDER_MARK) and (chunk := next(self._source, b"")):
            self._first += chunk
        self.n_skipped = 0
        """Bytes of a byte order mark before `offset`, the position of the first byte that `chunks` gives."""
        if self.offset == 0 and self._first.startswith(BYTE_ORDER_MARK):
            self.n_skipped = self.offset = len(BYTE_ORDER_MARK)
            self._first = self._first[self.n_skipped :]
            if digest is not None:
                digest.update(BYTE_ORDER_MARK)

    def chunks(self) -> Iterator[bytes]:
        """Yields the bytes in order; no chunk is empty."""
        for chunk in itertools.chain((self._first,) if self._first else (), self._source):
            if self._digest is not None:
                self._digest.update(chunk)
            yield chunk

    def _undo(self, outputs: Iterator[bytes]) -> Iterator[bytes]:
        parts: list[bytes] = []
        n_bytes = 0
        try:
            for output in outputs:
                parts.append(output)
                n_bytes += len(output)
                if n_bytes >= _COALESCED_BYTES:
                    yield b"".join(parts)
                    parts, n_bytes = [], 0
        except _StreamError as error:
            self.damage = error.damage
        if parts:
            yield b"".join(parts)


def _record_range(handle: BinaryIO, piece: "Piece", paragraphs: bool) -> tuple[int, int]:
    boundary = _paragraph_boundary if paragraphs else _line_boundary
    # Beyond `stop` it does not matter where the next record begins: it is not in this range.
    start = boundary(handle, piece, piece.start, piece.stop)
    return start, boundary(handle, piece, piece.stop, piece.n_bytes) if start < piece.stop else start


def _read_range(handle: BinaryIO, piece: "Piece", start: int, stop: int) -> Iterator[bytes]:
    handle.seek(start)
    while start < stop:
        chunk = _read_some(handle, piece, start, min(CHUNK_BYTES, stop - start))
        start += len(chunk)
        yield chunk


def _read_some(handle: BinaryIO, piece: "Piece", position: int, n_bytes: int) -> bytes:
    chunk = handle.read(n_bytes)
    if not chunk:
        raise OSError(
            f"{piece.path!r} ends at byte {position} or before, but had {piece.n_bytes} when the job was planned; "
            "start the job again once the file no longer changes"
        )
    return chunk


def _line_boundary(handle: BinaryIO, piece: "Piece", position: int, end: int) -> int:
    """Returns the first start of a line at or after `position`; `end` when there is none before it."""
    if position == 0 or position >= end:
        return min(position, end)
    if position <= len(BYTE_ORDER_MARK):
        handle.seek(0)
        if _read_exactly(handle, len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK:
            return min(len(BYTE_ORDER_MARK), end)
    position -= 1
    handle.seek(position)
    while position < end:
        chunk = _read_some(handle, piece, position, _PROBE_BYTES)
        found = chunk.find(b"\n")
        if found >= 0:
            return min(position + found + 1, end)
        position += len(chunk)
    return end


def _paragraph_boundary(handle: BinaryIO, piece: "Piece", position: int, end: int) -> int:
    """Returns the first start at or after `position` of a blank line or of a line after one; else `end`.

    There no document is open: all before belongs to earlier documents and blank lines, all after to later ones.
    """
    start = _line_boundary(handle, piece, position, end)
    if start >= end or _follows_blank(handle, start):
        return start
    handle.seek(start)
    position = start
    # The last line end met, as long as nothing but blanks follows it.
    line_end: int | None = start - 1
    while position < piece.n_bytes:
        if position >= end and (line_end is None or line_end + 1 >= end):
            return end
        chunk = _read_some(handle, piece, position, _PROBE_BYTES)
        if line_end is not None:
            rest = chunk.lstrip(BLANK)
            if rest.startswith(b"\n"):
                break
            if rest:
                line_end = None
        found = _BLANK_LINE.search(chunk)
        if found:
            line_end = position + found.start()
            break
        before = chunk.rstrip(BLANK)
        if before.endswith(b"\n"):
            line_end = position + len(before) - 1
        position += len(chunk)
    return end if line_end is None else min(line_end + 1, end)


def _follows_blank(handle: BinaryIO, start: int) -> bool:
    """Returns whether the line before the one at `start` is blank, or there is none."""
    if start == len(BYTE_ORDER_MARK):
        handle.seek(0)
        if _read_exactly(handle, start) == BYTE_ORDER_MARK:
            return True
    position = start - 1  # of the line end
    while position > 0:
        # Never a part of a byte order mark alone.
        n_bytes = _PROBE_BYTES if position > _PROBE_BYTES + len(BYTE_ORDER_MARK) else position
        position -= n_bytes
        handle.seek(position)
        before = _read_exactly(handle, n_bytes).rstrip(BLANK)
        if before:
            return before.endswith(b"\n") or (position == 0 and before == BYTE_ORDER_MARK)
    return True


def _read_exactly(handle: BinaryIO, n_bytes: int) -> bytes:
    # A remote handle may give less than it is asked for before the end.
    data = handle.read(n_bytes)
    while len(data) < n_bytes:
        more = handle.read(n_bytes - len(data))
        if not more:
            break
        data += more
    return data


class _StreamError(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.damage = Damage(reason, detail)


class _Member(Protocol):
    """One gzip member, zstd frame or bz2 stream; a file may hold several, one after another."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields what `data` expands to, at most some MiB at a time; nothing is asked for before it is consumed."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def rest(self) -> bytes:
        """The bytes fed that come after the end of this member."""


class _GzipMember:
    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=31)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while True:
            output = self._decoder.decompress(data, CHUNK_BYTES)
            data = self._decoder.unconsumed_tail
            if output:
                yield output
            # A full output may leave more behind in the decoder although all input is consumed.
            if self._decoder.eof or (not data and len(output) < CHUNK_BYTES):
                return

    @property
    def is_complete(self) -> bool:
        return self._decoder.eof

    @property
    def rest(self) -> bytes:
        return self._decoder.unused_data


class _Bz2Member:
    def __init__(self) -> None:
        self._decoder = bz2.BZ2Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        while True:
            output = self._decoder.decompress(data, CHUNK_BYTES)
            data = b""
            if output:
                yield output
            # That it needs input does not mean that it holds no output back.
            if self._decoder.eof or (self._decoder.needs_input and not output):
                return

    @property
    def is_complete(self) -> bool:
        return self._decoder.eof

    @property
    def rest(self) -> bytes:
        return self._decoder.unused_data


class _ZstdMember:
    def __init__(self) -> None:
        self._decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()
        self._unfed = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_BYTES):
            output = self._decoder.decompress(data[start : start + _ZSTD_BYTES])
            if output:
                yield output
            if self._decoder.eof:
                self._unfed = data[start + _ZSTD_BYTES :]
                return

    @property
    def is_complete(self) -> bool:
        return self._decoder.eof

    @property
    def rest(self) -> bytes:
        return self._decoder.unused_data + self._unfed


_MEMBERS: dict[str, Callable[[], _Member]] = {"gzip": _GzipMember, "bz2": _Bz2Member, "zstd": _ZstdMember}
_ERRORS = (zlib.error, zstandard.ZstdError, OSError, ValueError, EOFError)


def decompress(handle: BinaryIO, compression: str) -> Iterator[bytes]:
    """Yields what a compressed file expands to, all its members, down to the last byte before any damage.

    Raises:
      _StreamError: after the last byte that could be decompressed, when the file is cut short or damaged, and where it
        expands to more than `FREE_BYTES` and `MAX_EXPANSION` times what was read of it.
      OSError: when reading fails.
    """
    handle.seek(0)
    position = 0  # of the end of `data`
    data = b""
    member: _Member | None = None
    n_members = member_start = n_yielded = n_expanded = 0
    while True:
        if not data:
            data = handle.read(_COMPRESSED_BYTES)
            if not data:
                break
            position += len(data)
        if member is None:
            if compression == "gzip" and n_members:
                data = data.lstrip(b"\0")  # Tapes and block devices pad with zeros; gzip(1) skips them, too.
                if not data:
                    continue
            member = _MEMBERS[compression]()
            n_members += 1
            member_start, n_yielded = position - len(data), 0
        fed_from = position - len(data)
        try:
            for output in member.feed(data):
                n_yielded += len(output)
                n_expanded += len(output)
                yield output
                if n_expanded > max(FREE_BYTES, MAX_EXPANSION * position):
                    detail = (
                        f"{position} bytes of {compression} give more than {n_expanded}, over {MAX_EXPANSION} times"
                    )
                    raise _StreamError("bomb", detail)
        except _ERRORS:
            damaged_at = yield from _salvage(handle, compression, member_start, fed_from, n_yielded)
            raise _StreamError("corrupt_stream", f"{compression} data is damaged at byte {damaged_at}") from None
        data = member.rest if member.is_complete else b""
        if member.is_complete:
            member = None
    if member is not None:
        raise _StreamError("truncated_stream", f"{compression} data ends early, at byte {position}")


def _salvage(
    handle: BinaryIO, compression: str, member_start: int, fed_from: int, n_yielded: int
) -> Generator[bytes, None, int]:
    """Yields what a decoder swallowed when it failed, and returns the position of the byte it failed at.

    Decoders drop the output of the call that meets the damage. So the member is read again, and byte by byte from
    where that call began; only what was not yielded before is yielded.
    """
    member = _MEMBERS[compression]()
    handle.seek(member_start)
    position = member_start
    while True:
        # Fed byte by byte a decoder may wait for more where it failed on a longer stretch: then the end is reached.
        is_before = position < fed_from
        data = _read_exactly(handle, min(_COMPRESSED_BYTES, fed_from - position) if is_before else _COMPRESSED_BYTES)
        step = len(data) if is_before else 1
        for start in range(0, len(data), step):
            try:
                for output in member.feed(data[start : start + step]):
                    n_new = max(0, len(output) - n_yielded)
                    n_yielded -= len(output) - n_new
                    if n_new:
                        yield output[len(output) - n_new :]
            except _ERRORS:
                return position + start
        position += len(data)
        if not data:
            return position
