# SPDX-License-Identifier: Apache-2.0
"""Kernel that finds the hash partitions of words; see `partitions`.

Its reference implementation is in `tests/pipeline/counting/test_count.py`.
"""

from typing import Any

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel

_HASHED_BYTES = 32
_FIRST = np.uint64(0xFF51AFD7ED558CCD)
_SECOND = np.uint64(0xC4CEB9FE1A85EC53)


@kernel
def hash_words(values: Any, offsets: Any, n_partitions: Any, partitions: Any) -> None:
    """Finds the hash partition of words.

    Args:
      values: uint8[n_bytes]; offsets: int64[n + 1]: the words; `values` are read-only.
      n_partitions: how many there are, uint64.
      partitions: int64[n], filled.
    """
    for k in range(partitions.size):
        at, stop = offsets[k], offsets[k + 1]
        state = np.uint64(stop - at)
        for begin in range(at, at + _HASHED_BYTES, 8):
            eight = np.uint64(0)
            for q in range(begin, min(begin + 8, stop)):
                eight |= np.uint64(values[q]) << np.uint64(8 * (q - begin))
            # A multiplication carries bits up, and a shift brings them down again (MurmurHash3's finalizer).
            state = (state ^ eight) * _FIRST
            state ^= state >> np.uint64(33)
            state *= _SECOND
            state ^= state >> np.uint64(29)
        partitions[k] = np.int64(state % n_partitions)
