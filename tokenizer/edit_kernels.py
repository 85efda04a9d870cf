# SPDX-License-Identifier: Apache-2.0
"""Normalizers that edit strings: replace a literal, prepend to rows, cut rows at their ends.

Its slow twins are `tokenizer.normalizers.edits.Strip.normalize_aligned`,
`tokenizer.normalizers.edits.Replace.normalize_aligned` and `tokenizer.normalizers.edits.Prepend.normalize_aligned`;
`tests/tokenizer/normalizers/test_columns.py` compares them.
"""

import numpy as np

from tokenizer.compiling.kernel import kernel, load_u64, store_u64, trailing_zeros
from tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS, beyond_ranges, copy_bytes, decode_utf8, next_character


@kernel
def replace(data, offsets, pattern, content, writing, out, out_offsets):
    """Replaces all occurrences of a literal that do not overlap, found from the left; returns their number.

    Time is at worst bytes times the length of the pattern, which the tokenizer determines, not the text.

    Args:
      data: uint8[n]; offsets: int64[n_rows + 1] into it.
      pattern: uint8[1 or more], what to look for; content: uint8[n], the replacement, then eight bytes of padding.
      writing: whether to write, or only to count; then `out` and `out_offsets` are not touched.
      out: uint8 with room for the result and eight bytes more; out_offsets: int64[n_rows + 1], filled.
    """
    n_pattern = pattern.size
    n_content = content.size - 8
    first = pattern[0]
    after = min(np.int64(1), n_pattern - 1)
    firsts = np.uint64(first) * EACH_BYTE
    seconds = np.uint64(pattern[after]) * EACH_BYTE
    found = 0
    o = 0
    if writing:
        out_offsets[0] = 0
    for row in range(offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
        while i + n_pattern <= end:
            if i + 9 <= end:
                # `hits` has a bit for each byte that is the pattern's first and is followed by its second. It may have
                # a few bits too many, so hits are compared below.
                eight = load_u64(data, i)
                other, other_after = eight ^ firsts, load_u64(data, i + after) ^ seconds
                hits = (other - EACH_BYTE) & ~other & (other_after - EACH_BYTE) & ~other_after & HIGH_BITS
                if writing:
                    store_u64(out, o, eight)
                if hits == np.uint64(0):
                    i += 8  # a constant step, which need not wait for the load
                    o += 8
                    continue
                skipped = trailing_zeros(hits) >> 3
                i += skipped
                o += skipped
                if i + n_pattern > end:
                    continue
            elif data[i] != first:
                if writing:
                    out[o] = data[i]
                i += 1
                o += 1
                continue
            q = 0
            while q < n_pattern and data[i + q] == pattern[q]:
                q += 1
            if q < n_pattern:
                if writing:
                    out[o] = data[i]
                i += 1
                o += 1
                continue
            found += 1
            if writing:
                store_u64(out, o, load_u64(content, 0))
                for q in range(8, n_content):
                    out[o + q] = content[q]
            i += n_pattern
            o += n_content
        if writing:
            o = copy_bytes(data, i, end, out, o)
            out_offsets[row + 1] = o
    return found


@kernel
def count_byte(data, start, stop, byte):
    """Counts a byte in `data[start:stop]`; data: uint8[n]."""
    n = 0
    for i in range(start, stop):
        n += np.int64(data[i] == byte)
    return n


@kernel
def replace_byte(data, offsets, byte, content, out, out_offsets):
    """Replaces every occurrence of one byte.

    Args:
      data: uint8[n]; offsets: int64[n_rows + 1] into it.
      byte: what to look for; content: uint8[at most 8], the replacement, then eight bytes of padding.
      out: uint8 with room for the result and eight bytes more; out_offsets: int64[n_rows + 1], filled.
    """
    n_content = content.size - 8
    eight = load_u64(content, 0)
    o = 0
    out_offsets[0] = 0
    for row in range(offsets.size - 1):
        for i in range(offsets[row], offsets[row + 1]):
            # No branch on the text: a processor cannot predict which bytes are spaces.
            b = data[i]
            is_found = b == byte
            store_u64(out, o, eight if is_found else np.uint64(b))
            o += n_content if is_found else 1
        out_offsets[row + 1] = o


@kernel
def replace_runs(data, offsets, begins, members, least, usual, ranges, others, content, out, out_offsets):
    """Replaces each run of at least `least` characters of a set; returns how many runs that changes.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      begins: bool[256], bytes that a character of the set begins with; members: bool[0x110000], the set.
      least: at least 1.
      usual: the one printable ASCII character of the set, if a single one stays as it is; else 0.
      ranges: normalizers.tables.ByteRanges that begin no character of the set but `usual`; others: whether the set has
        characters besides `usual`.
      content: uint8[n], the replacement, then eight bytes of padding.
      out: uint8 with room for the result and eight bytes more; out_offsets: int64[n_rows + 1], filled.
    """
    n_content = content.size - 8
    usuals = np.uint64(usual) * EACH_BYTE
    found = 0
    o = 0
    out_offsets[0] = 0
    for row in range(offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
        while i < end:
            if usual != 0 and i + 8 <= end:
                # A single space between words stays as it is, and most texts have little else. Skipped are the bytes
                # before two spaces in a row and before bytes that may begin another character of the set. A few bits
                # too many do no harm: the bytes at them are looked at below.
                eight = load_u64(data, i)
                other = eight ^ usuals
                alike = (other - EACH_BYTE) & ~other & HIGH_BITS
                hits = alike & (alike >> np.uint64(8))
                if others:
                    hits |= beyond_ranges(eight, ranges)
                skipped = min(trailing_zeros(hits) >> 3, 7)
                # A space that was skipped last may be the first of a run.
                skipped -= skipped > 0 and data[i + skipped - 1] == usual
                store_u64(out, o, eight)
                i += skipped
                o += skipped
                if skipped >= 6:
                    continue
            b = data[i]
            if b >= 128 and begins[b] and i + 8 <= end:
                # Few characters that begin like one of the set belong to it.
                code_point, following = decode_utf8(data, i)
                if not members[code_point]:
                    store_u64(out, o, load_u64(data, i))
                    o += following - i
                    i = following
                    continue
            goes_on = i + 1 < end and begins[data[i + 1]]
            is_same = n_content == 1 and content[0] == b
            if not begins[b] or (not goes_on and (least > 1 or is_same) and b < 128):
                out[o] = b
                i += 1
                o += 1
                continue
            first = i
            n = 0
            while i < end:
                code_point, following = next_character(data, i)
                if not members[code_point]:
                    break
                i = following
                n += 1
            if n >= least:
                found += n > 1 or not is_same
                store_u64(out, o, load_u64(content, 0))
                for q in range(8, n_content):
                    out[o + q] = content[q]
                o += n_content
                continue
            if n == 0:
                _, i = next_character(data, first)
            o = copy_bytes(data, first, i, out, o)
        out_offsets[row + 1] = o
    return found


@kernel
def prepend(data, offsets, prefix, out, out_offsets):
    """Puts a prefix before every row that is not empty.

    Args:
      data: uint8[n]; offsets: int64[n_rows + 1] into it.
      prefix: uint8[n], then eight bytes of padding.
      out: uint8 with room for the result and eight bytes more; out_offsets: int64[n_rows + 1], filled.
    """
    n_prefix = prefix.size - 8
    o = 0
    out_offsets[0] = 0
    for row in range(offsets.size - 1):
        if offsets[row] < offsets[row + 1]:
            store_u64(out, o, load_u64(prefix, 0))
            for q in range(8, n_prefix):
                out[o + q] = prefix[q]
            o = copy_bytes(data, offsets[row], offsets[row + 1], out, o + n_prefix)
        out_offsets[row + 1] = o


@kernel
def prepend_byte(data, offsets, wanted, byte, out, out_offsets):
    """Puts a byte before every row r with `wanted[r]`; otherwise like `prepend`.

    wanted: bool[n_rows].
    """
    o = 0
    out_offsets[0] = 0
    for row in range(offsets.size - 1):
        if wanted[row]:
            out[o] = byte
            o += 1
        o = copy_bytes(data, offsets[row], offsets[row + 1], out, o)
        out_offsets[row + 1] = o


@kernel
def strip(data, offsets, is_space, left, right, starts, stops):
    """Finds what is left of rows without the white space at their ends; returns how many bytes are left.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      is_space: bool[0x110000]; left, right: which ends to cut.
      starts, stops: int64[n_rows], filled: row r is left with `data[starts[r]:stops[r]]`.
    """
    kept = 0
    for row in range(offsets.size - 1):
        start = offsets[row]
        stop = offsets[row + 1]
        while left and start < stop:
            if data[start] < 128:
                code_point, following = np.int64(data[start]), start + 1
            else:
                code_point, following = decode_utf8(data, start)
            if not is_space[code_point]:
                break
            start = following
        while right and start < stop:
            last = stop - 1
            while data[last] & 0xC0 == 0x80:
                last -= 1
            code_point = np.int64(data[last])
            if code_point >= 128:
                code_point, _ = decode_utf8(data, last)
            if not is_space[code_point]:
                break
            stop = last
        starts[row] = start
        stops[row] = stop
        kept += stop - start
    return kept


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
