# SPDX-License-Identifier: Apache-2.0
"""Decompresses files in bounded memory, down to the last byte before any damage."""

import bz2
import contextlib
import io
import lzma
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import zstandard

STEP_BYTES = 1 << 20
"""The most that one step of gzip, bz2 or xz may expand to."""

SAMPLE_BYTES = 4096
"""This much of the beginning of a file shows its compression, the size of its zstd window, and its encoding."""

MAX_EXPANSION = 1000
"""A compressed file that expands to more than this many times its size is a bomb; text expands 3 to 30 times."""

FREE_BYTES = 1 << 28
"""Bytes that any compressed file may expand to, whatever its size."""

_COMPRESSED_BYTES = 1 << 16
# A zstd block of four bytes may expand to 128 KiB, so 1 KiB of a bomb to 32 MiB. No more than 1 KiB is fed at once.
_ZSTD_BYTES = 1 << 10
_TAIL_BYTES, _HEAD_BYTES = 1 << 18, 1 << 14
_MOST_MEMBERS, _MEMBER_BYTES = 8, 1 << 24
_BZ2_END = 0x177245385090
_ZSTD_WINDOW_BYTES = 1 << 27
_XZ_BYTES = (1 << 27) + (1 << 20)
"""The most memory that a decoder of xz may take: a dictionary of 128 MiB; `xz -9` takes 65."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Why a stream ended early; `reason` is a key of `rejects.REASONS`."""

    reason: str
    detail: str


def detect_compression(head: bytes) -> str:
    """Returns the compression that the first `SAMPLE_BYTES` bytes of a file show: none, gzip, zstd, bz2 or xz."""
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    # A skippable frame (0x184D2A50 to 5F) may come first: pzstd writes one.
    if head.startswith(b"\x28\xb5\x2f\xfd") or re.match(rb"[\x50-\x5f]\x2a\x4d\x18", head, re.DOTALL):
        return "zstd"
    # A text may begin with "BZh9"; in a bz2 file the mark of a block or of the end follows.
    if re.match(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", head, re.DOTALL):
        return "bz2"
    return "xz" if head.startswith(b"\xfd7zXZ\0") else "none"


def check_memory(head: bytes, compression: str) -> None:
    """Checks that decompressing a zstd or xz file does not take more memory than a worker may use.

    Raises:
      ValueError: when its beginning needs a window or a dictionary of more than 128 MiB (`zstd --long=28` and more).
    """
    if compression == "xz":
        try:
            _xz_decoder().decompress(head, 1)
        except lzma.LZMAError as error:
            if "memory" in str(error).lower():
                raise ValueError(
                    f"needs an xz dictionary of more than {_XZ_BYTES >> 20} MiB; compress it again with -9 or less"
                ) from None
    if compression != "zstd":
        return
    try:
        frame = zstandard.get_frame_parameters(head)
    except zstandard.ZstdError:
        return  # a skippable frame or a damaged one: the reader will report damage
    if frame.dict_id:
        raise ValueError(f"needs the zstd dictionary {frame.dict_id}, which is not in it; compress it again without -D")
    window = frame.window_size
    if window > _ZSTD_WINDOW_BYTES:
        raise ValueError(
            f"needs a zstd window of {window} bytes, at most {_ZSTD_WINDOW_BYTES} are allowed; "
            "compress it again with --long=27 or less"
        )


def is_cut_short(handle: BinaryIO, compression: str) -> bool:
    """Returns whether a file ends early, which its last bytes show of most that do; only then all of it is read.

    Args:
      handle: the file, seekable.
      compression: gzip, zstd, bz2 or xz.
    """
    n_bytes = handle.seek(0, io.SEEK_END)
    handle.seek(max(0, n_bytes - _TAIL_BYTES))
    if not n_bytes or _ends_well(handle, compression, n_bytes, read_exactly(handle, _TAIL_BYTES)):
        return False
    handle.seek(0)
    try:
        for _ in decompress(handle, compression):
            pass
    except StreamError as error:
        return error.damage.reason == "truncated_stream"
    return False


def _ends_well(handle: BinaryIO, compression: str, n_bytes: int, tail: bytes) -> bool:
    """Returns whether a file seems to be whole: zstd by its chain of blocks, others by `tail`, its last bytes."""
    if compression == "xz":
        return tail.rstrip(b"\0").endswith(b"YZ")
    if compression == "bz2":  # a mark, the checksum, and up to seven bits
        bits = int.from_bytes(tail[-11:])
        return any(bits >> 32 + n & (1 << 48) - 1 == _BZ2_END for n in range(8))
    if compression == "zstd":
        return _has_all_blocks(handle, n_bytes)
    starts = [found.start() for found in re.finditer(rb"\x1f\x8b\x08", tail)]
    for start in starts[: -_MOST_MEMBERS - 1 : -1]:  # of a file with many members, the last is in the tail
        member = zlib.decompressobj(wbits=31)
        with contextlib.suppress(zlib.error):
            if member.decompress(tail[start:], _MEMBER_BYTES) and member.eof and not member.unused_data:
                return True
    if n_bytes <= len(tail):
        return False
    handle.seek(0)
    head = read_exactly(handle, _HEAD_BYTES)
    with contextlib.suppress(zlib.error):
        # The last four bytes say how much comes of the file: about as much as its beginning gives, or it has no end.
        expected = len(zlib.decompressobj(wbits=31).decompress(head)) * n_bytes // len(head)
        return 4 * expected >= 1 << 32 or expected // 4 <= int.from_bytes(tail[-4:], "little") <= 4 * expected
    return True  # another damage, which the reader will report


def _has_all_blocks(handle: BinaryIO, n_bytes: int) -> bool:
    """Returns whether the headers of frames and blocks of a zstd file lead to its end."""
    at = 0
    while at < n_bytes:
        handle.seek(at)
        head = read_exactly(handle, 18)
        if re.match(rb"[\x50-\x5f]\x2a\x4d\x18", head, re.DOTALL):
            at += 8 + int.from_bytes(head[4:8], "little")
            continue
        try:
            at += zstandard.frame_header_size(head)
            has_checksum = zstandard.get_frame_parameters(head).has_checksum
        except zstandard.ZstdError:
            return False
        is_last = 0
        while not is_last and at < n_bytes:
            handle.seek(at)
            block = int.from_bytes(read_exactly(handle, 3), "little")
            is_last = block & 1
            at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        at += 4 * has_checksum if is_last else 1
    return at == n_bytes


def read_exactly(handle: BinaryIO, n_bytes: int) -> bytes:
    """Reads `n_bytes` bytes; fewer only at the end of the file."""
    # A remote handle may return less than asked for before the end of the file.
    data = handle.read(n_bytes)
    while len(data) < n_bytes:
        more = handle.read(n_bytes - len(data))
        if not more:
            break
        data += more
    return data


def beginning(handle: BinaryIO) -> str:
    """Returns the end of a message about a file that is not what it should be: what it begins with."""
    handle.seek(0)
    return f"; it begins with {read_exactly(handle, 24)!r}"


class StreamError(Exception):
    """A compressed file is cut short, damaged or a bomb."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.damage = Damage(reason, detail)


def _xz_decoder() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_BYTES)


_DECODERS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "deflate": lambda: zlib.decompressobj(wbits=-15),  # a member of a zip archive
    "bz2": bz2.BZ2Decompressor,
    "xz": _xz_decoder,
    "zstd": lambda: zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj(),
}


class _Member:
    """One gzip member, zstd frame, bz2 or xz stream; a file may hold several, one after another."""

    def __init__(self, compression: str) -> None:
        self._decoder = _DECODERS[compression]()
        self._is_zstd = compression == "zstd"
        self.rest = b""
        """The fed bytes that come after the end of this member."""

    @property
    def is_complete(self) -> bool:
        """Whether the end of this member has been fed."""
        return bool(self._decoder.eof)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields what `data` expands to, at most some MiB at a time; a chunk is decompressed when it is asked for."""
        decoder = self._decoder
        step, limit = (_ZSTD_BYTES, ()) if self._is_zstd else (max(1, len(data)), (STEP_BYTES,))
        for start in range(0, len(data), step):
            left, is_done = data[start : start + step], False
            while not is_done:
                output = decoder.decompress(left, *limit)
                left = getattr(decoder, "unconsumed_tail", b"")
                if output:
                    yield output
                # A decoder that has all input, or asks for more, may still hold output, but that of zstd does not.
                is_idle = not (output or left) and getattr(decoder, "needs_input", True)
                is_done = decoder.eof or self._is_zstd or is_idle
            if decoder.eof:
                self.rest = bytes(decoder.unused_data) + data[start + step :]
                return


_ERRORS = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, ValueError, EOFError)


