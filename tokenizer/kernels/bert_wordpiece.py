# SPDX-License-Identifier: Apache-2.0
"""The whole BERT path in one pass: raw UTF-8 rows in, ids out; and the same scanner counting words instead."""

import numpy as np

from tokenizer.kernels.ascii_blocks import BLOCK_READS, bert_words, copy_block
from tokenizer.kernels.bert_scanner import any_word, next_word
from tokenizer.kernels.classes import ISOLATED, SPACE
from tokenizer.kernels.compiling import kernel, trailing_zeros
from tokenizer.kernels.utf8 import decode_utf8
from tokenizer.kernels.word_cache import (
    AT_BYTE,
    AT_ID,
    AT_ROW,
    CACHE_MISSES,
    COUNTER_TOTAL,
    IN_ROW,
    count_word,
    emit_cached,
    emit_short,
    find_cached,
    is_too_small,
    remember,
)
from tokenizer.kernels.word_table import SHORT_WORD_BYTES, long_key, spell
from tokenizer.kernels.wordpiece import wordpiece

_ONE = np.uint64(1)


@kernel
def encode(rows, added, tables, model, work, tallying):
    """Encodes rows until they are done, the tally of unknown words is full, or the cache too small.

    Args:
      rows: ragged.Ragged of valid UTF-8.
      added: int32[n_rows], the id of rows that are an added token, -1 for text; or int32[0].
      tables: unicode_tables.BertTables; model: models.wordpiece.WordPieceTables.
      work: caches.Work; `out` has room for `max_bytes_ratio` ids per byte of input.
      tallying: whether to count the words that contain an unknown token.

    Returns:
      True when all rows are done, False when the cache must grow first if it can, else the tally must be emptied.
    """
    data, offsets = rows
    cache, tally, scratch, position, out, out_offsets = work
    slots, ids, state, isolated = cache.slots, cache.ids, cache.state, cache.isolated
    word, origins, ends = scratch.word, scratch.origins, scratch.ends
    n_rows = offsets.size - 1
    slot_mask = np.uint64(slots.shape[0] - 1)
    added_to_upper = np.uint8(tables.upper_to_lower)
    n_readable = data.size - BLOCK_READS
    o = position[AT_ID]
    n_words = 0
    n_misses = 0
    for row in range(position[AT_ROW], n_rows):
        i = offsets[row]
        end = offsets[row + 1]
        if position[IN_ROW] != 0:
            i = position[AT_BYTE]
            position[IN_ROW] = 0
        elif added.size > 0 and added[row] >= 0:
            out[o] = added[row]
            o += 1
            i = end
        while i < end:
            if i < n_readable and data[i] < 128 and data[i + 1] < 128:
                block = i
                starts, stops, spaces = bert_words(data, i, end - i, tables.digits_apart)
                copy_block(data, i, added_to_upper, word)
                while stops != np.uint64(0):
                    begin, stop = trailing_zeros(starts), trailing_zeros(stops) + 1
                    o, is_done = emit_short(cache.taken, slots, slot_mask, ids, word, begin, stop - begin, out, o)
                    if not is_done:
                        i = block + begin
                        break
                    starts &= starts - _ONE
                    stops &= stops - _ONE
                    n_words += 1
                    i = block + stop
                if stops == np.uint64(0):
                    if i == block:
                        i += trailing_zeros(~spaces)
                    if i > block:
                        continue
            # A character that is a word of its own, once seen, has its id one load away.
            if data[i] < 128:
                code_point = np.int64(data[i])
                after = i + 1
                if tables.classes[code_point] == SPACE:
                    i = after
                    continue
            else:
                code_point, after = decode_utf8(data, i)
            known = isolated[code_point]
            if known != 0:
                if known < 0 and tallying:
                    tally.characters[code_point] += 1
                out[o] = abs(known) - 1
                o += 1
                n_words += 1
                i = after
                continue
            start = i
            i, w, k0, k1, in_word = next_word(data, i, end, tables, word, origins)
            if w == 0:
                break
            if w > SHORT_WORD_BYTES:
                k0, k1 = long_key(word, 0, w), np.uint64(0)
            j, found = find_cached(cache, word, 0, w, k0, k1)
            before = o
            has_room = True
            has_unknown = False
            if found:
                o, has_unknown = emit_cached(slots, ids, j, out, o)
            elif is_too_small(cache):
                has_room = False
            else:
                if not in_word:
                    spell(word, k0, k1)
                    in_word = True
                n_misses += 1
                o, has_unknown = wordpiece(word, w, model, out, o, ends)
                remember(cache, j, word, 0, w, k0, k1, out, before, o, has_unknown)
                if o - before == 1 and tables.classes[code_point] == ISOLATED:
                    isolated[code_point] = -out[before] - 1 if has_unknown else out[before] + 1
            if has_unknown and tallying:
                if not in_word:
                    spell(word, k0, k1)
                has_room = count_word(tally, word, 0, w, k0, k1)
            if not has_room:
                position[AT_ROW] = row
                position[AT_BYTE] = start
                position[AT_ID] = before
                position[IN_ROW] = 1
                tally.state[COUNTER_TOTAL] += n_words
                state[CACHE_MISSES] += n_misses
                return False
            n_words += 1
        out_offsets[row + 1] = o
    tally.state[COUNTER_TOTAL] += n_words
    state[CACHE_MISSES] += n_misses
    return True


@kernel
def count_words(data, offsets, tables, counter, scratch, position):
    """Counts the normalized words of rows until they are done or the counter is full.

    Arguments as for `encode`; `counter` is a kernels.caches.CounterArrays. Returns True when all rows are done, False
    when the counter must grow first.
    """
    word, origins = scratch.word, scratch.origins
    n_words = 0
    for row in range(position[AT_ROW], offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
        if position[IN_ROW] != 0:
            i = position[AT_BYTE]
            position[IN_ROW] = 0
        while i < end:
            start = i
            i, w, k0, k1, _ = next_word(data, i, end, tables, word, origins)
            if w == 0:
                break
            if w > SHORT_WORD_BYTES:
                k0, k1 = long_key(word, 0, w), np.uint64(0)
            if not count_word(counter, word, 0, w, k0, k1):
                position[AT_ROW] = row
                position[AT_BYTE] = start
                position[IN_ROW] = 1
                counter.state[COUNTER_TOTAL] += n_words
                return False
            n_words += 1
    counter.state[COUNTER_TOTAL] += n_words
    return True


@kernel
def align(data, start, end, tables, model, scratch, out, starts, stops, word_numbers):
    """Encodes one row and says for every token where it came from; slow, for `Tokenizer.encode`.

    Args:
      out: int32; starts, stops: int64, indices in `data` of the first character of the token and of its last;
        word_numbers: int32; each with room for `max_bytes_ratio` tokens per byte.

    Returns:
      The number of tokens.
    """
    word, origins, ends = scratch.word, scratch.origins, scratch.ends
    o = 0
    number = 0
    i = start
    while i < end:
        i, w, _, _ = any_word(data, i, end, tables, word, origins, True, 0, np.uint64(0), np.uint64(0))
        if w == 0:
            break
        before = o
        o, _ = wordpiece(word, w, model, out, o, ends)
        begin = 0
        for t in range(before, o):
            stop = ends[t - before]
            if t > before and ends[t - before - 1] == stop:
                # The further byte tokens of one character share its place.
                starts[t] = starts[t - 1]
            else:
                starts[t] = origins[begin]
            stops[t] = origins[stop - 1]
            word_numbers[t] = number
            begin = stop
        number += 1
    return o
