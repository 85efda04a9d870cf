# SPDX-License-Identifier: Apache-2.0
"""Sets of code points, stored compactly as the places where membership changes."""

import dataclasses
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.ragged import distinct

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
