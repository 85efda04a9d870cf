# SPDX-License-Identifier: Apache-2.0
"""Files become splits, cut or grouped to an even size.

The plan depends on nothing but the names, sizes and formats of the files: not on the folder that the corpus is in, the
number of workers or the order in which a store lists its files.
"""

import codecs
import functools
import gc
import io
import itertools
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
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
from tokenmill.pipeline.globbing import UnreadablePathError
from tokenmill.pipeline.input import archives
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
from tokenmill.pipeline.input.matching import Files, Named, Seen, match_sources, with_literals
from tokenmill.pipeline.input.readers import ROW_READERS, STREAM_READERS, is_cut_by_bytes
from tokenmill.pipeline.input.streams import Stream
from tokenmill.pipeline.input.transcoding import check_valid, settle_encoding
from tokenmill.pipeline.running import progress
from tokenmill.pipeline.splits import Compression, Piece, Splits

MAX_PIECES = 4096
"""A split has at most this many files, so that its description stays small."""
MOST_LOOKED_AT = 20_000
"""Of more files than this, only so many are opened before the work begins, where their names say what they are."""
_Numbered = tuple[int, Named]
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*' |\"[^\"]*\" ")
"""The name of a file at the beginning of a problem, as `repr` writes it."""
_MOST_ALIKE = 5
_MOST_PROBLEMS = 20
"""A message lists at most this many problems: a pattern may match thousands of files that cannot be read."""
_REMOTE_THREADS = 256
"""They wait for a store; with 30 ms for each file more of them do not list faster, as the processor is busy then."""
_GROUP_FILES = 1 << 12
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
    plan = _Plan()
    where = "input.sources" if input.sources else "input.paths"
    with _without_collector():
        _show("listing files", 0, lambda: plan.seen.n_listed)
        sections = match_sources(with_literals(input), plan.problems, plan.said, plan.seen)
        n_files = sum(len(files) for _, files in sections)
        _show("opening files", n_files, lambda: min(n_files, max(plan.seen.n_opened, plan.number)))
        splits = Splits(_group(plan.usable(sections), input.split_bytes), salt)
    if warnings is not None:
        warnings += plan.warnings(input, where)
    if problems := plan.problems:
        advice = ""
        if splits and any(isinstance(each, _FileError) for each in problems):
            advice = _LEAVE_OUT
        elif splits and any(isinstance(each, UnreadablePathError) for each in problems):
            advice = "; correct or remove what is named, or leave it out with input.exclude"
        raise _summarize(problems, where, advice)
    if input.keep_fields or input.sources:
        settled, wrong = settle_fields(input, plan.stored_fields)
        if wrong:
            raise _summarize([ValueError(line) for line in wrong], where)
        splits.fields = encode_fields(settled)
    return splits


class _Plan:
    """What is learnt of files while they are cut."""

    def __init__(self) -> None:
        self.seen, self.number = Seen(), 0
        """How many files were listed and opened; how many are in the plan."""
        self.problems: list[Exception] = []
        self.said: list[str] = []
        self.stored_fields: list[tuple[str, pa.Schema | None]] = []
        """The path of files, and the fields to keep that they say they have; of neighbours that say nothing, one."""
        self._rejects: list[_FileError] = []
        self._formats: set[str] = set()
        self._of_lines: dict[str, str] = {}

    def usable(self, sections: Iterable[tuple[InputConfig, Files]]) -> Iterator[list[Piece]]:
        """Yields the pieces of each file that can be read, or that is one reject."""
        for section, files in sections:
            first, rejects = self.number, list[_FileError]()
            for cut in _cut_all(files, self.number, section, self.seen):
                if isinstance(cut, UserWarning):
                    self.said.append(str(cut))
                elif isinstance(cut, _FileError) and section.on_damage == "warn":
                    rejects.append(cut)
                    yield [replace(cut.piece, file=self.number)]
                    self.number += 1
                elif isinstance(cut, Exception):
                    self.problems.append(cut)
                else:
                    yield self._note(*cut, section)
                    self.number += 1
            if rejects and self.number - first == len(rejects):
                self.problems += (ValueError(str(each)) for each in rejects)  # the config is wrong, or the paths are
            self._rejects += rejects

    def _note(self, pieces: list[Piece], stored: pa.Schema | None, section: InputConfig) -> list[Piece]:
        first = pieces[0]
        self._formats.add(first.format)
        if "document" in FORMATS[first.format].keys and format_of(first.name) is None:
            self._of_lines.setdefault(section.source, first.path)
        if stored is not None or not self.stored_fields or self.stored_fields[-1][1] is not None:  # others are alike
            self.stored_fields.append((first.path, stored))
        # Members of archives are files, which makes the numbers of those after them larger.
        return pieces if first.file == self.number else [replace(piece, file=self.number) for piece in pieces]

    def warnings(self, input: InputConfig, where: str) -> Iterator[str]:
        """Yields lines for the user; `input` is the section as it was given."""
        yield from self.said
        yield from _without_effect(input, self._formats)
        yield from _lines_by_default(input, self._of_lines)
        for given, read in zip(input.by_source.values(), with_literals(input).by_source.values(), strict=True):
            pairs = zip(given.exclude, read.exclude, strict=True)
            unused = (f"{each!r} leaves out no file" for each, pattern in pairs if pattern not in self.seen.excluding)
            yield from (f"{given.where}.exclude: {line}" for line in _lines(unused))
        yield from (f"{where}: one reject, because on_damage is warn: {line}" for line in _lines(self._rejects))


