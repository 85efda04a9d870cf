# SPDX-License-Identifier: Apache-2.0
"""Patterns become files with names, in the order of the plan: tens of millions of them in little memory.

A file that is matched twice is read once. The name of a file is what its documents are called by; it does not depend on
the folder that the corpus is in, or on the order in which a store lists its files.
"""

import glob
import heapq
import itertools
import marshal
import os
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import itemgetter

import numpy as np

from tokenmill.pipeline import storage
from tokenmill.pipeline.config.formats import format_of
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.globbing import UnreadablePathError
from tokenmill.pipeline.input import archives

_LISTING_THREADS = 16
_CHUNK_FILES = 4096

Named = tuple[str, storage.FileStat]
"""The name that a file has in document ids, and the file."""


class Listing:
    """Files in the order of their paths, packed: some 20 bytes for each file of a crawl; read them in order."""

    def __init__(self, files: Iterable[storage.FileStat]) -> None:
        """Reads `files`, in any order."""
        if not self._pack(files):
            # Stores list in order; other files fit in memory as objects.
            self._pack(sorted(self, key=lambda file: file.path))

    @classmethod
    def joined(cls, parts: Iterable["Listing"]) -> "Listing":
        """Returns the files of listings, each of which has only files that come after those of the one before."""
        whole = cls(())
        for part in parts:
            whole._chunks += part._chunks
            whole._n += part._n
        return whole

    def _pack(self, files: Iterable[storage.FileStat]) -> bool:
        """Replaces what is packed; returns whether it is in order."""
        files, self._chunks, self._n = iter(files), [], 0
        last, in_order = "", True
        while chunk := [(file.path, file.n_bytes, file.version) for file in itertools.islice(files, _CHUNK_FILES)]:
            paths = [last, *(path for path, _, _ in chunk)]
            in_order &= all(map(str.__le__, paths, paths[1:]))
            last = paths[-1]
            self._chunks.append(zlib.compress(marshal.dumps(chunk), 1))
            self._n += len(chunk)
        return in_order

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[storage.FileStat]:
        for chunk in self._chunks:
            yield from itertools.starmap(storage.FileStat, marshal.loads(zlib.decompress(chunk)))


class NamedFiles:
    """The files of several listings in the order of their names, which are unique."""

    def __init__(self, listings: Sequence[tuple[Listing, Callable[[str], str]]]) -> None:
        """Takes the listings.

        Args:
          listings: files, and what returns the name of one from its path, which does not change their order.
        """
        self._listings = listings

    def __len__(self) -> int:
        return sum(len(listing) for listing, _ in self._listings)

    def __iter__(self) -> Iterator[Named]:
        runs = [_named(listing, name) for listing, name in self._listings]
        return runs[0] if len(runs) == 1 else heapq.merge(*runs, key=itemgetter(0))


def _named(listing: Listing, name: Callable[[str], str]) -> Iterator[Named]:
    return ((name(file.path), file) for file in listing)


def are_distinct(texts: Iterable[str]) -> bool:
    """Returns whether no text occurs twice; by hashes of 8 bytes, so in rare cases False although none does."""
    hashes = np.sort(np.array(array("q", map(hash, texts)), np.int64))
    return bool((hashes[1:] != hashes[:-1]).all())


Files = NamedFiles | list[Named]


class Seen:
    """How many files were listed and opened, and which entries of `exclude` left out one."""

    def __init__(self) -> None:
        self.n_listed = self.n_opened = 0
        self.excluding: set[str] = set()

    def excluder(self, config: InputConfig) -> Callable[[str], bool]:
        """Returns what says whether `exclude` leaves out a path."""
        excluded_by = config.excluder()

        def is_excluded(path: str) -> bool:
            by = excluded_by(path)
            self.excluding.update(by)
            return bool(by)

        return is_excluded


def with_literals(config: InputConfig) -> InputConfig:
    """Returns the section with entries of `exclude` that are the path of a file as patterns of this path alone."""

    def pattern(path: str) -> str:
        return glob.escape(path) if storage.has_glob(path) and archives.is_file(path) else path

    excluded = {name: [*map(pattern, each.exclude)] for name, each in config.by_source.items()}
    sources = {name: each.model_copy(update={"exclude": excluded[name]}) for name, each in config.sources.items()}
    return config.model_copy(update={"exclude": excluded.get("", config.exclude), "sources": sources})


