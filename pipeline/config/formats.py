# SPDX-License-Identifier: Apache-2.0
"""The formats of input files and of shards, and what depends on a format.

`input.readers` names what reads input, `output.writers.formats` what writes shards and reads them again.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FormatName = Literal["jsonl", "json", "csv", "tsv", "text", "wet", "parquet", "arrow"]
Format = Literal["parquet", "tfrecord", "arrow", "mds", "megatron", "memmap"]
"""The formats of shards."""

COMPRESSION_SUFFIXES: Mapping[str, str] = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".xz": "xz"}
"""The compression that an end of a file name stands for."""
ARCHIVES = (
    *(".zip", ".tar", ".tgz", ".tbz2", ".txz", ".tzst"),
    *(f".tar{suffix}" for suffix in COMPRESSION_SUFFIXES),
)
"""Ends of names of archives, whose members are files."""
USUAL: FormatName = "jsonl"
"""The format to assume where no name says one."""

_WHOLE: Mapping[str, bytes | None] = {"line": None}
_FIELDS = frozenset({"text_fields", "keep_fields"})
_RECORDS = _FIELDS | {"messages_field", "chat_fields", "chat_roles"}


@dataclass(frozen=True)
class InputFormat:
    """What the rest of the pipeline knows about a format."""

    name: FormatName
    suffixes: tuple[str, ...]
    """Ends of file names that `input.format: auto` takes for this format, without a compression suffix."""
    keys: frozenset[str]
    """The keys of the section `input` that apply to this format, of those that do not apply to every one."""
    separators: Mapping[str, bytes | None]
    """By the value of `input.document`, or for `line` alone: what is between two records."""
    begins: re.Pattern[bytes] | None = None
    """What a file begins with that is not empty; it tells formats with one suffix apart."""
    has_rows: bool = False
    """Whether positions are numbers of rows, and a piece is a run of row groups: the file is not a stream of bytes. It
    is read where it is, so it is not compressed as a whole, and the planned bytes are those of its texts."""

    def separator(self, document: str) -> bytes | None:
        """Returns what is between two records, so that they are found from any byte on; None if a file is read whole.

        Args:
          document: `input.document`.
        """
        return self.separators.get(document, self.separators["line"])

    @property
    def has_fields(self) -> bool:
        """Whether a record has fields with names, and its text is one of them."""
        return "keep_fields" in self.keys


FORMATS: Mapping[str, InputFormat] = {
    each.name: each
    for each in (
        InputFormat("jsonl", (".jsonl", ".ndjson", ".json"), _RECORDS | {"encoding"}, {"line": b"\n"}),
        InputFormat("json", (".json",), _RECORDS | {"encoding"}, _WHOLE, re.compile(rb"\s*\[\s*([{\]]|\Z)")),
        InputFormat("csv", (".csv",), _FIELDS | {"encoding", "delimiter"}, _WHOLE),
        InputFormat("tsv", (".tsv",), _FIELDS | {"encoding", "delimiter"}, _WHOLE),
        InputFormat(
            "text",
            (".txt", ".text"),
            frozenset({"encoding", "document"}),
            {"line": b"\n", "blank_line": b"\n\n", "file": None},
        ),
        InputFormat("wet", (".wet",), _FIELDS, _WHOLE, re.compile(rb"WARC/")),
        InputFormat("parquet", (".parquet", ".pq"), _RECORDS, _WHOLE, has_rows=True),
        InputFormat("arrow", (".arrow", ".feather", ".ipc", ".arrows"), _RECORDS, _WHOLE, has_rows=True),
    )
}
"""All formats, by name."""

SUFFIXES = tuple(dict.fromkeys(suffix for each in FORMATS.values() for suffix in each.suffixes))
"""The ends of file names that stand for a format."""


@dataclass(frozen=True)
class ShardFormat:
    """What the rest of the pipeline knows about a format of shards."""

    suffixes: tuple[str, ...]
    """How the names of a shard's files end: that with rows, then its index. One with an index keeps nothing but ids."""
    compressions: tuple[str, ...] = ("auto", "none")
    keeps: frozenset[str] = frozenset()
    """Of `columns`, which spans and languages add; `labels`, some of which are negative; `mask`, which tokens of
    conversations are trained; `fields`, those of `input.keep_fields`, where rows are documents."""


_ALL = frozenset({"columns", "labels", "mask", "fields"})

SHARD_FORMATS: Mapping[Format, ShardFormat] = {
    "parquet": ShardFormat((".parquet",), ("auto", "none", "zstd"), _ALL),
    "arrow": ShardFormat((".arrow",), ("auto", "none", "zstd"), _ALL),
    "mds": ShardFormat((".mds",), keeps=_ALL - {"columns"}),
    "tfrecord": ShardFormat((".tfrecord",), ("auto", "none", "gzip"), frozenset({"mask"})),
    "memmap": ShardFormat((".ids.bin", ".offsets.npy")),
    "megatron": ShardFormat((".bin", ".idx")),
}
"""All formats of shards by name, those that keep most first; where one ending is the end of another, the longer one."""


@dataclass(frozen=True)
class OtherFormat:
    """Files that nothing here reads."""

    what: str
    advice: str
    """What makes files of them that can be read."""
    suffixes: tuple[str, ...]
    begins: re.Pattern[bytes] | None = None
    """What such a file begins with, and a text does not."""


