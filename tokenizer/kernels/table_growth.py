# SPDX-License-Identifier: Apache-2.0
"""Moves the spans of the encode loop's table to a larger one; see `span_table`.

Its reference implementation is a table that has never grown; `tests/tokenizer/kernels/test_word_caches.py` compares
the ids of both.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, leading_zeros
from tokenmill.tokenizer.kernels.span_table import first_slot

_ONE = np.uint64(1)


@kernel
def move_spans(slots, larger):
    """Copies the slots of all spans. A span is forgotten if its line there and the next one are full.

    The highest bits of a hash say which line is a span's: lines are read and filled in order.

    Args:
      slots: uint64[8 * n_lines], see `span_table.Table`; larger: uint64[8 * more lines], zeros, filled.
    """
    shift = np.uint64(leading_zeros(np.uint64(larger.size // 8 - 1)))
    last = np.uint64(larger.size - 1)
    for k in range(0, slots.size, 4):
        at = np.uint64(k)
        if slots[at + _ONE] != np.uint64(0):
            first = first_slot(slots[at], slots[at + _ONE], shift)
            for q in range(0, 16, 4):
                j = (first + np.uint64(q)) & last
                if larger[j + _ONE] == np.uint64(0):
                    for column in range(4):
                        larger[j + np.uint64(column)] = slots[at + np.uint64(column)]
                    break
