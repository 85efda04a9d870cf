# SPDX-License-Identifier: Apache-2.0
"""Parts that find characters of one class: ASCII letters in eight bytes, white space, any class of a table.

`data[i:end]` is valid UTF-8; `classes`, uint8[0x110000], has the bits of each code point. Bytes after `end` may be
read, never beyond the array, but do not affect the result.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part, trailing_zeros
from tokenmill.tokenizer.kernels.utf8 import HIGH_BITS, LOW_BITS, decode_utf8

SPACE = 4
"""The bit of white space in `classes`."""
WHITE_LEADS = np.zeros(256, np.bool_)
WHITE_LEADS[[*range(0x80), 0xC2, 0xE1, 0xE2, 0xE3]] = True
"""The bytes that white space of any table may begin with."""
_CASE_BITS = np.uint64(0x2020202020202020)
# Summands that carry into the high bit of every byte that is at least `a`, past `z`.
_FROM_A = np.uint64(0x80 - ord("a")) * np.uint64(0x0101010101010101)
_PAST_Z = np.uint64(0x80 - ord("{")) * np.uint64(0x0101010101010101)


@kernel_part
def not_lower(eight):
    """Returns the high bit of every byte of eight that is not `a` to `z`, other bits 0."""
    low = eight & LOW_BITS
    return ~((low + _FROM_A) & ~(low + _PAST_Z) & ~eight) & HIGH_BITS


@kernel_part
def not_letters(eight):
    """Returns the high bit of every byte of eight that is no ASCII letter, other bits 0."""
    return not_lower(eight | _CASE_BITS)


@kernel_part
def leading_lower(eight):
    """Returns how many leading bytes of eight are `a` to `z`."""
    return trailing_zeros(not_lower(eight)) >> 3


@kernel_part
def leading_letters(eight):
    """Returns how many leading bytes of eight are ASCII letters."""
    return trailing_zeros(not_letters(eight)) >> 3


@kernel_part
def character(data, i, classes):
    """Returns the class of the character at byte i, and where the next one begins."""
    b = np.int64(data[i])
    if b < 128:
        return np.int64(classes[b]), i + 1
    code_point, after = decode_utf8(data, i)
    return np.int64(classes[code_point]), after


@kernel_part
def run_until(data, i, end, classes, mask):
    """Returns where the first character with a bit of `mask` begins, `end` if there is none."""
    while i < end:
        kind, after = character(data, i, classes)
        if kind & mask != 0:
            break
        i = after
    return i


@kernel_part
def skip_spaces(data, i, end, classes):
    """Returns where the white space at i ends; called before each pre-token of scanners that drop white space."""
    while i < end and WHITE_LEADS[data[i]]:
        kind, after = character(data, i, classes)
        if kind & SPACE == 0:
            break
        i = after
    return i
