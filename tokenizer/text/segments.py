# SPDX-License-Identifier: Apache-2.0
"""`Segment`: a step that cuts scripts written without spaces into units."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.normalizers.base import Edges
from tokenmill.tokenizer.normalizers.edit_lists import EditingStep, found_edits
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.text import tables
from tokenmill.tokenizer.text.kernels import segments as kernels
from tokenmill.tokenizer.text.kernels.segments import HAN, HIRAGANA, KATAKANA, OTHER, THAI
from tokenmill.tokenizer.unicode import data

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
        return found_edits(kernels.find_segments, rows, *segment_tables(self.mode), spaces), ("", " ")
