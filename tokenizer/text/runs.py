# SPDX-License-Identifier: Apache-2.0
"""`RepeatedPunctuation` and `IsolateDigits`: steps about neighbouring characters."""

import dataclasses
import functools
import string
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.normalizers.base import Edges
from tokenmill.tokenizer.normalizers.edit_lists import EditingStep, found_edits
from tokenmill.tokenizer.normalizers.kernels import matches
from tokenmill.tokenizer.normalizers.tables import Skips
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.text import tables
from tokenmill.tokenizer.text.kernels import segments


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
