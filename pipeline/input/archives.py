# SPDX-License-Identifier: Apache-2.0
"""Members of zip and tar archives as files: `crawl.zip!/dir/part.jsonl` is the path of one.

Nothing is unpacked. A member of a tar that is not compressed is a range of the archive, and read as any file. Every
other member is a stream: it is decompressed while it is read. Its offsets are those in the member.
"""

import contextlib
import io
import os
import posixpath
import re
import stat
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from tokenmill.pipeline import storage
from tokenmill.pipeline.config.formats import ARCHIVES, check_pointer, format_of
from tokenmill.pipeline.input.decompressing import (
    FREE_BYTES,
    MAX_EXPANSION,
    SAMPLE_BYTES,
    Damage,
    StreamError,
    decompress,
    detect_compression,
    read_exactly,
)
from tokenmill.pipeline.splits import Piece

MARK = "!/"
"""What is between the path of an archive and the name of a member."""

_OF_MEMBER = re.compile(rf"(.*?(?:{'|'.join(map(re.escape, ARCHIVES))})){MARK}(.+)", re.IGNORECASE | re.DOTALL)
_BACK_BYTES = 1 << 17
"""How far one can go back in a stream without reading it again: the beginning of a member is looked at first."""
_END_BYTES = 1 << 20
_METHODS = {0: "archive", 8: "deflate", 12: "bz2", 93: "zstd", 95: "xz"}
"""How to undo a compression, by its number in a zip archive; 0 is none."""
_MOST_TAIL = (1 << 16) + 98
"""The end of a zip archive: a comment, and two records in front of it."""
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_UNPACK = "unpack it, and name the files"


def is_archive(path: str) -> bool:
    """Returns whether a file has the name of an archive."""
    return path.lower().endswith(ARCHIVES)


def split_path(path: str) -> tuple[str, str]:
    """Returns the path of a file, and the name of a member if it is that of one, else "".

    >>> split_path("corpus/crawl.tar.gz!/a/b.jsonl")
    ('corpus/crawl.tar.gz', 'a/b.jsonl')
    """
    found = _OF_MEMBER.fullmatch(path) if MARK in path else None
    if found is None or (not storage.is_remote(path) and os.path.lexists(path)):
        return path, ""
    return found[1], found[2]


def share_stream(path: str, other: str) -> bool:
    """Returns whether two paths are of members of one tar that is compressed, which can only be read in its order."""
    archive, member = split_path(path)
    return bool(member) and not archive.lower().endswith((".zip", ".tar")) and other.startswith(f"{archive}{MARK}")


def open_piece(piece: Piece) -> BinaryIO:
    """Opens the file, or the member of an archive, that a piece is of; see `open_file`.

    A local one must be as it was when the job was planned. A store would have to be asked once more for each file.
    """
    check_unchanged(piece)
    try:
        return open_file(piece.path, piece.version)
    except FileNotFoundError as error:
        raise _has_gone(piece.path) from error


def is_file(path: str) -> bool:
    """Returns whether a path, taken literally, is that of a file, or of a member of an archive."""
    try:
        if not split_path(path)[1]:
            return storage.find(path) is not None
        open_file(path, "").close()
    except (OSError, ValueError):
        return False
    return True


def check_unchanged(piece: Piece) -> None:
    """Raises an OSError if a local file is not as it was when the job was planned.

    Without this a pipe that has taken its place would be waited for without end.
    """
    path = split_path(piece.path)[0]
    if not piece.version or storage.is_remote(path):
        return
    there = storage.find(path)
    if there is None:
        raise _has_gone(path)
    if there.version != piece.version:
        raise OSError(f"{path!r} has changed since the job was planned; go on with --resume once it no longer changes")


def _has_gone(path: str) -> OSError:
    return OSError(f"{path!r} has gone since the job was planned, or is no file any more; put it back")


def open_file(path: str, version: str) -> BinaryIO:
    """Opens a file, or a member of an archive, for reading; seekable, for the caller to close.

    The last archive of each thread stays open: members that are read in its order need no second look at what is before
    them.

    Args:
      path: of the file or the member.
      version: of the file or the archive.

    Raises:
      OSError: if it is not there, or cannot be read.
    """
    archive, member = split_path(path)
    if not member:
        return storage.open_read(path)
    key = archive, version, os.getpid()  # a child must not share the position of a file with its parent
    if getattr(_last, "key", None) != key:
        _last.archive = None
        _last.archive, _last.key = _open(archive), key
    try:
        return cast(BinaryIO, _last.archive.open(member))
    except Exception as error:
        raise OSError(f"{archive!r} has no member {member!r} that can be read: {error}") from error


_last = threading.local()


