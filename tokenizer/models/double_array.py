# SPDX-License-Identifier: Apache-2.0
"""Tries of vocabularies as double arrays."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels import double_array as kernels
from tokenmill.tokenizer.models.vocabulary import Tokens, padded_bytes
from tokenmill.tokenizer.ragged import read_only

_MAX_BYTES = 1 << 28


class DoubleArray(NamedTuple):
    """A trie, see kernels.double_array."""

    units: npt.NDArray[np.int64]
    root_base: int


def trie_of(entries: Mapping[bytes, int]) -> DoubleArray:
    """Builds the trie of byte strings and their numbers; an empty string is left out."""
    filled = sorted(filter(None, entries))
    return double_array(Tokens(*padded_bytes(filled)), np.array([entries[entry] for entry in filled], np.int32))


def double_array(entries: Tokens, ids: npt.NDArray[np.int32]) -> DoubleArray:
    """Builds the trie of entries: distinct, sorted by their bytes, none empty; they need not be valid UTF-8.

    ids: int32[n], the number to store where each one ends, -1 for none.

    Raises:
      ValueError: if the entries have 2^28 bytes or more, as a state has no room for places far beyond that.
    """
    if not len(entries):
        return DoubleArray(read_only(np.full(512, kernels.NO_BYTE, np.int64)), 256)
    n_bytes = entries.n_bytes
    if n_bytes >= _MAX_BYTES:
        raise ValueError(f"entries must have fewer than {_MAX_BYTES} bytes in all, got {n_bytes}")
    stack = np.empty((n_bytes + 2, 4), np.int64)
    capacity = (n_bytes // 256 + 8) * 256
    while True:
        units = np.empty(capacity, np.int64)
        next_free, previous_free = np.empty((2, capacity), np.int32)
        n_used, root_base = kernels.build_double_array(
            entries.values, entries.offsets, read_only(ids), units, next_free, previous_free,
            np.zeros(capacity, np.bool_), np.empty((257, 2), np.int64), stack,
        )  # fmt: skip
        if n_used:
            return DoubleArray(read_only(units[:n_used].copy()), root_base)
        capacity *= 2
