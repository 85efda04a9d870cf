# SPDX-License-Identifier: Apache-2.0
"""Byte pair encoding of one word: whole words, initial symbols, then merges; and WordLevel, only whole words."""

import numpy as np

from tokenizer.kernels.bpe_merging import (
    MAX_SCANNED,
    MAX_UNCUT,
    link,
    merge,
    merge_dropping,
    merge_long,
    merge_scanning,
    set_keys,
)  # fmt: skip
from tokenizer.kernels.bpe_pairs import NO_KEY, is_sparse, pair_rank, set_rank
from tokenizer.kernels.bpe_short import (
    MAX_MEDIUM,
    MAX_SHORT,
    emit_short_merges,
    merge_short,
    no_medium_keys,
    no_short_keys,
    with_key,
)  # fmt: skip
from tokenizer.kernels.compiling import count_ones, kernel, kernel_part, load_u64
from tokenizer.kernels.utf8 import HIGH_BITS, decode_utf8
from tokenizer.kernels.word_table import VALUE, find, insert, word_key

# Rows of `model.characters` and `model.byte_symbols`: what a symbol looks like depends on where it stands.
CONTINUES, ENDS = 1, 2


# The table of whole words.


@kernel
def build_words(values, offsets, ids, slots, pool):
    """Fills a word table with entries, none empty, no two equal.

    Args:
      values, offsets: uint8[n_bytes + 16] and int64[n + 1]; ids: int32[n].
      slots: int64[power of two, more than n; 4], zeros; pool: uint8 with room for all entries of more than 16 bytes.
    """
    used = 0
    for t in range(ids.size):
        at = offsets[t]
        w = offsets[t + 1] - at
        k0, k1 = word_key(values, at, w)
        j, _ = find(slots, pool, values, at, w, k0, k1)
        used = insert(slots, pool, used, j, values, at, w, k0, k1)
        slots[j, VALUE] = ids[t]


@kernel_part
def whole_word(data, at, w, slots, pool):
    """Returns the id of the word `data[at:at + w]`, -1 where it is no entry; readable 16 bytes beyond `at`."""
    k0, k1 = word_key(data, at, w)
    j, found = find(slots, pool, data, at, w, k0, k1)
    return slots[j, VALUE] if found else np.int64(-1)


@kernel
def called_whole_word(data, at, w, slots, pool):
    """`whole_word` for rare words: a call, so that it is not in the way of others."""
    return whole_word(data, at, w, slots, pool)


@kernel_part
def wordlevel_word(data, at, w, model, out, o, ends):
    """Writes the id of the word `data[at:at + w]` to `out[o]`; model: `WordLevelTables`, the rest as for `bpe_word`."""
    token = whole_word(data, at, w, model.slots, model.pool)
    out[o] = model.unk_id if token < 0 else token
    ends[0] = w
    return o + 1, token < 0


# Initial symbols.


@kernel_part
def _add_symbol(scratch, n, symbol, stop, w):
    scratch.ids[n] = symbol
    scratch.stops[n] = min(stop, w)
    return n + 1


@kernel_part
def _byte_tokens(data, at, stop, row, model, scratch, n, end, w):
    """Appends the byte tokens of one unknown character, marker included; returns the new n, -1 where some are missing.

    As in HF each takes a byte of the word, those of a marker too.
    """
    n_prefix = model.prefix.size if row & CONTINUES else 0
    n_suffix = model.suffix.size if row & ENDS else 0
    spelled = stop - at
    if model.byte_level:
        spelled = 1 if model.alphabet[data[at]] < 0x80 else 2
    for q in range(n_prefix + spelled + n_suffix):
        if q < n_prefix:
            byte = model.prefix[q]
        elif q >= n_prefix + spelled:
            byte = model.suffix[q - n_prefix - spelled]
        elif not model.byte_level:
            byte = data[at + q - n_prefix]
        elif spelled == 1:
            byte = np.uint8(model.alphabet[data[at]])
        elif q == n_prefix:
            byte = np.uint8(0xC0 | model.alphabet[data[at]] >> 6)
        else:
            byte = np.uint8(0x80 | (model.alphabet[data[at]] & 0x3F))
        if model.byte_ids[byte] < 0:
            return -1
        if not model.byte_level or q == 0:
            end += 1
        n = _add_symbol(scratch, n, model.byte_ids[byte], end, w)
    return n


