# SPDX-License-Identifier: Apache-2.0
"""All access to files: local paths through `os`, `scheme://` paths through Arrow's filesystems.

Arrow has S3 and the stores of Google and Azure, and HDFS; `hf://` is read through fsspec. Remote failures are
`OSError`, too. After the last file of a folder is deleted or renamed Arrow (25) leaves an object of no bytes with the
name of the folder and a slash, as the consoles of stores do; it is no file here.
"""

import argparse
import contextlib
import errno
import functools
import glob
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from tokenmill.pipeline.globbing import UnreadablePathError, examine, expand, literal_folder, matcher

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs


@dataclass(frozen=True, slots=True)
class FileStat:
    """A file as it was when it was listed."""

    path: str
    n_bytes: int
    version: str
    """Changes when the file does: its size and modification time."""


_CONNECTIONS = 256
"""To a store: as many as there are threads that look at the heads of files. A thread of Arrow's is for each."""

_READ_BYTES = 4 << 20
"""Asked for at once of a store, which takes 30 ms or more to answer."""

_FSSPEC = frozenset({"hf", "memory"})
"""Schemes that fsspec opens, and that are only read: a file of a hub is a commit of its own."""

_MOST_PATTERNS = 16
"""More folders than this are not divided further."""

_S3_OPTIONS = {
    "endpoint_url": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "region_name": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "access_key_id": (),
    "secret_access_key": (),
    "session_token": (),
}
"""Beam's options `--s3_...` that are taken, and variables of the environment in their place; Arrow reads others."""

_NO_NAME = re.compile(r"[\0]" if os.name != "nt" else r'[\0\\:*?"<>|]')
"""Characters that are in no name; on Windows some of them lead elsewhere."""

_options: dict[str, str] = {}
_lock = threading.Lock()


