# SPDX-License-Identifier: Apache-2.0
"""Places between two characters that no token of a BPE model reaches across, where words are cut into parts.

In scripts without spaces words rarely recur, but their parts do. A token that reaches across the place between two
characters contains the end of the one and the beginning of the other. If the vocabulary has no such token, no merge
joins the two characters, so both sides can be encoded, and cached, on their own.

For byte-level models a set of bits holds hashes of the two characters around each such place inside a token. Most
tokens hold both characters whole. For the others, which begin or end inside a character, a second set says which two
bytes can meet there at all. For models of characters, `bpe_pairs.may_join` says it.

Its reference implementation is `tokenmill.tokenizer.models.bpe.BPE.tokenize_bytes`;
`tests/tokenizer/models/test_bpe_cuts.py` compares them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64
from tokenmill.tokenizer.kernels.bpe_pairs import may_join
from tokenmill.tokenizer.kernels.utf8 import character_bytes, decode_utf8
from tokenmill.tokenizer.kernels.whole_words import whole_word
from tokenmill.tokenizer.kernels.word_table import SHORT_WORD_BYTES

CROSSING_BITS = 20
CROSSED_BITS = 16
NEVER, BY_BYTES, BY_CHARACTERS = 0, 1, 2
_LONGEST_UNCUT = 6
"""In bytes: shorter words of characters, or as long ones, are not cut."""
_THREE_BYTES = 0xE1
"""The least first byte of characters of three bytes or more, except those of India's scripts, which use spaces."""
_MIX_1 = np.uint64(0x9E3779B97F4A7C15)
_MIX_2 = np.uint64(0xC2B2AE3D27D4EB4F)


class WordCuts(NamedTuple):
    """Where the words of a model may be cut; see `models.bpe_tables.BPETables`, which has most of it."""

    by: int
    """NEVER, BY_BYTES or BY_CHARACTERS: then the arrays for the other are not used."""
    crossings: npt.NDArray[np.uint64]
    partial: npt.NDArray[np.uint64]
    apart: npt.NDArray[np.uint64]
    """uint64[n] each."""
    characters: npt.NDArray[np.int32]
    """int32[1, 0x110000]."""
    joins: npt.NDArray[np.uint64]
    """uint64[n]."""
    whole_slots: npt.NDArray[np.int64]
    whole_pool: npt.NDArray[np.uint8]
    """int64[n_slots, 4] and uint8[n_pool]."""
    longest_whole: int


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


@kernel_part
def _is_whole(data, at, w, model):
    """Whether `data[at:at + w]`, as a whole word, is an entry that merges would not make; see `next_cut`."""
    return w <= model.longest_whole and whole_word(data, at, w, model.whole_slots, model.whole_pool) >= 0


@kernel_part
def _is_cut(data, at, cut, stop, model):
    """Whether `data[at:stop]`, a word or the rest of one, may be cut at `cut`, where no token reaches across.

    A part must not be an entry that only a whole word can become.
    """
    return not _is_whole(data, at, cut - at, model) and not _is_whole(data, cut, stop - cut, model)


@kernel_part
def _symbol(data, at, model):
    """Returns the symbol of the character at `at`, -1 if the vocabulary does not have it."""
    if data[at] < 0x80:
        return np.int64(model.characters[0, data[at]]) - 1
    code_point, _ = decode_utf8(data, at)
    return np.int64(model.characters[0, code_point]) - 1


@kernel_part
def _next_character_cut(data, at, stop, model):
    """Does `next_cut` for words of characters: a row of text with "▁" for spaces may be a single word.

    A word is cut before characters of three bytes or more, if no merge joins one with the character before it.
    """
    if stop - at <= _LONGEST_UNCUT:
        return stop
    if stop + SHORT_WORD_BYTES > data.size or _is_whole(data, at, stop - at, model):
        return stop
    for q in range(at + 1, stop):
        if data[q] < _THREE_BYTES:
            continue
        p = q - 1
        while data[p] & 0xC0 == 0x80:
            p -= 1
        left, right = _symbol(data, p, model), _symbol(data, q, model)
        if left >= 0 and right >= 0 and not may_join(model.joins, left, right) and _is_cut(data, at, q, stop, model):
            return q
    return stop


@kernel_part
def _next_byte_cut(data, at, stop, model):
    """Does `next_cut` for byte-level words; see `bpe_crossings`.

    Only words that begin with a character of three bytes or more, or with a space and one, are cut.
    """
    if stop + SHORT_WORD_BYTES > data.size:
        return stop
    if data[at] < _THREE_BYTES and data[at + 1] < _THREE_BYTES:
        return stop
    n_before = character_bytes(data[at])
    before = character_value(data, at, n_before)
    q = at + n_before
    while q < stop:
        n = character_bytes(data[q])
        character = character_value(data, q, n)
        crosses = n == 1 or not is_apart(model.apart, before, n_before)
        crosses = crosses and (n == 1 or may_cross(model, before, n_before, character, n))
        if not crosses and _is_cut(data, at, q, stop, model):
            return q
        before, n_before = character, n
        q += n
    return stop


@kernel_part
def next_cut(data, at, stop, model, tallying):
    """Returns where the part of a word that begins at `at` ends, so that no token reaches across; `stop` for no cut.

    While words with an unknown token are counted, such words are not cut: what is counted would depend on the cuts.

    model: WordCuts, like everywhere below.
    """
    if model.by == BY_BYTES:
        if at + 3 >= stop:
            return stop
        # This covers most Chinese text, for most models.
        if data[at + 3] >= 0x80 and is_apart_at(model.apart, data, at) and model.longest_whole == 0:
            return at + 3
        return _next_byte_cut(data, at, stop, model)
    if model.by == NEVER or tallying:
        return stop
    return _next_character_cut(data, at, stop, model)
