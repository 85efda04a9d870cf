# SPDX-License-Identifier: Apache-2.0
"""Finds literals and runs of characters.

Its reference implementation is in `tests/reference/text_steps.py`; `tests/tokenizer/text/test_references.py` compares
them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part, load_u64, trailing_zeros
from tokenmill.tokenizer.kernels.text_parts import zero_bytes
from tokenmill.tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS, continues_character, next_character, unskipped
from tokenmill.tokenizer.normalizers.kernels.edit_lists import NOTHING, add_edit, finder

_LAST = np.uint64(0x80 << 56)


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


@kernel_part
def next_run(data, i, end, runs):
    """Returns where the next run of characters from `i` on starts and stops, `end` and `end` if there is none.

    runs: normalizers.tables.Runs.
    """
    usuals = np.uint64(runs.usual) * EACH_BYTE
    while i < end:
        if i + 8 <= end:
            eight = load_u64(data, i)
            hits = zero_bytes(eight ^ usuals)
            if runs.least > 1 or runs.spares_usual:
                # Of single spaces between words, which most texts have, only the last byte is looked at.
                hits &= (hits >> np.uint64(8)) | _LAST
            hits |= unskipped(eight, runs.skips)
            if hits == np.uint64(0):
                i += 8
                continue
            n_skipped = trailing_zeros(hits) >> 3
            # What was skipped last may be the first of a run.
            i += n_skipped - np.int64(n_skipped > 0 and data[i + n_skipped - 1] == runs.usual)
        if continues_character(data[i]):
            i += 1
            continue
        step = np.int64(runs.skips.steps[data[i]])
        if step > 0:
            i += step
            continue
        start = i
        count = 0
        following = i
        while i < end:
            code_point, following = next_character(data, i)
            if not runs.members[code_point]:
                break
            count += 1
            i = following
        if count >= runs.least and not (runs.spares_usual and count == 1 and data[start] == runs.usual):
            return start, i
        i = max(i, following)
    return end, end


@finder
def find_runs(data, i, end, row, tables, edits, n):
    """Finds runs of characters of a set.

    Args:
      tables: normalizers.tables.Runs.
    """
    (runs,) = tables
    while i < end:
        start, i = next_run(data, i, end, runs)
        if start < i:
            n = add_edit(edits, n, start, i, NOTHING)
    return n


@finder
def find_literal(data, i, end, row, tables, edits, n):
    """Finds the occurrences of a text from the left, without overlaps.

    Time is at worst bytes times the length of the literal.

    Args:
      tables: uint8[1 or more], the literal.
    """
    (literal,) = tables
    firsts, seconds = np.uint64(literal[0]) * EACH_BYTE, np.uint64(literal[min(1, literal.size - 1)]) * EACH_BYTE
    while i + literal.size <= end:
        if i + 9 <= end:
            # 0x80 in bytes that equal the first of the literal and are followed by the second.
            hits = zero_bytes(load_u64(data, i) ^ firsts)
            if literal.size > 1:
                hits &= zero_bytes(load_u64(data, i + 1) ^ seconds)
            if hits == np.uint64(0):
                i += 8
                continue
            i += trailing_zeros(hits) >> 3
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
