# SPDX-License-Identifier: Apache-2.0
"""Finds literals and runs of characters.

Its slow twin is in `tests/reference/text_steps.py`; `tests/tokenizer/text/test_references.py` compares them.
"""

import numpy as np

from tokenizer.compiling.kernel import kernel_part, load_u64, trailing_zeros
from tokenizer.kernels.text_parts import find_byte, zero_bytes
from tokenizer.kernels.utf8 import HIGH_BITS, next_character
from tokenizer.normalizers.kernels.edit_lists import NOTHING, add_edit, finder


@kernel_part
def _is_same(data, i, other, n_bytes):
    k = 0
    while k < n_bytes and data[i + k] == data[other + k]:
        k += 1
    return k == n_bytes


@finder
def find_repeated(data, i, end, row, tables, edits, n):
    """Finds characters that occur more than `most` times in a row.

    Args:
      tables: bool[0x110000], the characters to look at; `most`, 1 or more; whether an edit covers the whole run, or
        only what exceeds `most`.
    """
    counted, most, whole = tables
    while i < end:
        if i + 9 <= end:
            eight = load_u64(data, i)
            # 0x80 in bytes that may equal the next one, or are not ASCII: all others begin no run.
            look = (zero_bytes(eight ^ load_u64(data, i + 1)) | eight) & HIGH_BITS
            if look == np.uint64(0):
                i += 8
                continue
            i += trailing_zeros(look) >> 3
        code_point, following = next_character(data, i)
        n_bytes = following - i
        count = 1
        stop = following
        while stop + n_bytes <= end and _is_same(data, i, stop, n_bytes):
            stop += n_bytes
            count += 1
        if count > most and counted[code_point]:
            n = add_edit(edits, n, i if whole else i + most * n_bytes, stop, NOTHING)
        i = stop
    return n


@finder
def find_runs(data, i, end, row, tables, edits, n):
    """Finds runs of characters of a set.

    Args:
      tables: bool[0x110000], the set; uint8[256]: bytes of a character, by its first byte, if none that begins so is a
        member, ASCII too, else 0; the least number of characters.
    """
    members, steps, least = tables
    while i < end:
        step = np.int64(steps[data[i]])
        if step > 0:
            i += step
            continue
        start = i
        count = 0
        following = i
        while i < end:
            code_point, following = next_character(data, i)
            if not members[code_point]:
                break
            count += 1
            i = following
        if count >= least:
            n = add_edit(edits, n, start, i, NOTHING)
        i = max(i, following)
    return n


@finder
def find_literal(data, i, end, row, tables, edits, n):
    """Finds the occurrences of a text from the left, without overlaps.

    Time is at worst bytes times the length of the literal.

    Args:
      tables: uint8[1 or more], the literal.
    """
    (literal,) = tables
    while i + literal.size <= end:
        i = find_byte(data, i, end, literal[0])
        if i + literal.size > end:
            break
        k = 0
        while k < literal.size and data[i + k] == literal[k]:
            k += 1
        if k == literal.size:
            n = add_edit(edits, n, i, i + k, NOTHING)
            i += k
        else:
            i += 1
    return n
