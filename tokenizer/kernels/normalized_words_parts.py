# SPDX-License-Identifier: Apache-2.0
"""The ids of one part of a word for `normalized_words`: from tables of characters and hot words, cache, or model."""

import numpy as np

from tokenizer.kernels.bpe_characters import END_ROWS, MAY_CROSS
from tokenizer.kernels.compiling import kernel_part
from tokenizer.kernels.hot_words import LONGEST_HOT, emit_hot_key, remember_hot_key
from tokenizer.kernels.normalized_words_text import FIRST, FOLLOWED, LAST, are_neighbours, normalized, rest_end
from tokenizer.kernels.references import values_of
from tokenizer.kernels.scanners_parts import SPACE
from tokenizer.kernels.sentencepiece_rows import has_unknown
from tokenizer.kernels.utf8 import next_character
from tokenizer.kernels.word_cache import CACHE_MISSES, emit_cached, emit_short_key, is_too_small, remember
from tokenizer.kernels.word_encoding import key_of
from tokenizer.kernels.word_table import SHORT_WORD_BYTES, find, short_key

MIN_GAP = 2.0**-12
DONE, NO_ROOM, FAILED, NOT_CUT = 0, 1, 2, 3
"""What became of a part: its ids are written; the cache must grow first; its row is irregular; rounding may decide."""

_MARK = 0xFF
"""A byte that no text has. Behind a part that is not the first of its word it makes another key of it."""


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
def _marked(data, at, w, is_inner):
    """Returns the key of a part of at most 15 bytes, and its bytes, mark included."""
    k0, k1 = short_key(data, at, w)
    mark = np.uint64(_MARK if is_inner else 0)
    if w < 8:
        k0 |= mark << np.uint64(8 * w)
    else:
        k1 |= mark << np.uint64(8 * w - 64)
    return k0, k1, w + np.int64(is_inner)


@kernel_part
def emit_known(hot, slots, slot_mask, ids, data, at, w, is_inner, out, o):
    """Appends the ids of the part `data[at:at + w]` if it is short, cached, and has no unknown token.

    `data` is readable for 16 bytes after `at`. Returns `(o, True)`, or `(o before, False)`.
    """
    if w >= SHORT_WORD_BYTES:
        return o, False
    k0, k1, n = _marked(data, at, w, is_inner)
    if n <= LONGEST_HOT:
        o, is_done = emit_hot_key(hot, k0, n, out, o)
        if is_done:
            return o, True
    before = o
    o, is_done = emit_short_key(slots, slot_mask, ids, k0, k1, n, out, o)
    if is_done and n <= LONGEST_HOT:
        remember_hot_key(hot, k0, n, out, before, o)
    return o, is_done


@kernel_part
def emit_parts(data, at, limit, end, n_readable, is_inner, word_first, tables, unk_id, cache, out, o):
    """Appends the ids of the parts from `at` on that are known, in front of `limit`, to where their word ends.

    Each begins with a character of three bytes: one alone, as `bpe_characters.emit_characters` has them, or one that
    pieces join to the next, if it is in the cache. `word_first` is where the ids of their word begin; `end` is that of
    the row, `at` in front of it.

    Returns:
      `(where it stopped, where the part ends that begins there and is not known, the new o)`; the second is 0 where
      there is no such part, or more is to be found out about it.
    """
    characters, images, classes = cache.characters, tables.images, tables.classes
    slot_mask = np.uint64(cache.slots.shape[0] - 1)
    code_point, after = next_character(data, at)
    kind, image = classes[code_point], np.int64(images[code_point])
    unknown_stop = np.int64(0)
    while at < limit and FIRST <= data[at] <= LAST and image != 0:
        row = code_point + (0 if is_inner else END_ROWS)
        n = np.int64(characters[row, 0])
        following, beyond, next_kind, next_image = code_point, after, np.uint8(SPACE), image
        if after < end:
            following, beyond = next_character(data, after)
            next_kind, next_image = classes[following], np.int64(images[following])
        ends = next_kind & SPACE != 0
        if not ends and next_image == 0:
            break
        joins = not ends and kind & FOLLOWED != 0
        if joins and are_neighbours(image, next_image, tables.together, tables.neighbours):
            stop = rest_end(data, beyond, data[after], next_image, end, tables)
            if at >= n_readable or stop > limit:
                break
            o, is_done = emit_known(cache.hot, cache.slots, slot_mask, cache.ids, data, at, stop - at, is_inner, out, o)
            if not is_done:
                unknown_stop = stop
                break
            at = stop
            if at == end:
                break
            code_point, after = next_character(data, at)
            kind, image = classes[code_point], np.int64(images[code_point])
            if kind & SPACE != 0:
                break
        else:
            if n == 0:
                unknown_stop = after
                break
            out[o] = characters[row, 1]
            out[o + 1] = characters[row, 2]
            out[o + 2] = characters[row, 3]
            o = fused(tables, out, word_first, o, o + n, unk_id)
            at, code_point, after, kind, image = after, following, beyond, next_kind, next_image
            if ends:
                break
        is_inner = True
    return at, unknown_stop, o


@kernel_part
def _remember_character(data, at, w, is_inner, tables, characters, out, before, o):
    """Keeps the ids `out[before:o]` of the part `data[at:at + w]`, and says so, if it is a character for the table."""
    if w != 3 or not FIRST <= data[at] <= LAST or o - before >= MAY_CROSS:
        return False
    code_point, _ = next_character(data, at)
    if tables.images[code_point] == 0:
        return False
    row = code_point + (0 if is_inner else END_ROWS)
    n = o - before
    for q in range(n):
        characters[row, 1 + q] = out[before + q]
    characters[row, 0] = n
    return True


@kernel_part
def encode_part(encode_text, text_of_rows, at, w, is_inner, model, scratch, o):
    """Appends the ids of the part `data[at:at + w]`, from the cache or from the model; returns `(o, what became)`.

    encode_text: see `normalized_words`; text_of_rows: see `normalized`.
    """
    data, tables, work = values_of(text_of_rows)
    cache, out, part = work.cache, work.out, work.part
    if w < SHORT_WORD_BYTES and at + SHORT_WORD_BYTES <= data.size:
        k0, k1, n_key = _marked(data, at, w, is_inner)
    else:
        for q in range(w):
            part[q] = data[at + q]
        part[w] = _MARK
        n_key = w + np.int64(is_inner)
        k0, k1 = key_of(part, 0, n_key)
    # Of short ones only the key is looked at.
    j, found = find(cache.slots, cache.words, part, 0, n_key, k0, k1)
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
    if not _remember_character(data, at, w, is_inner, tables, cache.characters, out, before, o):
        is_unknown = has_unknown(out, before, o, np.int32(tables.unk_id))
        remember(cache, j, part, 0, n_key, k0, k1, out, before, o, is_unknown)
    return o, DONE
