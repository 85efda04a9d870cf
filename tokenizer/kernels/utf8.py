# SPDX-License-Identifier: Apache-2.0
"""Parts that kernels share: reading and writing UTF-8, copying bytes, skipping ASCII eight bytes at a time.

`data` is uint8 and has whole characters of valid UTF-8 where it is read; `out` is uint8 with room for what is written.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part, load_u64, store_u64, trailing_zeros

HIGH_BITS = np.uint64(0x8080808080808080)
LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
EACH_BYTE = np.uint64(0x0101010101010101)
_FROM_LEADS = np.uint64(0x100 - 0xC0) * EACH_BYTE


@kernel_part
def write_utf8(code_point, out, o):
    """Writes one character; returns the index after it."""
    if code_point < 0x80:
        out[o] = code_point
        return o + 1
    if code_point < 0x800:
        out[o] = 0xC0 | (code_point >> 6)
        out[o + 1] = 0x80 | (code_point & 0x3F)
        return o + 2
    if code_point < 0x10000:
        out[o] = 0xE0 | (code_point >> 12)
        out[o + 1] = 0x80 | ((code_point >> 6) & 0x3F)
        out[o + 2] = 0x80 | (code_point & 0x3F)
        return o + 3
    out[o] = 0xF0 | (code_point >> 18)
    out[o + 1] = 0x80 | ((code_point >> 12) & 0x3F)
    out[o + 2] = 0x80 | ((code_point >> 6) & 0x3F)
    out[o + 3] = 0x80 | (code_point & 0x3F)
    return o + 4


@kernel_part
def copy_bytes(data, start, stop, out, o):
    """Copies `data[start:stop]` to `out[o:]`; returns the index after it."""
    i = start
    while i + 8 <= stop:
        store_u64(out, o, load_u64(data, i))
        i += 8
        o += 8
    while i < stop:
        out[o] = data[i]
        i += 1
        o += 1
    return o


@kernel_part
def character_bytes(lead):
    """Returns the number of bytes of a character by its first."""
    return 1 + np.int64(lead >= 0xC0) + np.int64(lead >= 0xE0) + np.int64(lead >= 0xF0)


@kernel_part
def n_characters(data, i, stop):
    """Returns how many characters begin in `data[i:stop]`."""
    n = np.int64(0)
    for q in range(i, stop):
        n += np.int64(data[q] & 0xC0 != 0x80)
    return n


@kernel_part
def continues_character(byte):
    """Whether a byte is not the first of its character."""
    return byte & 0xC0 == 0x80


@kernel_part
def unskipped(eight, skips):
    """Returns 0x80 in each byte that begins a character and may not be skipped by itself.

    Bytes that continue a character get 0. eight: uint64; skips: normalizers.tables.Skips.
    """
    low = eight & LOW_BITS
    ascii_kept = (low + skips.ascii_from) & ~(low + skips.ascii_past) & ~eight
    leads_kept = eight & (~(low + _FROM_LEADS) | ((low + skips.lead_from) & ~(low + skips.lead_past)))
    return ~(ascii_kept | leads_kept) & HIGH_BITS


@kernel_part
def next_active(data, i, end, skips):
    """Returns the first place from `i` on where a character begins that may not be skipped, `end` if there is none.

    skips: normalizers.tables.Skips.
    """
    while i < end:
        if i + 8 <= end:
            eight = load_u64(data, i)
            if skips.has_ascii and eight & HIGH_BITS == np.uint64(0):
                i = past_ascii(data, i + 8, end)
                continue
            active = unskipped(eight, skips)
            if active == np.uint64(0):
                i += 8
                continue
            i += trailing_zeros(active) >> 3
        elif continues_character(data[i]):
            i += 1
            continue
        step = np.int64(skips.steps[data[i]])
        if step == 0:
            break
        i += step
    return i


@kernel_part
def past_ascii(data, i, stop):
    """Skips ASCII from `i` on, eight bytes at a time; at most seven bytes of it are left before `stop`."""
    while i + 8 <= stop and (load_u64(data, i) & HIGH_BITS) == np.uint64(0):
        i += 8
    return i


@kernel_part
def decode_utf8(data, i):
    """Returns the code point of the non-ASCII character at `i` and the index of the next one."""
    # Indices are uint64, so that numba need not check for negative ones.
    at = np.uint64(i)
    b = np.int64(data[at])
    second = np.int64(data[at + np.uint64(1)] & 0x3F)
    if b < 0xE0:
        return ((b & 0x1F) << 6) | second, i + 2
    third = np.int64(data[at + np.uint64(2)] & 0x3F)
    if b < 0xF0:
        return ((b & 0x0F) << 12) | (second << 6) | third, i + 3
    return ((b & 0x07) << 18) | (second << 12) | (third << 6) | np.int64(data[at + np.uint64(3)] & 0x3F), i + 4


@kernel_part
def next_character(data, i):
    """Returns the code point at `i` and the index of the next one."""
    first = data[np.uint64(i)]
    if first < 128:
        return np.int64(first), i + 1
    return decode_utf8(data, i)


@kernel_part
def add_whole_characters(data, i, end, n, count, characters):
    """Does `add_characters` for UTF-8 `data[:n]` that may begin or end within a character.

    Returns the end of the last character added, which may be beyond `end`, or i.
    """
    counted = i
    while i < end:
        if continues_character(data[i]):
            i += 1
            continue
        after = i + character_bytes(data[i])
        if after <= n:
            add_characters(data, i, after, count, characters)
            counted = after
        i = after
    return counted


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
