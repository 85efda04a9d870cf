# SPDX-License-Identifier: Apache-2.0
"""Counts the characters of rows for the reports of text steps.

Its reference implementation is `builtins.len`; `tests/tokenizer/text/test_steps.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, load_u64
from tokenmill.tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS

_SEVEN, _FIFTY_SIX = np.uint64(7), np.uint64(56)


@kernel
def count_row_characters(data, offsets, counts):
    """Counts the characters of each row.

    Args:
      data, offsets: uint8[n], valid UTF-8, and int64[n_rows + 1].
      counts: int64[n_rows], filled.
    """
    for row in range(counts.size):
        i, stop = offsets[row], offsets[row + 1]
        n = stop - i
        while i + 8 <= stop:
            eight = load_u64(data, i)
            # Bytes that continue a character have the highest bit set, and the next one not.
            following = eight & ~(eight << np.uint64(1)) & HIGH_BITS
            n -= np.int64(((following >> _SEVEN) * EACH_BYTE) >> _FIFTY_SIX)
            i += 8
        while i < stop:
            n -= np.int64((data[i] & 0xC0) == 0x80)
            i += 1
        counts[row] = n
