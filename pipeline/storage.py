# SPDX-License-Identifier: Apache-2.0
"""All access to files: local paths through `os`, `scheme://` paths through Beam's filesystems.

Beam is imported on the first remote path, never for local ones. Remote failures are `OSError`, too (Beam's own
`BeamIOError` is one).
"""

import contextlib
import datetime
import errno
import fnmatch
import glob
import importlib
import io
import os
import re
import shutil
import stat
import threading
import types
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast


@dataclass(frozen=True, slots=True)
class FileStat:
    """A file as it was when it was listed."""

    path: str
    n_bytes: int
    version: str
    """Changes when the file does: its size and modification time, or a checksum if the store records no time."""


_S3_CONNECTIONS = 320
"""More than there are threads that look at the heads of files, or read ahead."""

_s3_lock = threading.Lock()

_LISTED_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)

_MOST_PATTERNS = 16
"""More folders than this are not divided further."""

_GLOB = re.compile(r"[*?[]")

_NO_NAME = re.compile(r"[\0]" if os.name != "nt" else r'[\0\\:*?"<>|]')
"""Characters that are in no name; on Windows some of them lead elsewhere."""

_beam_args: tuple[str, ...] | None = None
"""Options that have not been passed to Beam's filesystems yet."""


def configure(beam_args: Sequence[str]) -> None:
    """Takes Beam's options, some of which are for its filesystems, such as `--s3_endpoint_url=...`.

    Beam itself passes them on only when a pipeline is built, which is after its input was listed.
    """
    global _beam_args  # noqa: PLW0603  # Beam keeps them for the whole process too
    _beam_args = tuple(beam_args)


def is_remote(path: str) -> bool:
    """Returns whether `path` names a scheme, and so goes through Beam's filesystems."""
    return "://" in path


def has_glob(pattern: str) -> bool:
    """Returns whether `pattern` holds a glob character: `*`, `?` or `[`."""
    return glob.has_magic(pattern)


def pattern_of(path: str) -> str:
    """Returns the pattern of all files below a local folder; any other path, and any pattern, as it is."""
    if is_remote(path) or not os.path.isdir(path):
        return path
    return os.path.join(glob.escape(path), "**", "*")


def match(pattern: str, problems: list[OSError] | None = None) -> Iterable[FileStat]:
    """Returns the files that `pattern` names, local ones ordered by path, remote ones as the store lists them.

    They are looked up while the result is read. A path that exists is taken literally, even where it holds glob
    characters. Directories are not files. Locally `*` does not match a leading dot and `**` matches any number of
    directories.

    Args:
      pattern: a path or a glob pattern.
      problems: takes an error for each folder that cannot be listed, and each path that is neither a file nor a
        directory: a link to nowhere or to itself, a pipe, a device; None: the first error is raised.

    Raises:
      OSError: see `problems`; and when the store cannot be listed.
    """
    return _match_remote(pattern) if is_remote(pattern) else _match_local(pattern, problems)


def _match_local(pattern: str, problems: list[OSError] | None) -> Iterator[FileStat]:
    wrong: dict[str, OSError] = {}  # by message: `**` may meet a path more than once

    def refuse(error: OSError) -> None:
        wrong.setdefault(str(error), error)

    for path in sorted({*_expand_pattern(pattern, refuse)}):
        try:
            status = _examine(path)
        except OSError as error:
            refuse(error)
            continue
        if stat.S_ISREG(status.st_mode):
            yield _stat(path, status)
        elif not stat.S_ISDIR(status.st_mode):
            refuse(OSError(f"{path!r} is a pipe, a socket or a device; only files can be read"))
    if problems is None and wrong:
        raise next(iter(wrong.values()))
    if problems is not None:
        problems += wrong.values()


def matches_folders(pattern: str) -> bool:
    """Returns whether a local pattern matches a folder."""
    paths = () if is_remote(pattern) else _expand_pattern(pattern.rstrip("/"), lambda error: None)
    return any(map(os.path.isdir, paths))


