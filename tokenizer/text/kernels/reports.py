# SPDX-License-Identifier: Apache-2.0
"""Counts for the reports of text steps: characters, and rows that have changed.

Its reference implementation is `tokenmill.tokenizer.normalizers.base.n_changed`; `tests/tokenizer/text/test_steps.py`
compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, load_u64
from tokenmill.tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS

_SEVEN, _FIFTY_SIX = np.uint64(7), np.uint64(56)


@kernel
def count_characters(data, start, stop):
    """Counts the characters of `data[start:stop]`; data: uint8[n], valid UTF-8."""
    n = stop - start
    i = start
    while i + 8 <= stop:
        eight = load_u64(data, i)
        # Bytes that continue a character have the highest bit set, and the next one not.
        following = eight & ~(eight << np.uint64(1)) & HIGH_BITS
        n -= np.int64(((following >> _SEVEN) * EACH_BYTE) >> _FIFTY_SIX)
        i += 8
    while i < stop:
        n -= np.int64((data[i] & 0xC0) == 0x80)
        i += 1
    return n


@kernel
def count_row_characters(data, offsets, counts):
    """Counts the characters of each row.

    Args:
      data, offsets: uint8[n], valid UTF-8, and int64[n_rows + 1].
      counts: int64[n_rows], filled.
    """
    for row in range(counts.size):
        counts[row] = count_characters(data, offsets[row], offsets[row + 1])


@kernel
def compare_rows(before, before_offsets, after, after_offsets, changed):
    """Finds the rows that differ.

    Args:
      before, before_offsets: uint8[n] and int64[n_rows + 1]; after: uint8[m]; after_offsets: int64[n_rows + 1].
      changed: bool[n_rows], added to: set to True for rows that differ.
    """
    for row in range(changed.size):
        start, stop = before_offsets[row], before_offsets[row + 1]
        other = after_offsets[row]
        if stop - start != after_offsets[row + 1] - other:
            changed[row] = True
            continue
        i = start
        while i + 8 <= stop and load_u64(before, i) == load_u64(after, other):
            i += 8
            other += 8
        while i < stop and before[i] == after[other]:
            i += 1
            other += 1
        changed[row] = i < stop
