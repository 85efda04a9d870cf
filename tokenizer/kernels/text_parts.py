# SPDX-License-Identifier: Apache-2.0
"""Parts that the kernels of text steps share: runs of characters; bytes found eight at a time."""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part, load_u64, trailing_zeros
from tokenmill.tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS, LOW_BITS, next_character


@kernel_part
def run_end(data, i, end, members):
    """Returns where the run of characters of a set, bool[0x110000], at `i` ends, at most `end`."""
    while i < end:
        code_point, following = next_character(data, i)
        if not members[code_point]:
            break
        i = following
    return i


@kernel_part
def character_before(data, i):
    """Returns where the character that ends at `i` begins; there is one."""
    i -= 1
    while data[i] & 0xC0 == 0x80:
        i -= 1
    return i


@kernel_part
def run_start(data, i, start, members):
    """Returns where the run of characters of a set, bool[0x110000], that ends at `i` begins, at least `start`."""
    while i > start and is_member_before(data, i, members):
        i = character_before(data, i)
    return i


@kernel_part
def is_member_before(data, i, members):
    """Whether the character that ends at `i` is in a set, bool[0x110000]; there is one."""
    code_point, _ = next_character(data, character_before(data, i))
    return members[code_point]


@kernel_part
def zero_bytes(eight):
    """Returns 0x80 in the bytes of a word of eight that are 0, and 0 in the others."""
    return ~(((eight & LOW_BITS) + LOW_BITS) | eight) & HIGH_BITS


@kernel_part
def find_byte(data, i, end, byte):
    """Returns where a byte first occurs in `data[i:end]`, `end` if it does not."""
    every = np.uint64(byte) * EACH_BYTE
    while i + 8 <= end:
        hits = zero_bytes(load_u64(data, i) ^ every)
        if hits != np.uint64(0):
            return i + (trailing_zeros(hits) >> 3)
        i += 8
    while i < end and data[i] != byte:
        i += 1
    return i
