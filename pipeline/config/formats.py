# SPDX-License-Identifier: Apache-2.0
"""The formats of input files: whatever depends on the format that a file has. `input.readers` says what reads each."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FormatName = Literal["jsonl", "json", "csv", "tsv", "text", "parquet", "arrow"]

COMPRESSION_SUFFIXES = (".gz", ".zst", ".zstd", ".bz2", ".xz")
USUAL: FormatName = "jsonl"
"""The format to assume where no name says one."""

_WHOLE: Mapping[str, bytes | None] = {"line": None}
_FIELDS = frozenset({"text_fields", "keep_fields"})
_RECORDS = _FIELDS | {"messages_field"}


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
        InputFormat("parquet", (".parquet", ".pq"), _RECORDS, _WHOLE, has_rows=True),
        InputFormat("arrow", (".arrow", ".feather", ".ipc", ".arrows"), _RECORDS, _WHOLE, has_rows=True),
    )
}
"""All formats, by name."""

SUFFIXES = tuple(dict.fromkeys(suffix for each in FORMATS.values() for suffix in each.suffixes))
"""The ends of file names that stand for a format."""


def formats_named(name: str) -> list[InputFormat]:
    """Returns the formats that the name of a file stands for, perhaps with a compression suffix."""
    stem = name.lower()
    for suffix in COMPRESSION_SUFFIXES:
        stem = stem.removesuffix(suffix)
    return [each for each in FORMATS.values() if os.path.splitext(stem)[1] in each.suffixes]


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
