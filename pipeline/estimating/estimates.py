# SPDX-License-Identifier: Apache-2.0
"""Scales the counts of a sample up to the whole corpus, with bounds.

The sample is cut into units, the batches that were read of it, in the order of the corpus. Unit i stands for A_i of
the N planned bytes of the corpus, in proportion to what was to be read there, and has y_i of the thing counted. The
estimate and its bounds, which should hold 95 times of 100, are

    Y = sum A_i d_i     +- 1.96 sqrt( n / (2 (n - 1)) * sum A_i A_(i-1) (d_i - d_(i-1))^2 * (1 - X / N) )

X are the planned bytes that were read. The density d_i is y_i divided by the bytes that were read, or by those that
were to be read. The two differ by the records at the ends of ranges. The first suits tokens, of which a long record has
many, the second suits records. The one with the narrower bounds is used.

The variance is estimated from differences of neighbours because units are evenly spaced: otherwise a corpus sorted by
language would seem to vary much. The lower bound is at least what was counted. The upper bound is at least that of
three more than were counted, for things so rare that the sample may have missed them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_NORMAL = 1.96
_MISSED = 3
"""If this many are expected in a sample, it has none in 5 of 100 cases."""


@dataclass(frozen=True)
class Estimate:
    """A number with its bounds."""

    value: int
    low: int
    high: int | None
    """None if the sample cannot tell."""

    @property
    def is_exact(self) -> bool:
        """Whether both bounds equal the number."""
        return self.low == self.value == self.high


@dataclass
class Unit:
    """A batch that was read."""

    n_planned: float
    """The planned bytes that it holds."""
    n_meant: float
    """The planned bytes that were to be read for it: they differ by the records at the ends of ranges. The same as
    `n_planned` where no range was read, as of compressed files."""
    counts: dict[str, float]
    weight: float | None = None
    """The part of the corpus that it stands for is proportional to this; None: to `n_meant`."""


def spread(units: Sequence[Unit], name: str, total: float, by: str) -> None:
    """Divides a count that is known only for all units together among them, in proportion to another count."""
    of = sum(unit.counts.get(by, 0) for unit in units)
    planned = sum(unit.n_planned for unit in units)
    for unit in units:
        share = unit.counts.get(by, 0) / of if of else unit.n_planned / planned if planned else 1 / len(units)
        unit.counts[name] = total * share


class Scale:
    """Scales counts of a sample up to the corpus."""

    def __init__(self, units: Sequence[Unit], n_planned: int | None) -> None:
        """Takes the sample.

        Args:
          units: in the order of the corpus.
          n_planned: planned bytes of the corpus; None if the sample is all of it.
        """
        used = [unit for unit in units if unit.n_planned > 0]
        self._all, self._units = units, used
        self.names = sorted({name for unit in units for name in unit.counts})
        """What is counted."""
        self._read = np.array([unit.n_planned for unit in used], np.float64)
        self._meant = np.array([unit.n_meant for unit in used], np.float64)
        self._is_whole = n_planned is None
        self.factor = 1.0 if n_planned is None else max(1.0, n_planned / max(1.0, float(self._read.sum())))
        """The size of the corpus as a multiple of the sample."""
        weights = np.array([unit.n_meant if unit.weight is None else unit.weight for unit in used], np.float64)
        self._stands_for = (n_planned or 0) * weights / max(1.0, float(weights.sum()))

    def counted(self, name: str) -> int:
        """Returns how many there are in the sample."""
        return round(sum(unit.counts.get(name, 0) for unit in self._all))

    def estimate(self, name: str, *, more: float = 0.0) -> Estimate:
        """Returns the estimate of a count; `more` is an additional uncertainty, as a share of the value."""
        counted = self.counted(name)
        if self._is_whole:
            return Estimate(counted, math.floor(counted * (1 - more)), math.ceil(counted * (1 + more)))
        y = np.array([unit.counts.get(name, 0) for unit in self._units], np.float64)
        value, half = min((self._sum(y, by) for by in (self._read, self._meant)), key=lambda each: each[1])
        if len(y) < 2:
            return Estimate(round(value), counted, None)
        half = math.hypot(half, more * value)
        high = max(value + half, (counted + _MISSED) * self.factor)
        return Estimate(round(value), round(max(counted, value - half)), math.ceil(high))

    def divide(self, name: str, sizes: Sequence[int]) -> npt.NDArray[np.float64]:
        """Returns how a count is divided among parts of the corpus: float64[n], of the whole estimate.

        Args:
          sizes: planned bytes of the parts, in the order of the corpus.
        """
        y = np.array([unit.counts.get(name, 0) for unit in self._units], np.float64)
        stands_for = self._read if self._is_whole else self._stands_for
        places = np.concatenate([[0], np.cumsum(stands_for)])
        counted = np.concatenate([[0], np.cumsum(stands_for * y / np.maximum(self._read, 1e-9))])
        return np.diff(np.interp(np.concatenate([[0], np.cumsum(sizes)]), places, counted))

    def _sum(self, y: npt.NDArray[np.float64], by: npt.NDArray[np.float64]) -> tuple[float, float]:
        """Returns the estimate with densities by some bytes, and half the width of its bounds."""
        n, density, stands_for = len(y), y / np.maximum(by, 1e-9), self._stands_for
        differences = stands_for[1:] * stands_for[:-1] * np.diff(density) ** 2
        variance = n / max(1, 2 * (n - 1)) * float(differences.sum()) * (1 - 1 / self.factor)
        return float(stands_for @ density), _NORMAL * math.sqrt(variance)
