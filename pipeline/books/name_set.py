# SPDX-License-Identifier: Apache-2.0
"""A set of names that takes 8 bytes per name, because a job may have tens of millions of files."""

import hashlib
from array import array
from collections.abc import Iterable

import numpy as np


class NameSet:
    """Names by 64 bits of a hash. With n names, another name is wrongly found with a probability of n / 2**64."""

    def __init__(self) -> None:
        self._hashes = array("Q")
        self._sorted: np.ndarray | None = None

    def add(self, names: Iterable[str]) -> None:
        """Adds names."""
        self._hashes.extend(map(_hash, names))
        self._sorted = None

    def __contains__(self, name: str) -> bool:
        if self._sorted is None:
            self._sorted = np.sort(np.array(self._hashes, np.uint64))
        place = int(np.searchsorted(self._sorted, np.uint64(_hash(name))))
        return place < self._sorted.size and int(self._sorted[place]) == _hash(name)


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