def look(
    file: storage.FileStat, *, by_name: bool, is_excluded: Callable[[str], bool] = lambda path: False
) -> tuple[list[storage.FileStat], list[str]]:
    """Returns the members of an archive that are read, in its order, and the names of those that are not.

    Links, hidden files, and files of no known format are not read. A tar that is compressed is decompressed for it.

    Args:
      file: the archive.
      by_name: whether only files with the name of a known format are read.
      is_excluded: whether a member is not read, and not named.

    Raises:
      ValueError: if it is damaged, or a member cannot be read; the message follows the name of the archive.
      OSError: if it cannot be read.
    """
    members: dict[str, int] = {}
    plain: set[str] = set()
    left_out, wrong, n_excluded = [], "", 0
    handle = _Watched(file.path)
    try:
        with contextlib.closing(_open(file.path, handle)) as archive:
            for name, n_bytes, is_file, problem in archive.entries():
                if is_excluded(f"{file.path}{MARK}{name}"):
                    n_excluded += 1
                    continue
                parts = name.split("/")
                place = posixpath.normpath(name)  # where it would be unpacked; `./a` is `a`
                is_twice = name in members or place in members or place in plain
                if not is_file or any(part.startswith(".") and part not in (".", "..") for part in parts):
                    left_out.append(name)
                elif problem or is_twice or name.startswith("/") or ".." in parts or is_archive(name):
                    twice = "is there twice" if is_twice else ""
                    other = "is an archive, too" if is_archive(name) else "has a name that leads out of it"
                    wrong = wrong or f"its member {name!r} {problem or twice or other}"
                elif by_name and format_of(name) is None:
                    left_out.append(name)
                else:
                    members[name] = n_bytes
                    if place != name:
                        plain.add(place)
    except Exception as error:  # what Python raises for damaged archives is no closed list
        if handle.error is not None:
            raise OSError(f"cannot be read: {handle.error}") from error
        with contextlib.closing(storage.open_read(file.path)) as again:
            check_pointer(read_exactly(again, SAMPLE_BYTES))
        wrong = f"it is damaged, or no such archive: {error}"
    n_bytes = sum(members.values())
    if not wrong and n_bytes > max(FREE_BYTES, MAX_EXPANSION * file.n_bytes):
        wrong = f"its {file.n_bytes:,} bytes claim to give {n_bytes:,}"
    if not wrong and not members and not n_excluded:
        wrong = "it has no file with the name of a known format"
        if left_out:
            wrong += ", but input.format reads all (source code and Markdown: text, with input.document: file)"
    if wrong:
        raise ValueError(f"cannot be read: {wrong}; {_UNPACK}")
    return [storage.FileStat(f"{file.path}{MARK}{name}", n, file.version) for name, n in members.items()], left_out


_Entry = tuple[str, int, bool, str]
"""Name, bytes, whether it is a file, and why it cannot be read, or ""."""


class _Watched:
    """An open file that remembers why it could not be read, which is no damage of the archive."""

    def __init__(self, path: str) -> None:
        self._handle = storage.open_read(path)
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def read(self, *size: int) -> bytes:
        try:
            return self._handle.read(*size)
        except Exception as error:  # of any store
            self.error = error
            raise


def _open(path: str, handle: Any = None) -> "_Zip | _Tar":
    handle = handle or storage.open_read(path)
    try:
        return _Zip(handle) if path.lower().endswith(".zip") else _Tar(handle)
    except BaseException:
        handle.close()
        raise


