# SPDX-License-Identifier: Apache-2.0
"""Kernels over rows: lay ids out among special tokens, insert rows, join texts, copy spans, find where tokens are.

Its reference implementation is in `tests/tokenizer/test_layout.py`; that of tokens' places is
`tokenmill.tokenizer.locating.Locator`, and `tests/tokenizer/test_offsets.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64
from tokenmill.tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS, copy_bytes


@kernel
def lay_out(values, starts, stops, before, after, padded, pad_id, pad_left, out, out_offsets):
    """Writes every row as padding, `before`, the ids of a span, `after`, padding.

    Args:
      values: int32[n_ids]; starts, stops: int64[n], the span of each row in it.
      before: int32[n_before], after: int32[n_after], the special tokens around a row.
      padded: the length that shorter rows are padded to; pad_id: the id to pad with; pad_left: whether on the left.
      out: int32 with room for all; out_offsets: int64[n + 1], filled.
    """
    o = 0
    out_offsets[0] = 0
    for row in range(starts.size):
        first = starts[row]
        n = stops[row] - first
        n_padding = max(0, padded - n - before.size - after.size)
        if pad_left:
            for _ in range(n_padding):
                out[o] = pad_id
                o += 1
        for q in range(before.size):
            out[o] = before[q]
            o += 1
        for q in range(n):
            out[o] = values[first + q]
            o += 1
        for q in range(after.size):
            out[o] = after[q]
            o += 1
        if not pad_left:
            for _ in range(n_padding):
                out[o] = pad_id
                o += 1
        out_offsets[row + 1] = o


@kernel
def insert_rows(values, offsets, which, more, more_offsets):
    """Fills in the ids of rows that are empty so far, in place, which avoids touching new memory.

    Args:
      values: int32 with room for all; offsets: int64[n + 1], the rows; both are changed.
      which: int64[k], the empty rows, ascending; more, more_offsets: int32 and int64[k + 1], their ids.
    """
    end = offsets[offsets.size - 1]
    last = offsets.size - 1
    for k in range(which.size - 1, -1, -1):
        # Works from the end, so that nothing is overwritten before it is moved.
        shift = more_offsets[k + 1]
        begin = offsets[which[k] + 1]
        for q in range(end - 1, begin - 1, -1):
            values[q + shift] = values[q]
        for q in range(more_offsets[k], shift):
            values[begin + q] = more[q]
        for row in range(which[k] + 1, last + 1):
            offsets[row] += shift
        end, last = begin, which[k]


@kernel
def text_sizes(values, offsets, skipped, first_offsets, later_offsets, out_offsets):
    """Finds where the text of each row begins in what `join_texts` will write; takes its arguments.

    out_offsets: int64[n + 1], filled; the first must be 0.
    """
    for row in range(offsets.size - 1):
        n = 0
        first = True
        for q in range(offsets[row], offsets[row + 1]):
            token = values[q]
            if skipped[token]:
                continue
            if first:
                n += first_offsets[token + 1] - first_offsets[token]
            else:
                n += later_offsets[token + 1] - later_offsets[token]
            first = False
        out_offsets[row + 1] = out_offsets[row] + n


@kernel
def join_texts(values, offsets, skipped, first_texts, first_offsets, later_texts, later_offsets, out):
    """Writes the texts of all tokens, one after the other.

    Args:
      values, offsets: int32 and int64[n + 1], rows of ids, 0 to n_tokens - 1.
      skipped: bool[n_tokens]: tokens that are left out.
      first_texts, first_offsets: uint8[n_bytes] and int64[n_tokens + 1]: the text of a token at the start of a row.
      later_texts, later_offsets: uint8[n_bytes] and int64[n_tokens + 1], its text elsewhere.
      out: uint8 with room for all, filled.
    """
    o = 0
    for row in range(offsets.size - 1):
        first = True
        for q in range(offsets[row], offsets[row + 1]):
            token = values[q]
            if skipped[token]:
                continue
            if first:
                for r in range(first_offsets[token], first_offsets[token + 1]):
                    out[o] = first_texts[r]
                    o += 1
            else:
                for r in range(later_offsets[token], later_offsets[token + 1]):
                    out[o] = later_texts[r]
                    o += 1
            first = False


@kernel
def gather(data, starts, stops, out, out_offsets):
    """Copies `data[starts[r]:stops[r]]` of each row r to `out`, one after the other.

    Args:
      data: uint8[n]; starts, stops: int64[n_rows].
      out: uint8 with room for all; out_offsets: int64[n_rows + 1]; filled.
    """
    o = 0
    out_offsets[0] = 0
    for row in range(starts.size):
        o = copy_bytes(data, starts[row], stops[row], out, o)
        out_offsets[row + 1] = o


@kernel_part
def _count_characters(values, i, stop):
    """Returns how many characters begin from i on, before stop."""
    n = stop - i
    while i + 8 <= stop:
        eight = load_u64(values, i)
        # Bytes that continue a character have the highest bit set, and the next one not.
        following = eight & ~(eight << np.uint64(1)) & HIGH_BITS
        n -= np.int64(((following >> np.uint64(7)) * EACH_BYTE) >> np.uint64(56))
        i += 8
    while i < stop:
        n -= np.int64((values[i] & 0xC0) == 0x80)
        i += 1
    return n


@kernel
def character_positions(values, first_byte, offsets, out):
    """Turns byte positions within one text into character positions.

    Args:
      values: uint8[n_bytes], UTF-8.
      first_byte: where the text begins.
      offsets: int64[n], byte positions, not decreasing.
      out: int64[n], filled.
    """
    n = np.int64(0)
    i = first_byte
    for k in range(offsets.size):
        n += _count_characters(values, i, offsets[k])
        i = offsets[k]
        out[k] = n


@kernel
def find_spans(n_bytes, values, offsets, ids, id_offsets, in_bytes, starts, stops, is_right):
    """Finds where tokens are that are the bytes of their row, one after the other.

    Args:
      n_bytes: int32[n_ids], see `offsets.TokenLengths`.
      values: uint8[n], valid UTF-8; offsets: int64[n_rows + 1].
      ids: int32[n_tokens]; id_offsets: int64[n_rows + 1], from 0 to n_tokens, in order.
      in_bytes: whether to count bytes, else characters.
      starts, stops: int32[n_tokens], filled: counted from the start of the row; 0 in rows that are not right.
      is_right: bool[n_rows], filled: whether the tokens of a row have as many bytes as it.
    """
    for row in range(offsets.size - 1):
        at = offsets[row]
        first, last = id_offsets[row], id_offsets[row + 1]
        left = offsets[row + 1] - at
        right = True
        for t in range(first, last):
            n = np.int64(-1)
            if 0 <= ids[t] < n_bytes.size:
                n = np.int64(n_bytes[ids[t]])
            right = right and 0 < n <= left
            left -= n
        right = right and left == 0
        is_right[row] = right
        i = at
        n_before = np.int64(0)  # characters that begin before i
        for t in range(first, last):
            start, stop = np.int64(0), np.int64(0)
            if right:
                end = i + n_bytes[ids[t]]
                if in_bytes:
                    start, stop = i - at, end - at
                else:
                    start = n_before - np.int64(values[i] & 0xC0 == 0x80)
                    while i < end:
                        n_before += np.int64(values[i] & 0xC0 != 0x80)
                        i += 1
                    stop = n_before
                i = end
            starts[t], stops[t] = start, stop