def _show(stage: str, n_files: int, n_done: Callable[[], int]) -> None:
    """Begins a stage of the progress that this process shows, if it does."""
    if (watched := progress.current()) is not None:
        watched.measure(stage, "files", n_files, n_done)
        watched.enter(stage)


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


def _cut_all(files: Files, first: int, config: InputConfig, seen: Seen) -> Iterator[_CutFile | Exception]:
    """Yields what `_look_at` returns for each file, in order; `first` is the number of the first one."""
    prefix = f"{config.source}/" if config.source else ""
    step = -(-len(files) // MOST_LOOKED_AT)
    looked_at: dict[int, list[_CutFile | Exception]] = {}  # of the sample, if all others are opened, too
    numbered = ((first + n, (prefix + name, file)) for n, (name, file) in enumerate(files))
    if step > 1:
        sample = [*itertools.islice(numbered, None, None, step)]
        numbered = ((first + n, (prefix + name, file)) for n, (name, file) in enumerate(files))
        found = [*_cut_files(sample, config, seen, trusts_names=False)]
        cuts = itertools.chain.from_iterable(found)
        problems = [each for each in cuts if isinstance(each, Exception) and not isinstance(each, UserWarning)]
        if any(config.on_damage == "fail" or not isinstance(each, _FileError) for each in problems):
            yield from problems
            return
        by_name = _cut_files(sample, config, seen, trusts_names=True)
        if any(_without_warnings(cuts) != _without_warnings(named) for cuts, named in zip(found, by_name, strict=True)):
            step, looked_at = 1, {number: cuts for (number, _), cuts in zip(sample, found, strict=True)}
    while group := list(itertools.islice(numbered, _GROUP_FILES)):
        others = [each for each in group if each[0] not in looked_at]
        cuts_of_others = _cut_files(others, config, seen, trusts_names=step > 1)
        for number, _ in group:
            yield from looked_at.pop(number) if number in looked_at else next(cuts_of_others)


def _without_warnings(cuts: Sequence[_CutFile | Exception]) -> list[_CutFile | Exception]:
    return [each for each in cuts if not isinstance(each, UserWarning)]


def _cut_files(
    group: Sequence[_Numbered], config: InputConfig, seen: Seen, *, trusts_names: bool
) -> Iterator[list[_CutFile | Exception]]:
    """Yields what `_look_at` returns for each file; of one that is known by its name, that."""
    by_name = [_cut_by_name(each, config) if trusts_names else None for each in group]
    others = [each for each, cut in zip(group, by_name, strict=True) if cut is None]
    look_at = partial(_look_at, config=config, is_excluded=seen.excluder(config), seen=seen)
    looked_at: Iterator[list[_CutFile | Exception]] = map(look_at, others)
    if any(storage.is_remote(file.path) for _, (_, file) in others):
        with ThreadPoolExecutor(_REMOTE_THREADS) as pool:
            looked_at = iter([*pool.map(look_at, others)])
    for cut in by_name:
        yield next(looked_at) if cut is None else [cut]


def _look_at(
    numbered: _Numbered, config: InputConfig, is_excluded: Callable[[str], bool], seen: Seen
) -> list[_CutFile | Exception]:
    """Returns what `_cut_file` does, for an archive that of each member; `UserWarning` is what the user should know."""
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
    if named[0].has_rows or STREAM_READERS[named[0].name].has_header:
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
    _, (name, file) = numbered
    try:
        name.encode("utf-8")
        with closing(archives.open_file(file.path, file.version)) as handle:
            return _look_into(handle, numbered, config, said)
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding().upper()
        cure = "rename it" if encoding == "UTF-8" else "set PYTHONUTF8=1, if it is UTF-8"
        return ValueError(
            f"{file.path!r} has a name that is not {encoding}; {cure}, or leave it out with input.exclude"
        )
    except ValueError as error:
        return _FileError(numbered, config, error)
    except OSError as error:
        return OSError(f"{file.path!r} cannot be read: {error}")


def _look_into(
    handle: BinaryIO, numbered: _Numbered, config: InputConfig, said: list[_CutFile | Exception] | None
) -> _CutFile:
    number, (name, file) = numbered
    is_stream = getattr(handle, "is_stream", False)
    head = _head_of(handle) if is_stream else read_exactly(handle, SAMPLE_BYTES)
    check_pointer(head)
    if head and not file.n_bytes:
        raise ValueError("has text, but no size, as files of /proc have; copy it to a disk first")
    named = _choose_format(name, head, config)
    compression = _choose_compression(head, named, config, is_member=bool(archives.split_path(file.path)[1]))
    if is_stream and compression == "none":
        compression = "archive"
    whole = Piece(
        file.path, name, file.n_bytes, file.version, named.name, compression, 0, file.n_bytes,
        file=number, source=config.source,
    )  # fmt: skip
    if named.has_rows:
        if is_stream:
            raise ValueError(f"is {named.name} in an archive that must be read from its beginning; unpack it")
        sizes, stored = ROW_READERS[named.name](config).measure(handle)
        stored = pa.schema([*stored, *folder_fields(file.path, config, stored)])
        runs = _runs(sizes, config.split_bytes)
        return [
            replace(whole, start=start, stop=stop, n_text_bytes=sum(sizes[start:stop])) for start, stop in runs
        ], stored
    sampled = _look_at_text(handle, head, whole, named, config)
    is_local = compression != "none" and not storage.is_remote(file.path)
    if said is not None and is_local and is_cut_short(handle, compression):
        then = "it fails at its end" if config.on_damage == "fail" else "what comes before its end is read"
        cut = f"{file.path!r} is cut short; get it again before the job begins, or {then}"
        said.append(UserWarning(f"{config.where}.paths: {cut}"))
    handle.seek(0)
    reader, found = STREAM_READERS[sampled.format], None
    if reader.has_header:
        found = reader(config).check(Stream(handle, sampled))
    in_folders = folder_fields(file.path, config, found)
    return _cut_bytes(sampled, config), found if found is None else pa.schema([*found, *in_folders])


def _look_at_text(handle: BinaryIO, head: bytes, whole: Piece, named: InputFormat, config: InputConfig) -> Piece:
    """Returns a file that is a stream of bytes with its format and encoding, as its first bytes show them."""
    name, compression = whole.name, whole.compression
    is_known = len(formats_named(name)) < 2
    sample = head if compression in ("none", "archive") else _decompress_head(head, handle, compression, is_known)
    is_shown = named.begins is not None and named.begins.match(sample)
    if not is_shown and (other := other_format("", sample)):
        raise ValueError(f"is {other.what}, not {named.name}: {other.advice}")
    asked = encoding = config.encoding if "encoding" in named.keys else "utf-8"
    if "encoding" in named.keys:
        encoding = settle_encoding(sample, asked)
        check_valid(sample, encoding)
    ending = os.path.splitext(name.lower())[1]
    is_plain = config.compression == "auto" and compression == "none" and ending in COMPRESSION_SUFFIXES
    if is_plain and not _is_text(sample, encoding):
        raise ValueError(f"is no text, and not compressed, as {ending!r} says{beginning(handle)}; get it again")
    found = _check_format(named, name, sample.decode(encoding, "ignore").lstrip("\ufeff").encode(), config)
    codec = encoding if compression == "none" else asked
    if config.messages_field is not None and "messages_field" not in found.keys:
        raise ValueError(f"is of format {found.name}, which has no messages for input.messages_field")
    return replace(whole, format=found.name, encoding=codec)


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
    is_whole = "document" in named.keys and config.document == "file"  # JSON is text, too, as a file of source code is
    if not is_whole and shown not in (None, named) and shown.begins is not None and shown.begins.match(head):
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
    """Returns a line for each problem; of many that differ in nothing but the file and numbers, for the first."""
    alike: dict[str, list[str]] = {}
    for problem in dict.fromkeys(map(str, problems)):  # several patterns may meet one folder
        file = _QUOTED.match(problem)
        what = re.sub(r"\d+", "0", problem[file.end() :]) if file else problem
        alike.setdefault(what, []).append(problem)
    lines = list(
        itertools.chain.from_iterable(
            each if len(each) <= _MOST_ALIKE else [f"{each[0]}; and {len(each) - 1:,} more like it"]
            for each in alike.values()
        )
    )
    more = [f"and {len(lines) - _MOST_PROBLEMS:,} more"] if len(lines) > _MOST_PROBLEMS else []
    return lines[:_MOST_PROBLEMS] + more