def decompress(handle: BinaryIO, compression: str) -> Iterator[bytes]:
    """Yields what a compressed file expands to, all its members, down to the last byte before any damage.

    Of a member of an archive these are its bytes: what reads it undoes the compression of the archive.

    Raises:
      StreamError: after the last byte that could be decompressed, when the file is cut short or damaged, and where it
        expands to more than `FREE_BYTES` and `MAX_EXPANSION` times what was read of it.
      OSError: when reading fails.
    """
    handle.seek(0)
    if compression == "archive":
        while chunk := handle.read(STEP_BYTES):
            yield chunk
        return
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
            if compression in ("gzip", "xz") and n_members:
                data = data.lstrip(b"\0")  # Tapes and block devices pad with zeros; gzip(1) and xz(1) skip them, too.
                if not data:
                    continue
            member = _Member(compression)
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
                    raise StreamError("bomb", detail)
        except _ERRORS:
            damaged_at = yield from _salvage(handle, compression, member_start, fed_from, n_yielded)
            raise StreamError("corrupt_stream", f"{compression} data is damaged at byte {damaged_at}") from None
        data = member.rest if member.is_complete else b""
        if member.is_complete:
            member = None
    if member is not None:
        raise StreamError("truncated_stream", f"{compression} data ends early, at byte {position}")


def _salvage(
    handle: BinaryIO, compression: str, member_start: int, fed_from: int, n_yielded: int
) -> Generator[bytes, None, int]:
    """Yields the output that a decoder dropped when it failed, and returns the position of the byte it failed at.

    Decoders drop all output of the call that meets the damage. So the member is read again, and fed byte by byte from
    `fed_from`, where that call began. The first `n_yielded` bytes of output were yielded before and are skipped.
    """
    member = _Member(compression)
    handle.seek(member_start)
    position = member_start
    while True:
        # Fed byte by byte, a decoder may ask for more input where it failed before; then the end of the file ends this.
        is_before = position < fed_from
        data = read_exactly(handle, min(_COMPRESSED_BYTES, fed_from - position) if is_before else _COMPRESSED_BYTES)
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
