# SPDX-License-Identifier: Apache-2.0
"""`RepeatedPunctuation` and `IsolateDigits`: steps about neighbouring characters."""

import dataclasses
import functools
import re
import string

import numpy as np
import numpy.typing as npt

from tokenizer.normalizers.base import Edges, Edit
from tokenizer.normalizers.tables import first_byte_steps
from tokenizer.ragged import Ragged, read_only
from tokenizer.text import tables
from tokenizer.text.edits import EditingStep
from tokenizer.text.kernels import runs as kernels


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
def digit_steps() -> npt.NDArray[np.uint8]:
    """Returns the number of bytes of a character by its first byte, if none that begins so is a digit, uint8[256]."""
    return first_byte_steps(~digits())


@dataclasses.dataclass(frozen=True)
class RepeatedPunctuation(EditingStep):
    """Shortens runs of the same punctuation character: `!!!!!!` becomes `!!!`."""

    name = "repeated_punctuation"

    most: int = 3
    """The most characters of a run that stay."""

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 1000:
            raise ValueError(f"most must be from 1 to 1000, got {self.most!r}")

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        """Returns the edits of one text; see `TextStep`."""
        runs = (run.span() for run in re.finditer(r"(.)\1*", text, re.DOTALL) if punctuation()[ord(run[1])])
        return [Edit(start + self.most, stop, "") for start, stop in runs if stop - start > self.most]

    def find_edits(self, rows: Ragged, edges: Edges, edits: npt.NDArray[np.int64]) -> int:
        """Finds the edits of rows; see `EditingStep`."""
        return kernels.find_repeated(rows.values, rows.offsets, punctuation(), self.most, False, edits)


@dataclasses.dataclass(frozen=True)
class IsolateDigits(EditingStep):
    """Puts spaces around digits, unless there is white space or the end of a row."""

    name = "isolate_digits"
    texts = ("", " ")

    runs: bool = False
    """Whether to put them around runs of digits, not around each digit."""

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        """Returns the edits of one text; see `TextStep`."""
        edits = []
        for i in range(1, len(text)):
            pair = text[i - 1 : i + 1]
            n_digits = sum(bool(digits()[ord(c)]) for c in pair)
            if (n_digits == 1 or (n_digits == 2 and not self.runs)) and not tables.SPACES & set(pair):
                edits.append(Edit(i, i, " "))
        return edits

    def find_edits(self, rows: Ragged, edges: Edges, edits: npt.NDArray[np.int64]) -> int:
        """Finds the edits of rows; see `EditingStep`."""
        spaces = tables.table_of(tables.SPACES)
        return kernels.find_isolated(rows.values, rows.offsets, digits(), spaces, digit_steps(), not self.runs, edits)