def match_sources(
    config: InputConfig, problems: list[Exception], warnings: list[str], seen: Seen
) -> list[tuple[InputConfig, Files]]:
    """Returns the section and the files of each source, in the order of the plan."""
    found = [(section, _match_all(section, problems, warnings, seen)) for section in config.by_source.values()]
    of: dict[str, str] = {}
    folders: dict[str, str] = {}
    for section, files in found if config.sources else []:
        for _, file in files:
            other = of.setdefault(_identify(file.path, folders), section.source)
            if other != section.source:
                twice = f"{file.path!r} is in the sources {other!r} and {section.source!r}; name it in one"
                problems.append(ValueError(twice))
    return found


def _match_all(config: InputConfig, problems: list[Exception], warnings: list[str], seen: Seen) -> Files:
    """Returns pairs of the name that a file has in document ids and the file, in the order of the plan."""
    listings: list[tuple[Listing, str]] = []
    with ThreadPoolExecutor(_LISTING_THREADS) as pool:
        listed = zip(config.paths, pool.map(lambda given: _list_files(given, config, seen), config.paths), strict=True)
        for given, (pattern, found, wrong, said) in listed:
            problems += wrong
            warnings += said
            if not found:
                if not wrong:
                    or_excluded = f", or none that {config.where}.exclude does not leave out" if config.exclude else ""
                    folders_only = not config.exclude and storage.has_glob(given) and storage.matches_folders(given)
                    but = f", but folders; the files in them are {given.rstrip('/')}/**" if folders_only else ""
                    where = "" if storage.is_remote(given) or os.path.isabs(given) else f" in {os.getcwd()!r}"
                    problems.append(ValueError(f"{given!r} matches no file{where}{or_excluded}{but}"))
                continue
            path = storage.join(given, "*") if (is_folder := pattern != given) else given
            listings.append((found, _literal_directory(path, is_folder or next(iter(found)).path == given)))
    folders: dict[str, str] = {}
    names: dict[str, tuple[str, storage.FileStat]] = {}
    files = NamedFiles([(found, partial(_relative_name, directory=directory)) for found, directory in listings])
    is_one = len(listings) == 1 and storage.is_remote(config.paths[0])  # no store lists a file twice
    if is_one or (
        are_distinct(_identify(file.path, folders) for found, _ in listings for file in found)
        and are_distinct(name for name, _ in files)
    ):
        return _without_named(files, config, seen)
    again: list[str] = []
    for found, directory in listings:
        identified = ((_identify(file.path, folders), file) for file in found)
        # A file that is found both directly and through a link keeps its name when the link is added later.
        for identity, file in sorted(identified, key=lambda each: _links_to(*each)):
            known = names.setdefault(identity, (_relative_name(file.path, directory), file))[1]
            if known is not file:
                again.append(f"{file.path!r} is {known.path!r}" if file.path != known.path else repr(file.path))
    if again:
        more = f" and {len(again) - 1:,} more" if len(again) > 1 else ""
        warnings.append(f"{config.where}.paths: a file that is matched more than once is read once: {again[0]}{more}")
    told = zip(_tell_apart([*names.values()]), names.values(), strict=True)
    return _without_named(sorted(((name, file) for name, (_, file) in told), key=itemgetter(0)), config, seen)


def _without_named(files: Files, config: InputConfig, seen: Seen) -> Files:
    """Leaves out the files that `exclude` gives by the name that messages about their records call them."""
    given = {*config.exclude} - seen.excluding  # which no path matched
    named = {name for name, _ in files if name in given} if given else set()
    seen.excluding.update(named)
    return [each for each in files if each[0] not in named] if named else files