@kernel_part
def _initial_symbols(data, at, w, model, scratch):
    """Fills `scratch.ids` and `scratch.stops`; returns `(number of symbols, whether a character was unknown)`.

    What HF does with unknown characters, to the letter: an unknown token waits until a known character or the end of
    the word, and byte tokens do not make it come first; a character dropped for want of an unknown token takes no
    place.
    """
    n = 0
    end = 0
    waiting = 0
    unknown = False
    i = 0
    while i < w:
        first = np.int64(data[at + i])
        stop = i + 1
        if not model.byte_level and first >= 0x80:
            code_point = first & (0x1F if first < 0xE0 else 0x0F if first < 0xF0 else 0x07)
            while stop < w and (data[at + stop] & 0xC0) == 0x80:
                code_point = code_point << 6 | np.int64(data[at + stop] & 0x3F)
                stop += 1
        else:
            code_point = first
        row = CONTINUES if i > 0 and model.prefix.size > 0 else 0
        if stop == w and model.suffix.size > 0:
            row |= ENDS
        if model.byte_level:
            symbol = np.int64(model.byte_symbols[row, code_point])
        else:
            symbol = np.int64(model.characters[row, code_point]) - 1
        if symbol >= 0:
            if waiting:
                end += waiting
                waiting = 0
                n = _add_symbol(scratch, n, model.unk_id, end, w)
            end += stop - i
            n = _add_symbol(scratch, n, symbol, end, w)
        else:
            fallen = -1
            if model.byte_fallback:
                fallen = _byte_tokens(data, at + i, at + stop, row, model, scratch, n, end, w)
            if fallen >= 0:
                end += 1 if model.byte_level else fallen - n
                n = fallen
            else:
                unknown = True
                if model.unk_id >= 0:
                    if waiting and not model.fuse_unk:
                        end += waiting
                        waiting = 0
                        n = _add_symbol(scratch, n, model.unk_id, end, w)
                    waiting += stop - i
        i = stop
    if waiting:
        n = _add_symbol(scratch, n, model.unk_id, end + waiting, w)
    return n, unknown


@kernel_part
def _plain_symbol(data, i, model):
    """Returns the symbol of the character at `i`, negative where it is none, and where the character ends."""
    code_point = np.int64(data[np.uint64(i)])
    i += 1
    if code_point >= 0x80:
        code_point, i = decode_utf8(data, i - 1)
    return np.int64(model.characters[0, np.uint64(code_point)]) - 1, i


@kernel_part
def _plain_symbols(data, at, w, model, scratch):
    """Fills symbols, links and keys for a word whose characters are all symbols; returns how many, 0 if one is not."""
    ids, keys = scratch.ids, scratch.keys
    n = np.uint64(0)  # as all places here: so that none can be taken for one from the end
    place = np.uint64(0)
    left = np.int64(0)
    i = np.int64(at)
    while i < at + w:
        symbol, i = _plain_symbol(data, i, model)
        if symbol < 0:
            return np.int64(0)
        ids[n] = symbol
        scratch.stops[n] = i - at
        scratch.nexts[n] = n + np.uint64(1)
        scratch.previous[n] = np.int64(n) - 1
        # The first is overwritten by the second, or by no key.
        keys[place] = pair_rank(model.pairs, model.pair_bits, left, symbol) << np.uint32(8) | np.uint32(place)
        left = symbol
        place = n
        n += np.uint64(1)
    scratch.previous[n] = place
    # These, and then to the end of eight.
    while place < n or place & np.uint64(7) != np.uint64(0):
        keys[place] = NO_KEY
        place += np.uint64(1)
    return np.int64(n)


@kernel_part
def _continuing(eight):
    """Returns the high bit of every byte that continues a character: that begins with 10."""
    return eight & ~(eight << np.uint64(1)) & HIGH_BITS


@kernel_part
def _n_characters(data, at, w):
    """Returns how many characters the eight bytes or more of `data[at:at + w]` are."""
    n = np.int64(w)
    for q in range(at, at + w - 7, 8):
        n -= count_ones(_continuing(load_u64(data, q)))
    if w & 7 != 0:
        n -= count_ones(_continuing(load_u64(data, at + w - 8)) >> np.uint64(64 - 8 * (w & 7)))
    return n


@kernel_part
def _short_symbols(data, at, w, keys, model, scratch):
    """As `_plain_symbols`, for a word of no more characters than there are keys; returns `(how many, keys)`."""
    ids = scratch.ids
    n = np.uint64(0)
    left = np.int64(0)
    i = np.int64(at)
    while i < at + w:
        symbol, i = _plain_symbol(data, i, model)
        if symbol < 0:
            return np.int64(0), keys
        ids[n] = symbol
        scratch.stops[n] = i - at
        if n > np.uint64(0):
            place = n - np.uint64(1)
            key = pair_rank(model.pairs, model.pair_bits, left, symbol) << np.uint32(8) | np.uint32(place)
            keys = with_key(keys, place, key)
        left = symbol
        n += np.uint64(1)
    return np.int64(n), keys


