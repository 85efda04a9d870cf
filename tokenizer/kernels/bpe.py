# SPDX-License-Identifier: Apache-2.0
"""Byte pair encoding of one word: as a whole where it is looked up so, else initial symbols, then merges."""

import numpy as np

from tokenizer.kernels.bpe_merging import MAX_UNCUT, link, merge, merge_dropping, merge_scanning
from tokenizer.kernels.bpe_pairs import NO_KEY, pair_rank
from tokenizer.kernels.bpe_short import (
    MAX_MEDIUM,
    MAX_SHORT,
    emit_short_merges,
    merge_short,
    no_medium_keys,
    no_short_keys,
)
from tokenizer.kernels.bpe_symbols import (
    ENDS,
    initial_symbols,
    n_characters,
    plain_symbols,
    short_bytes,
    short_symbols,
)
from tokenizer.kernels.compiling import kernel, kernel_part
from tokenizer.kernels.whole_words import called_whole_word, put_word, whole_word


@kernel_part
def _merge_bytes(data, at, w, keys, model, scratch, out, o, ends):
    """As `_merge_characters`, for a word whose bytes are all symbols; returns the new o."""
    left = merge_short(w, short_bytes(data, at, w, keys, model, scratch), model, scratch)
    return emit_short_merges(left, scratch, out, o, ends)


@kernel_part
def _merge_characters(data, at, w, keys, model, scratch, out, o, ends):
    """Tokenizes a word as `bpe_word` does; returns the new o, or as it was where a character is no symbol.

    keys: as many as characters, or more, all `NO_KEY`.
    """
    n, keys = short_symbols(data, at, w, keys, model, scratch)
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
      scratch: for words of w bytes, see `models.bpe_tables.new_bpe_scratch`.
      out: int32 with room for `max_ids_per_byte` ids per byte; ends: int64 likewise, filled with where each token
        ends in the word, in bytes.

    Returns:
      `(o, whether a character was unknown)`.
    """
    if w <= model.longest_whole:
        token = whole_word(data, at, w, model.whole_slots, model.whole_pool)
        if token >= 0:
            return put_word(token, w, out, o, ends), False
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
        n = w if w <= MAX_SHORT else n_characters(data, at, w)
        if n <= MAX_SHORT:
            o = _merge_characters(data, at, w, no_short_keys(), model, scratch, out, o, ends)
        elif n <= MAX_MEDIUM:
            o = _merge_characters(data, at, w, no_medium_keys(), model, scratch, out, o, ends)
        else:
            n = plain_symbols(data, at, w, model, scratch)
            if n > 0:
                merge_scanning(0, n, model, scratch)
                o = _emit(n, scratch, out, o, ends)
        if o > before:
            return o, False
    n, unknown = initial_symbols(data, at, w, model, scratch)
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
                return put_word(token, w, out, o, ends), False
        return _merge_bytes(data, at, w, no_short_keys(), model, scratch, out, o, ends), False
    return called_bpe_word(data, at, w, model, scratch, out, o, ends)


@kernel_part
def bpe_word_dropout(data, at, w, model, scratch, out, o, ends, key):
    """Tokenizes as `bpe_word` does, with BPE-dropout; `key` is the `dropout_key` of this occurrence.

    As in HF the vocabulary is then not asked for the whole word.
    """
    n, unknown = initial_symbols(data, at, w, model, scratch)
    if n == 0:
        return o, unknown
    link(0, n, scratch)
    merge_dropping(n, model, scratch, key)
    return _emit(n, scratch, out, o, ends), unknown


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
