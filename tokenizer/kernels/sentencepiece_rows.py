# SPDX-License-Identifier: Apache-2.0
"""From raw rows to ids as sentencepiece makes them, in one pass: the loop that its two models share.

A model is three `kernel_part`s, passed by name and inlined:

- `encode_part(text, w, sums, model, scratch, out, o) -> (o, sums, safe, cost, is_decided)` encodes normalized text;
  unknown tokens need not be fused;
- `follow(total, out, first, last, model) -> total` adds the scores of ids to the sum so far;
- `encode_row(text, w, model, scratch, out, o) -> o` encodes a whole normalized row, unknown tokens fused.

`safe` is below which bound of the sum so far (see `sentencepiece_sums`) the ids are always these, -1 for none; models
without sums give `ALWAYS`. `cost` is what they add to the bound, `is_decided` whether this time the sum decided.
"""

import numpy as np

from tokenizer.kernels.compiling import kernel_part, trailing_zeros
from tokenizer.kernels.sentencepiece import normalize
from tokenizer.kernels.sentencepiece_blocks import BLOCK_READS, block_units
from tokenizer.kernels.sentencepiece_cache import (
    HAS_UNKNOWN,
    IRREGULAR,
    LONGEST_CACHED,
    LONGEST_WHOLE,
    ask_for_short,
    cost_of_slot,
    emit_part,
    emit_short,
    find_part,
    fuse_unknown,
    is_too_small,
    remember_part,
    safe_of,
)
from tokenizer.kernels.sentencepiece_sums import MAX_BOUND, catch_up, exactly, follow_one
from tokenizer.kernels.sentencepiece_units import (
    ALONE,
    FRONT,
    INSIDE,
    SEPARATOR,
    SPACE_MARK,
    START,
    character,
    may_join,
    normalize_part,
    part_stop,
    unit_stop,
)
from tokenizer.kernels.word_cache import AT_BYTE, AT_ID, AT_ROW, CACHE_MISSES, COUNTER_TOTAL, IN_ROW, count_word
from tokenizer.kernels.word_encoding import key_of
from tokenizer.kernels.word_table import LENGTH, SHORT_WORD_BYTES

ALWAYS = 65535
"""The largest `safe`: more than any bound."""

NEEDED = 4
"""Cell of `position`; the others are those of `word_cache`."""
_SPARE_IDS = 2048
"""A part is written twice where rounding may decide, and a cached one stores three ids whatever it has."""

_UNSPACED = 0xE1
"""First byte of characters of three bytes and more, but those of the scripts of India, which have spaces. Units that
begin with one are not looked up as a whole."""


@kernel_part
def _has_unknown(out, first, last, unk_id):
    q = first
    while q < last and out[q] != unk_id:
        q += 1
    return q < last


@kernel_part
def _joins_space(code_point, tables):
    """Whether some piece has "▁" in front of a character that is described by other than 0."""
    described = np.int64(tables.characters[code_point])
    return described > 0 and may_join(tables.joins, np.int64(SPACE_MARK + 1), described)


@kernel_part
def _emit_alone(data, i, after, token, tables, out, o):
    """Appends what the character at `i`, a part of its own, becomes."""
    if token != tables.spelled:
        out[o] = token
        return o + 1
    for q in range(i, after):
        out[o] = tables.byte_ids[data[q]]
        o += 1
    return o


@kernel_part
def _remember_alone(cache, data, i, out, first, last, cost):
    """Keeps the ids of the byte at `i`, a unit of its own, where `emit_short` finds them."""
    j, found, k0, k1 = find_part(cache, data, i, 1, INSIDE)
    if not found:
        remember_part(cache, j, data, i, 1, k0, k1, INSIDE, out, first, last, 0, max(MAX_BOUND - cost, 0), cost)