def configure(beam_args: Sequence[str]) -> None:
    """Takes Beam's options, some of which are for stores: `--s3_endpoint_url=...`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in _S3_OPTIONS:
        parser.add_argument(f"--s3_{name}", dest=name, default="")
    _options.clear()
    _options.update(vars(parser.parse_known_args(beam_args)[0]))


def is_remote(path: str) -> bool:
    """Returns whether `path` names a scheme, and so is on a store."""
    return "://" in path


def has_glob(pattern: str) -> bool:
    """Returns whether `pattern` holds a glob character: `*`, `?` or `[`."""
    return glob.has_magic(pattern)


def pattern_of(path: str) -> str:
    """Returns the pattern of all files below a local folder; any other path, and any pattern, as it is."""
    if is_remote(path) or not os.path.isdir(path):
        return path
    return os.path.join(glob.escape(path), "**", "*")


def match(
    pattern: str,
    problems: list[UnreadablePathError] | None = None,
    hide: Callable[[str], None] = lambda path: None,
) -> Iterable[FileStat]:
    """Returns the files that `pattern` names, local ones ordered by path, remote ones as the store lists them.

    They are looked up while the result is read. A path that exists is taken literally, even where it holds glob
    characters. Directories are not files. Locally `*` does not match a leading dot and `**` matches any number of
    directories.

    Args:
      pattern: a path or a glob pattern.
      problems: takes an error for each folder that cannot be listed, and each path that is neither a file nor a
        directory: a link to nowhere or to itself, a pipe, a device; None: the first error is raised.
      hide: takes each local path that the pattern would name if its name did not begin with a dot.

    Raises:
      OSError: see `problems`; and when the store cannot be listed.
    """
    return _match_remote(pattern) if is_remote(pattern) else _match_local(pattern, problems, hide)


def _match_local(
    pattern: str, problems: list[UnreadablePathError] | None, hide: Callable[[str], None]
) -> Iterator[FileStat]:
    wrong: dict[str, UnreadablePathError] = {}  # by message: `**` may meet a path more than once

    def refuse(error: UnreadablePathError) -> None:
        wrong.setdefault(str(error), error)

    for path in sorted({*expand(pattern, refuse, hide)}):
        try:
            status = examine(path)
        except UnreadablePathError as error:
            refuse(error)
            continue
        if stat.S_ISREG(status.st_mode):
            yield _stat(path, status)
        elif not stat.S_ISDIR(status.st_mode):
            refuse(UnreadablePathError(path, "is a pipe, a socket or a device; only files can be read"))
    if problems is None and wrong:
        raise next(iter(wrong.values()))
    if problems is not None:
        problems += wrong.values()


def matches_folders(pattern: str) -> bool:
    """Returns whether a local pattern matches a folder."""
    paths = () if is_remote(pattern) else expand(pattern.rstrip("/"), lambda error: None)
    return any(map(os.path.isdir, paths))


def _stat(path: str, status: os.stat_result) -> FileStat:
    return FileStat(path, status.st_size, f"{status.st_size}-{status.st_mtime_ns}")


def find(path: str) -> FileStat | None:
    """Returns the file at `path`, taken literally; None if there is no regular file.

    Raises:
      OSError, ValueError: if that cannot be found out.
    """
    if is_remote(path):
        found = _info(path)
        return _described(path, found) if found.is_file else None
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _stat(path, status) if stat.S_ISREG(status.st_mode) else None


def open_read(path: str) -> BinaryIO:
    """Returns the bytes of a file as they are stored, whatever its name says; seekable, for the caller to close.

    Raises:
      OSError: when there is no such file or it may not be read.
    """
    if is_remote(path):
        with _naming(path) as (store, place):
            return cast(BinaryIO, io.BufferedReader(store.open_input_file(place), _READ_BYTES))
    return open(path, "rb")


def open_ranges(path: str) -> "pa.NativeFile":
    """Returns a file of a store as Arrow's `NativeFile`, whose `read_at(n_bytes, offset)` asks for those bytes alone.

    Raises:
      OSError: when there is no such file or it may not be read.
    """
    with _naming(path) as (store, place):
        return store.open_input_file(place)


def read_text(path: str) -> str:
    """Reads a whole file of UTF-8.

    Raises:
      OSError: if it cannot be read; UnicodeDecodeError (a ValueError): if it is not UTF-8.
    """
    with open_read(path) as handle:
        return handle.read().decode()


def checksum(path: str) -> str:
    """Returns the SHA-256 of a file in hex; raises OSError if it cannot be read."""
    with open_read(path) as handle:
        return hashlib.file_digest(cast(io.BufferedReader, handle), "sha256").hexdigest()


def create(path: str) -> BinaryIO:
    """Returns a new file to write to, and creates its directories; end it with `finish`."""
    if is_remote(path):
        if (scheme := path.partition("://")[0]) in _FSSPEC:
            raise OSError(f"{path!r}: {scheme}:// is only read; write to a local folder, and upload that")
        with _naming(path) as (store, place):
            return cast(BinaryIO, store.open_output_stream(place))
    make_directory(os.path.dirname(path) or ".")
    return cast(BinaryIO, io.BufferedWriter(_LocalFile(path, "wb")))


class _LocalFile(io.FileIO):
    """A local file that says where there is no space left, and how much there is."""

    def write(self, data: Any, /) -> int:
        with _telling_space(str(self.name), memoryview(data).nbytes):
            return super().write(data)


def scratch() -> BinaryIO:
    """Returns a local file to write and read, which no other process sees, and which is gone when it is closed."""
    descriptor, path = tempfile.mkstemp(prefix="tokenmill-")
    os.close(descriptor)
    file = _LocalFile(path, "w+b")
    os.unlink(path)
    return cast(BinaryIO, io.BufferedRandom(file))


@contextlib.contextmanager
def _telling_space(path: str, n_bytes: int) -> Iterator[None]:
    """Raises an error of a full disk, a quota or a limit with the path, what was to be written and what is free."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        free = shutil.disk_usage(os.path.dirname(path) or ".").free
        size = f"at least {n_bytes:,} bytes were to be written" if n_bytes else "its bytes did not all reach the disk"
        advice = "make room; tokenmill plan estimates how much a job writes"
        if error.errno == errno.EFBIG:
            advice = "raise the limit of this process (ulimit -f) or of the file system on the size of a file"
        raise OSError(f"{path!r}: {error.strerror}: {size}, {free:,} are free on this disk; {advice}") from error


