# SPDX-License-Identifier: Apache-2.0
"""Kernels for sums over documents in any order.

Its reference implementations are `tests.reference.shuffling.mix` and `tests.reference.shuffling.fingerprint`;
`tests/pipeline/shuffling/test_runs.py` compares them.
"""

from typing import Any

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@kernel_part
def mix(value: np.uint64) -> np.uint64:
    """Returns a bijection of uint64: the finalizer of SplitMix64."""
    value = value + _STEP
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))


@kernel
def add_values(values: Any, starts: Any, stops: Any, firsts: Any, hashes: Any) -> None:
    """Adds to the hash of each row the hashes of its values; the hash of a value covers its position in the row.

    A row may come in parts, in any order: the hash of the whole row is the sum of the hashes of its parts.

    Args:
      values: int32[n_values] or uint8[n_values].
      starts: int64[n], where each row begins in `values`.
      stops: int64[n], where it ends.
      firsts: int64[n], the position in the row of the first value: 0 where the row is whole.
      hashes: uint64[n], added to, modulo 2**64.
    """
    for row in range(starts.size):
        total = hashes[row]
        shift = firsts[row] - starts[row]
        for i in range(starts[row], stops[row]):
            total += mix((np.uint64(i + shift) << np.uint64(32)) + np.uint64(values[i]))
        hashes[row] = total


@kernel
def copy_rows(values: Any, starts: Any, stops: Any, begins: Any, out: Any) -> None:
    """Copies rows to other places; the caller has checked that they are in `values`, and have room in `out`.

    Args:
      values: int32[n_values], uint8[n_values] or of any other type.
      starts: int64[n], where each row begins in `values`.
      stops: int64[n], where it ends.
      begins: int64[n], where it is to begin in `out`.
      out: int32 with room for every row, uint8 with room for it, or whatever `values` are; filled.
    """
    for row in range(begins.size):
        # Unsigned, as numba counts negative places from the end, and then copies one value at a time.
        start, begin = np.uint64(starts[row]), np.uint64(begins[row])
        for i in range(np.uint64(max(0, stops[row] - starts[row]))):
            out[begin + i] = values[start + i]


@kernel
def fingerprint(keys: Any, hashes: Any, lengths: Any) -> np.uint64:
    """Returns the sum modulo 2**64 of a hash of each row's key, of its values and of their number.

    Args:
      keys: uint64[n].
      hashes: uint64[n], of the values: see `add_values`.
      lengths: int64[n], how many values each row has.
    """
    total = np.uint64(0)
    for row in range(keys.size):
        total += mix(keys[row] ^ mix(hashes[row] + np.uint64(lengths[row])))
    return total
