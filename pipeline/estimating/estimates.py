# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a plan: counts of a sample scaled up to the corpus, with bounds, and time and memory of the job.

The sample consists of units, the excerpts that were read, in the order of the corpus; the ledger says what each of
their pieces counted. Unit i stands for A_i of the N planned bytes of the corpus, and has y_i of the thing counted. The
estimate and its bounds, which should hold 95 times of 100, are

    Y = sum A_i d_i     +- 1.96 sqrt( n / (2 (n - 1)) * sum A_i A_(i-1) (d_i - d_(i-1))^2 * (1 - X / N) )

X are the planned bytes that were read. The density d_i is y_i divided by the bytes that were read, or by those that
were to be read. The two differ by the records at the ends of ranges. The first suits tokens, of which a long record has
many, the second suits records. The one with the narrower bounds is used. A range in which no record begins, as it is
inside a long one, counts with the one before it.

The variance is estimated from differences of neighbours because units are evenly spaced: otherwise a corpus sorted by
language would seem to vary much. The lower bound is at least what was counted. The upper bound is at least that of
three more than were counted, for things so rare that the sample may have missed them. What the ledger counts of whole
splits only, such as the bytes of shards, is estimated in proportion to something that it counts of pieces.

The time is measured in parts, and depends on the splits that each worker gets:

    seconds(n workers) = start + training + (merging / n + pace * bytes of the busiest worker) (1 + CONTENTION (n - 1))
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tokenmill.pipeline.running.runners import available_cores

_NORMAL = 1.96
_MISSED = 3
"""If this many are expected in a sample, it has none in 5 of 100 cases."""
CONTENTION = 0.09
"""How much each further worker slows all workers down, as a fraction: two threads do 1.84 times the work of one."""


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

    @classmethod
    def exact(cls, n: int) -> "Estimate":
        """Returns a number that is known."""
        return cls(n, n, n)

    def times(self, factor: float) -> "Estimate":
        """Returns the estimate of what is so many times as large."""
        high = None if self.high is None else math.ceil(factor * self.high)
        return Estimate(round(factor * self.value), round(factor * self.low), high)

    def plus(self, n: int) -> "Estimate":
        """Returns the estimate of so many more, which are known."""
        return Estimate(self.value + n, self.low + n, None if self.high is None else self.high + n)

    def minus(self, parts: Iterable["Estimate"]) -> "Estimate":
        """Returns the estimate of what is left without these parts, if this one is exact."""
        value = low = high = self.value
        for part in parts:
            value, high = value - part.value, high - part.low
            low -= self.value if part.high is None else part.high
        return Estimate(max(0, value), max(0, low), high)


@dataclass
class Unit:
    """An excerpt that was read."""

    n_planned: float
    """The planned bytes that it holds."""
    n_meant: float
    """The planned bytes that were to be read for it: they differ by the records at the ends of ranges. The same as
    `n_planned` where no range was read, as of compressed files."""
    counts: Mapping[str, int]
    stands_for: float
    """The planned bytes of the corpus that it stands for."""


class Scale:
    """Scales counts of a sample up to the corpus."""

    def __init__(self, units: Sequence[Unit], n_planned: int) -> None:
        """Takes the sample, in the order of the corpus, and the corpus' planned bytes."""
        self._all = units
        self._units: list[Unit] = []
        for unit in units:
            last = self._units[-1] if self._units else None
            if unit.n_planned > 0 or last is None:
                self._units.append(unit)
            else:  # a place inside a long record, in which none begins, is as what was read before it
                n_meant, stands_for = last.n_meant + unit.n_meant, last.stands_for + unit.stands_for
                self._units[-1] = replace(last, n_meant=n_meant, stands_for=stands_for)
        self._read = np.array([unit.n_planned for unit in self._units], np.float64)
        self._meant = np.array([unit.n_meant for unit in self._units], np.float64)
        self.factor = max(1.0, n_planned / max(1.0, float(self._read.sum())))
        """The size of the corpus as a multiple of the sample."""
        weights = np.array([unit.stands_for for unit in self._units], np.float64)
        self._stands_for = n_planned * weights / max(1.0, float(weights.sum()))

    def counted(self, name: str) -> int:
        """Returns how many there are in the sample."""
        return sum(unit.counts.get(name, 0) for unit in self._all)

    def in_proportion(self, n: int, to: str, *, more: float = 0.0) -> Estimate:
        """Returns the estimate of what the sample as a whole has `n` of, as evenly spread as what `to` names."""
        counted = self.counted(to)
        if not counted:
            return Estimate(round(n * self.factor), n, math.ceil((n + _MISSED) * self.factor))
        return self.estimate(to, more=more).times(n / counted)

    def estimate(self, name: str, *, more: float = 0.0) -> Estimate:
        """Returns the estimate of a count; `more` is an additional uncertainty, as a share of the value."""
        counted = self.counted(name)
        y = np.array([unit.counts.get(name, 0) for unit in self._units], np.float64)
        value, half = min((self._sum(y, by) for by in (self._read, self._meant)), key=lambda each: each[1])
        if len(y) < 2:
            return Estimate(round(value), counted, None)
        half = math.hypot(half, more * value)
        high = max(value + half, (counted + _MISSED) * self.factor)
        return Estimate(round(value), round(max(counted, value - half)), math.ceil(high))

    def _sum(self, y: npt.NDArray[np.float64], by: npt.NDArray[np.float64]) -> tuple[float, float]:
        """Returns the estimate with densities by some bytes, and half the width of its bounds."""
        n, density, stands_for = len(y), y / np.maximum(by, 1e-9), self._stands_for
        differences = stands_for[1:] * stands_for[:-1] * np.diff(density) ** 2
        variance = n / max(1, 2 * (n - 1)) * float(differences.sum()) * (1 - 1 / self.factor)
        return float(stands_for @ density), _NORMAL * math.sqrt(variance)


@dataclass(frozen=True)
class Work:
    """The work of a job, as far as its time and memory depend on it."""

    split_bytes: npt.NDArray[np.int64]
    """int64[n]: planned bytes of the splits, in order."""
    pace: float
    """Seconds for each planned byte."""
    merge_seconds: float
    """The time for merging counts, or the runs of a shuffle, which is also divided among workers."""
    train_seconds: float
    worker_bytes: int
    """The memory that a worker takes."""
    other_bytes: int
    """The other memory of the process."""

    @property
    def split_seconds(self) -> float:
        """The time for all splits with one worker."""
        return self.pace * int(self.split_bytes.sum())

    def seconds(self, start_seconds: float, workers: int) -> float:
        """Returns how long the job takes. Workers beyond the cores of the machine bring nothing."""
        at_once = min(workers, available_cores())
        busiest = max(self.pace * self.busiest(workers), self.split_seconds / at_once)
        slower = 1 + CONTENTION * (at_once - 1)
        return start_seconds + self.train_seconds + (busiest + self.merge_seconds / at_once) * slower

    def busiest(self, workers: int) -> int:
        """Returns the bytes that the busiest worker has to read; splits are dealt out in turn, the largest first."""
        ordered = np.sort(self.split_bytes)[::-1]
        return max(int(ordered[first::workers].sum()) for first in range(workers))

    def memory(self, workers: int) -> int:
        """Returns the peak of all processes together, in bytes: every worker holds one batch and one row group."""
        return self.other_bytes + min(workers, max(1, len(self.split_bytes))) * self.worker_bytes