def _examine(path: str) -> os.stat_result:
    """Returns the status of what a path leads to.

    Raises:
      OSError: naming the path, and where it leads if it is a link.
    """
    try:
        return os.stat(path)
    except OSError as error:
        link = f" is a link to {os.readlink(path)!r}, which" if os.path.islink(path) else ""
        raise OSError(f"{path!r}{link} cannot be examined: {error.strerror}") from error


def _expand_pattern(pattern: str, refuse: Callable[[OSError], None]) -> Iterator[str]:
    """Yields the local paths that a pattern names. `glob` leaves out folders that it may not list, without a word."""
    try:
        os.lstat(pattern)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except ValueError:  # a NUL, or half of a surrogate pair: no path has these
        return
    except OSError as error:
        if not has_glob(pattern):  # a pattern may be longer than a name can be
            refuse(OSError(f"{pattern!r} cannot be examined: {error.strerror}"))
    else:
        yield pattern
        return
    if has_glob(pattern):
        components = pattern.replace(os.sep, "/").split("/")
        n_literal = next(i for i, component in enumerate(components) if has_glob(component))
        folder = "/".join(components[:n_literal]) or ("/" if n_literal else "")
        yield from _expand_components(folder, components[n_literal:], refuse, ())


def _expand_components(
    folder: str, components: Sequence[str], refuse: Callable[[OSError], None], above: tuple[tuple[int, int], ...]
) -> Iterator[str]:
    """Yields the paths below `folder` that match the other components of a pattern.

    Args:
      folder: a path; "" for the working directory.
      components: what is left of the pattern; not empty.
      refuse: takes an error for each folder that cannot be listed.
      above: device and inode of the folders that `**` has entered on the way here: links to these lead nowhere new.
    """
    first, *rest = components
    if not has_glob(first):
        path = os.path.join(folder, first)
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            refuse(OSError(f"{path!r} cannot be examined: {error.strerror}"))
            return
        yield from _expand_components(path, rest, refuse, ()) if rest else (path,)
        return
    try:
        status = os.stat(folder or ".")
        here = status.st_dev, status.st_ino
        if here in above:
            return
        with os.scandir(folder or ".") as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".") or first.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        refuse(OSError(f"{folder or '.'!r} cannot be listed: {error.strerror}"))
        return
    if first == "**":
        yield from _expand_components(folder, [each for each in rest if each != "**"] or ["*"], refuse, ())
        for entry in visible:
            if _is_directory(entry, refuse):
                yield from _expand_components(os.path.join(folder, entry.name), components, refuse, (*above, here))
        return
    # A folder may be called `corpus [2024]`, which as a pattern does not match its own name.
    names = [entry.name for entry in visible]
    chosen = {*fnmatch.filter(names, first), *(name for name in names if name == first)}
    if not rest:
        yield from (os.path.join(folder, name) for name in chosen)
        return
    for entry in visible:
        if entry.name in chosen and _is_directory(entry, refuse):
            yield from _expand_components(os.path.join(folder, entry.name), rest, refuse, ())


def _is_directory(entry: "os.DirEntry[str]", refuse: Callable[[OSError], None]) -> bool:
    """Returns whether an entry is a folder; a link that leads nowhere is refused, as it may be to a disk not there."""
    if not entry.is_symlink():
        return entry.is_dir()
    try:
        return stat.S_ISDIR(_examine(entry.path).st_mode)
    except OSError as error:
        refuse(error)
        return False


def _stat(path: str, status: os.stat_result) -> FileStat:
    return FileStat(path, status.st_size, f"{status.st_size}-{status.st_mtime_ns}")


def find(path: str) -> FileStat | None:
    """Returns the file at `path`, taken literally; None if there is no regular file.

    Raises:
      OSError, ValueError: if that cannot be found out.
    """
    if is_remote(path):
        return _described(_file_systems().get_filesystem(path).metadata(path)) if exists(path) else None
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
        return cast(BinaryIO, _file_systems().open(path, compression_type=_uncompressed()))
    return open(path, "rb")


