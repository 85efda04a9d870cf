# SPDX-License-Identifier: Apache-2.0
"""Sums over documents by group and by block, for ratios with bootstrap intervals.

Each document is in one of `N_BLOCKS` blocks, by a hash of its place. The bootstrap draws blocks, not documents: however
large the corpus, a group takes `N_BLOCKS` sums of each column.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

N_BLOCKS = 100
N_RESAMPLES = 1000
CONFIDENCE = 0.95

LEAST_BLOCKS = 10
"""A group with documents in fewer blocks has no intervals: they would be meaningless."""

MAX_GROUPS = 20_000
OTHER = "(other)"
"""Groups of one kind after the first `MAX_GROUPS` are summed up under this name."""

_SEED = 1


class GroupSums:
    """Sums over documents of several numbers, by the groups of one kind."""

    def __init__(self, n_columns: int) -> None:
        """Starts with no group; `n_columns`: how many numbers a document has."""
        self._numbers: dict[str, int] = {}
        self._sums = np.zeros((16, N_BLOCKS, n_columns), np.int64)

    @property
    def names(self) -> list[str]:
        """The groups, in the order in which they were met."""
        return list(self._numbers)

    @property
    def blocks(self) -> Ints:
        """The sums, int64[n_groups, N_BLOCKS, n_columns]."""
        return self._sums[: len(self._numbers)]

    def add(self, groups: pa.DictionaryArray, blocks: Ints, values: Ints) -> None:
        """Adds documents.

        Args:
          groups: dictionary<int32, string>[n], the group of each, no nulls.
          blocks: int64[n], the block of each.
          values: int64[n, n_columns].
        """
        used, indices = np.unique(groups.indices.to_numpy(), return_inverse=True)
        numbers = np.array([self._number(groups.dictionary[i].as_py()) for i in used.tolist()], np.int64)
        if len(self._numbers) > self._sums.shape[0]:
            larger = np.zeros((2 * len(self._numbers), *self._sums.shape[1:]), np.int64)
            larger[: self._sums.shape[0]] = self._sums
            self._sums = larger
        np.add.at(self._sums, (numbers[indices], blocks), values)

    def _number(self, name: str) -> int:
        if name not in self._numbers and len(self._numbers) >= MAX_GROUPS:
            name = OTHER
        return self._numbers.setdefault(name, len(self._numbers))


class Bootstrap:
    """Resamples of the blocks of groups; the same in every run, and the same blocks for all columns."""

    def __init__(self) -> None:
        """Draws the blocks of all resamples."""
        drawn = np.random.default_rng(_SEED).integers(0, N_BLOCKS, (N_RESAMPLES, N_BLOCKS))
        self._weights = np.zeros((N_RESAMPLES, N_BLOCKS))
        np.add.at(self._weights, (np.arange(N_RESAMPLES)[:, None], drawn), 1.0)

    def resample(self, blocks: Ints) -> Floats:
        """Returns the sums of each resample, float64[N_RESAMPLES, n_columns]; `blocks`: int64[N_BLOCKS, n_columns]."""
        return self._weights @ blocks


def intervals(resampled: Floats) -> list[list[float] | None]:
    """Returns the limits between which `CONFIDENCE` of the values of each column lie; None where one is not finite.

    Args:
      resampled: float64[N_RESAMPLES, n].
    """
    tail = 100 * (1 - CONFIDENCE) / 2
    is_told = np.all(np.isfinite(resampled), axis=0)
    limits = np.percentile(np.where(is_told, resampled, 0), [tail, 100 - tail], axis=0).T.tolist()
    return [found if told else None for found, told in zip(limits, is_told.tolist(), strict=True)]
