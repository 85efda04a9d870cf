# SPDX-License-Identifier: Apache-2.0
"""Finds e-mail addresses in rows, and selects among spans.

Its reference implementation is in `tests/reference/text_steps.py`; `tests/tokenizer/text/test_references.py` compares
them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel
from tokenmill.tokenizer.kernels.text_parts import find_byte
from tokenmill.tokenizer.normalizers.kernels.edit_lists import NOTHING, add_edit, finder

LOCAL, DOMAIN, LETTER = 1, 2, 4
"""Bits for where a byte may occur: in the local part of an address, in a label of its domain; an ASCII letter."""


@finder
def find_emails(data, i, end, row, tables, edits, n):
    """Finds e-mail addresses.

    Args:
      tables: uint8[256], bits above.
    """
    (bytes_are,) = tables
    last = i  # where the last address ended
    while True:
        i = find_byte(data, i, end, 0x40)
        if i == end:
            break
        start = i
        while start > last and bytes_are[data[start - 1]] & LOCAL:
            start -= 1
        best = np.int64(-1)
        j = i + 1
        while start < i and j < end:
            label = j
            while j < end and bytes_are[data[j]] & DOMAIN:
                j += 1
            if j == label or j >= end or data[j] != 0x2E:
                break
            j += 1
            stop = j
            while stop < end and bytes_are[data[stop]] & LETTER:
                stop += 1
            if stop >= j + 2:
                best = stop
        if best >= 0:
            n = add_edit(edits, n, start, best, NOTHING)
            last = best
            i = best
        else:
            i += 1
    return n


@kernel
def select_leftmost(spans, taken):
    """Takes the spans, in order, that do not overlap one taken before.

    Args:
      spans: int64[n, 3], ordered by start, then by rule: start, stop, rule.
      taken: bool[n], filled.
    """
    last = np.int64(-1)
    for i in range(spans.shape[0]):
        taken[i] = spans[i, 0] >= last
        if taken[i]:
            last = spans[i, 1]