@kernel_part
def _short_bytes(data, at, w, keys, model, scratch):
    """As `_short_symbols`, for a model whose symbols are all bytes, wherever they stand; returns the keys."""
    left = np.int64(data[at])
    scratch.ids[0] = model.byte_symbols[0, left]
    scratch.stops[0] = 1
    for q in range(1, w):
        right = np.int64(data[at + q])
        place = np.uint64(q - 1)
        scratch.ids[q] = model.byte_symbols[0, right]
        scratch.stops[q] = q + 1
        keys = with_key(keys, place, model.byte_pairs[left << 8 | right] | np.uint32(place))
        left = right
    return keys


@kernel_part
def _merge_bytes(data, at, w, keys, model, scratch, out, o, ends):
    """As `_merge_characters`, for a word whose bytes are all symbols; returns the new o."""
    left = merge_short(w, _short_bytes(data, at, w, keys, model, scratch), model, scratch)
    return emit_short_merges(left, scratch, out, o, ends)


@kernel_part
def _merge_characters(data, at, w, keys, model, scratch, out, o, ends):
    """Tokenizes a word as `bpe_word` does; returns the new o, or as it was where a character is no symbol.

    keys: as many as characters, or more, all `NO_KEY`.
    """
    n, keys = _short_symbols(data, at, w, keys, model, scratch)
    if n == 0:
        return o
    return emit_short_merges(merge_short(n, keys, model, scratch), scratch, out, o, ends)


@kernel_part
def _emit(n, scratch, out, o, ends):
    """Writes what the links reach; returns the new o."""
    k = np.uint64(0)
    i = np.uint64(0)
    while i < np.uint64(n):
        after = np.uint64(scratch.nexts[i])
        out[np.uint64(o) + k] = scratch.ids[i]
        ends[k] = scratch.stops[after - np.uint64(1)]
        k += np.uint64(1)
        i = after
    return o + np.int64(k)


@kernel_part
def bpe_word(data, at, w, model, scratch, out, o, ends):
    """Tokenizes the word `data[at:at + w]` into `out[o:]`.

    Args:
      data: uint8, UTF-8 or for byte-level models any bytes, readable 16 bytes beyond `at`; w: at least 1.
      model: the vocabulary, see `models.bpe.BPETables`.
      scratch: a `caches`-like tuple for words of w bytes, see `models.bpe.new_bpe_scratch`.
      out: int32 with room for `max_ids_per_byte` ids per byte; ends: int64 likewise, filled with where each token
        ends in the word, in bytes.

    Returns:
      `(o, whether a character was unknown)`.
    """
    if w <= model.longest_whole:
        token = whole_word(data, at, w, model.whole_slots, model.whole_pool)
        if token >= 0:
            out[o] = token
            ends[0] = w
            return o + 1, False
    unknown = False
    if model.plain_bytes and w <= MAX_MEDIUM and model.suffix.size == 0:
        if w <= MAX_SHORT:
            return _merge_bytes(data, at, w, no_short_keys(), model, scratch, out, o, ends), False
        return _merge_bytes(data, at, w, no_medium_keys(), model, scratch, out, o, ends), False
    if model.plain_bytes and w <= MAX_UNCUT:
        # The usual case: every byte is a symbol, and the rank of two bytes is one load away.
        ids, nexts, previous, keys = scratch.ids, scratch.nexts, scratch.previous, scratch.keys
        left = np.int64(data[at])
        for q in range(w - 1):
            right = np.int64(data[at + q + 1])
            ids[q] = model.byte_symbols[0, left]
            nexts[q] = q + 1
            previous[q] = q - 1
            keys[q] = model.byte_pairs[left << 8 | right] | np.uint32(q)
            left = right
        last = w - 1
        if model.suffix.size > 0:
            ids[last] = model.byte_symbols[ENDS, left]
            if last > 0:
                rank = pair_rank(model.pairs, model.pair_bits, ids[last - 1], ids[last])
                keys[last - 1] = rank << np.uint32(8) | np.uint32(last - 1)
        else:
            ids[last] = model.byte_symbols[0, left]
        nexts[last] = w
        previous[last] = last - 1
        previous[w] = last
        for q in range(last, (w + 7) & ~7):
            keys[q] = NO_KEY
        merge_scanning(0, w, model, scratch)
        k = 0
        i = 0
        while i < w:
            after = np.int64(nexts[i])
            out[o + k] = ids[i]
            ends[k] = after
            k += 1
            i = after
        return o + k, False
    is_plain = not model.byte_level and model.prefix.size == 0 and model.suffix.size == 0
    if is_plain and w <= MAX_UNCUT:
        before = o
        n = w if w <= MAX_SHORT else _n_characters(data, at, w)
        if n <= MAX_SHORT:
            o = _merge_characters(data, at, w, no_short_keys(), model, scratch, out, o, ends)
        elif n <= MAX_MEDIUM:
            o = _merge_characters(data, at, w, no_medium_keys(), model, scratch, out, o, ends)
        else:
            n = _plain_symbols(data, at, w, model, scratch)
            if n > 0:
                merge_scanning(0, n, model, scratch)
                o = _emit(n, scratch, out, o, ends)
        if o > before:
            return o, False
    n, unknown = _initial_symbols(data, at, w, model, scratch)
    if n == 0:
        return o, unknown
    merge(n, model, scratch)
    return _emit(n, scratch, out, o, ends), unknown


