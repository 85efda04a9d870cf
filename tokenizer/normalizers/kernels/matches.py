# SPDX-License-Identifier: Apache-2.0
"""Finds literals, runs of characters, and white space to collapse or strip.

Its reference implementation is in `tests/reference/text_steps.py`; `tests/tokenizer/text/test_steps.py` compares
them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part, load_u64, trailing_zeros
from tokenmill.tokenizer.kernels.text_parts import run_end, run_start, zero_bytes
from tokenmill.tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS, continues_character, next_character, unskipped
from tokenmill.tokenizer.normalizers.kernels.edit_lists import NOTHING, SPACE, add_edit, finder

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


AS_SPACE, KEEP, PARAGRAPHS = 0, 1, 2
"""Treatment of line breaks: like other white space; all stay; at most two stay."""
BREAK, TWO_BREAKS = 2, 3
"""Numbers of more texts that edits put in."""


@kernel_part
def _is_break(code_point):
    return code_point == 0x0A or code_point == 0x0D or code_point == 0x85 or 0x2028 <= code_point <= 0x2029


@kernel_part
def _collapse(data, start, stop, breaks, edits, n):
    """Notes the edits for one run of white space inside a row."""
    n_breaks = 0
    if breaks != AS_SPACE:
        i = start
        while i < stop:
            code_point, following = next_character(data, i)
            if _is_break(code_point) and not (code_point == 0x0D and following < stop and data[following] == 0x0A):
                n_breaks += 1
            i = following
    if n_breaks == 0:
        return add_edit(edits, n, start, stop, SPACE)
    if breaks == PARAGRAPHS and n_breaks > 2:
        return add_edit(edits, n, start, stop, TWO_BREAKS)
    i = start
    gone = start  # the text from here to `i` is removed
    while i < stop:
        code_point, following = next_character(data, i)
        if _is_break(code_point) and not (code_point == 0x0D and following < stop and data[following] == 0x0A):
            if gone < i:
                n = add_edit(edits, n, gone, i, NOTHING)
            if code_point != 0x0A:
                n = add_edit(edits, n, i, following, BREAK)
            gone = following
        i = following
    return add_edit(edits, n, gone, stop, NOTHING) if gone < stop else n


@finder
def find_whitespace(data, i, end, row, tables, edits, n):
    """Finds the edits that collapse and strip white space.

    Args:
      tables: bool[n_rows] twice, whether a row begins where its document does, and ends where it ends;
        normalizers.tables.Runs of white space that must change; whether these are collapsed; treatment of line breaks,
        see above; whether both ends of documents are stripped.
    """
    begins, ends, runs, collapse, breaks, strip = tables
    first = i
    tail = end
    if strip and begins[row]:
        i = run_end(data, i, end, runs.members)
        if i > first:
            n = add_edit(edits, n, first, i, NOTHING)
    if strip and ends[row]:
        tail = run_start(data, end, i, runs.members)
    while collapse and i < tail:
        start, i = next_run(data, i, tail, runs)
        if start < i:
            n = _collapse(data, start, i, breaks, edits, n)
    if tail < end:
        n = add_edit(edits, n, tail, end, NOTHING)
    return n