@kernel_part
def _encode_part(
    encode_part, follow, data, at, stop, front, ends_unit, tables, model, scratch, work, row_first, sums, o
):
    """Encodes one part, from the cache or from the model.

    Returns `(o, sums, safe, cost, whether it is regular, whether an unknown token is in it)`; safe and cost as in the
    cache, safe is -1 where the sum so far decided.
    """
    cache, out, text = work.cache, work.out, work.text
    w = stop - at
    cached = w <= LONGEST_CACHED
    before = o
    if cached:
        j, found, k0, k1 = find_part(cache, data, at, w, front)
        if found:
            notes = cache.slots[j, LENGTH]
            if notes & IRREGULAR:
                return o, sums, np.int64(-1), np.int64(0), False, False
            safe, cost = safe_of(notes), cost_of_slot(notes)
            if sums[2] >= safe or notes & HAS_UNKNOWN:
                sums = catch_up(follow, sums, out, o, model)
            if sums[2] < safe:
                o = emit_part(cache, j, out, o)
                if notes & HAS_UNKNOWN == 0:
                    return o, (sums[0], sums[1], sums[2] + cost), safe, cost, True, False
                total = follow(sums[0], out, before, o, model)
                o = fuse_unknown(out, before, o, row_first, tables.unk_id)
                return o, exactly(total, o), safe, cost, True, True
    cache.state[CACHE_MISSES] += 1
    n, regular = normalize_part(data, at, stop, front, ends_unit, tables, text)
    if not regular:
        if cached and not found:
            remember_part(cache, j, data, at, w, k0, k1, front, out, o, o, IRREGULAR, 0, 0)
        return o, sums, np.int64(-1), np.int64(0), False, False
    safe, cost, is_decided = np.int64(ALWAYS), np.int64(0), False
    if n > 0:
        o, sums, safe, cost, is_decided = encode_part(text, n, sums, model, scratch, out, o)
    unknown = tables.unk_id >= 0 and _has_unknown(out, before, o, tables.unk_id)
    if cached and not found:
        notes = HAS_UNKNOWN if unknown else 0
        remember_part(cache, j, data, at, w, k0, k1, front, out, before, o, notes, max(safe, 0), cost)
    if is_decided:
        safe = np.int64(-1)
    if unknown:
        sums = catch_up(follow, sums, out, o, model)
        o = fuse_unknown(out, before, o, row_first, tables.unk_id)
        sums = exactly(sums[0], o)
    return o, sums, safe, cost, True, unknown


