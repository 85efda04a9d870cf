# SPDX-License-Identifier: Apache-2.0
"""Steps about neighbouring characters: white space, repeated punctuation, accents, digits, units of scripts."""

import dataclasses
import functools
import string
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.normalizers.base import Edges
from tokenmill.tokenizer.normalizers.edits import EditingStep, found_edits
from tokenmill.tokenizer.normalizers.kernels import matches
from tokenmill.tokenizer.normalizers.tables import UNICODE_VERSION, Runs, decompositions
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Alternation, Look, Node
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Sequence as InOrder
from tokenmill.tokenizer.ragged import Ragged, distinct, read_only
from tokenmill.tokenizer.text import tables
from tokenmill.tokenizer.text.base import CharacterSet
from tokenmill.tokenizer.text.patterns import PatternStep, cut_by, find_pattern, one_of, spaces_at, times
from tokenmill.tokenizer.unicode import data

Newlines = Literal["space", "keep", "paragraphs"]
_BREAKS = {"space": matches.AS_SPACE, "keep": matches.KEEP, "paragraphs": matches.PARAGRAPHS}


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
        return found_edits(matches.find_whitespace, rows, *edges, *options), ("", " ", "\n", "\n\n")


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


Mode = Literal["none", "latin-only", "all"]


@functools.cache
def _stripped(mode: Mode) -> dict[str, str]:
    """Returns the characters that lose accents, and what is left of each."""
    marks, latin = tables.members("nonspacing_marks"), tables.members("latin")
    found = {}
    for code_point, text in decompositions(UNICODE_VERSION).items():
        new = "".join(c for c in text if not marks[ord(c)])
        if new not in ("", text) and not marks[code_point] and (mode == "all" or latin[ord(new[0])]):
            found[chr(code_point)] = new
    return found


@functools.cache
def _accents(mode: Mode) -> Node:
    marks = times(one_of(tables.members("nonspacing_marks")), 1)
    of_latin = InOrder((Look(behind=True, members=one_of(tables.members("latin")).members, at_edge=False), marks))
    return Alternation((one_of(tables.table_of(frozenset(_stripped(mode)))), marks if mode == "all" else of_latin))


@dataclasses.dataclass(frozen=True)
class StripAccents(PatternStep):
    """Removes the nonspacing marks (Mn) of letters.

    Source, up to normalization: the usual recipe, NFD without general category Mn. A character without marks in its
    decomposition stays as it is. `all` destroys meaning in scripts whose vowels and tones are such marks (Hindi, Thai,
    Hebrew, Arabic), and merges `ā á ǎ à`; `latin-only` changes only letters of the Latin script; `none` does nothing.
    """

    name = "strip_accents"

    mode: Mode = "latin-only"

    def __post_init__(self) -> None:
        if self.mode not in ("none", "latin-only", "all"):
            raise ValueError(f"mode must be none, latin-only or all, got {self.mode!r}")

    @property
    def node(self) -> Node:
        return _accents(self.mode)

    def new(self, match: str) -> str:
        return _stripped(self.mode).get(match, "")

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        return (np.empty((0, 3), np.int64), ()) if self.mode == "none" else super().find_edits(rows, edges)


@functools.cache
def _beside_others(runs: bool) -> tuple[Node, Node]:
    """Returns the patterns of digits behind, and in front of, what must be separated from them."""
    others = ~tables.table_of(tables.SPACES) & ~(digits() & runs)
    before, after = (Look(behind, one_of(others).members, at_edge=False) for behind in (True, False))
    digit = one_of(digits())
    return InOrder((before, digit)), InOrder((digit, after))


@dataclasses.dataclass(frozen=True)
class IsolateDigits(EditingStep):
    """Puts spaces around digits, unless there is white space or the end of a row."""

    name = "isolate_digits"

    runs: bool = False
    """Whether to put them around runs of digits, not around each digit."""

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        behind, in_front = (find_pattern(rows, node) for node in _beside_others(self.runs))
        return spaces_at(distinct(np.concatenate((behind[:, 0], in_front[:, 1]))))


OTHER, HIRAGANA, KATAKANA, HAN, THAI = range(5)
"""Kinds of characters. Runs of one kind of kana stay together; characters of the last two kinds are separated."""
_NAMES = {HAN: "HAN", HIRAGANA: "HIRAGANA", KATAKANA: "KATAKANA", THAI: "THAI"}
_MODES = {"han": {HAN}, "japanese": {HAN, HIRAGANA, KATAKANA}, "thai": {THAI}, "all": {*_NAMES}}
_LONG_VOWEL = 0x30FC
_THAI_LEADING = range(0x0E40, 0x0E45)
_THAI_FOLLOWING = (0x0E2F, 0x0E30, 0x0E32, 0x0E33, 0x0E45, 0x0E46)
_THAI_OTHERS = (0x0E4F, *range(0x0E50, 0x0E5C))
"""Digits, and signs that are units by themselves."""


def segment_tables(mode: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Returns the kinds of characters, and which belong to the one before them, and after them, [0x110000] each."""
    kinds, names = np.zeros(0x110000, np.uint8), data.names("scripts/script_names")
    for kind in _MODES[mode]:
        kinds[data.members_of_number("scripts/scripts", names.index(_NAMES[kind]))] = kind
    joins, leads = tables.members("grapheme_extend").copy(), np.zeros(0x110000, np.bool_)
    if THAI in _MODES[mode]:
        joins[list(_THAI_FOLLOWING)] = leads[list(_THAI_LEADING)] = True
        kinds[list(_THAI_OTHERS)] = OTHER
    if KATAKANA in _MODES[mode]:
        joins[_LONG_VOWEL] = True
    return kinds, joins, leads


@functools.cache
def _units(mode: str) -> tuple[Node, CharacterSet]:
    """Returns the pattern of the units of a mode, of which text without white space is made; and what some need."""
    kinds, joins, leads = segment_tables(mode)
    kinds[[ord(c) for c in tables.SPACES]] = 255
    joined, leading = one_of(joins), one_of(leads)
    units: list[Node] = []
    for kind in (OTHER, *_MODES[mode]):
        of_kind = (kinds == kind) & ~leads
        more = joined if kind >= HAN else one_of(of_kind | joins)
        units.append(InOrder((times(leading, 0), one_of(of_kind), times(more, 0))))
    # What a leading vowel is followed by belongs to it, even to a mark that would be a unit of its own.
    pattern = Alternation((InOrder((times(leading, 1), times(joined, 1))), *units, times(leading, 1)))
    return pattern, CharacterSet.of(np.isin(kinds, [*_MODES[mode]]))


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
        if not _units(self.mode)[1].rows_with(rows).any():
            return spaces_at(rows.offsets[:0])
        units = cut_by(rows, _units(self.mode)[0])
        n = units.counts[-1]
        # Between two units of a row: Chinese has one for every three bytes, so none of them is searched for.
        is_between = np.zeros(n + 1, np.bool_)
        is_between[1:n] = units.is_match[1:n] & units.is_match[: n - 1]
        is_between[units.counts] = False
        return spaces_at(units.starts[:n][is_between[:n]])
