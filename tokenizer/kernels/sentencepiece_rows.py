# SPDX-License-Identifier: Apache-2.0
"""From raw rows to ids as sentencepiece makes them, in one pass: the loop that its two models share.

A model is three `kernel_part`s, passed by name and inlined:

- `encode_part(text, w, is_unsafe, sums, model, scratch, out, o) -> (o, sums, safe, cost)` encodes normalized text;
  unknown tokens need not be fused. If `is_unsafe`, the sum so far is known to be too large for the ids it would keep;
- `follow(total, out, first, last, model) -> total` adds the scores of ids to the sum so far;
- `encode_row(text, w, model, scratch, out, o) -> o` encodes a whole normalized row, unknown tokens fused.

`safe` is below which bound of the sum so far (see `sentencepiece_sums`) the ids are always these, -1 for none; models
without sums give `ALWAYS`. `cost` is what they add to the bound.
"""

import numpy as np

from tokenizer.kernels.compiling import kernel_part
from tokenizer.kernels.references import refer
from tokenizer.kernels.sentencepiece import normalize
from tokenizer.kernels.sentencepiece_cache import (
    HAS_UNKNOWN,
    IRREGULAR,
    LONGEST_CACHED,
    cost_of_slot,
    find_part,
    fuse_unknown,
    is_too_small,
    n_ids_of,
    put_ids,
    remember_part,
    safe_of,
)
from tokenizer.kernels.sentencepiece_known import emit_known, end_of_unknown, forget
from tokenizer.kernels.sentencepiece_sums import MAX_BOUND, catch_up, exactly, follow_one
from tokenizer.kernels.sentencepiece_units import (
    ALONE,
    BECOMES_BYTES,
    BECOMES_UNKNOWN,
    DEPENDS,
    FRONT,
    INSIDE,
    IS_DEPENDENT,
    SEPARATOR,
    START,
    WORD,
    alone_id,
    character,
    is_unknown,
    joins_space,
    normalize_part,
    part_stop,
    past_graphic,
)
from tokenizer.kernels.word_cache import AT_BYTE, AT_ID, AT_ROW, CACHE_MISSES, COUNTER_TOTAL, IN_ROW, count_word
from tokenizer.kernels.word_encoding import key_of
from tokenizer.kernels.word_table import LENGTH, VALUE

ALWAYS = 65535
"""The largest `safe`: more than any bound."""

NEEDED, NEEDED_BYTES = 4, 5
"""Cells of `position`: for how many ids, and for a part of how many bytes, there must be room first; the others are
those of `word_cache`."""
SPARE_IDS = 2048
"""A part is written twice where rounding may decide, and a cached one writes eight ids whatever it has."""
_REGULAR, _IRREGULAR, _TOO_LONG = 0, 1, 2
"""What a part is: its ids are written, or its row must be encoded as a whole, or there must be more room first."""

_FEW = 4
"""Fewer characters between unknown ones than these are encoded one by one: too few for a kernel of their own."""


@kernel_part
def has_unknown(out, first, last, unk_id):
    """Whether the unknown token is among `out[first:last]`."""
    q = first
    while q < last and out[q] != unk_id:
        q += 1
    return q < last


@kernel_part
def _most_ids(n_bytes, tables):
    """Returns for how many ids there must be room where so many bytes are encoded."""
    return np.int64(n_bytes * tables.ids_per_byte) + SPARE_IDS


@kernel_part
def _emit_alone(data, i, after, token, tables, out, o):
    """Appends what the character at `i`, a part of its own, becomes."""
    if token != BECOMES_BYTES:
        out[o] = tables.unk_id if token == BECOMES_UNKNOWN else token
        return o + 1
    for q in range(i, after):
        out[o] = tables.byte_ids[data[q]]
        o += 1
    return o


@kernel_part
def _remember_alone(cache, data, i, stop, front, out, first, last, cost):
    """Keeps the ids of the character at `i`, a part of its own, where `emit_known` finds them."""
    w = stop - i
    j, found, k0, k1 = find_part(cache.slots, cache.words, data, i, w, front)
    if not found:
        remember_part(cache, j, data, i, w, k0, k1, front, out, first, last, 0, max(MAX_BOUND - cost, 0), cost)