@kernel_part
def _encode_unit(
    encode_part, follow, data, first, stop, front, ends_unit, tables, model, scratch, work, row_first, sums, o
):
    """Encodes one unit; returns `(o, sums, whether it is regular, whether an unknown token is in it)`."""
    cache, out = work.cache, work.out
    w = stop - first
    lead = first
    while lead < stop - 1 and data[lead] <= 0x20:
        lead += 1
    whole = w <= LONGEST_WHOLE and data[lead] < _UNSPACED
    found = False
    if whole:
        j, found, k0, k1 = find_part(cache, data, first, w, front)
        if found:
            notes = cache.slots[j, LENGTH]
            if sums[2] < safe_of(notes) and notes & (HAS_UNKNOWN | IRREGULAR) == 0:
                return emit_part(cache, j, out, o), (sums[0], sums[1], sums[2] + cost_of_slot(notes)), True, False
    before = o
    sums_before = sums
    unknown = False
    # Up to which bound the whole unit holds, and how much its parts have added to the bound so far.
    safe_whole, added = np.int64(ALWAYS), np.int64(0)
    n_parts = 0
    at = first
    here = front
    code_point, after = character(data, at)
    while at < stop:
        n_parts += 1
        end, following, after_following = part_stop(data, after, stop, code_point, tables)
        token = tables.alone_ids[code_point]
        if end == after and token >= 0 and (here != FRONT or not _joins_space(code_point, tables)):
            if here == FRONT:
                out[o] = tables.space_id
                sums = follow_one(follow, sums, out, o, o + 1, tables.alone_cost, model)
                added += tables.alone_cost
                o += 1
            here = INSIDE
            before_token = o
            o = _emit_alone(data, at, end, token, tables, out, o)
            added += tables.alone_cost
            if token == tables.unk_id:
                unknown = True
                sums = catch_up(follow, sums, out, before_token, model)
                total = follow(sums[0], out, before_token, o, model)
                o = before_token
                if o == row_first or out[o - 1] != token:
                    o += 1
                while end < stop and tables.characters[following] < 0 and tables.alone_ids[following] == token:
                    # More of them add nothing but their scores.
                    next_end, next_following, next_after = after_following, following, after_following
                    if next_end < stop:
                        next_following, next_after = character(data, next_end)
                        if tables.characters[next_following] == 0:
                            break
                    total = follow(total, out, o - 1, o, model)
                    added += tables.alone_cost
                    end, following, after_following = next_end, next_following, next_after
                sums = exactly(total, o)
            else:
                sums = follow_one(follow, sums, out, before_token, o, tables.alone_cost, model)
            at = end
            code_point = following
            after = after_following
            continue
        part_first = o
        o, sums, safe, cost, regular, has_unknown = _encode_part(
            encode_part, follow, data, at, end, here, ends_unit and end == stop, tables, model, scratch, work,
            row_first, sums, o,
        )  # fmt: skip
        if not regular:
            return before, sums_before, False, False
        unknown = unknown or has_unknown
        safe_whole = min(safe_whole, safe - added)
        added += cost
        if o > part_first or here == INSIDE:
            here = INSIDE
        at = end
        code_point = following
        after = after_following
    # Between the parts a sum may begin again at zero; no whole unit is kept for sums that come near.
    safe_whole = min(safe_whole, MAX_BOUND - added)
    if whole and n_parts > 1 and not unknown and not found and safe_whole > 0 and o > before:
        if cache.slots[j, LENGTH] != 0:
            # A part has taken the slot.
            j, found, k0, k1 = find_part(cache, data, first, w, front)
        if not found:
            remember_part(cache, j, data, first, w, k0, k1, front, out, before, o, 0, safe_whole, added)
    return o, sums, True, unknown