@kernel
def called_bpe_word(data, at, w, model, scratch, out, o, ends):
    """`bpe_word` for rare words: a call, so that it is not in the way of others."""
    return bpe_word(data, at, w, model, scratch, out, o, ends)


@kernel_part
def bpe_byte_word(data, at, w, model, scratch, out, o, ends):
    """`bpe_word` for where most words are short ones of bytes, and all others are rare."""
    if model.plain_bytes and w <= MAX_SHORT and model.suffix.size == 0:
        if w <= model.longest_whole:
            token = called_whole_word(data, at, w, model.whole_slots, model.whole_pool)
            if token >= 0:
                out[o] = token
                ends[0] = w
                return o + 1, False
        return _merge_bytes(data, at, w, no_short_keys(), model, scratch, out, o, ends), False
    return called_bpe_word(data, at, w, model, scratch, out, o, ends)


@kernel_part
def bpe_word_dropout(data, at, w, model, scratch, out, o, ends, key):
    """Tokenizes as `bpe_word` does, with BPE-dropout; `key` is the `dropout_key` of this occurrence.

    As in HF the vocabulary is then not asked for the whole word.
    """
    n, unknown = _initial_symbols(data, at, w, model, scratch)
    if n == 0:
        return o, unknown
    link(0, n, scratch)
    merge_dropping(n, model, scratch, key)
    return _emit(n, scratch, out, o, ends), unknown


# What models.bpe needs to make the tables.


@kernel
def recover_merges(values, offsets, ranks, order, model, scratch, lefts, rights):
    """Finds the pair that makes each token of a tiktoken vocabulary, of which there is at most one.

    A token is made of the two parts that are left when everything shorter in it has merged: what happens within its
    bytes does not depend on what is around them. So tokens are gone through by length, and `model.pairs` is filled on
    the way.

    Args:
      values, offsets: uint8[n_bytes + 16] and int64[n + 1], the tokens; ranks: int32[n], the place of each by id.
      order: int64[n], the tokens by length.
      model: `models.bpe.BPETables` with products, and no pairs yet but room for n.
      lefts, rights: int32[n], filled; -1 for single bytes and for tokens that merging never makes.

    Returns:
      False where the table of pairs must be tried again with more bits.
    """
    for t in order:
        lefts[t] = -1
        rights[t] = -1
        at = offsets[t]
        w = offsets[t + 1] - at
        if w < 2:
            continue
        for q in range(w):
            scratch.ids[q] = model.byte_symbols[0, values[at + q]]
        link(0, w, scratch)
        if w <= MAX_SCANNED:
            set_keys(0, w, model, scratch)
            merge_scanning(0, w, model, scratch)
        else:
            merge_long(0, w, model, scratch)
        middle = np.int64(scratch.nexts[0])
        if middle < w and scratch.nexts[middle] == w:
            lefts[t] = scratch.ids[0]
            rights[t] = scratch.ids[middle]
            if not set_rank(model.pairs, model.pair_bits, lefts[t], rights[t], ranks[t]):
                return False
    return is_sparse(model.pairs, model.pair_bits)


@kernel
def find_unmerged(values, offsets, ids, model, scratch, out, ends, unmerged):
    """Marks in bool[n] the entries that merging does not give back as themselves; arguments as for `bpe_word`."""
    for t in range(ids.size):
        at = offsets[t]
        o, _ = bpe_word(values, at, offsets[t + 1] - at, model, scratch, out, 0, ends)
        unmerged[t] = o != 1 or out[0] != ids[t]


@kernel
def tokenize_words(data, starts, stops, model, scratch, out, ends, out_offsets):
    """Tokenizes words one after the other, without a cache: for tests and for measuring.

    Args:
      data: uint8, readable 16 bytes beyond every word; starts, stops: int64[n_words].
      out: int32 with room for all; ends: int64 with room for the longest word; out_offsets: int64[n_words + 1], filled.
    """
    o = 0
    out_offsets[0] = 0
    for t in range(starts.size):
        o, _ = bpe_word(data, starts[t], stops[t] - starts[t], model, scratch, out, o, ends)
        out_offsets[t + 1] = o


@kernel
def look_up_words(data, starts, stops, model, out, ends):
    """Looks words up one after the other in a WordLevel vocabulary, as `tokenize_words` does; ends: int64[1]."""
    for t in range(starts.size):
        wordlevel_word(data, starts[t], stops[t] - starts[t], model, out, t, ends)
