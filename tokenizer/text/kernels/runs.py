# SPDX-License-Identifier: Apache-2.0
"""Finds repeated characters, and digits that must be isolated.

Its slow twins are `tokenizer.text.runs.RepeatedPunctuation.edits` and `tokenizer.text.runs.IsolateDigits.edits`;
`tests/tokenizer/text/test_steps.py` compares them.
"""

import numpy as np

from tokenizer.compiling.kernel import kernel, kernel_part, load_u64, trailing_zeros
from tokenizer.kernels.text_parts import character_before, to_digit, zero_bytes
from tokenizer.kernels.utf8 import HIGH_BITS, next_character
from tokenizer.text.kernels.edit_lists import add_edit

NOTHING, SPACE = 0, 1
"""Numbers of the texts that edits put in."""


@kernel_part
def is_member_before(data, i, table):
    """Whether the character that ends at `i` is in a table, bool[0x110000]."""
    code_point, _ = next_character(data, character_before(data, i))
    return table[code_point]


@kernel_part
def _is_same(data, i, other, n_bytes):
    k = 0
    while k < n_bytes and data[i + k] == data[other + k]:
        k += 1
    return k == n_bytes


@kernel
def find_repeated(data, offsets, counted, most, whole, edits):
    """Finds characters that occur more than `most` times in a row.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      counted: bool[0x110000], the characters to look at.
      most: 1 or more.
      whole: whether an edit covers the whole run, or only what exceeds `most`.
      edits: int64[room, 3], filled with the first `room` edits.

    Returns:
      The number of edits, which may be more than `room`.
    """
    n = 0
    for row in range(offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
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


@kernel
def find_isolated(data, offsets, isolated, is_space, steps, each, edits):
    """Finds where spaces must be inserted to isolate digits.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      isolated: bool[0x110000], the digits; those of ASCII must be among them.
      is_space: bool[0x110000], next to which no space is needed.
      steps: uint8[256]: bytes of a character, by its first byte, if none that begins so is a digit; else 0.
      each: whether digits are separated from one another, too.
      edits: int64[room, 3], filled with the first `room` edits.

    Returns:
      The number of edits, which may be more than `room`.
    """
    n = 0
    for row in range(offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
        while i < end:
            i = to_digit(data, i, end)
            if i == end:
                break
            step = np.int64(steps[data[i]])
            if step > 0:
                while step > 0 and i < end:
                    i += step
                    step = np.int64(steps[data[i]]) if i < end and data[i] >= 128 else 0
                continue
            code_point, following = next_character(data, i)
            if not isolated[code_point]:
                i = following
                continue
            if i > offsets[row] and not is_member_before(data, i, is_space):
                n = add_edit(edits, n, i, i, SPACE)
            i = following
            while i < end:
                code_point, following = next_character(data, i)
                if not isolated[code_point]:
                    if not is_space[code_point]:
                        n = add_edit(edits, n, i, i, SPACE)
                    break
                if each:
                    n = add_edit(edits, n, i, i, SPACE)
                i = following
    return n