def make_directory(path: str) -> None:
    """Creates a directory and those above it, durable on return; remote ones need not be created."""
    if is_remote(path) or os.path.isdir(path):
        return
    above = os.path.dirname(path) or "."
    make_directory(above)
    # Another attempt may make it at the same time.
    os.makedirs(path, exist_ok=True)
    _sync_directory(above)


def finish(handle: BinaryIO) -> None:
    """Closes a file so that its bytes survive a crash of the machine: flushed and, where it is local, synced."""
    handle.flush()
    try:
        descriptor = handle.fileno()
    except (AttributeError, io.UnsupportedOperation):
        descriptor = None  # A remote store makes the object durable when it is closed.
    if descriptor is not None:
        with _telling_space(str(handle.name), 0):
            os.fsync(descriptor)
    handle.close()


def rename(source: str, destination: str) -> None:
    """Gives a file its final name, replacing a file that has it; locally atomic and durable on return.

    Raises:
      OSError: when `source` does not exist or may not be moved; `destination` is then as it was.
    """
    if not is_remote(destination):
        os.replace(source, destination)
        _sync_directory(os.path.dirname(destination) or ".")
        return
    with _naming(source) as (store, place):
        final = _place(destination)
        try:
            store.move(place, final)
        except OSError:
            # HDFS refuses to rename onto a file; object stores replace it.
            if not (_info(source).is_file and _info(destination).is_file):
                raise
            store.delete_file(final)
            store.move(place, final)


HALF_WRITTEN = re.compile(r"\.[0-9a-f]{32}\.tmp$")
"""Ends the names of files that a process which was killed had not renamed yet."""


def write_atomic(path: str, data: bytes | Iterable[bytes]) -> None:
    """Writes a whole file, at once or piece by piece, so that its name never shows a part of it."""
    write_together({path: data})


def write_together(files: Mapping[str, bytes | Iterable[bytes]]) -> None:
    """Writes whole files, by path: none of them has its name before all are written."""
    # Two attempts at one file may run at once; the last to rename wins, with the same bytes.
    staged = {path: f"{path}.{uuid.uuid4().hex}.tmp" for path in files}
    try:
        for path, data in files.items():
            handle = create(staged[path])
            try:
                for piece in (data,) if isinstance(data, bytes) else data:
                    handle.write(piece)
            finally:
                finish(handle)
        for path in files:
            rename(staged[path], path)
    except BaseException:  # an interrupt leaves no half-written file either
        for each in staged.values():
            delete(each)
        raise


def exists(path: str) -> bool:
    """Returns whether there is a file or a directory at `path`.

    Raises:
      OSError: when that cannot be known, for example because a folder may not be entered.
    """
    if is_remote(path):
        return bool(_info(path).type.name != "NotFound")
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def identity(path: str) -> str:
    """Returns a path that is the same however a place is spelled."""
    return path.rstrip("/") if is_remote(path) else os.path.realpath(path)


def changed_at(path: str) -> float:
    """Returns when a file was last written, in seconds by the clock of its store.

    Raises:
      OSError: when there is no such file.
    """
    if is_remote(path):
        found = _info(path)
        if not found.is_file:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return float(found.mtime.timestamp())
    return os.stat(path).st_mtime


def delete(path: str) -> None:
    """Removes a file; one that is not there is fine."""
    if is_remote(path):
        with contextlib.suppress(FileNotFoundError), _naming(path) as (store, place):
            store.delete_file(place)
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def list_files(directory: str) -> list[str]:
    """Returns the names of the files directly in `directory`, ordered; none when it does not exist."""
    if is_remote(directory):
        return sorted(each.base_name for each in _list(directory) if each.is_file)
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())
    except FileNotFoundError:
        return []