@kernel_part
def _encode_alone(follow, data, at, end, row_end, front, token, tables, model, work, row_first, sums, o):
    """Encodes the character at `at`, a part of its own that becomes `token`, and those like it, if that is unknown.

    The others are as in `_encode_next`.
    """
    out, alone_cost = work.out, tables.known.alone_cost
    part_first, cost = o, alone_cost
    if front == FRONT:
        out[o] = tables.space_id
        sums = follow_one(follow, sums, out, o, o + 1, alone_cost, model)
        cost += alone_cost
        o += 1
    first = o
    o = _emit_alone(data, at, end, token, tables, out, o)
    if token != BECOMES_UNKNOWN:
        sums = follow_one(follow, sums, out, first, o, alone_cost, model)
        if token == BECOMES_BYTES or front != INSIDE or end > at + 1:
            _remember_alone(work.cache, data, at, end, front, out, part_first, o, cost)
        return end, o, sums, _REGULAR, False
    sums = catch_up(follow, sums, out, first, model)
    total = follow(sums[0], out, first, o, model)
    o = first
    if o == row_first or out[o - 1] != tables.unk_id:
        o += 1
    characters = tables.known.characters
    is_another = data[at] >= 128 and end < row_end
    if is_another:
        following, after = character(data, end)
        is_another = following >= 128 and is_unknown(characters[np.uint64(following)])
    while is_another:
        # More of them add nothing but their scores.
        next_end = after
        is_another = next_end < row_end
        if is_another:
            following, after = character(data, next_end)
            if characters[np.uint64(following)] & IS_DEPENDENT != 0:
                break
            is_another = following >= 128 and is_unknown(characters[np.uint64(following)])
        total = follow(total, out, o - 1, o, model)
        end = next_end
    return end, o, exactly(total, o), _REGULAR, True


@kernel_part
def _encode_next(encode_part, follow, data, at, end, row_end, front, tables, model, scratch, work, row_first, sums, o):
    """Encodes the part at `at`, from the cache or from the model.

    Args:
      end: where the part ends, 0 where that is not known; row_end: where the row ends.
      front: what stands in front of the part.

    Returns:
      `(where the part ends, o, sums, what it is, whether an unknown token is in it)`.
    """
    cache, out, text = work.cache, work.out, work.text
    code_point, after = character(data, at)
    if end == 0:
        end = part_stop(data, after, row_end, code_point, tables)
    entry = tables.known.characters[np.uint64(code_point)]
    token = alone_id(entry)
    if end == after and token != DEPENDS and (front != FRONT or not joins_space(entry, tables.known.joins)):
        return _encode_alone(follow, data, at, end, row_end, front, token, tables, model, work, row_first, sums, o)
    w = end - at
    cached = w <= LONGEST_CACHED
    before = o
    found = False
    if cached:
        j, found, k0, k1 = find_part(cache.slots, cache.words, data, at, w, front)
        if found:
            notes = cache.slots[j, LENGTH]
            if notes & IRREGULAR:
                return end, o, sums, _IRREGULAR, False
            safe, cost = safe_of(notes), cost_of_slot(notes)
            if sums[2] >= safe or notes & HAS_UNKNOWN:
                sums = catch_up(follow, sums, out, o, model)
            if sums[2] < safe:
                o = put_ids(cache.ids, cache.slots[j, VALUE], n_ids_of(notes), out, o)
                if notes & HAS_UNKNOWN == 0:
                    return end, o, (sums[0], sums[1], sums[2] + cost), _REGULAR, False
                total = follow(sums[0], out, before, o, model)
                o = fuse_unknown(out, before, o, row_first, tables.unk_id)
                return end, o, exactly(total, o), _REGULAR, True
    if w > work.most_bytes or o + _most_ids(w, tables) > out.size:
        return end, o, sums, _TOO_LONG, False
    cache.state[CACHE_MISSES] += 1
    ends_unit = end == row_end or tables.known.kinds[data[end]] == SEPARATOR
    n, regular = normalize_part(data, at, end, front, ends_unit, tables, text)
    if not regular:
        if cached and not found:
            remember_part(cache, j, data, at, w, k0, k1, front, out, o, o, IRREGULAR, 0, 0)
        return end, o, sums, _IRREGULAR, False
    safe, cost = np.int64(ALWAYS), np.int64(0)
    if n > 0:
        o, sums, safe, cost = encode_part(text, n, found, sums, model, scratch, out, o)
    unknown = tables.unk_id >= 0 and has_unknown(out, before, o, tables.unk_id)
    if cached and not found:
        notes = HAS_UNKNOWN if unknown else 0
        remember_part(cache, j, data, at, w, k0, k1, front, out, before, o, notes, max(safe, 0), cost)
    if unknown:
        sums = catch_up(follow, sums, out, o, model)
        o = fuse_unknown(out, before, o, row_first, tables.unk_id)
        sums = exactly(sums[0], o)
    return end, o, sums, _REGULAR, unknown