OTHERS = (
    OtherFormat(
        "a document", "extract its text first, as with pandoc or pdftotext",
        (".pdf", ".doc", ".docx", ".odt", ".rtf", ".epub", ".mobi", ".djvu", ".ps", ".ppt", ".pptx", ".odp"),
        re.compile(rb"%PDF-1|%!PS-Adobe|\{\\rtf1|\xd0\xcf\x11\xe0|AT&TFORM"),
    ),
    OtherFormat(
        "a web page or a crawl", "extract its text first, as with trafilatura",
        (".html", ".htm", ".xhtml", ".mhtml", ".warc", ".wat"), re.compile(rb"WARC/1\.|WARC/0\."),
    ),
    OtherFormat(
        "XML", "extract its text first, as with xmlstarlet; of a dump of Wikipedia, with wikiextractor",
        (".xml", ".tei", ".tmx", ".rss"),
    ),
    OtherFormat(
        "a spreadsheet or a database", "DuckDB makes Parquet of it: COPY (SELECT ...) TO 'texts.parquet'",
        (".xls", ".xlsx", ".ods", ".sqlite", ".sqlite3", ".db", ".duckdb", ".mdb", ".dta", ".sav", ".sas7bdat"),
        re.compile(rb"SQLite format 3\0"),
    ),
    OtherFormat(
        "of rows or arrays", "write it as Parquet, as with pandas or `datasets`",
        (".avro", ".orc", ".tfrecord", ".h5", ".hdf5", ".npy", ".npz", ".pkl", ".pickle", ".pt", ".msgpack", ".mds"),
        re.compile(rb"Obj\x01|\x93NUMPY|\x89HDF\r\n|\x80[\x02-\x05]"),
    ),
    OtherFormat(
        "of token ids", "read the texts that they were made of", (".bin", ".idx", ".ds"), re.compile(rb"MMIDIDX\0")
    ),
    OtherFormat(
        "compressed in a way that is not known", "compress it again, as in `lz4 -dc a.jsonl.lz4 | zstd > a.jsonl.zst`",
        (".lz4", ".lz", ".lzma", ".lzo", ".br", ".sz", ".z"),
        re.compile(rb"[\x02\x04][\x21\x22][\x4c\x4d]\x18|LZIP\x01|\x89LZO|\xff\x06\0\0sNaPpY|\x1f[\x9d\xa0]|\x5d\0\0[\0\x80]"),
    ),
    OtherFormat(
        "an archive", "unpack it, and name the files",
        (".7z", ".rar", ".cab", ".iso", ".cpio", ".deb", ".rpm", ".jar"),
        re.compile(rb"7z\xbc\xaf|Rar!\x1a\x07|MSCF\0"),
    ),
    OtherFormat(
        "an archive by another name", "end its name with .zip or .tar, or unpack it",
        (), re.compile(rb"PK\x03\x04|PK\x05\x06|(?s:.{257})ustar(\0|  \0)"),
    ),
    OtherFormat(
        "of a format that is read by another name", "end its name with .parquet or .arrow, or set input.format",
        (), re.compile(rb"PAR1.{0,16}[\0-\x08\x0e-\x1f]|ARROW1\0\0"),
    ),
    OtherFormat(
        "a picture, a sound or a program", "it has no text to read; leave it out with input.exclude",
        (".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".mp3", ".wav", ".flac", ".mp4", ".exe", ".so", ".pyc"),
        re.compile(rb"\x89PNG\r|\xff\xd8\xff|GIF8[79]a[^ -~]|RIFF....(WEBP|WAVE)|\x7fELF|OggS\0|fLaC\0"),
    ),
)  # fmt: skip
"""What is refused, with what to do; the first that fits."""


_POINTERS = re.compile(
    rb"(?P<lfs>version https://git-lfs\.github\.com/spec/v1)\r?\n(?:ext-[^\n]*\n)*oid sha256:[0-9a-f]{64}\r?\nsize \d+"
    rb"\s*\Z|/annex/objects/[^\n]*\s*\Z"
)


def check_pointer(head: bytes) -> None:
    """Raises ValueError, the message follows the name of the file, where git keeps the file itself somewhere else."""
    if found := _POINTERS.match(head):
        tool, get = ("git-lfs", "git lfs pull") if found["lfs"] else ("git-annex", "git annex get")
        raise ValueError(f"is a pointer of {tool}, not the file itself; get that with `{get}`")


_BEGINNINGS = re.compile(b"|".join(b"(?:%s)" % each.begins.pattern for each in OTHERS if each.begins is not None))


def other_format(name: str, head: bytes) -> OtherFormat | None:
    """Returns what a file is that nothing here reads, by its name without a compression suffix, or its beginning."""
    stem = _stem(name)
    if stem and (named := next((each for each in OTHERS if stem.endswith(each.suffixes)), None)):
        return named
    if not _BEGINNINGS.match(head):  # of nearly every file
        return None
    return next(each for each in OTHERS if each.begins is not None and each.begins.match(head))


def _stem(name: str) -> str:
    stem = name.lower()
    for suffix in COMPRESSION_SUFFIXES:
        stem = stem.removesuffix(suffix)
    return stem


def formats_named(name: str) -> list[InputFormat]:
    """Returns the formats that the name of a file stands for, perhaps with a compression suffix."""
    suffix = os.path.splitext(_stem(name))[1]
    return [each for each in FORMATS.values() if suffix in each.suffixes]


def format_of(name: str, head: bytes = b"") -> InputFormat | None:
    """Returns the format that the name of a file stands for, None if there is none; of several, what its bytes show.

    Args:
      name: the name.
      head: the beginning of the file, decompressed and in UTF-8.
    """
    named = formats_named(name)
    shown = (each for each in named if each.begins is not None and each.begins.match(head))
    return next(shown, named[0] if named else None)


def formats_with(key: str) -> list[str]:
    """Returns the names of the formats to which a key of the section `input` applies."""
    return [each.name for each in FORMATS.values() if key in each.keys]
