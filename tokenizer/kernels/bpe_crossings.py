# SPDX-License-Identifier: Apache-2.0
"""Places between two characters that no token reaches across, for byte-level models.

In scripts without spaces words rarely recur, but their parts do. A token that reaches across the place between two
characters contains the end of the one and the beginning of the other. If the vocabulary has no such token, no merge
joins the two characters, so both sides can be encoded, and cached, on their own.

A set of bits holds hashes of the two characters around each such place inside a token. Most tokens hold both characters
whole. For the others, which begin or end inside a character, a second set says which two bytes can meet there at all.

Its reference implementation is `tokenmill.tokenizer.models.bpe.BPE.tokenize_bytes`;
`tests/tokenizer/models/test_bpe_cuts.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64
from tokenmill.tokenizer.kernels.utf8 import character_bytes

CROSSING_BITS = 20
CROSSED_BITS = 16
_MIX_1 = np.uint64(0x9E3779B97F4A7C15)
_MIX_2 = np.uint64(0xC2B2AE3D27D4EB4F)


@kernel_part
def _bit(before, after):
    return (((np.uint64(before) * _MIX_1) ^ np.uint64(after)) * _MIX_2) >> np.uint64(64 - CROSSING_BITS)


@kernel_part
def _crossed_bit(before):
    return (np.uint64(before) * _MIX_1) >> np.uint64(64 - CROSSED_BITS)


@kernel_part
def _is_set(bits, bit):
    return (bits[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1) != np.uint64(0)


@kernel_part
def _set(bits, bit):
    bits[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))


@kernel_part
def character_value(data, at, n):
    """Returns n bytes, 1 to 4, as one number, the first lowest; `data` is readable for eight bytes from `at`."""
    return np.int64(load_u64(data, at) & ((np.uint64(1) << np.uint64(8 * n)) - np.uint64(1)))


@kernel
def find_crossings(values, offsets, crossings, partial, crossed):
    """Notes every place inside a token where a character begins, except ASCII after ASCII.

    Words are not cut before ASCII, so for places before ASCII only the character before is noted.

    Args:
      values, offsets: uint8[n_bytes], int64[n + 1]: the tokens' bytes; values has eight more bytes after them.
      crossings: uint64[2**CROSSING_BITS / 64], zeros, filled.
      partial: uint64[65536 / 64], zeros, filled: last byte before and first byte after each place next to a broken
        character.
      crossed: uint64[2**CROSSED_BITS / 64], zeros, filled: the characters before such places.
    """
    for token in range(offsets.size - 1):
        begin, end = offsets[token], offsets[token + 1]
        for q in range(begin + 1, end):
            if values[q] & 0xC0 == 0x80 or (values[q] | values[q - 1]) < 0x80:
                continue
            p = q - 1
            while p > begin and q - p < 4 and values[p] & 0xC0 == 0x80:
                p -= 1
            n = character_bytes(values[q])
            n_there = min(n, end - q)
            _set(crossed, _crossed_bit(character_value(values, p, q - p)))
            if values[q] < 0x80:
                continue
            _set(crossings, _bit(character_value(values, p, q - p), character_value(values, q, n_there)))
            if n_there < n or values[p] & 0xC0 == 0x80:
                _set(partial, np.uint64(values[q - 1]) << np.uint64(8) | np.uint64(values[q]))


@kernel_part
def may_cross(model, before, n_before, after, n_after):
    """Whether a token may reach across between two characters, `character_value`s of n_before and n_after bytes."""
    if _is_set(model.crossings, _bit(before, after)):
        return True
    last, first = np.uint64(before >> (8 * (n_before - 1))), np.uint64(after & 0xFF)
    if not _is_set(model.partial, last << np.uint64(8) | first):
        return False
    for n_left in range(1, n_before + 1):
        left = before >> (8 * (n_before - n_left))
        for n_right in range(1, n_after + 1):
            if _is_set(model.crossings, _bit(left, after & ((1 << (8 * n_right)) - 1))):
                return True
    return False


@kernel
def find_apart(crossed, apart):
    """Notes the characters of three bytes whose end no token reaches across, whatever comes next.

    Args:
      crossed: as `find_crossings` has filled it.
      apart: uint64[65536 / 64], zeros, filled: a bit for each code point.
    """
    for c in range(0x800, 0x10000):
        last = 0x80 | c & 63
        middle = 0x80 | (c >> 6) & 63
        found = _is_set(crossed, _crossed_bit(last))
        found |= _is_set(crossed, _crossed_bit(middle | last << 8))
        found |= _is_set(crossed, _crossed_bit(0xE0 | c >> 12 | middle << 8 | last << 16))
        if not found:
            _set(apart, np.uint64(c))


@kernel_part
def _code_point(first, second, third):
    return (first & 15) << 12 | (second & 63) << 6 | third & 63


@kernel_part
def is_apart(apart, character, n):
    """Whether a character, a `character_value` of n bytes, is in the set `apart`."""
    return n == 3 and _is_set(apart, np.uint64(_code_point(character, character >> 8, character >> 16)))


@kernel_part
def is_apart_at(apart, data, at):
    """Whether a character of three bytes that is in `apart` begins at `at`; `data` is readable for three bytes."""
    if data[at] < 0xE0 or data[at] > 0xEF:
        return False
    return _is_set(apart, np.uint64(_code_point(np.int64(data[at]), np.int64(data[at + 1]), np.int64(data[at + 2]))))
