# SPDX-License-Identifier: Apache-2.0
"""Files become splits, cut or grouped to an even size.

The plan depends on nothing but the names, sizes and formats of the files: not on the folder that the corpus is in, the
number of workers or the order in which a store lists its files.
"""

import codecs
import functools
import gc
import glob
import io
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import BinaryIO, cast

import pyarrow as pa

from tokenmill.pipeline import storage
from tokenmill.pipeline.config.formats import (
    COMPRESSION_SUFFIXES,
    FORMATS,
    SUFFIXES,
    USUAL,
    InputFormat,
    check_pointer,
    format_of,
    formats_named,
    formats_with,
    other_format,
)
from tokenmill.pipeline.config.input import InputConfig, SourceConfig
from tokenmill.pipeline.config.kept_fields import encode_fields, folder_fields, settle_fields
from tokenmill.pipeline.input import archives
from tokenmill.pipeline.input.cutting import StreamReader
from tokenmill.pipeline.input.decompressing import (
    SAMPLE_BYTES,
    StreamError,
    beginning,
    check_memory,
    decompress,
    detect_compression,
    is_cut_short,
    read_exactly,
)
from tokenmill.pipeline.input.listing import Listing, Named, NamedFiles, are_distinct
from tokenmill.pipeline.input.readers import READERS, RowReader, is_cut_by_bytes
from tokenmill.pipeline.input.streams import Stream
from tokenmill.pipeline.input.transcoding import check_valid, settle_encoding
from tokenmill.pipeline.running import progress
from tokenmill.pipeline.splits import Compression, Piece, Splits

MAX_PIECES = 4096
"""A split has at most this many files, so that its description stays small."""
MOST_LOOKED_AT = 20_000
"""Of more files than this, only so many are opened before the work begins, where their names say what they are."""
_Numbered = tuple[int, Named]
_Files = NamedFiles | list[Named]
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*' |\"[^\"]*\" ")
"""The name of a file at the beginning of a problem, as `repr` writes it."""
_MOST_ALIKE = 5
_MOST_PROBLEMS = 20
"""A message lists at most this many problems: a pattern may match thousands of files that cannot be read."""
_REMOTE_THREADS = 256
"""They wait for a store; with 30 ms for each file more of them do not list faster, as the processor is busy then."""
_GROUP_FILES = 1 << 12
_LISTING_THREADS = 16
_BLOCK_BYTES = 1 << 16
_CutFile = tuple[list[Piece], pa.Schema | None]
_LEAVE_OUT = (
    "\ncorrect or rename such files, leave them out with input.exclude, or set input.on_damage: warn, which makes each "
    "of them a reject"
)


class _FileError(ValueError):
    """Nothing of a file can be read: the message says why, and `piece` is the file as one reject."""

    def __init__(self, numbered: "_Numbered", config: InputConfig, error: Exception) -> None:
        number, (name, file) = numbered
        problem = str(error).replace("input.", f"{config.where}.")  # the key that this source reads
        super().__init__(f"{file.path!r} {problem}")
        named = format_of(name) if config.format == "auto" else FORMATS[config.format]
        self.piece = Piece(
            file.path, name, file.n_bytes, file.version, named.name if named else USUAL, "none", 0, file.n_bytes,
            file=number, source=config.source, problem=problem,
        )  # fmt: skip


class _Seen:
    """How many files were listed and opened, and which entries of `exclude` left out one."""

    def __init__(self) -> None:
        self.n_listed = self.n_opened = 0
        self.excluding: set[str] = set()


