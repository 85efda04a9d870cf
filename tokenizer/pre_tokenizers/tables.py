# SPDX-License-Identifier: Apache-2.0
"""Sets of code points, stored compactly as the places where membership changes; scripts and categories."""

import dataclasses
import functools
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.ragged import distinct, read_only
from tokenmill.tokenizer.unicode import data
from tokenmill.tokenizer.unicode.tables import HF_1

N_CODE_POINTS = 0x110000


@dataclasses.dataclass(frozen=True)
class CodePoints:
    """A set of code points, hashable; sets with the same members are equal."""

    packed: bytes
    """int32, ascending: the first member of each run, and the first code point after it."""

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> "CodePoints":
        """Returns the union of ranges, both ends included, in any order."""
        bounds: list[int] = []
        for first, last in sorted(ranges):
            if bounds and first <= bounds[-1]:
                bounds[-1] = max(bounds[-1], last + 1)
            else:
                bounds += first, last + 1
        return cls(_packed([b for b in bounds if b < N_CODE_POINTS]))

    @property
    def bounds(self) -> npt.NDArray[np.int32]:
        """The content of `packed`, int32[n]."""
        return np.frombuffer(self.packed, np.int32)

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The ranges, both ends included, ascending."""
        bounds = [*self.bounds.tolist(), N_CODE_POINTS]
        return [(first, stop - 1) for first, stop in zip(bounds[::2], bounds[1::2], strict=False)]

    def has(self, code_points: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Returns which code points are members, bool[n]."""
        return np.searchsorted(self.bounds, code_points, "right") % 2 == 1

    @property
    def has_first(self) -> bool:
        """Whether U+0000 is a member."""
        return self.packed[:4] == bytes(4)

    def __invert__(self) -> "CodePoints":
        bounds = self.bounds
        return CodePoints(_packed(bounds[1:] if self.has_first else np.append(0, bounds)))

    def __and__(self, other: "CodePoints") -> "CodePoints":
        bounds = distinct(np.concatenate([self.bounds, other.bounds]))
        members = self.has(bounds) & other.has(bounds)
        return CodePoints(_packed(bounds[members != np.append(False, members[:-1])]))

    def __or__(self, other: "CodePoints") -> "CodePoints":
        return ~(~self & ~other)


def _packed(bounds: npt.ArrayLike) -> bytes:
    return np.asarray(bounds, np.int32).tobytes()


NONE = CodePoints.of([])
ALL = ~NONE


@functools.cache
def script_numbers() -> npt.NDArray[np.uint8]:
    """Returns the number of each code point's script in `UnicodeScripts`, 0 for any."""
    return read_only(data.numbers("patterns/unicode_scripts"))


@functools.cache
def _numbers_of_scripts() -> dict[str, int]:
    lines = data.names("patterns/script_names")
    return {name: number for number, line in enumerate(lines) for name in line.split()}


def script_runs(name: str) -> list[tuple[int, int]]:
    """Returns the runs of a script in patterns, by any of its names; empty if it is no script."""
    return data.runs_of_number("patterns/scripts", _numbers_of_scripts().get(name, -1))


def category_runs(name: str, unicode: str = "8") -> list[tuple[int, int]]:
    """Returns the runs of a general category in patterns; empty if it is no category."""
    names = data.names("patterns/category_names")
    found = data.runs_of_number("patterns/categories", names.index(name)) if name in names else []
    if unicode != HF_1 or not found:
        return found
    moved = CodePoints.of((first, last) for _, first, last in data.array("patterns/categories_17").tolist())
    newer = data.runs_of_number("patterns/categories_17", names.index(name))
    return ((CodePoints.of(found) & ~moved) | CodePoints.of(newer)).runs
