# SPDX-License-Identifier: Apache-2.0
"""Collapses runs of white space, and strips it at the ends of documents.

Its slow twin is in `tests/reference/text_steps.py`; `tests/tokenizer/text/test_references.py` compares them.
"""

import numpy as np

from tokenizer.compiling.kernel import kernel_part, load_u64, trailing_zeros
from tokenizer.kernels.text_parts import character_before, run_end, zero_bytes
from tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS, next_character
from tokenizer.normalizers.kernels.edit_lists import NOTHING, SPACE, add_edit, finder

AS_SPACE, KEEP, PARAGRAPHS = 0, 1, 2
"""Treatment of line breaks: like other white space; all stay; at most two stay."""
BREAK, TWO_BREAKS = 2, 3
"""Numbers of more texts that edits put in."""

_PAST_SPACE = np.uint64(0x21) * EACH_BYTE
_SPACES = np.uint64(0x20) * EACH_BYTE
_EIGHT = np.uint64(8)
_ZERO = np.uint64(0)


@kernel_part
def _run_start(data, i, start, is_space):
    """Returns where the white space that ends at `i` begins."""
    while i > start:
        last = character_before(data, i)
        code_point, _ = next_character(data, last)
        if not is_space[code_point]:
            break
        i = last
    return i


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
        if stop - start == 1 and data[start] == 0x20:
            return n
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
      tables: bool[n_rows] twice, whether a row begins where its document does, and ends where it ends; bool[0x110000],
        white space; uint8[256]: bytes of a character, by its first byte, if none that begins so is white space, else 0;
        whether runs are collapsed; treatment of line breaks, see above; whether both ends of documents are stripped.
    """
    begins, ends, is_space, steps, collapse, breaks, strip = tables
    first = i
    tail = end
    if strip and begins[row]:
        i = run_end(data, i, end, is_space)
        if i > first:
            n = add_edit(edits, n, first, i, NOTHING)
    if strip and ends[row]:
        tail = _run_start(data, end, i, is_space)
    after_space = False
    while collapse and i < tail:
        if i + 8 <= tail:
            eight = load_u64(data, i)
            # 0x80 in bytes up to 0x20, and in those that need a closer look.
            low = ~((eight | HIGH_BITS) - _PAST_SPACE) & HIGH_BITS & ~eight
            space = zero_bytes(eight ^ _SPACES)
            doubled = space & (space << _EIGHT)
            look = (low & ~space) | (eight & HIGH_BITS) | doubled
            if after_space:
                look |= space & np.uint64(0x80)
            if look == _ZERO:
                after_space = (space >> np.uint64(63)) != _ZERO
                i += 8
                continue
            skipped = trailing_zeros(look) >> 3
            if skipped > 0:
                i += skipped
                after_space = data[i - 1] == 0x20
        step = np.int64(steps[data[i]])
        if step > 0:
            i += step
            after_space = False
            while i < tail and steps[data[i]] > 1:
                i += np.int64(steps[data[i]])
            continue
        code_point, following = next_character(data, i)
        if not is_space[code_point]:
            i = following
            after_space = False
            continue
        if code_point == 0x20 and not after_space and following < tail and steps[data[following]] > 0:
            i = following  # one space, then a word
            continue
        start = i - 1 if after_space else i
        i = run_end(data, i, tail, is_space)
        n = _collapse(data, start, i, breaks, edits, n)
        after_space = False
    if tail < end:
        n = add_edit(edits, n, tail, end, NOTHING)
    return n