def delete_tree(path: str) -> None:
    """Removes a directory and everything below it; one that is not there is fine."""
    if is_remote(path):
        with contextlib.suppress(FileNotFoundError), _naming(path) as (store, place):
            store.delete_dir(place)
        return
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def delete_empty_folders(path: str) -> None:
    """Removes a directory, and those below it, where they hold no file; stores have no directories."""
    if not is_remote(path):
        for folder, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(folder)


def join(base: str, *parts: str) -> str:
    """Returns the path of what lies in the folder `base`; whatever opens, writes or deletes by name calls this.

    The names may come from a ledger that somebody else has written, so nothing leads out of the folder.

    Args:
      base: a folder, local or remote; it may itself be a link.
      parts: names, or several names joined by `/`.

    Raises:
      ValueError: if a name is empty, `.`, `..`, or holds a character that no name has, or if what is there is neither
        a regular file nor a directory: a link, a pipe, a device.
    """
    names = [name for part in parts for name in part.split("/")]
    for name in names:
        if name in ("", ".", "..") or _NO_NAME.search(name):
            raise ValueError(f"{'/'.join(parts)!r} is no path below a folder; {base!r} is not used")
    if is_remote(base):
        return "/".join([base.rstrip("/"), *names])
    path = base
    is_there = True
    for name in names:
        path = os.path.join(path, name)
        is_there = is_there and _is_there(path)
    return path