def read_text(path: str) -> str:
    """Reads a whole file of UTF-8.

    Raises:
      OSError: if it cannot be read; UnicodeDecodeError (a ValueError): if it is not UTF-8.
    """
    with open_read(path) as handle:
        return handle.read().decode()


def create(path: str) -> BinaryIO:
    """Returns a new file to write to, and creates its directories; end it with `finish`."""
    if is_remote(path):
        return cast(BinaryIO, _file_systems().create(path, compression_type=_uncompressed()))
    make_directory(os.path.dirname(path) or ".")
    return cast(BinaryIO, io.BufferedWriter(_LocalFile(path, "wb")))


class _LocalFile(io.FileIO):
    """A local file that says where there is no space left, and how much there is."""

    def write(self, data: Any, /) -> int:
        with _telling_space(str(self.name), memoryview(data).nbytes):
            return super().write(data)


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
    file_systems = _file_systems()
    try:
        file_systems.rename([source], [destination])
    except OSError:
        # HDFS refuses to rename onto a file; object stores replace it.
        if not (file_systems.exists(source) and file_systems.exists(destination)):
            raise
        file_systems.delete([destination])
        file_systems.rename([source], [destination])


HALF_WRITTEN = re.compile(r"\.[0-9a-f]{32}\.tmp$")
"""Ends the names of files that a process which was killed had not renamed yet."""


def write_atomic(path: str, data: bytes | Iterable[bytes]) -> None:
    """Writes a whole file, at once or piece by piece, so that its name never shows a part of it."""
    # Two attempts at one file may run at once; the last to rename wins, with the same bytes.
    staged = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        handle = create(staged)
        try:
            for piece in (data,) if isinstance(data, bytes) else data:
                handle.write(piece)
        finally:
            finish(handle)
        rename(staged, path)
    except BaseException:  # an interrupt leaves no half-written file either
        delete(staged)
        raise


def exists(path: str) -> bool:
    """Returns whether there is a file or a directory at `path`.

    Raises:
      OSError: when that cannot be known, for example because a folder may not be entered.
    """
    if is_remote(path):
        with _plain_errors():
            return bool(_file_systems().exists(path))
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def identity(path: str) -> str:
    """Returns a path that is the same however a place is spelled."""
    return path.rstrip("/") if is_remote(path) else os.path.realpath(path)


def changed_at(path: str) -> float | None:
    """Returns when a file was last written, in seconds by the clock of its store; None if that is not known.

    Raises:
      OSError: when there is no such file.
    """
    if is_remote(path):
        return _file_systems().get_filesystem(path).metadata(path).last_updated_in_seconds or None
    return os.stat(path).st_mtime


def delete(path: str) -> None:
    """Removes a file; one that is not there is fine."""
    if is_remote(path):
        file_systems = _file_systems()
        if file_systems.exists(path):
            file_systems.delete([path])
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def list_files(directory: str) -> list[str]:
    """Returns the names of the files directly in `directory`, ordered; none when it does not exist."""
    if is_remote(directory):
        found = _file_systems().match([join(directory, "*")])[0].metadata_list
        return sorted(name for name in (each.path.rsplit("/", 1)[1] for each in found) if name)
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())
    except FileNotFoundError:
        return []