def plan_splits(input: InputConfig, salt: str, warnings: list[str] | None = None) -> Splits:
    """Returns the splits of a corpus, files ordered by name.

    Of more than `MOST_LOOKED_AT` files so many are opened, evenly spread. If these are what their names say, the others
    are planned by their names, but for formats that need a look at every file: the plan is the same, and the worker
    that reads a file of another kind fails the job. Memory: about 60 bytes for each small file, however many there are,
    if no file is matched twice and no two have one name; 400 more otherwise. `progress.current()` learns how far it is.

    Args:
      input: patterns, formats, and how large a split is.
      salt: digest of everything else that decides the output; it is hashed into the id of every split.
      warnings: takes lines for the user, such as about files that are matched twice; None: they are dropped.

    Raises:
      ValueError: when a pattern matches nothing, or files are of an unknown format or cannot be used; the message lists
        them.
      OSError: when the only problem is that files cannot be read.
    """
    problems: list[Exception] = []
    unusable: list[_FileError] = []
    where = "input.sources" if input.sources else "input.paths"
    said: list[str] = []
    stored_fields: list[tuple[str, pa.Schema | None]] = []
    formats: set[str] = set()
    of_lines: dict[str, str] = {}
    seen, number = _Seen(), 0

    def usable() -> Iterator[list[Piece]]:
        nonlocal number
        for section, files in sections:
            first, rejects = number, list[_FileError]()
            for cut in _cut_all(files, number, section, seen):
                if isinstance(cut, UserWarning):
                    said.append(str(cut))
                elif isinstance(cut, _FileError) and section.on_damage == "warn":
                    rejects.append(cut)
                    yield [replace(cut.piece, file=number)]
                    number += 1
                elif isinstance(cut, Exception):
                    problems.append(cut)
                else:
                    pieces, stored = cut
                    formats.add(pieces[0].format)
                    if "document" in FORMATS[pieces[0].format].keys and format_of(pieces[0].name) is None:
                        of_lines.setdefault(section.source, pieces[0].path)
                    if stored is not None or not stored_fields or stored_fields[-1][1] is not None:  # others are alike
                        stored_fields.append((pieces[0].path, stored))
                    # Members of archives are files, which makes the numbers of those after them larger.
                    yield pieces if pieces[0].file == number else [replace(piece, file=number) for piece in pieces]
                    number += 1
            if rejects and number - first == len(rejects):
                problems.extend(ValueError(str(each)) for each in rejects)  # the config is wrong, or the paths are
            unusable.extend(rejects)

    given, input = input, _with_literals(input)
    with _without_collector():
        _show("listing files", 0, lambda: seen.n_listed)
        sections = _match_sources(input, problems, said, seen)
        n_files = sum(len(files) for _, files in sections)
        _show("opening files", n_files, lambda: min(n_files, max(seen.n_opened, number)))
        splits = Splits(_group(usable(), input.split_bytes), salt)
    said += [*_without_effect(input, formats), *_lines_by_default(input, of_lines)]
    for section, read in zip(given.by_source.values(), input.by_source.values(), strict=True):
        pairs = zip(section.exclude, read.exclude, strict=True)
        unused = (f"{each!r} leaves out no file" for each, pattern in pairs if pattern not in seen.excluding)
        said += [f"{section.where}.exclude: {line}" for line in _lines(unused)]
    said += [f"{where}: one reject, because on_damage is warn: {line}" for line in _lines(unusable)]
    if warnings is not None:
        warnings += said
    if problems:
        advice = _LEAVE_OUT if splits and any(isinstance(each, _FileError) for each in problems) else ""
        raise _summarize(problems, where, advice)
    if input.keep_fields or input.sources:
        settled, wrong = settle_fields(input, stored_fields)
        if wrong:
            raise _summarize([ValueError(line) for line in wrong], where)
        splits.fields = encode_fields(settled)
    return splits


def _show(stage: str, n_files: int, n_done: Callable[[], int]) -> None:
    """Begins a stage of the progress that this process shows, if it does."""
    if (watched := progress.current()) is not None:
        watched.measure(stage, "files", n_files, n_done)
        watched.enter(stage)


def _with_literals(config: InputConfig) -> InputConfig:
    """Returns the section with entries of `exclude` that are the path of a file as patterns of this path alone."""

    def pattern(path: str) -> str:
        return glob.escape(path) if storage.has_glob(path) and archives.is_file(path) else path

    excluded = {name: [*map(pattern, each.exclude)] for name, each in config.by_source.items()}
    sources = {name: each.model_copy(update={"exclude": excluded[name]}) for name, each in config.sources.items()}
    return config.model_copy(update={"exclude": excluded.get("", config.exclude), "sources": sources})


def _without_effect(input: InputConfig, formats: Collection[str]) -> Iterator[str]:
    """Yields warnings of keys that apply to none of these formats, those of all files that are read."""
    applied = {key for each in formats for key in FORMATS[each].keys}
    for key, field in SourceConfig.model_fields.items():
        is_given = any(getattr(section, key) != field.default for section in input.by_source.values())
        if formats and is_given and key not in applied and (of := formats_with(key)):
            yield f"input.{key} has no effect: it is for {', '.join(of)}, and no file is of these formats"


