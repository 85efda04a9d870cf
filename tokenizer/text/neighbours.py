# SPDX-License-Identifier: Apache-2.0
"""Steps about neighbouring characters: white space, the same punctuation again and again, digits, units of scripts."""

import dataclasses
import functools
import string
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.normalizers.base import Edges
from tokenmill.tokenizer.normalizers.edit_lists import EditingStep, found_edits
from tokenmill.tokenizer.normalizers.kernels import matches, whitespace
from tokenmill.tokenizer.normalizers.tables import Runs, Skips
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.text import tables
from tokenmill.tokenizer.text.kernels import segments
from tokenmill.tokenizer.text.kernels.segments import HAN, HIRAGANA, KATAKANA, OTHER, THAI
from tokenmill.tokenizer.unicode import data

Newlines = Literal["space", "keep", "paragraphs"]
_BREAKS = {"space": whitespace.AS_SPACE, "keep": whitespace.KEEP, "paragraphs": whitespace.PARAGRAPHS}


@dataclasses.dataclass(frozen=True)
class Whitespace(EditingStep):
    """Collapses and strips white space.

    A run of white space inside a text becomes one space. If it has line breaks (U+000A, U+000D, the two together,
    U+0085, U+2028, U+2029), `newlines` says what it becomes: one space, like all other runs; only its line breaks, as
    U+000A; or these, but at most two, so that paragraphs stay apart.
    """

    name = "whitespace"

    collapse: bool = True
    """Whether to collapse runs; without it only `strip` has an effect."""
    strip: bool = True
    """Whether to remove white space at both ends of a document."""
    newlines: Newlines = "keep"
    python: bool = False
    """Whether U+001C to U+001F are white space too, as in Python, and so in CLIP's clean-up."""

    def __post_init__(self) -> None:
        if self.newlines not in _BREAKS:
            raise ValueError(f"newlines must be space, keep or paragraphs, got {self.newlines!r}")

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        runs = _runs(tables.PYTHON_SPACES if self.python else tables.SPACES)
        options = runs, self.collapse, _BREAKS[self.newlines], self.strip
        return found_edits(whitespace.find_whitespace, rows, *edges, *options), ("", " ", "\n", "\n\n")


@functools.cache
def _runs(spaces: frozenset[str]) -> Runs:
    return Runs.of(tables.table_of(spaces), " ", spares_usual=True)


@functools.cache
def punctuation() -> npt.NDArray[np.bool_]:
    """Returns which code points are punctuation, bool[0x110000]: general categories P and the symbols of ASCII."""
    table = tables.members("punctuation").copy()
    table[[ord(c) for c in string.punctuation]] = True
    return read_only(table)


@functools.cache
def digits() -> npt.NDArray[np.bool_]:
    """Returns which code points are decimal digits, bool[0x110000]: general category Nd."""
    table = np.zeros(0x110000, np.bool_)
    for zero in np.flatnonzero(tables.members("zeros")).tolist():
        table[zero : zero + 10] = True
    return read_only(table)


@functools.cache
def not_digits() -> Skips:
    """Returns what to skip in a search for digits."""
    return Skips.of(~digits())


@dataclasses.dataclass(frozen=True)
class RepeatedPunctuation(EditingStep):
    """Shortens runs of the same punctuation character: `!!!!!!` becomes `!!!`."""

    name = "repeated_punctuation"

    most: int = 3
    """The most characters of a run that stay."""

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 1000:
            raise ValueError(f"most must be from 1 to 1000, got {self.most!r}")

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        return found_edits(matches.find_repeated, rows, punctuation(), self.most, False), ("",)


@dataclasses.dataclass(frozen=True)
class IsolateDigits(EditingStep):
    """Puts spaces around digits, unless there is white space or the end of a row."""

    name = "isolate_digits"

    runs: bool = False
    """Whether to put them around runs of digits, not around each digit."""

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        spaces = tables.table_of(tables.SPACES)
        return found_edits(segments.find_isolated, rows, digits(), spaces, not_digits(), not self.runs), ("", " ")


_MODES = {
    "han": {HAN: "HAN"},
    "japanese": {HAN: "HAN", HIRAGANA: "HIRAGANA", KATAKANA: "KATAKANA"},
    "thai": {THAI: "THAI"},
}
_MODES["all"] = {kind: name for kinds in list(_MODES.values()) for kind, name in kinds.items()}

_LONG_VOWEL = 0x30FC
_THAI_LEADING = range(0x0E40, 0x0E45)
_THAI_FOLLOWING = (0x0E2F, 0x0E30, 0x0E32, 0x0E33, 0x0E45, 0x0E46)
_THAI_OTHERS = (0x0E4F, *range(0x0E50, 0x0E5C))
"""Digits, and signs that are units by themselves."""


class SegmentTables(NamedTuple):
    """The tables of characters for a mode."""

    kinds: npt.NDArray[np.uint8]
    """uint8[0x110000]: numbers of `text.kernels.segments`."""
    joins: npt.NDArray[np.bool_]
    """bool[0x110000]: characters that belong to the one before them."""
    leads: npt.NDArray[np.bool_]
    """bool[0x110000]: characters that belong to the one after them."""


@functools.cache
def segment_tables(mode: str) -> SegmentTables:
    """Lowers a mode to tables."""
    kinds, names = np.zeros(0x110000, np.uint8), data.names("scripts/script_names")
    for kind, name in _MODES[mode].items():
        kinds[data.members_of_number("scripts/scripts", names.index(name))] = kind
    joins, leads = tables.members("grapheme_extend").copy(), np.zeros(0x110000, np.bool_)
    if THAI in _MODES[mode]:
        joins[list(_THAI_FOLLOWING)] = leads[list(_THAI_LEADING)] = True
        kinds[list(_THAI_OTHERS)] = OTHER
    if KATAKANA in _MODES[mode]:
        joins[_LONG_VOWEL] = True
    return SegmentTables(read_only(kinds), read_only(joins), read_only(leads))


@dataclasses.dataclass(frozen=True)
class Segment(EditingStep):
    """Puts spaces between units of scripts that are written without, unless there is white space already.

    `han`: each Chinese character is a unit. `japanese`: these, and runs of hiragana and of katakana, with their ー.
    `thai`: clusters, a consonant with the vowel before it and the vowels, marks, ๆ and ฯ after it. `all`: all of these.
    Marks stay with their base, and other characters are only separated from these units.
    """

    name = "segment"

    mode: str = "all"

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ValueError(f"mode must be one of {', '.join(_MODES)}, got {self.mode!r}")

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        spaces = tables.table_of(tables.SPACES)
        return found_edits(segments.find_segments, rows, *segment_tables(self.mode), spaces), ("", " ")