def _is_there(path: str) -> bool:
    """Returns whether there is something at a path; raises ValueError unless it is a regular file or a directory."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
        raise ValueError(f"{path!r} is {kind}, which is not followed; put a copy of the file or folder in its place")
    return True


def _match_remote(pattern: str) -> Iterator[FileStat]:
    """Yields the files of a store; it holds 220 bytes of each in the folder before the first glob character."""
    _check_scheme(pattern)
    if (there := find(pattern)) is not None or not has_glob(pattern):
        yield from () if there is None else (there,)
        return
    folder, is_match = literal_folder(pattern), matcher(pattern)
    start = len(_place(folder)) + 1
    for each in _list(folder, recursive="/" in pattern[len(folder) + 1 :] or "**" in pattern):
        below = each.path if _place(folder).startswith("/") else each.path.lstrip("/")  # which fsspec may put there
        path = f"{folder}/{below[start:]}"
        if each.is_file and is_match(path):
            yield _described(path, each)


def patterns_by_folder(pattern: str) -> list[str]:
    """Returns patterns that together match what one of a store does, folder by folder, to be listed side by side.

    Their files are in order if those of each are. Other patterns are returned as they are.
    """
    components = pattern.split("/")
    i = next((i for i, each in enumerate(components) if has_glob(each)), len(components))
    if not is_remote(pattern) or not 3 <= i < len(components) - 1 or "**" in components[i]:
        return [pattern]
    above = "/".join(components[:i])
    # With the slash, as paths are ordered: `a-1/b` comes before `a/b`.
    names = sorted((each.base_name for each in _list(above) if not each.is_file), key=lambda name: f"{name}/")
    is_literal = any(map(has_glob, names))  # then the pattern itself may be a path that exists
    names = list(filter(matcher(components[i]), names))
    if is_literal or not names:
        return [pattern]
    found = ["/".join([above, name, *components[i + 1 :]]) for name in names]
    return found if len(found) > _MOST_PATTERNS else [each for part in found for each in patterns_by_folder(part)]


def _described(path: str, found: Any) -> FileStat:
    """Returns what a store knows about a file."""
    changed = found.mtime.timestamp() if found.mtime is not None else None  # which not all stores say
    return FileStat(path, found.size, f"{found.size}-{changed!r}")


def _info(path: str) -> "fs.FileInfo":
    with _naming(path) as (store, place):
        return store.get_file_info(place)


def _list(folder: str, *, recursive: bool = False) -> "list[fs.FileInfo]":
    """Returns what is in a folder of a store; nothing if there is none."""
    from pyarrow import fs

    with _naming(folder) as (store, place):
        return store.get_file_info(fs.FileSelector(place, allow_not_found=True, recursive=recursive))


@contextlib.contextmanager
def _naming(path: str) -> Iterator[tuple["fs.FileSystem", str]]:
    """Yields the filesystem of a path, and what the path is called there; names the path in an error of the block."""
    scheme, _, place = path.partition("://")
    # HDFS and Azure name a server, and S3 a bucket that is in a region.
    settings = tuple(_s3_settings().items()) if scheme == "s3" else ()
    with _lock:
        store = _open_store(os.getpid(), scheme, place.partition("/")[0], settings)
    try:
        yield store, _place(path)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    except OSError as error:
        raise OSError(f"{path!r}: {error}") from error


def _place(path: str) -> str:
    """Returns what a path is called in its filesystem."""
    scheme, _, place = path.partition("://")
    if scheme in ("hdfs", "viewfs"):
        return f"/{place.partition('/')[2]}".rstrip("/")
    if scheme in ("abfs", "abfss"):
        container, _, rest = place.partition("/")
        return f"{container.partition('@')[0]}/{rest}".rstrip("/")
    return place.rstrip("/")


def _s3_settings() -> Mapping[str, str]:
    found = {}
    for name, variables in _S3_OPTIONS.items():
        values = _options.get(name), *map(os.environ.get, variables)
        found[name] = next(filter(None, values), "")
    return found


@functools.lru_cache(maxsize=64)
def _open_store(process: int, scheme: str, authority: str, settings: tuple[tuple[str, str], ...]) -> "fs.FileSystem":
    """Returns a filesystem; it may be used by several threads, but not by a process that was forked from this one."""
    import pyarrow as pa
    from pyarrow import fs

    if scheme in _FSSPEC:
        try:
            import fsspec  # type: ignore[import-untyped]

            return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme)))
        except ImportError as error:
            raise ValueError(f"{scheme}://{authority}: {error}; install tokenmill[hf]") from None
    if scheme != "s3":
        try:
            return fs.FileSystem.from_uri(f"{scheme}://{authority}/")[0]
        except ValueError as error:
            known = "s3, gs, abfs, abfss, hdfs, viewfs, hf"
            raise ValueError(f"{scheme}://{authority}: {error}; there are {known}") from None
    pa.set_io_thread_count(max(pa.io_thread_count(), _CONNECTIONS))
    address, region, access_key, secret_key, session_token = (value or None for _, value in settings)
    protocol, _, host = (address or "").rpartition("://")
    store = fs.S3FileSystem(
        access_key=access_key,
        secret_key=secret_key,
        session_token=session_token,
        region=region or (None if host else fs.resolve_s3_region(authority)),
        endpoint_override=host.rstrip("/") or None,
        scheme=protocol or "https",
        connect_timeout=10,
        allow_delayed_open=True,  # one request, not three, for a small file
    )
    try:
        store.get_file_info(f"{authority}/")
    except OSError as error:
        raise OSError(
            f"the store {address or 'of Amazon'} cannot be used: {error}; its address goes into AWS_ENDPOINT_URL, "
            "or after --, as in -- --s3_endpoint_url=https://HOST; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY go into "
            "the environment"
        ) from None
    return store


def _sync_directory(path: str) -> None:
    if os.name == "nt":
        return  # Windows cannot open a directory, and needs no sync to keep a rename.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_scheme(path: str) -> None:
    """Raises ValueError for a path of a scheme that no filesystem has, where something else is to be done."""
    scheme, _, rest = path.partition("://")
    if scheme.lower() == "file":
        raise ValueError(f"{path!r}: a local path has no scheme; write {rest.removeprefix('localhost')!r}")
    if scheme.lower() == "azfs":
        raise ValueError(f"{path!r}: Azure's store is abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH here")
    if scheme.lower() in ("http", "https", "ftp"):
        raise ValueError(f"{path!r}: nothing is read from {scheme}://; download it first, as with curl or wget")