def _list_files(given: str, config: InputConfig, seen: Seen) -> tuple[str, Listing, Sequence[OSError], list[str]]:
    """Returns a pattern without abbreviations, its files, problems and warnings."""
    pattern, wrong, warnings = storage.pattern_of(given), list[UnreadablePathError](), list[str]()
    found: Iterable[storage.FileStat] = ()
    is_excluded = seen.excluder(config)
    n_hidden, first_hidden = 0, ""

    def hide(path: str) -> None:
        nonlocal n_hidden, first_hidden
        if not (is_excluded(path) or is_excluded(f"{path}/")):
            n_hidden, first_hidden = n_hidden + 1, min(first_hidden or path, path)

    def without_excluded(files: Iterable[storage.FileStat]) -> Iterator[storage.FileStat]:
        for file in files:
            seen.n_listed += 1
            if not is_excluded(file.path):
                yield file

    try:
        if storage.is_remote(pattern):
            with ThreadPoolExecutor(_LISTING_THREADS) as pool:
                parts = pool.map(
                    lambda each: Listing(without_excluded(storage.match(each))), storage.patterns_by_folder(pattern)
                )
                return pattern, Listing.joined(parts), wrong, warnings
        found = without_excluded(storage.match(pattern, wrong, hide))
        if pattern != given and config.format == "auto":
            found = _of_known_formats(config.where, pattern, [*found], warnings)
        listing = Listing(found)
        if n_hidden:
            warnings.append(
                f"{config.where}.paths: files and folders whose names begin with a dot are left out: {n_hidden:,}, "
                f"such as {first_hidden!r}; name them in {config.where}.paths to read them"
            )
        # `*/secret/*` leaves out all of a folder, so nobody needs to list it.
        wrong = [each for each in wrong if not (is_excluded(each.path) or is_excluded(f"{each.path}/"))]
        return pattern, listing, wrong, warnings
    except OSError as error:
        return pattern, Listing(()), [OSError(f"{pattern!r}: {error}")], warnings


def _identify(path: str, folders: dict[str, str]) -> str:
    """Returns the path of a file without links and dots, the same however it is spelled; `folders` is a cache."""
    if storage.is_remote(path):
        return path
    folder, name = os.path.split(path)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    place = os.path.join(folders[folder], name)
    return os.path.realpath(place) if os.path.islink(place) else place


def _links_to(identity: str, file: storage.FileStat) -> tuple[bool, bool]:
    """Returns whether a file is a link, and whether one of its folders is; files that are neither come first."""
    if storage.is_remote(identity):
        return False, False
    return os.path.islink(file.path), identity != os.path.abspath(file.path)


def _tell_apart(files: Sequence[tuple[str, storage.FileStat]]) -> list[str]:
    """Returns the names of files, made unique: files of one name get as many of their folders as tell them apart.

    The folders nearest to the files come first, so names do not depend on where the corpus is. No other file gets
    another name, so a file that is added later renames only those of its own name.
    """
    names = [name for name, _ in files]
    paths: dict[int, list[str]] = {}
    depths: dict[int, int] = {}
    while shared := {name for name, n in Counter(names).items() if n > 1}:
        for i in (i for i, name in enumerate(names) if name in shared):
            path = paths.setdefault(i, _components(files[i][1].path))
            depths[i] = min(depths.get(i, names[i].count("/") + 1) + 1, len(path))
            names[i] = "/".join(path[-depths[i] :])
    return names


def _components(path: str) -> list[str]:
    if storage.is_remote(path):
        return path.split("/")
    # Without links, `..` cannot lead elsewhere than it says, so the paths of two files differ.
    return (os.path.realpath if ".." in path else os.path.abspath)(path).replace(os.sep, "/").split("/")


def _of_known_formats(
    where: str, pattern: str, files: list[storage.FileStat], warnings: list[str]
) -> list[storage.FileStat]:
    """Returns the files of a folder that have the name of a known format; warns of the others."""
    known = [file for file in files if format_of(file.path) is not None or archives.is_archive(file.path)]
    if known and len(known) < len(files):
        first = next(file.path for file, other in itertools.zip_longest(files, known) if file is not other)
        n = len(files) - len(known)
        warnings.append(
            f"{where}.paths: files that {pattern!r} matches, and whose names say no known format, are left out: "
            f"{n:,}, such as {first!r}; name them in {where}.paths, with {where}.format, to read them"
        )
        return known
    return files


def _literal_directory(pattern: str, is_literal: bool) -> str:
    """Returns the part of a pattern before the first component with a glob character; if none has one, the folder."""
    components = pattern.replace(os.sep, "/").split("/")
    n_literal = len(components) - 1
    if not is_literal:
        n_literal = next((i for i, each in enumerate(components) if storage.has_glob(each)), n_literal)
    return "/".join(components[:n_literal])


def _relative_name(path: str, directory: str) -> str:
    path = path.replace(os.sep, "/")
    n = len(directory)
    if n and path.startswith(directory) and path[n : n + 1] == "/":
        return path[n + 1 :].lstrip("/")
    return path.lstrip("/")