def delete_tree(path: str) -> None:
    """Removes a directory and everything below it; one that is not there is fine."""
    if is_remote(path):
        # The slash says "directory" to Beam's filesystems, which delete a directory with all its contents.
        directory = path.rstrip("/") + "/"
        file_systems = _file_systems()
        if file_systems.match([directory + "**"])[0].metadata_list:
            file_systems.delete([directory])
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
    from apache_beam.io.filesystem import BeamIOError, FileSystem

    _check_scheme(pattern)
    file_systems = _file_systems()
    found: Iterable[Any] = ()
    with _plain_errors():
        if has_glob(pattern) and file_systems.exists(pattern):
            # A store may say that a prefix exists although there is no object of that name.
            with contextlib.suppress(BeamIOError):
                found = [file_systems.get_filesystem(pattern).metadata(pattern)]
        if not found:
            store = file_systems.get_filesystem(pattern)
            if has_glob(pattern) and type(store).match is FileSystem.match and not store.has_dirs():
                # As Beam's `match`, which would hold all of ten million files as objects.
                found = store.match_files(_list_prefix(store, _GLOB.split(pattern, maxsplit=1)[0]), pattern)
            else:
                found = file_systems.match([pattern])[0].metadata_list
        for each in found:
            if not each.path.endswith("/"):  # Consoles of object stores leave such an object in an empty folder.
                yield _described(each)


def _list_prefix(store: Any, prefix: str) -> Iterator[Any]:
    """Yields what is in a store below a prefix. Beam (2.77) keeps the name of every object of S3 that it lists."""
    if store.scheme() != "s3":
        yield from store._list(prefix)
        return
    from apache_beam.io.filesystem import FileMetadata

    access, bucket, key = _s3_place(store, prefix)
    try:
        for page in access.client.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key):
            for item in page.get("Contents", ()):
                changed = access._updated_to_seconds(item["LastModified"])
                yield FileMetadata(f"s3://{bucket}/{item['Key']}", item["Size"], changed)
    except Exception as error:
        raise OSError(f"{prefix!r} cannot be listed: {error}") from error


def _s3_place(store: Any, path: str) -> tuple[Any, str, str]:
    """Returns Beam's access to S3, the bucket and the key of a path."""
    from apache_beam.io.aws import s3io

    return s3io.S3IO(options=store._options), *s3io.parse_s3_path(path, object_optional=True)


def patterns_by_folder(pattern: str) -> list[str]:
    """Returns patterns that together match what one of S3 does, folder by folder, to be listed side by side.

    Their files are in order if those of each are. Other patterns are returned as they are, and those of a folder with
    more than 1,000 others.
    """
    components = pattern.split("/")
    i = next((i for i, each in enumerate(components) if has_glob(each)), len(components))
    if not pattern.startswith("s3://") or not 3 <= i < len(components) - 1 or "**" in components[i]:
        return [pattern]
    store = _file_systems().get_filesystem(pattern)
    above = "/".join(components[:i]) + "/"
    access, bucket, key = _s3_place(store, above)
    try:
        page = access.client.client.list_objects_v2(Bucket=bucket, Prefix=key, Delimiter="/")
    except Exception as error:
        raise OSError(f"{above!r} cannot be listed: {error}") from error
    names = [each["Prefix"][len(key) : -1] for each in page.get("CommonPrefixes", ())]
    is_literal = any(map(has_glob, names))  # then the pattern itself may be a path that exists
    names = [name for name in names if re.match(store.translate_pattern(components[i]), name)]
    if page["IsTruncated"] or is_literal or not names:
        return [pattern]
    found = [above + "/".join([name, *components[i + 1 :]]) for name in names]
    return found if len(found) > _MOST_PATTERNS else [each for part in found for each in patterns_by_folder(part)]


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Raises the OSError that Beam has wrapped, which says what is wrong."""
    from apache_beam.io.filesystem import BeamIOError

    try:
        yield
    except BeamIOError as error:
        for cause in (error.exception_details or {}).values():
            if isinstance(cause, OSError):
                raise cause from None
        raise


def _described(found: Any) -> FileStat:
    """Returns what Beam's filesystems know about a file."""
    n_bytes, changed = int(found.size_in_bytes), found.last_updated_in_seconds
    version = f"{n_bytes}-{changed!r}" if changed else f"{n_bytes}-{_file_systems().checksum(found.path)}"
    return FileStat(found.path, n_bytes, version)


