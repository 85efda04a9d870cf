# SPDX-License-Identifier: Apache-2.0
"""The ids of one part of a word for `normalized_words`: from hot words, the cache, or the model."""

import numpy as np

from tokenizer.kernels.compiling import kernel_part
from tokenizer.kernels.hot_words import LONGEST_HOT, emit_hot_key, remember_hot_key
from tokenizer.kernels.normalized_words_text import normalized
from tokenizer.kernels.references import values_of
from tokenizer.kernels.sentencepiece_units import has_unknown
from tokenizer.kernels.word_cache import (
    CACHE_MISSES,
    COPIED_IDS,
    emit_cached,
    emit_short_key,
    find_cached,
    is_too_small,
    remember,
)
from tokenizer.kernels.word_encoding import key_of
from tokenizer.kernels.word_table import SHORT_WORD_BYTES, short_key

MIN_GAP = 2.0**-12
DONE, NO_ROOM, FAILED, NOT_CUT, TOO_LONG = 0, 1, 2, 3, 4
"""What became of a part: its ids are written; the cache must grow first; its row is irregular; rounding may decide;
there must be more room for it, or for its ids."""

PART_PADDING = 64
"""Bytes that `WordWork.part` has beyond those of the longest part that there is room for."""

_MARK = 0xFF
"""A byte that no text has. Behind a part that is not the first of its word it makes another key of it."""


@kernel_part
def most_ids(w, tables):
    """Returns how many ids w bytes can become, and how many more may be written behind them."""
    # The "▁" in front of a word may become three.
    return np.int64(w * (tables.growth + 3.0)) + COPIED_IDS


@kernel_part
def fused(tables, out, word_first, before, o, unk_id):
    """Drops the unknown token at `before` where it follows another one of its word; returns the new o."""
    if (
        not tables.fuses_unknown
        or before == word_first
        or o == before
        or out[before] != unk_id
        or out[before - 1] != unk_id
    ):
        return o
    for q in range(before, o - 1):
        out[q] = out[q + 1]
    return o - 1


@kernel_part
def marked(data, at, w, is_inner):
    """Returns the key of a part of at most 15 bytes, and its bytes, mark included."""
    k0, k1 = short_key(data, at, w)
    mark = np.uint64(_MARK if is_inner else 0)
    if w < 8:
        k0 |= mark << np.uint64(8 * w)
    else:
        k1 |= mark << np.uint64(8 * w - 64)
    return k0, k1, w + np.int64(is_inner)


@kernel_part
def emit_known(hot, taken, slots, slot_mask, ids, data, at, w, is_inner, out, o):
    """Appends the ids of the part `data[at:at + w]` if it is short, cached, and has no unknown token.

    `data` is readable for 16 bytes after `at`. Returns `(o, True)`, or `(o before, False)`.
    """
    if w >= SHORT_WORD_BYTES:
        return o, False
    k0, k1, n = marked(data, at, w, is_inner)
    if n <= LONGEST_HOT:
        o, is_done = emit_hot_key(hot, k0, n, out, o)
        if is_done:
            return o, True
    before = o
    o, is_done = emit_short_key(taken, slots, slot_mask, ids, k0, k1, n, out, o)
    if is_done and n <= LONGEST_HOT:
        remember_hot_key(hot, k0, n, out, before, o)
    return o, is_done


@kernel_part
def encode_part(encode_text, text_of_rows, at, w, is_inner, model, scratch, o):
    """Appends the ids of the part `data[at:at + w]`, from the cache or from the model; returns `(o, what became)`.

    encode_text: see `normalized_words`; text_of_rows: see `normalized`.
    """
    data, tables, work = values_of(text_of_rows)
    cache, out, part = work.cache, work.out, work.part
    if w > part.size - PART_PADDING or o + most_ids(w, tables) > out.size:
        return o, TOO_LONG
    if w < SHORT_WORD_BYTES and at + SHORT_WORD_BYTES <= data.size:
        k0, k1, n_key = marked(data, at, w, is_inner)
    else:
        for q in range(w):
            part[q] = data[at + q]
        part[w] = _MARK
        n_key = w + np.int64(is_inner)
        k0, k1 = key_of(part, 0, n_key)
    # Of short ones only the key is looked at.
    j, found = find_cached(cache, part, 0, n_key, k0, k1)
    if found:
        o, _ = emit_cached(cache.slots, cache.ids, j, out, o)
        return o, DONE
    if is_too_small(cache):
        return o, NO_ROOM
    n = normalized(text_of_rows, at, w, not is_inner)
    if n < 0:
        return o, FAILED
    before = o
    o, gap = encode_text(work.text, n, model, scratch, out, o)
    if is_inner and gap <= MIN_GAP:
        return before, NOT_CUT
    cache.state[CACHE_MISSES] += 1
    is_unknown = has_unknown(out, before, o, np.int32(tables.unk_id))
    remember(cache, j, part, 0, n_key, k0, k1, out, before, o, is_unknown)
    return o, DONE