@kernel_part
def _count_words(data, i, stop, in_word, kinds):
    """Counts the words that begin in `data[i:stop]`; returns `(how many, whether the last byte is in one)`."""
    n_words = 0
    while i < stop:
        n_more = past_graphic(data, i) - i
        if n_more > 0:
            n_words += not in_word
            in_word = True
            i += n_more
        else:
            is_word = kinds[data[i]] == WORD
            n_words += is_word and not in_word
            in_word = is_word
            i += 1
    return n_words, in_word


@kernel_part
def _meets_unknown(data, i, n, end, tables):
    """Whether one of the n characters from `i` on is always an unknown token."""
    for _ in range(n):
        if i >= end:
            break
        code_point, i = character(data, i)
        if is_unknown(tables.known.characters[np.uint64(code_point)]):
            return True
    return False


@kernel_part
def _word_around(data, at, stop, begin, end, row_front, tables):
    """Returns `(first, stop, front)` of the word that `data[at:stop]` is in, or of a character that is always alone.

    With separators that become a "▁" come those before the word. `begin`, `end`: of the row, which `row_front` begins.
    """
    kinds, shrink = tables.known.kinds, tables.steps.shrink
    first = at
    if kinds[data[at]] != ALONE:
        while kinds[data[first]] == WORD and first > begin and kinds[data[first - 1]] == WORD:
            first -= 1
        while not shrink and first > begin and kinds[data[first - 1]] == SEPARATOR:
            first -= 1
    if kinds[data[stop - 1]] != ALONE:
        while stop < end and kinds[data[stop]] == WORD:
            stop += 1
    before = first
    while shrink and before > begin and kinds[data[before - 1]] == SEPARATOR:
        before -= 1
    front = row_front if before == begin else FRONT if before < first else INSIDE
    return first, stop, front


@kernel_part
def _count_noted(data, tables, work, begin, n_noted):
    """Counts the noted words of a row from number `begin` on; returns the first that the tally has no room for.

    Where one is longer than there is room for, `position` says so.
    """
    noted, text = work.noted, work.text
    for k in range(begin, n_noted):
        first, stop, front = noted[3 * k], noted[3 * k + 1], noted[3 * k + 2]
        if stop - first > work.most_bytes:
            work.position[NEEDED_BYTES] = stop - first
            return k
        n, _ = normalize_part(data, first, stop, front, True, tables, text)
        if n > 0:
            k0, k1 = key_of(text, 0, n)
            if not count_word(work.tally, text, 0, n, k0, k1):
                return k
    return n_noted