def _sync_directory(path: str) -> None:
    if os.name == "nt":
        return  # Windows cannot open a directory, and needs no sync to keep a rename.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_scheme(path: str) -> None:
    """Raises ValueError for a path of a scheme that no filesystem of Beam's has, where something else is to be done."""
    scheme, _, rest = path.partition("://")
    if scheme.lower() == "file":
        raise ValueError(f"{path!r}: a local path has no scheme; write {rest.removeprefix('localhost')!r}")
    if scheme.lower() in ("http", "https", "ftp", "hf"):
        tool = "`hf download`" if scheme == "hf" else "curl or wget"
        raise ValueError(f"{path!r}: nothing is read from {scheme}://; download it first, as with {tool}")


def _file_systems() -> Any:
    global _beam_args  # noqa: PLW0603  # applied once, by whoever opens the first remote path
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.options.value_provider import RuntimeValueProvider

    if _beam_args is None and FileSystems._pipeline_options is None and not RuntimeValueProvider.runtime_options:
        _beam_args = ()  # S3's filesystem (Beam 2.77) refuses to work without any options
    if _beam_args is not None:
        FileSystems.set_options(PipelineOptions(list(_beam_args)))
        _beam_args = None
    _share_s3_clients()
    return FileSystems


def _share_s3_clients() -> None:
    """Gives all operations on S3 one client: Beam (2.77) makes one for each, which takes 0.2 s of processor time."""
    beam: Any = importlib.import_module("apache_beam.io.aws.clients.s3.boto3_client")
    with _s3_lock:
        if beam.boto3 is not None and not isinstance(beam.boto3, types.SimpleNamespace):
            beam.boto3 = types.SimpleNamespace(session=types.SimpleNamespace(Session=_s3_session(beam.boto3)))


def _s3_session(boto3: Any) -> type:
    """Returns a class that has what Beam uses of `boto3.session.Session`; clients may be used by several threads."""
    config = importlib.import_module("botocore.config").Config(max_pool_connections=_S3_CONNECTIONS)
    clients: dict[tuple[Any, ...], Any] = {}

    class Session:
        def client(self, **options: Any) -> Any:
            # A forked process must not use the connections of its parent; the environment may name store and account.
            told = (name for name in sorted(os.environ) if name.startswith("AWS_"))
            key = os.getpid(), *options.items(), *((name, os.environ[name]) for name in told)
            with _s3_lock:
                if key not in clients:
                    made = boto3.session.Session()
                    parsers = made._session.get_component("response_parser_factory")
                    parsers.set_parser_defaults(timestamp_parser=_parse_time)
                    _check_s3(made, options)
                    clients[key] = made.client(**options, config=config)
                return clients[key]

    return Session


def _parse_time(value: Any) -> Any:
    """Returns what botocore makes of a time; in listings, where that takes half of the time, by Python's own parser."""
    tz, utils = importlib.import_module("dateutil.tz"), importlib.import_module("botocore.utils")
    if isinstance(value, str) and _LISTED_TIME.fullmatch(value):
        return datetime.datetime.fromisoformat(value[:-1]).replace(tzinfo=tz.tzutc())
    return utils.parse_timestamp(value)


def _check_s3(session: Any, options: Mapping[str, Any]) -> None:
    """Raises OSError if the store does not answer at all: Beam (2.77) tries each request again for minutes."""
    botocore: Any = importlib.import_module("botocore")
    once = importlib.import_module("botocore.config").Config(connect_timeout=10, retries={"total_max_attempts": 1})
    client = session.client(**options, config=once)
    try:
        client.list_buckets()
    except botocore.exceptions.BotoCoreError as error:
        raise OSError(
            f"the store {client.meta.endpoint_url} cannot be used: {error}; its address goes after --, as in "
            "-- --s3_endpoint_url=https://HOST, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY into the environment"
        ) from None
    except botocore.exceptions.ClientError:
        pass  # it answers; not every account may list buckets


def _uncompressed() -> str:
    # Beam would undo compression by the suffix of the name, a line at a time; the readers do it faster and check it.
    from apache_beam.io.filesystem import CompressionTypes

    return str(CompressionTypes.UNCOMPRESSED)