def _lines_by_default(input: InputConfig, of_lines: Mapping[str, str]) -> Iterator[str]:
    """Yields warnings of text files whose names do not say what a document is; `of_lines` has one of each source."""
    for source, path in of_lines.items():
        if "document" not in input.sources.get(source, input).model_fields_set:
            yield (
                f"{input.of(source).where}.document: each line of files such as {path!r} is a document; set it to file "
                "if each file is one, as source code and Markdown are, or to line if it is right"
            )


@contextmanager
def _without_collector() -> Iterator[None]:
    """Stops the collector of cycles, of which planning makes none: with Beam loaded it took a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _match_sources(
    config: InputConfig, problems: list[Exception], warnings: list[str], seen: _Seen
) -> list[tuple[InputConfig, _Files]]:
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


def _match_all(config: InputConfig, problems: list[Exception], warnings: list[str], seen: _Seen) -> _Files:
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
                    problems.append(ValueError(f"{given!r} matches no file{or_excluded}{but}"))
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


def _without_named(files: _Files, config: InputConfig, seen: _Seen) -> _Files:
    """Leaves out the files that `exclude` gives by the name that messages about their records call them."""
    given = {*config.exclude} - seen.excluding  # which no path matched
    named = {name for name, _ in files if name in given} if given else set()
    seen.excluding.update(named)
    return [each for each in files if each[0] not in named] if named else files


def _list_files(given: str, config: InputConfig, seen: _Seen) -> tuple[str, Listing, list[OSError], list[str]]:
    """Returns a pattern without abbreviations, its files, problems and warnings."""
    pattern, wrong, warnings = storage.pattern_of(given), list[OSError](), list[str]()
    found: Iterable[storage.FileStat] = ()
    excluded_by = config.excluder()

    def without_excluded(files: Iterable[storage.FileStat]) -> Iterator[storage.FileStat]:
        for file in files:
            seen.n_listed += 1
            if by := excluded_by(file.path):
                seen.excluding.update(by)
            else:
                yield file

    try:
        if storage.is_remote(pattern):
            with ThreadPoolExecutor(_LISTING_THREADS) as pool:
                parts = pool.map(
                    lambda each: Listing(without_excluded(storage.match(each))), storage.patterns_by_folder(pattern)
                )
                return pattern, Listing.joined(parts), wrong, warnings
        found = without_excluded(storage.match(pattern, wrong))
        if pattern != given and config.format == "auto":
            found = _of_known_formats(config.where, pattern, [*found], warnings)
        return pattern, Listing(found), wrong, warnings
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


def _cut_all(files: _Files, first: int, config: InputConfig, seen: _Seen) -> Iterator[_CutFile | Exception]:
    """Yields what `_look_at` returns for each file, in order; `first` is the number of the first one."""
    prefix = f"{config.source}/" if config.source else ""
    step = -(-len(files) // MOST_LOOKED_AT)
    numbered = ((first + n, (prefix + name, file)) for n, (name, file) in enumerate(files))
    if step > 1:
        sample = [*itertools.islice(numbered, None, None, step)]
        numbered = ((first + n, (prefix + name, file)) for n, (name, file) in enumerate(files))
        found = [*_cut_files(sample, config, seen, trusts_names=False)]
        problems = [each for each in found if isinstance(each, Exception) and not isinstance(each, UserWarning)]
        if any(config.on_damage == "fail" or not isinstance(each, _FileError) for each in problems):
            yield from problems
            return
        by_name = _cut_files(sample, config, seen, trusts_names=True)
        files_of = [[each for each in cuts if not isinstance(each, UserWarning)] for cuts in (found, by_name)]
        if any(looked_at != named for looked_at, named in zip(*files_of, strict=True)):
            step, seen.n_opened = 1, 0  # all are opened, those of the sample again
    while group := list(itertools.islice(numbered, _GROUP_FILES)):
        yield from _cut_files(group, config, seen, trusts_names=step > 1)


def _cut_files(
    group: Sequence[_Numbered], config: InputConfig, seen: _Seen, *, trusts_names: bool
) -> Iterator[_CutFile | Exception]:
    by_name = [_cut_by_name(each, config) if trusts_names else None for each in group]
    others = [each for each, cut in zip(group, by_name, strict=True) if cut is None]
    look_at = partial(_look_at, config=config, excluded_by=config.excluder(), seen=seen)
    looked_at: Iterator[list[_CutFile | Exception]] = map(look_at, others)
    if any(storage.is_remote(file.path) for _, (_, file) in others):
        with ThreadPoolExecutor(_REMOTE_THREADS) as pool:
            looked_at = iter([*pool.map(look_at, others)])
    for cut in by_name:
        yield from next(looked_at) if cut is None else [cut]


def _look_at(
    numbered: _Numbered, config: InputConfig, excluded_by: Callable[[str], list[str]], seen: _Seen
) -> list[_CutFile | Exception]:
    """Returns what `_cut_file` does, for an archive that of each member; `UserWarning` is what the user should know."""

    def is_excluded(path: str) -> bool:
        by = excluded_by(path)
        seen.excluding.update(by)
        return bool(by)

    seen.n_opened += 1
    number, (name, file) = numbered
    if not archives.is_archive(file.path):
        cut_short: list[_CutFile | Exception] = []
        return [_cut_file(numbered, config, cut_short), *cut_short][::-1]
    try:
        members, left_out = archives.look(file, by_name=config.format == "auto", is_excluded=is_excluded)
    except OSError as error:
        return [OSError(f"{file.path!r} {error}")]
    except ValueError as error:
        return [_FileError(numbered, config, error)]
    cut: list[_CutFile | Exception] = []
    if left_out:
        said = f"members of {file.path!r} that are hidden, links, or of no known format are left out"
        cut.append(UserWarning(f"{config.where}.paths: {said}: {len(left_out):,}, such as {left_out[0]!r}"))
    names = ((f"{name}{member.path.removeprefix(file.path)}", member) for member in members)
    return cut + [_cut_file((number, named), config) for named in names]


def _cut_by_name(numbered: _Numbered, config: InputConfig) -> _CutFile | None:
    """Returns what `_cut_file` returns for a file that is what its name says; None if the name does not say enough."""
    number, (name, file) = numbered
    suffixes = name[name.rfind("/") + 1 :].partition(".")[2]
    chats = config.messages_field is not None
    found = _kind_named(suffixes, config.format, config.compression, config.encoding, chats=chats)
    if found is None or not file.n_bytes:  # an empty file is not compressed, whatever its name is
        return None
    format, compression, encoding = found
    size = file.n_bytes
    piece = Piece(file.path, name, size, file.version, format, compression, 0, size, 0, number, encoding, config.source)
    return _cut_bytes(piece, config), None


@functools.lru_cache
def _kind_named(
    suffixes: str, format: str, compression: str, encoding: str, *, chats: bool
) -> tuple[str, Compression, str] | None:
    """Returns format, compression and encoding by the name of a file from its first dot on; None if they need a look.

    The other arguments are the keys of the section `input`, and whether records are conversations.
    """
    named = formats_named(f"x.{suffixes}") if format == "auto" else [FORMATS[format]]
    codec = settle_encoding(b"", encoding)
    if (
        archives.is_archive(f"x.{suffixes}")
        or len(named) != 1
        or codec.startswith(("utf-16", "utf-32"))
        or (chats and "messages_field" not in named[0].keys)
    ):
        return None
    reader = READERS[named[0].name]
    if isinstance(reader, RowReader) or reader.has_header:
        return None
    if compression == "auto":
        compression = COMPRESSION_SUFFIXES.get(os.path.splitext(f"x.{suffixes.lower()}")[1], "none")
    return named[0].name, cast(Compression, compression), codec if compression == "none" else encoding


def _cut_file(
    numbered: _Numbered, config: InputConfig, said: list[_CutFile | Exception] | None = None
) -> _CutFile | Exception:
    """Returns the pieces of one file in order and, for Parquet, its fields to keep; or the error that it causes.

    said: takes a `UserWarning` of a local file that is cut short; None of a member of an archive.
    """
    number, (name, file) = numbered
    try:
        name.encode("utf-8")
        with closing(archives.open_file(file.path, file.version)) as handle:
            is_stream = getattr(handle, "is_stream", False)
            head = _head_of(handle) if is_stream else read_exactly(handle, SAMPLE_BYTES)
            check_pointer(head)
            if head and not file.n_bytes:
                raise ValueError("has text, but no size, as files of /proc have; copy it to a disk first")
            named = _choose_format(name, head, config)
            compression = _choose_compression(head, named, config, is_member=bool(archives.split_path(file.path)[1]))
            if is_stream and compression == "none":
                compression = "archive"
            make = partial(
                Piece, file.path, name, file.n_bytes, file.version,
                compression=compression, file=number, source=config.source,
            )  # fmt: skip
            reader = READERS[named.name]
            if isinstance(reader, RowReader):
                if is_stream:
                    raise ValueError(f"is {named.name} in an archive that must be read from its beginning; unpack it")
                sizes, stored = reader.measure(handle, config)
                stored = pa.schema([*stored, *folder_fields(file.path, config, stored)])
                runs = _runs(sizes, config.split_bytes)
                return [
                    make(format=named.name, start=start, stop=stop, n_text_bytes=sum(sizes[start:stop]))
                    for start, stop in runs
                ], stored
            is_known = len(formats_named(name)) < 2
            sample = (
                head if compression in ("none", "archive") else _decompress_head(head, handle, compression, is_known)
            )
            is_shown = named.begins is not None and named.begins.match(sample)
            if not is_shown and (other := other_format("", sample)):
                raise ValueError(f"is {other.what}, not {named.name}: {other.advice}")
            encoding = settle_encoding(sample, config.encoding)
            check_valid(sample, encoding)
            ending = os.path.splitext(name.lower())[1]
            is_plain = config.compression == "auto" and compression == "none" and ending in COMPRESSION_SUFFIXES
            if is_plain and not _is_text(sample, encoding):
                raise ValueError(f"is no text, and not compressed, as {ending!r} says{beginning(handle)}; get it again")
            found = _check_format(named, name, sample.decode(encoding, "ignore").lstrip("\ufeff").encode(), config)
            codec = encoding if compression == "none" else config.encoding
            if config.messages_field is not None and "messages_field" not in found.keys:
                raise ValueError(f"is of format {found.name}, which has no messages for input.messages_field")
            is_local = compression != "none" and not storage.is_remote(file.path)
            if said is not None and is_local and is_cut_short(handle, compression):
                then = "it fails at its end" if config.on_damage == "fail" else "what comes before its end is read"
                cut = f"{file.path!r} is cut short; get it again before the job begins, or {then}"
                said.append(UserWarning(f"{config.where}.paths: {cut}"))
            handle.seek(0)
            whole = make(format=found.name, start=0, stop=file.n_bytes, encoding=codec)
            reader, stored = READERS[found.name], None
            if isinstance(reader, StreamReader) and reader.has_header:
                stored = reader.check(Stream(handle, whole), config)
            in_folders = folder_fields(file.path, config, stored)
            stored = stored if stored is None else pa.schema([*stored, *in_folders])
    except UnicodeEncodeError:
        return ValueError(f"{file.path!r} has a name that is not UTF-8; rename it")
    except ValueError as error:
        return _FileError(numbered, config, error)
    except OSError as error:
        return OSError(f"{file.path!r} cannot be read: {error}")
    return _cut_bytes(whole, config), stored


def _cut_bytes(whole: Piece, config: InputConfig) -> list[Piece]:
    if whole.n_bytes <= config.split_bytes or not is_cut_by_bytes(whole, config.document):
        return [whole]
    starts = range(0, whole.n_bytes, config.split_bytes)
    return [replace(whole, start=start, stop=min(start + config.split_bytes, whole.n_bytes)) for start in starts]


def _head_of(member: BinaryIO) -> bytes:
    """Returns the first `SAMPLE_BYTES` of a member of an archive, fewer if it is damaged there."""
    try:
        return member.read(SAMPLE_BYTES)
    except StreamError:
        return b""


def _is_text(head: bytes, codec: str) -> bool:
    try:
        return "\0" not in codecs.getincrementaldecoder(codec)().decode(head)
    except UnicodeError:
        return False


def _decompress_head(head: bytes, handle: BinaryIO, compression: str, is_known: bool) -> bytes:
    """Returns the first `SAMPLE_BYTES` that a file expands to; fewer if the format is known, and a block is long."""
    source: BinaryIO = handle
    if is_known:
        source = io.BytesIO(head if compression == "gzip" else head + read_exactly(handle, _BLOCK_BYTES))
    try:
        return next(decompress(source, compression), b"")[:SAMPLE_BYTES]
    except StreamError:
        return b""


def _choose_format(name: str, head: bytes, config: InputConfig) -> InputFormat:
    if config.format != "auto":
        return FORMATS[config.format]
    found = format_of(name)
    if found is None:
        if other := other_format(name, head):
            raise ValueError(f"is {other.what}, which is not read: {other.advice}")
        raise ValueError(
            "is of unknown format: set input.format (source code and Markdown: text, with input.document: file), or "
            f"end its name with one of {', '.join(SUFFIXES)}"
        )
    return found


def _check_format(named: InputFormat, name: str, head: bytes, config: InputConfig) -> InputFormat:
    """Returns the format of a file by its first bytes, too; raises ValueError where these show another than is said."""
    shown = format_of(name, head)
    if config.format == "auto" and shown is not None:
        return shown
    if head.strip() and named.begins is not None and not named.begins.match(head):
        raise ValueError(f"does not begin as {named.name} does; set input.format to what it is, or to 'auto'")
    if shown not in (None, named) and shown.begins is not None and shown.begins.match(head):
        raise ValueError(f"begins as {shown.name} does, but input.format says {named.name!r}; set it to {shown.name!r}")
    return named


def _choose_compression(head: bytes, named: InputFormat, config: InputConfig, *, is_member: bool) -> Compression:
    found = detect_compression(head)
    if named.has_rows:
        if found != "none":
            raise ValueError(f"is {named.name} compressed with {found} as a whole, which cannot be read; decompress it")
        return "none"
    compression = cast(Compression, found) if is_member or config.compression == "auto" else config.compression
    check_memory(head, compression)
    return compression


def _runs(sizes: list[int], limit: int) -> list[tuple[int, int]]:
    """Returns runs of neighbours, (start, stop), whose sizes sum to at most `limit`; a larger size is a run alone.

    Without sizes there is one empty run.
    """
    runs: list[tuple[int, int]] = []
    start = total = 0
    for i, size in enumerate(sizes):
        if i > start and total + size > limit:
            runs.append((start, i))
            start, total = i, 0
        total += size
    return [*runs, (start, len(sizes))]


def _group(files: Iterable[list[Piece]], split_bytes: int) -> Iterator[list[Piece]]:
    """Yields the pieces of each split: one of a large file, or neighbouring small files."""
    group: list[Piece] = []
    n_bytes = 0
    for pieces in files:
        first = pieces[0]
        joins = bool(group) and archives.share_stream(group[-1].path, first.path)
        is_small = len(pieces) == 1 and (first.n_planned < split_bytes or archives.share_stream(first.path, first.path))
        is_near = bool(group) and group[0].source == first.source and len(group) < MAX_PIECES
        if group and not (is_small and is_near and (joins or n_bytes + first.n_planned <= split_bytes)):
            yield group
            group, n_bytes = [], 0
        if is_small:
            group += pieces
            n_bytes += pieces[0].n_planned
        else:
            for piece in pieces:
                yield [piece]
    if group:
        yield group


def _summarize(problems: Sequence[Exception], where: str, advice: str = "") -> Exception:
    """Returns one error for all problems of a key, and what to do to go on without the files."""
    kind = OSError if all(isinstance(each, OSError) for each in problems) else ValueError
    lines, n = _lines(problems), len({*map(str, problems)})
    listed = lines[0] if len(lines) == 1 else "\n  ".join([f"{n:,} problems", *lines])
    return kind(f"{where}: {listed}{advice}")


def _lines(problems: Iterable[object]) -> list[str]:
    """Returns a line for each problem; of many that differ in nothing but the file, for the first."""
    alike: dict[str, list[str]] = {}
    for problem in dict.fromkeys(map(str, problems)):  # several patterns may meet one folder
        file = _QUOTED.match(problem)
        alike.setdefault(problem[file.end() :] if file else problem, []).append(problem)
    lines = list(
        itertools.chain.from_iterable(
            each if len(each) <= _MOST_ALIKE else [f"{each[0]}; and {len(each) - 1:,} more like it"]
            for each in alike.values()
        )
    )
    more = [f"and {len(lines) - _MOST_PROBLEMS:,} more"] if len(lines) > _MOST_PROBLEMS else []
    return lines[:_MOST_PROBLEMS] + more
