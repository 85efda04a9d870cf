# SPDX-License-Identifier: Apache-2.0
"""Normalizers that look at one character at a time, and BERT's as a separate step, for who needs its text and not ids.

Its reference implementations are `tokenmill.tokenizer.normalizers.characters.CharacterStep.edits` and
`tests.reference.bert`; `tests/tokenizer/normalizers/test_columns.py` compares them, and `test_bert.py` beside it.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64, store_u64, trailing_zeros
from tokenmill.tokenizer.kernels.bert_scanner import append_character, append_reordered
from tokenmill.tokenizer.kernels.classes import ISOLATED, REORDERED, SPACE, WORD
from tokenmill.tokenizer.kernels.utf8 import (
    EACH_BYTE,
    HIGH_BITS,
    LOW_BITS,
    continues_character,
    next_active,
    next_character,
    unskipped,
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
    """Finds whether characters change, and by how many bytes the text may grow; not all ASCII letters are looked at.

    Args:
      data: uint8[n], valid UTF-8; only `data[start:stop]` is read.
      tables: normalizers.tables.CharacterMap.

    Returns:
      (whether one changes, bytes added by those that grow).
    """
    changes = False
    added = 0
    i = next_active(data, start, stop, tables.skips)
    while i < stop:
        code_point, i = next_character(data, i)
        if tables.replacements[code_point] != 0:
            changes = True
            added += np.int64(tables.growth[code_point])
        i = next_active(data, i, stop, tables.skips)
    return changes, added


@kernel
def map_characters(data, offsets, tables, out, out_offsets):
    """Maps rows; returns how many characters change.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      tables: normalizers.tables.CharacterMap.
      out: uint8 with room for the rows, what `measure` adds, and eight bytes more; filled.
      out_offsets: int64[n_rows + 1], filled.
    """
    o = 0
    changed = 0
    out_offsets[0] = 0
    for row in range(offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
        while i < end:
            if i + 8 <= end:
                eight = load_u64(data, i)
                others = unskipped(eight, tables.skips)
                if tables.lower_ascii:
                    upper = _upper_case(eight)
                    eight |= upper
                    # The bytes before the first that is not plain, or all of them.
                    before = ((others & (_ZERO - others)) - _ONE) & (upper << np.uint64(2))
                    changed += np.int64(((before >> np.uint64(7)) * EACH_BYTE) >> np.uint64(56))
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
            code_point, i = next_character(data, i)
            replacement = tables.replacements[code_point]
            if replacement == 0:
                for q in range(start, i):
                    out[o] = data[q]
                    o += 1
            else:
                changed += 1
                first = replacement >> 5
                for q in range(first, first + (replacement & 31)):
                    out[o] = tables.pool[q]
                    o += 1
        out_offsets[row + 1] = o
    return changed


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


@kernel
def normalize(data, offsets, tables, clean_text, scratch, out, out_offsets):
    """Normalizes rows.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      tables: unicode_tables.BertTables made without the pre-tokenizer.
      clean_text: whether white space becomes a space.
      scratch: kernel_memory.Scratch for the longest row.
      out: uint8 with room for the result; out_offsets: int64[n_rows + 1], filled.
    """
    o = 0
    for row in range(offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
        while i < end:
            start = i
            code_point, i = next_character(data, i)
            kind = tables.classes[code_point]
            if kind == WORD or (kind == SPACE and not clean_text):
                o = append_character(data, start, i, tables, code_point, out, scratch.origins, False, o, 0)
            elif kind == SPACE:
                out[o] = 32
                o += 1
            elif kind == ISOLATED:
                out[o] = 32
                o = append_character(data, start, i, tables, code_point, out, scratch.origins, False, o + 1, 0)
                out[o] = 32
                o += 1
            elif kind == REORDERED:
                i, o = append_reordered(data, start, end, tables, out, scratch.origins, False, o)
        out_offsets[row + 1] = o
