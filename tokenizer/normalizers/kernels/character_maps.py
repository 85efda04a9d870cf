# SPDX-License-Identifier: Apache-2.0
"""Normalizers that look at one character at a time: each stays, is removed, or becomes others.

Its reference implementation is `tokenmill.tokenizer.normalizers.characters.CharacterStep.edits`;
`tests/tokenizer/normalizers/test_columns.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64, store_u64, trailing_zeros
from tokenmill.tokenizer.kernels.utf8 import (
    EACH_BYTE,
    HIGH_BITS,
    LOW_BITS,
    beyond_ranges,
    continues_character,
    decode_utf8,
)

_FROM_UPPER_A, _PAST_UPPER_Z = np.uint64(0x80 - ord("A")) * EACH_BYTE, np.uint64(0x80 - ord("[")) * EACH_BYTE
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@kernel_part
def _upper_case(eight):
    """Returns 0x20 in each byte that is an upper-case ASCII letter."""
    low = eight & LOW_BITS
    return (((low + _FROM_UPPER_A) & ~(low + _PAST_UPPER_Z) & ~eight) & HIGH_BITS) >> np.uint64(2)


@kernel
def measure(data, start, stop, tables):
    """Finds how many characters change, and by how many bytes the text may grow.

    Args:
      data: uint8[n], valid UTF-8; only `data[start:stop]` is read.
      tables: normalizers.tables.CharacterMap.

    Returns:
      (characters that change, bytes added by those that grow).
    """
    changed = 0
    added = 0
    i = start
    while i < stop:
        if i + 8 <= stop:
            eight = load_u64(data, i)
            others = beyond_ranges(eight, tables.ranges)
            if tables.lower_ascii:
                # The bytes before the first that is not plain, or all of them.
                before = ((others & (_ZERO - others)) - _ONE) & (_upper_case(eight) << np.uint64(2))
                changed += np.int64(((before >> np.uint64(7)) * EACH_BYTE) >> np.uint64(56))
            if others == _ZERO:
                i += 8
                continue
            i += trailing_zeros(others) >> 3
        if continues_character(data[i]):
            # The last eight bytes ended within a character.
            i += 1
            continue
        step = np.int64(tables.steps[data[i]])
        if step > 0:
            i += step
            continue
        if data[i] < 128:
            code_point = np.int64(data[i])
            i += 1
        else:
            code_point, i = decode_utf8(data, i)
        if tables.replacements[code_point] != 0:
            changed += 1
            added += np.int64(tables.growth[code_point])
    return changed, added


@kernel
def map_characters(data, offsets, tables, out, out_offsets):
    """Maps rows.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      tables: normalizers.tables.CharacterMap.
      out: uint8 with room for the rows, what `measure` adds, and eight bytes more; filled.
      out_offsets: int64[n_rows + 1], filled.
    """
    o = 0
    out_offsets[0] = 0
    for row in range(offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
        while i < end:
            if i + 8 <= end:
                eight = load_u64(data, i)
                others = beyond_ranges(eight, tables.ranges)
                if tables.lower_ascii:
                    eight |= _upper_case(eight)
                store_u64(out, o, eight)
                if others == _ZERO:
                    i += 8
                    o += 8
                    continue
                n = trailing_zeros(others) >> 3
                i += n
                o += n
            if continues_character(data[i]):
                # The last eight bytes ended within a character.
                out[o] = data[i]
                i += 1
                o += 1
                continue
            start = i
            if data[i] < 128:
                code_point = np.int64(data[i])
                i += 1
            else:
                code_point, i = decode_utf8(data, i)
            replacement = tables.replacements[code_point]
            if replacement == 0:
                for q in range(start, i):
                    out[o] = data[q]
                    o += 1
            else:
                first = replacement >> 5
                for q in range(first, first + (replacement & 31)):
                    out[o] = tables.pool[q]
                    o += 1
        out_offsets[row + 1] = o


@kernel
def map_bytes(data, offsets, texts, lengths, out, out_offsets):
    """Maps every byte of rows to a text.

    Args:
      data: uint8[n]; offsets: int64[n_rows + 1] into it.
      texts: uint64[256], the text of each byte, little-endian; lengths: uint8[256], its bytes, at most eight.
      out: uint8 with room for the result and eight bytes more; out_offsets: int64[n_rows + 1], filled.
    """
    o = 0
    out_offsets[0] = 0
    for row in range(offsets.size - 1):
        for i in range(offsets[row], offsets[row + 1]):
            # No branch on the text: a processor cannot predict which bytes are spaces.
            store_u64(out, o, texts[data[i]])
            o += np.int64(lengths[data[i]])
        out_offsets[row + 1] = o