@kernel_part
def _count_noted(data, tables, work, begin, n_noted):
    """Counts the noted units of a row from number `begin` on; returns the first that the tally has no room for."""
    noted, text = work.noted, work.text
    for k in range(begin, n_noted):
        first, stop, front = noted[3 * k], noted[3 * k + 1], noted[3 * k + 2]
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
      model, scratch: what the model's functions want; scratch is for the longest normalized row.
      work: engines.sentencepiece_tables.RawWork.
      tallying: whether to count the units that contain an unknown token. A unit counts as a word.

    Returns:
      True when all rows are done; False when there must be more room for ids first, if the last cell of `position` is
      not 0, or the cache must grow, if it is not within a row, or else the tally must be emptied.
    """
    data, offsets = rows
    position, out, noted = work.position, work.out, work.noted
    kinds, shrink = tables.kinds, tables.steps.shrink
    next_front = FRONT if shrink else INSIDE
    slot_mask = np.uint64(work.cache.slots.shape[0] - 1)
    n_readable = data.size - BLOCK_READS - SHORT_WORD_BYTES
    o = position[AT_ID]
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
        i = np.int64(offsets[row])
        end = np.int64(offsets[row + 1])
        needed = o + np.int64((end - i) * tables.ids_per_byte) + _SPARE_IDS
        if is_too_small(work.cache, end - i):
            position[AT_ROW], position[AT_ID] = row, o
            return False
        if needed > out.size:
            position[AT_ROW], position[AT_ID], position[NEEDED] = row, o, needed
            return False
        if added.size > 0 and added[row] >= 0:
            out[o] = added[row]
            o += 1
            i = end
        row_first = o
        sums = exactly(np.float32(0.0), o)
        n_words = 0
        n_noted = 0
        regular = True
        front = FRONT if tables.steps.prefix else START if shrink else INSIDE
        while i < end:
            kind = kinds[data[i]]
            if kind == SEPARATOR and shrink:
                i += 1
                if front == INSIDE:
                    front = FRONT
                continue
            if i < n_readable and data[i] < _UNSPACED:
                # Most units lie in one block and are in the cache.
                block = i
                starts, ends = block_units(data, i, end - i, tables, shrink)
                bound = sums[2]
                is_done = True
                asked_starts, asked_ends = starts & (starts - np.uint64(1)), ends & (ends - np.uint64(1))
                while asked_ends != np.uint64(0):
                    first = block + trailing_zeros(asked_starts)
                    w = block + trailing_zeros(asked_ends) + 1 - first
                    asked_starts &= asked_starts - np.uint64(1)
                    asked_ends &= asked_ends - np.uint64(1)
                    ask_for_short(work.cache, slot_mask, data, first, min(w, SHORT_WORD_BYTES), next_front)
                while ends != np.uint64(0) and is_done:
                    first = block + trailing_zeros(starts)
                    stop = block + trailing_zeros(ends) + 1
                    starts &= starts - np.uint64(1)
                    ends &= ends - np.uint64(1)
                    is_done = stop - first <= SHORT_WORD_BYTES
                    if is_done:
                        o, bound, is_done = emit_short(
                            work.cache, slot_mask, data, first, stop - first, front, bound, out, o
                        )
                    if is_done:
                        n_words += kinds[data[first]] != ALONE
                        i = stop
                        front = next_front
                sums = (sums[0], sums[1], bound)
                if is_done and i > block:
                    continue
                if not is_done:
                    i = first
                    kind = kinds[data[i]]
            first = i
            if kind == SEPARATOR:
                while i < end and kinds[data[i]] == SEPARATOR:
                    i += 1
                kind = kinds[data[i]] if i < end else ALONE
            if kind == ALONE and i == first:
                if front == FRONT:
                    out[o] = tables.space_id
                    sums = follow_one(follow, sums, out, o, o + 1, tables.alone_cost, model)
                    o += 1
                alone = o
                o = _emit_alone(data, i, i + 1, tables.alone_ids[data[i]], tables, out, o)
                i += 1
                if out[alone] != tables.unk_id:
                    sums = follow_one(follow, sums, out, alone, o, tables.alone_cost, model)
                    if front == INSIDE:
                        _remember_alone(work.cache, data, i - 1, out, alone, o, tables.alone_cost)
                else:
                    sums = catch_up(follow, sums, out, alone, model)
                    total = follow(sums[0], out, alone, o, model)
                    o = fuse_unknown(out, alone, o, row_first, tables.unk_id)
                    sums = exactly(total, o)
                    if tallying:
                        noted[3 * n_noted], noted[3 * n_noted + 1], noted[3 * n_noted + 2] = i - 1, i, INSIDE
                        n_noted += 1
                front = INSIDE
                continue
            stop = i if kind == ALONE else unit_stop(data, i, end, tables)
            before = o
            o, sums, regular, unknown = _encode_unit(
                encode_part, follow, data, first, stop, front, stop == end or kinds[data[stop]] == SEPARATOR,
                tables, model, scratch, work, row_first, sums, o,
            )  # fmt: skip
            if not regular:
                break
            if unknown and tallying:
                noted[3 * n_noted], noted[3 * n_noted + 1], noted[3 * n_noted + 2] = first, stop, front
                n_noted += 1
            i = stop
            if o > before:
                n_words += 1
                front = INSIDE
        if not regular:
            normalize(data, offsets[row : row + 2], tables.steps, work.text, work.text_offsets)
            n = work.text_offsets[1]
            o = row_first
            if n > 0:
                o = encode_row(work.text, n, model, scratch, out, o)
            n_noted = 0
            if tallying and _has_unknown(out, row_first, o, tables.unk_id):
                noted[0], noted[1], noted[2] = offsets[row], end, front
                n_noted = 1
        work.tally.state[COUNTER_TOTAL] += n_words
        if tallying and n_noted > 0:
            done = _count_noted(data, tables, work, 0, n_noted)
            if done < n_noted:
                position[AT_ROW], position[AT_BYTE], position[AT_ID], position[IN_ROW] = row, done, o, n_noted
                return False
        work.out_offsets[row + 1] = o
    return True
