# SPDX-License-Identifier: Apache-2.0
"""Rows that a slow step may change, found fast: all others it need not see."""

import numpy as np

from tokenizer.kernels.compiling import kernel, load_u64, trailing_zeros
from tokenizer.kernels.text_parts import find_byte
from tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS, LOW_BITS, decode_utf8

_FROM_SPACE = np.uint64(0x80 - 0x20) * EACH_BYTE


@kernel
def find_pairs(data, offsets, first, second, found):
    """Finds rows in which a byte stands before one of a set.

    Args:
      data: uint8[n]; offsets: int64[n_rows + 1] into it.
      first: the byte, of ASCII; second: bool[256].
      found: bool[n_rows], set.
    """
    for row in range(found.size):
        i = offsets[row]
        end = offsets[row + 1]
        while i + 1 < end:
            i = find_byte(data, i, end - 1, first)
            if i < end - 1 and second[data[i + 1]]:
                found[row] = True
                break
            i += 1


@kernel
def find_characters(data, offsets, wanted, steps, prints, found):
    """Finds rows that hold one of a set of characters.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      wanted: bool[0x110000].
      steps: uint8[256]: bytes of the character, by its first byte, ASCII too, where none that begins so is wanted;
        else 0.
      prints: whether none of the printing characters of ASCII is wanted.
      found: bool[n_rows], set.
    """
    for row in range(found.size):
        i = offsets[row]
        end = offsets[row + 1]
        while i < end:
            if i + 8 <= end:
                # 0x80 in bytes below space, in U+007F, in what is not ASCII.
                eight = load_u64(data, i)
                low = eight & LOW_BITS
                look = (~(low + _FROM_SPACE) | (low + EACH_BYTE) | eight) & HIGH_BITS
                if prints and look == np.uint64(0):
                    i += 8
                    continue
                if prints:
                    i += trailing_zeros(look) >> 3
            step = np.int64(steps[data[i]])
            if step > 0:
                i += step
                while i < end and data[i] >= 128 and steps[data[i]] > 0:
                    i += np.int64(steps[data[i]])
                continue
            code_point = np.int64(data[i])
            if code_point < 128:
                i += 1
            else:
                code_point, i = decode_utf8(data, i)
            if wanted[code_point]:
                found[row] = True
                break
