# SPDX-License-Identifier: Apache-2.0
"""Steps that look at one character at a time: case, clean-up, typography, digits of other scripts."""

import dataclasses
import itertools

import numpy as np

from tokenmill.tokenizer import normalizers
from tokenmill.tokenizer.normalizers.base import Applied, Edges, Edit, put_texts, replaced
from tokenmill.tokenizer.normalizers.characters import CharacterStep
from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.text import tables
from tokenmill.tokenizer.text.base import CharacterSet
from tokenmill.tokenizer.unicode import data as unicode_data

_SIGMA = "Σ"


@dataclasses.dataclass(frozen=True)
class Lowercase(normalizers.Lowercase):
    """Full lower-case mappings.

    Source: `str.lower`; without `final_sigma`, of one character at a time, as HF tokenizers lower-cases.
    """

    final_sigma: bool = False
    """Whether a capital sigma at the end of a word becomes ς, not σ; Python's Unicode decides where a word ends."""

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        edits = super().edits(text, begins, ends)
        if not self.final_sigma or _SIGMA not in text:
            return edits
        lowered, places = text.lower(), [0, *itertools.accumulate(len(c.lower()) for c in text)]
        return [Edit(i, j, lowered[places[i]] if text[i] == _SIGMA else new) for i, j, new in edits]

    def apply_rows(self, rows: Ragged, edges: Edges) -> Applied:
        applied = super().apply_rows(rows, edges)
        if not self.final_sigma or applied.rows is rows:
            return applied
        found = CharacterSet.of(tables.table_of(frozenset(_SIGMA))).rows_with(rows)
        new = {}
        for row in np.flatnonzero(found).tolist():
            text = rows.values[rows.offsets[row] : rows.offsets[row + 1]].tobytes().decode()
            new[row] = replaced(text, self.edits(text)).encode()
        return applied._replace(rows=put_texts(applied.rows, new))


@dataclasses.dataclass(frozen=True)
class CaseFold(CharacterStep):
    """Full default case folding.

    Source: `str.casefold`; the same on every character that Python knows.
    """

    name = "casefold"

    def changes(self) -> dict[int, str]:
        return tables.case_folds()


_CONTROLS = [*range(9), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0x85), *range(0x86, 0xA0)]
_NONCHARACTERS = [*range(0xFDD0, 0xFDF0), *(plane << 16 | low for plane in range(17) for low in (0xFFFE, 0xFFFF))]


@dataclasses.dataclass(frozen=True)
class ControlCharacters(CharacterStep):
    """Removes control characters (Cc), noncharacters and U+FFFD; tab, line feed, carriage return, U+0085 stay."""

    name = "control_characters"

    replacement: bool = True
    """Whether to remove U+FFFD, which decoders put in place of bytes that they cannot read."""

    def changes(self) -> dict[int, str]:
        return dict.fromkeys([*_CONTROLS, *_NONCHARACTERS, *([0xFFFD] if self.replacement else [])], "")


@dataclasses.dataclass(frozen=True)
class ZeroWidth(CharacterStep):
    """Removes characters without width: U+200B, U+2060-2064, U+FEFF, U+00AD, U+180E, U+034F."""

    name = "zero_width"

    joiners: bool = False
    """Whether to remove U+200C and U+200D too, which Persian, the scripts of India and emoji need."""

    def changes(self) -> dict[int, str]:
        removed = [0x200B, *range(0x2060, 0x2065), 0xFEFF, 0xAD, 0x180E, 0x34F]
        return dict.fromkeys([*removed, *((0x200C, 0x200D) if self.joiners else ())], "")


@dataclasses.dataclass(frozen=True)
class Bidi(CharacterStep):
    """Removes the marks, embeddings, overrides and isolates of bidirectional text, and the deprecated U+206A-206F."""

    name = "bidi"

    def changes(self) -> dict[int, str]:
        return dict.fromkeys([0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x2070)], "")


_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\u2e3a\u2e3b\ufe31\ufe32\ufe58\ufe63\uff0d"
_SINGLE_QUOTES = "\u2018\u2019\u201a\u201b\u2039\u203a\u2032\u02bc\uff07"
_DOUBLE_QUOTES = "\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033\u301d\u301e\u301f\uff02"


@dataclasses.dataclass(frozen=True)
class Punctuation(CharacterStep):
    """Turns dashes into `-`, quotes into `'` and `"`, ellipses into dots."""

    name = "punctuation"

    dashes: bool = True
    """Hyphens, dashes and the minus sign."""
    quotes: bool = True
    """Curly, low, angle and full-width quotes, primes, and the apostrophe U+02BC."""
    ellipses: bool = True
    """`…` becomes `...`, `‥` becomes `..`."""

    def changes(self) -> dict[int, str]:
        changes: dict[int, str] = {}
        if self.dashes:
            changes |= dict.fromkeys(map(ord, _DASHES), "-")
        if self.quotes:
            changes |= dict.fromkeys(map(ord, _SINGLE_QUOTES), "'") | dict.fromkeys(map(ord, _DOUBLE_QUOTES), '"')
        if self.ellipses:
            changes |= {0x2026: "...", 0x2025: ".."}
        return changes


@dataclasses.dataclass(frozen=True)
class FullWidth(CharacterStep):
    """Replaces full-width forms (Ａ！０ and the ideographic space) by the characters that they are forms of.

    Source: the decompositions that UnicodeData.txt tags `<wide>`. Half-width katakana, two of which may become one, are
    left to NFKC.
    """

    name = "full_width"

    def changes(self) -> dict[int, str]:
        return unicode_data.texts("text/full_width")


@dataclasses.dataclass(frozen=True)
class Tatweel(CharacterStep):
    """Removes U+0640, which stretches Arabic words and has no meaning."""

    name = "tatweel"

    def changes(self) -> dict[int, str]:
        return {0x640: ""}


@dataclasses.dataclass(frozen=True)
class AsciiDigits(CharacterStep):
    """Replaces the decimal digits of all scripts (०-९, ٠-٩, ０-９) by those of ASCII.

    Source: `unicodedata.digit` of general category Nd; superscripts, fractions and numerals stay.
    """

    name = "ascii_digits"

    def changes(self) -> dict[int, str]:
        return tables.digit_values()
