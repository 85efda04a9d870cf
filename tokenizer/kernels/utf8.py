# SPDX-License-Identifier: Apache-2.0
"""Code points in UTF-8 bytes known to be valid."""

import numpy as np

from tokenizer.kernels.compiling import kernel_part


@kernel_part
def decode_utf8(data, i):
    """Returns the code point of the non-ASCII character at `i` and the index of the next one."""
    b = np.int64(data[i])
    if b < 0xE0:
        return ((b & 0x1F) << 6) | np.int64(data[i + 1] & 0x3F), i + 2
    if b < 0xF0:
        return ((b & 0x0F) << 12) | (np.int64(data[i + 1] & 0x3F) << 6) | np.int64(data[i + 2] & 0x3F), i + 3
    return (
        ((b & 0x07) << 18)
        | (np.int64(data[i + 1] & 0x3F) << 12)
        | (np.int64(data[i + 2] & 0x3F) << 6)
        | np.int64(data[i + 3] & 0x3F)
    ), i + 4


@kernel_part
def add_characters(data, i, end, count, characters):
    """Adds `count` to `characters[c]` for every character c of `data[i:end]`; int64[0x110000]."""
    while i < end:
        if data[i] < 128:
            characters[data[i]] += count
            i += 1
        else:
            code_point, i = decode_utf8(data, i)
            characters[code_point] += count