class _Archive:
    """An open archive, closed when nobody reads it any more."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle

    def close(self) -> None:
        self._handle.close()

    __del__ = close


class _Zip(_Archive):
    def __init__(self, handle: BinaryIO) -> None:
        super().__init__(handle)
        self._zip = zipfile.ZipFile(handle)

    def entries(self) -> Iterator[_Entry]:
        for info in self._zip.infolist():
            problem = "is encrypted" if info.flag_bits & 1 else ""
            if info.compress_type not in _METHODS:
                problem = f"is compressed by method {info.compress_type} of zip, which is not known here"
            if not info.is_dir():
                yield info.filename, info.file_size, not stat.S_ISLNK(info.external_attr >> 16), problem
        # `zipfile` takes a directory that ends early for a short one.
        self._handle.seek(max(0, self._handle.seek(0, io.SEEK_END) - _MOST_TAIL))
        tail = read_exactly(self._handle, _MOST_TAIL)
        at = tail.rfind(b"PK\5\6")
        large = tail.rfind(b"PK\6\6", 0, at)
        n_listed, n_found = int.from_bytes(tail[at + 10 : at + 12], "little"), len(self._zip.infolist())
        if n_listed == 0xFFFF and large >= 0:
            n_listed = int.from_bytes(tail[large + 32 : large + 40], "little")
        if n_listed != n_found and n_listed != n_found & 0xFFFF:
            raise zipfile.BadZipFile(f"it says that it has {n_listed} members, and {n_found} are found")

    def open(self, name: str) -> "_Expanded":
        info = self._zip.getinfo(name)
        return _Expanded(lambda: self._expand(info))

    def _expand(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yields the bytes of a member; StreamError where it is damaged."""
        self._handle.seek(info.header_offset)
        header = read_exactly(self._handle, _LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\3\4"):
            raise StreamError("corrupt_stream", f"the archive has no member at byte {info.header_offset}")
        first = info.header_offset + len(header) + sum(_LOCAL_HEADER.unpack(header)[1:])
        stored = _Range(self, self._handle, first, info.compress_size, is_stream=False)
        crc = n_bytes = 0
        for chunk in decompress(cast(BinaryIO, stored), _METHODS[info.compress_type]):
            crc, n_bytes = zlib.crc32(chunk, crc), n_bytes + len(chunk)
            yield chunk
        if (crc, n_bytes) != (info.CRC, info.file_size):
            raise StreamError("corrupt_stream", f"{n_bytes} bytes do not have the checksum that the archive says")


class _Tar(_Archive):
    def __init__(self, handle: BinaryIO) -> None:
        super().__init__(handle)
        compression = detect_compression(read_exactly(handle, SAMPLE_BYTES))
        handle.seek(0)
        self._is_stream = compression != "none"
        self._base: Any = _Expanded(lambda: decompress(handle, compression)) if self._is_stream else handle
        self._tar = tarfile.TarFile(fileobj=self._base, encoding="utf-8", errors="surrogateescape")
        self._known: dict[str, tuple[int, int]] = {}
        """Where members that were met begin, and how many bytes they have."""

    def _next(self) -> tarfile.TarInfo | None:
        info = self._tar.next()
        self._tar.members = []  # type: ignore[attr-defined]  # it would have all, a kilobyte each
        return info

    def entries(self) -> Iterator[_Entry]:
        while (info := self._next()) is not None:
            if not info.isdir():
                problem = "has holes, as tar --sparse writes them" if info.issparse() else ""
                yield info.name, info.size, info.isreg(), problem
        # `tarfile` takes a damaged header for the end.
        self._base.seek(self._tar.offset)
        rest = self._base.read(_END_BYTES)
        wrong = "" if rest else "it ends without the mark of an end"
        while rest and not wrong:
            wrong = f"what follows byte {self._tar.offset} is no member" if rest.count(0) < len(rest) else ""
            rest = self._base.read(_END_BYTES)
        if wrong:
            raise tarfile.ReadError(wrong)

    def open(self, name: str) -> "_Range":
        while name not in self._known:
            if (info := self._next()) is None:
                raise KeyError(name)
            self._known[info.name] = info.offset_data, info.size
        return _Range(self, self._base, *self._known[name], is_stream=self._is_stream)


class _Positioned(io.RawIOBase):
    """A file that is read from a position."""

    is_stream = True
    """Whether it can only be read from its beginning."""
    _n_bytes = 0

    def __init__(self) -> None:
        self._position = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._n_bytes}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position


class _Expanded(_Positioned):
    """What a stream expands to."""

    def __init__(self, expand: Callable[[], Iterator[bytes]]) -> None:
        super().__init__()
        self._expand = expand
        self._start()

    def _start(self) -> None:
        self._chunks = self._expand()
        self._chunk, self._first = b"", 0
        self._damage: Damage | None = None

    def read(self, size: int = -1) -> bytes:
        """Reads bytes, fewer only before damage or the end; StreamError where nothing but damage is left."""
        if self._position < self._first:
            self._start()
        while self._damage is None and (size < 0 or self._position + size > self._first + len(self._chunk)):
            try:
                more = next(self._chunks, b"")
            except StreamError as error:
                self._damage = error.damage
                break
            if not more:
                break
            n_gone = max(0, min(len(self._chunk), self._position - self._first) - _BACK_BYTES)
            self._chunk, self._first = self._chunk[n_gone:] + more, self._first + n_gone
        start = self._position - self._first
        found = self._chunk[start:] if size < 0 else self._chunk[start : start + size]
        if not found and size and self._damage is not None:
            raise StreamError(self._damage.reason, self._damage.detail)
        self._position += len(found)
        return found


class _Range(_Positioned):
    """A range of an archive, or of what it expands to."""

    def __init__(self, archive: object, base: Any, first: int, n_bytes: int, *, is_stream: bool) -> None:
        super().__init__()
        self._archive = archive  # closes its file when nobody needs it any more
        self._base, self._first, self._n_bytes = base, first, n_bytes
        self.is_stream = is_stream

    def read(self, size: int = -1) -> bytes:
        n_left = max(0, self._n_bytes - self._position)
        self._base.seek(self._first + self._position)
        found: bytes = self._base.read(n_left if size < 0 else min(size, n_left))
        self._position += len(found)
        return found
