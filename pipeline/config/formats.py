# SPDX-License-Identifier: Apache-2.0
"""The formats of input files: whatever depends on the format that a file has. `input.readers` says what reads each."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FormatName = Literal["jsonl", "text", "parquet"]

COMPRESSION_SUFFIXES = (".gz", ".zst", ".zstd", ".bz2", ".xz")
USUAL: FormatName = "jsonl"
"""The format to assume where no name says one."""

_FIELDS = frozenset({"text_fields", "keep_fields", "messages_field"})


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
        InputFormat("jsonl", (".jsonl", ".ndjson", ".json"), _FIELDS | {"encoding"}, {"line": b"\n"}),
        InputFormat(
            "text",
            (".txt", ".text"),
            frozenset({"encoding", "document"}),
            {"line": b"\n", "blank_line": b"\n\n", "file": None},
        ),
        InputFormat("parquet", (".parquet", ".pq"), _FIELDS, {"line": None}, has_rows=True),
    )
}
"""All formats, by name."""

SUFFIXES: Mapping[str, InputFormat] = {suffix: each for each in FORMATS.values() for suffix in each.suffixes}
"""The formats by the ends of file names."""


def format_of(name: str) -> InputFormat | None:
    """Returns the format that the name of a file stands for; None if there is none."""
    stem = name.lower()
    for suffix in COMPRESSION_SUFFIXES:
        stem = stem.removesuffix(suffix)
    return SUFFIXES.get(os.path.splitext(stem)[1])


def formats_with(key: str) -> list[str]:
    """Returns the names of the formats to which a key of the section `input` applies."""
    return [each.name for each in FORMATS.values() if key in each.keys]
