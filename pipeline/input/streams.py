# SPDX-License-Identifier: Apache-2.0
"""The decompressed bytes of a file, or of the records of a byte range, in chunks of bounded size.

A range has the records whose first byte is in it. So its bytes reach from the first record boundary at or after its
start to the first one at or after its stop; neighbouring ranges agree on these boundaries and share no byte.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from tokenmill.pipeline.input.decompressing import SAMPLE_BYTES, Damage, StreamError, decompress, read_exactly
from tokenmill.pipeline.input.transcoding import InvalidText, settle_encoding, transcode
from tokenmill.pipeline.splits import Piece

CHUNK_BYTES = 1 << 20
"""How much of an uncompressed file is read at once."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK = b" \t\r"
"""The bytes a blank line may hold."""

_PROBE_BYTES = 1 << 16
_HEAD_BYTES = 1 << 16
_COALESCED_BYTES = 1 << 18
_BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")


class Stream:
    """The decompressed bytes of a piece's records, in UTF-8, to be read once.

    After `chunks` is exhausted, `damage` is the reason why the stream ended early, or None.
    """

    def __init__(self, handle: BinaryIO, piece: Piece, paragraphs: bool = False, digest: Any = None) -> None:
        """Opens the stream.

        Args:
          handle: the file as it is stored, seekable. The caller closes it, and does not move it before that.
          piece: which file and range; a compressed file is read completely.
          paragraphs: whether records are separated by blank lines instead of line ends.
          digest: a `hashlib` object that takes all bytes read, a byte order mark too; None for no checksum.

        Raises:
          ValueError: when a compressed file is in another encoding than the piece says.
        """
        self.damage: Damage | None = None
        self._source: Iterator[bytes]
        self._digest = digest
        head = b""
        if piece.compression == "none":
            self.offset, stop = _record_range(handle, piece, paragraphs)
            self._source = _read_range(handle, piece, self.offset, stop)
            encoding = piece.encoding
        else:
            self.offset = 0
            self._source = self._undo(decompress(handle, piece.compression))
            while len(head) < SAMPLE_BYTES and (chunk := next(self._source, b"")):
                head += chunk
            self._source = itertools.chain((head,) if head else (), self._source)
            try:
                encoding = settle_encoding(head[:SAMPLE_BYTES], piece.encoding)
            except ValueError as error:
                raise ValueError(f"{piece.path!r} {error}") from error
        if encoding != "utf-8":
            self._source = transcode(self._source, encoding)
        self.invalid = InvalidText(encoding, lambda: head[:_HEAD_BYTES] or _read_head(handle))
        """Explains invalid records."""
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
        except StreamError as error:
            self.damage = error.damage
        if parts:
            yield b"".join(parts)


def _record_range(handle: BinaryIO, piece: Piece, paragraphs: bool) -> tuple[int, int]:
    boundary = _paragraph_boundary if paragraphs else _line_boundary
    # If no record begins before `stop`, the range is empty, and it does not matter where the next one begins.
    start = boundary(handle, piece, piece.start, piece.stop)
    return start, boundary(handle, piece, piece.stop, piece.n_bytes) if start < piece.stop else start


def _read_head(handle: BinaryIO) -> bytes:
    position = handle.tell()
    handle.seek(0)
    head = read_exactly(handle, _HEAD_BYTES)
    handle.seek(position)
    return head


def _read_range(handle: BinaryIO, piece: Piece, start: int, stop: int) -> Iterator[bytes]:
    handle.seek(start)
    while start < stop:
        chunk = _read_some(handle, piece, start, min(CHUNK_BYTES, stop - start))
        start += len(chunk)
        yield chunk


def _read_some(handle: BinaryIO, piece: Piece, position: int, n_bytes: int) -> bytes:
    chunk = handle.read(n_bytes)
    if not chunk:
        raise OSError(
            f"{piece.path!r} ends at byte {position} or before, but had {piece.n_bytes} when the job was planned; "
            "start the job again once the file no longer changes"
        )
    return chunk


def _line_boundary(handle: BinaryIO, piece: Piece, position: int, end: int) -> int:
    """Returns the first start of a line at or after `position`; `end` when there is none before it."""
    if position == 0 or position >= end:
        return min(position, end)
    if position <= len(BYTE_ORDER_MARK):
        handle.seek(0)
        if read_exactly(handle, len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK:
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


def _paragraph_boundary(handle: BinaryIO, piece: Piece, position: int, end: int) -> int:
    """Returns the first position from `position` on where a blank line, or the line after one, starts; else `end`.

    No document extends across it: all bytes before it belong to earlier documents and blank lines, all others to later
    ones.
    """
    start = _line_boundary(handle, piece, position, end)
    if start >= end or _follows_blank(handle, start):
        return start
    handle.seek(start)
    position = start
    # The last line end, as long as nothing but blanks follows it.
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
        if read_exactly(handle, start) == BYTE_ORDER_MARK:
            return True
    position = start - 1  # of the line end
    while position > 0:
        # No step may read only a part of a byte order mark.
        n_bytes = _PROBE_BYTES if position > _PROBE_BYTES + len(BYTE_ORDER_MARK) else position
        position -= n_bytes
        handle.seek(position)
        before = read_exactly(handle, n_bytes).rstrip(BLANK)
        if before:
            return before.endswith(b"\n") or (position == 0 and before == BYTE_ORDER_MARK)
    return True
