# SPDX-License-Identifier: Apache-2.0
"""Finds spans in rows: numbers, URLs, e-mail addresses, runs of white space, literals; and selects among them.

Its reference implementation is in `tests/reference/text_steps.py`; `tests/tokenizer/text/test_references.py` compares
them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.text_parts import find_byte, next_digit, run_end
from tokenmill.tokenizer.normalizers.kernels.edit_lists import NOTHING, add_edit, finder

LOCAL, DOMAIN, LETTER, URL, URL_END = 1, 2, 4, 8, 16
"""Bits for where a byte may occur: in the local part of an address, in a label of its domain; an ASCII letter; in a
URL; at the end of a URL."""


@finder
def find_numbers(data, i, end, row, tables, edits, n):
    """Finds numbers: decimal digits, with a point or comma between some of them.

    Args:
      tables: bool[0x110000], the digits; normalizers.tables.Skips: other characters.
    """
    digits, skips = tables
    while True:
        start = next_digit(data, i, end, digits, skips)
        if start == end:
            break
        i = run_end(data, start, end, digits)
        while i < end and (data[i] == 0x2E or data[i] == 0x2C):
            stop = run_end(data, i + 1, end, digits)
            if stop == i + 1:
                break
            i = stop
        n = add_edit(edits, n, start, i, NOTHING)
    return n


@kernel_part
def _past_scheme(data, i, end):
    """Returns where the `http://`, `https://`, `ftp://` or `www.` at `i`, in any case, ends; -1 if there is none."""
    first = data[i] | 0x20
    if first == 0x77:
        is_www = i + 4 <= end and data[i + 1] | 0x20 == 0x77 and data[i + 2] | 0x20 == 0x77 and data[i + 3] == 0x2E
        return i + 4 if is_www else -1
    if first == 0x68:
        if i + 4 > end or data[i + 1] | 0x20 != 0x74 or data[i + 2] | 0x20 != 0x74 or data[i + 3] | 0x20 != 0x70:
            return -1
        i += 4
        if i < end and data[i] | 0x20 == 0x73:
            i += 1
    elif first == 0x66:
        if i + 3 > end or data[i + 1] | 0x20 != 0x74 or data[i + 2] | 0x20 != 0x70:
            return -1
        i += 3
    else:
        return -1
    return i + 3 if i + 3 <= end and data[i] == 0x3A and data[i + 1] == 0x2F and data[i + 2] == 0x2F else -1


@finder
def find_urls(data, i, end, row, tables, edits, n):
    """Finds URLs.

    Args:
      tables: uint8[256], bits above.
    """
    (bytes_are,) = tables
    while i < end:
        first = data[i] | 0x20
        if first != 0x68 and first != 0x77 and first != 0x66:
            i += 1
            continue
        body = np.int64(_past_scheme(data, i, end))
        if body < 0:
            i += 1
            continue
        stop = body
        while stop < end and bytes_are[data[stop]] & URL:
            stop += 1
        while stop > body and bytes_are[data[stop - 1]] & URL_END == 0:
            stop -= 1
        if stop == body:
            i += 1
            continue
        n = add_edit(edits, n, i, stop, NOTHING)
        i = stop
    return n


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