@kernel_part
def encode_raw_rows(encode_part, follow, encode_row, rows, added, tables, model, scratch, work, tallying):
    """Encodes rows until they are done, the tally of unknown words is full, or there must be more room.

    Args:
      rows: ragged.Ragged of valid UTF-8; added: as for `word_encoding.encode_words`.
      tables: engines.sentencepiece_tables.RawTables.
      model, scratch: what the model's functions want; scratch is for texts as long as in `work`.
      work: engines.sentencepiece_tables.RawWork.
      tallying: whether to count the words that contain an unknown token. A word ends at separators, and at characters
        that are always alone; with separators that become a "▁" come those before it.

    Returns:
      True when all rows are done; False when there must be more room first for ids, or for parts, if these cells of
      `position` are not 0, or the cache must grow, if it is not within a row, or else the tally must be emptied.
    """
    data, offsets = rows
    position, out, noted = work.position, work.out, work.noted
    kinds, shrink = tables.known.kinds, tables.steps.shrink
    limit = out.size - tables.known.spare_ids
    o = position[AT_ID]
    arrays = refer((data, tables.known, work.cache.slots, work.cache.ids, work.cache.words, work.notes, out))
    for row in range(position[AT_ROW], offsets.size - 1):
        if position[IN_ROW] != 0:
            # All is done but the counting of what was noted.
            done = _count_noted(data, tables, work, position[AT_BYTE], position[IN_ROW])
            if done < position[IN_ROW]:
                position[AT_BYTE] = done
                return False
            position[IN_ROW] = 0
            work.out_offsets[row + 1] = o
            continue
        begin = np.int64(offsets[row])
        end = np.int64(offsets[row + 1])
        row_at = o
        if is_too_small(work.cache, end - begin):
            position[AT_ROW], position[AT_ID] = row, o
            return False
        i = begin
        if added.size > 0 and added[row] >= 0:
            out[o] = added[row]
            o += 1
            i = end
        row_first = o
        row_front = FRONT if tables.steps.prefix else START if shrink else INSIDE
        front, in_word = row_front, 0
        sums = exactly(np.float32(0.0), o)
        noted_end = begin
        forget(work.notes)
        n_words = 0
        n_noted = 0
        n_needed = np.int64(0)
        kind = _REGULAR
        unknown = False
        while i < end and o <= limit:
            if not _meets_unknown(data, i, _FEW if unknown else 1, end, tables):
                i, front, in_word, bound, n_begun, o = emit_known(arrays, i, end, front, in_word, sums[2], o)
                sums = (sums[0], sums[1], bound)
                n_words += n_begun
            if shrink and i < end and kinds[data[i]] == SEPARATOR:
                front = FRONT if front == INSIDE else front
                in_word = 0
                while i < end and kinds[data[i]] == SEPARATOR:
                    i += 1
            if i == end:
                break
            before = o
            stop, o, sums, kind, unknown = _encode_next(
                encode_part, follow, data, i, end_of_unknown(work.notes, i), end, front, tables, model, scratch, work,
                row_first, sums, o,
            )  # fmt: skip
            if kind != _REGULAR:
                n_needed = stop - i
                break
            if o > before or unknown:
                front = INSIDE
                n_begun, in_word = _count_words(data, i, stop, in_word, kinds)
                n_words += n_begun
            if unknown and tallying and i >= noted_end:
                first, noted_end, noted_front = _word_around(data, i, stop, begin, end, row_front, tables)
                noted[3 * n_noted], noted[3 * n_noted + 1], noted[3 * n_noted + 2] = first, noted_end, noted_front
                n_noted += 1
            i = stop
        if kind == _IRREGULAR:
            n_needed = end - begin
            o = row_first
            if n_needed > work.most_bytes or o + _most_ids(n_needed, tables) > out.size:
                kind = _TOO_LONG
        if kind == _TOO_LONG or o > limit:
            position[AT_ROW], position[AT_ID], position[NEEDED_BYTES] = row, row_at, n_needed
            position[NEEDED] = o + _most_ids(n_needed, tables) + tables.known.spare_ids
            return False
        if kind == _IRREGULAR:
            normalize(data, offsets[row : row + 2], tables.steps, work.text, work.text_offsets)
            n = work.text_offsets[1]
            if n > 0:
                o = encode_row(work.text, n, model, scratch, out, o)
            n_noted = 0
            if tallying and has_unknown(out, row_first, o, tables.unk_id):
                noted[0], noted[1], noted[2] = begin, end, row_front
                n_noted = 1
        work.tally.state[COUNTER_TOTAL] += n_words
        if tallying and n_noted > 0:
            done = _count_noted(data, tables, work, 0, n_noted)
            if done < n_noted:
                position[AT_ROW], position[AT_BYTE], position[AT_ID], position[IN_ROW] = row, done, o, n_noted
                return False
        work.out_offsets[row + 1] = o
    return True
