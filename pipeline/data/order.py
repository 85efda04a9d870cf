# SPDX-License-Identifier: Apache-2.0
"""The order in which an epoch reads rows: a permutation that is computed, place by place, and never stored."""

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

_TABLE = 4096
"""Up to so many rows the order is a table: a Feistel network of a few bits reaches only some of the permutations."""
_ROUNDS = 8
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mix(x: UInt64s) -> UInt64s:
    """Returns numbers of 64 bits mixed one to one; the last step of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class Order:
    """A permutation of `range(n)`, given by a seed and an epoch; it is the same in every version of TokenMill.

    A keyed Feistel network permutes the smallest power of two that is no smaller than `n`. A result beyond the end is
    permuted again until it is a row (cycle walking), fewer than two steps on average. So a place costs the same
    wherever it is, the inverse costs as much, and nothing grows with `n`. Up to 4,096 rows it is a table instead.
    """

    def __init__(self, n: int, seed: int | None, epoch: int = 0) -> None:
        """Makes the order of one epoch.

        Args:
          n: how many rows there are.
          seed: from 0 to below 2**64; None for the order in which rows are stored.
          epoch: from 0.

        Raises:
          ValueError: if a number is out of range.
        """
        if not (0 <= n < 1 << 62 and 0 <= (seed or 0) <= _MASK and 0 <= epoch <= _MASK):
            raise ValueError(f"no order of {n} rows with seed {seed} in epoch {epoch}: all must be from 0, below 2**64")
        self.n, self.seed, self.epoch = n, seed, epoch
        start = _mix(np.array([(seed or 0) ^ _GOLDEN], np.uint64)) + np.uint64(epoch)
        self._keys = _mix(_mix(start) + np.arange(1, _ROUNDS + 1, dtype=np.uint64) * np.uint64(_GOLDEN))
        n_bits = max(2, (n - 1).bit_length())
        self._low_bits, self._high_bits = np.uint64(n_bits - n_bits // 2), np.uint64(n_bits // 2)
        self._table: Int64s | None = None

    def __len__(self) -> int:
        """Returns the number of rows."""
        return self.n

    def __call__(self, places: npt.ArrayLike) -> Int64s:
        """Returns the rows at some places of the order, int64[k]; raises IndexError if there is no such place."""
        return self._permuted(places, inverse=False)

    def inverse(self, rows: npt.ArrayLike) -> Int64s:
        """Returns the places of some rows in the order, int64[k]; raises IndexError if there is no such row."""
        return self._permuted(rows, inverse=True)

    def _permuted(self, given: npt.ArrayLike, inverse: bool) -> Int64s:
        numbers = np.asarray(given, np.int64)
        if numbers.size and (numbers.min() < 0 or numbers.max() >= self.n):
            wrong = numbers[(numbers < 0) | (numbers >= self.n)].flat[0]
            raise IndexError(f"{wrong} is not a number from 0 to {self.n - 1}")
        if self.seed is None:
            return numbers
        if self.n <= _TABLE:
            if self._table is None:
                each = np.arange(self.n, dtype=np.uint64) * np.uint64(_GOLDEN)
                self._table = np.argsort(_mix(each ^ self._keys[0]), kind="stable")
            return (np.argsort(self._table) if inverse else self._table)[numbers]
        x = self._feistel(numbers.reshape(-1).astype(np.uint64), inverse)
        while (beyond := np.flatnonzero(x >= np.uint64(self.n))).size:
            x[beyond] = self._feistel(x[beyond], inverse)
        return x.astype(np.int64).reshape(numbers.shape)

    def _feistel(self, x: UInt64s, inverse: bool) -> UInt64s:
        low, high = x & ((np.uint64(1) << self._low_bits) - np.uint64(1)), x >> self._low_bits
        for i in range(_ROUNDS)[:: -1 if inverse else 1]:
            # Rounds change one half in turn, so the halves need not be equally wide.
            if i % 2:
                low ^= self._round(high, i) >> (np.uint64(64) - self._low_bits)
            else:
                high ^= self._round(low, i) >> (np.uint64(64) - self._high_bits)
        return high << self._low_bits | low

    def _round(self, half: UInt64s, i: int) -> UInt64s:
        x = (half ^ self._keys[i]) * np.uint64(0xBF58476D1CE4E5B9)
        return (x ^ (x >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
