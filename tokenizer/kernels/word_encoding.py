# SPDX-License-Identifier: Apache-2.0
"""Encoding words with any model: loops that kernels are made of by naming a model.

A model is a `kernel_part` `tokenize(word, w, model, model_scratch, out, o, ends) -> (o, has_unknown)`, passed by name
and inlined, so that every model has machine code of its own.
"""

import numpy as np

from tokenizer.kernels.compiling import kernel_part, prefetch
from tokenizer.kernels.utf8 import add_whole_characters, continues_character
from tokenizer.kernels.word_cache import (
    AT_BYTE,
    AT_ID,
    AT_ROW,
    CACHE_MISSES,
    COUNTER_TOTAL,
    IN_ROW,
    count_word,
    emit_cached,
    find_cached,
    is_too_small,
    remember,
)
from tokenizer.kernels.word_table import SHORT_WORD_BYTES, first_slot, word_key

_AHEAD = 8
"""Words between asking for a slot and reading it."""


@kernel_part
def key_of(data, at, w):
    """Returns the key of `data[at:at + w]`, also where eight-byte loads would run past the end of `data`."""
    if w > SHORT_WORD_BYTES or at + SHORT_WORD_BYTES <= data.size:
        return word_key(data, at, w)
    k0 = np.uint64(0)
    k1 = np.uint64(0)
    for q in range(min(w, 8)):
        k0 |= np.uint64(data[at + q]) << np.uint64(8 * q)
    for q in range(8, w):
        k1 |= np.uint64(data[at + q]) << np.uint64(8 * (q - 8))
    return k0, k1


@kernel_part
def encode_word(tokenize, data, at, w, model, model_scratch, work, tallying, o):
    """Appends the ids of one word, from the cache or from the model; see `_encode_word`."""
    return _encode_word(_tokenize_copy, tokenize, data, at, w, model, model_scratch, work, tallying, o)


@kernel_part
def encode_word_in_place(tokenize, data, at, w, model, model_scratch, work, tallying, o):
    """As `encode_word`, for models that read nothing beyond a word: it is not copied first."""
    return _encode_word(_tokenize_in_place, tokenize, data, at, w, model, model_scratch, work, tallying, o)


@kernel_part
def _tokenize_copy(tokenize, data, at, w, model, model_scratch, work, o):
    word = work.scratch.word
    for q in range(w):
        word[q] = data[at + q]
    return tokenize(word, w, model, model_scratch, work.out, o, work.scratch.ends)


@kernel_part
def _tokenize_in_place(tokenize, data, at, w, model, model_scratch, work, o):
    return tokenize(data[at : at + w], w, model, model_scratch, work.out, o, work.scratch.ends)


@kernel_part
def _encode_word(tokenize_at, tokenize, data, at, w, model, model_scratch, work, tallying, o):
    """Appends the ids of one word, from the cache or from the model, by one of the two functions above.

    Returns `(o, True)`, or `(o before, False)` where the tally has no room for it, or the cache is too small.
    """
    cache, tally, out = work.cache, work.tally, work.out
    slots = cache.slots
    k0, k1 = key_of(data, at, w)
    j, found = find_cached(cache, data, at, w, k0, k1)
    before = o
    if found:
        o, has_unknown = emit_cached(slots, cache.ids, j, out, o)
    elif is_too_small(cache):
        return before, False
    else:
        o, has_unknown = tokenize_at(tokenize, data, at, w, model, model_scratch, work, o)
        if o == before or out[before] >= 0:  # else there is no id for it, and the call is in vain
            remember(cache, j, data, at, w, k0, k1, out, before, o, has_unknown)
        cache.state[CACHE_MISSES] += 1
    if has_unknown and tallying and not count_word(tally, data, at, w, k0, k1):
        return before, False
    return o, True


@kernel_part
def encode_anew(tokenize, data, at, w, model, model_scratch, work, tallying, o):
    """As `encode_word`, without asking the cache, or telling it; `data` is readable 16 bytes beyond `at`."""
    before = o
    o, has_unknown = tokenize(data[at : at + w], w, model, model_scratch, work.out, o, work.scratch.ends)
    if has_unknown and tallying:
        k0, k1 = key_of(data, at, w)
        if not count_word(work.tally, data, at, w, k0, k1):
            return before, False
    return o, True


@kernel_part
def _ask_for(data, at, stop, slots):
    """Has the slot fetched in which a word is looked for soon."""
    w = stop - at
    if at + SHORT_WORD_BYTES <= data.size:
        k0, k1 = word_key(data, at, w)
        prefetch(slots, first_slot(w, k0, k1, np.uint64(slots.shape[0] - 1)))


@kernel_part
def stop_early(work, row, at, o, n_words):
    """Notes where to go on once there is room in tally and cache; returns False, for the kernel to return."""
    position = work.position
    position[AT_ROW], position[AT_BYTE], position[AT_ID], position[IN_ROW] = row, at, o, 1
    work.tally.state[COUNTER_TOTAL] += n_words
    return False


@kernel_part
def never_cut(data, at, stop, model):
    """As `next_cut` of `encode_words`, for models whose words are not cut."""
    return stop


@kernel_part
def encode_words(tokenize, next_cut, words, added, model, model_scratch, work, tallying):
    """Encodes the words of rows until they are done, the tally of unknown words is full, or the cache too small.

    Args:
      tokenize: the model's function.
      next_cut: `next_cut(data, at, stop, model)` says where a word may be cut without changing its ids, `stop` for
        nowhere.
      words: words.Words.
      added: int32[n_rows], the id of rows that are an added token and have no words, -1 for the others; or int32[0].
      model, model_scratch: what `tokenize` wants; model_scratch is for the longest word.
      work: caches.Work; in `position`, words for bytes.
      tallying: whether to count the words that contain an unknown token.

    Returns:
      True when all rows are done, False when the cache must grow first if it can, else the tally must be emptied.
    """
    values, starts, stops, row_offsets = words
    position, out = work.position, work.out
    o = position[AT_ID]
    n_words = 0
    for row in range(position[AT_ROW], row_offsets.size - 1):
        first = row_offsets[row]
        if position[IN_ROW] != 0:
            first = position[AT_BYTE]
            position[IN_ROW] = 0
        elif added.size > 0 and added[row] >= 0:
            out[o] = added[row]
            o += 1
            first = row_offsets[row + 1]
        for k in range(first, row_offsets[row + 1]):
            if k + _AHEAD < starts.size:
                _ask_for(values, starts[k + _AHEAD], stops[k + _AHEAD], work.cache.slots)
            at = starts[k]
            before = o
            while at < stops[k]:
                cut = next_cut(values, at, stops[k], model)
                o, fits = encode_word(tokenize, values, at, cut - at, model, model_scratch, work, tallying, o)
                if not fits:
                    return stop_early(work, row, k, before, n_words)
                at = cut
            n_words += 1
        work.out_offsets[row + 1] = o
    work.tally.state[COUNTER_TOTAL] += n_words
    return True


@kernel_part
def align_words(tokenize, words, model, model_scratch, scratch, out, ends, numbers):
    """Encodes words and says where in its word each token ends.

    Args:
      out: int32, ends: int64, numbers: int32 (which word), one entry per token, with room for one per byte.

    Returns:
      The number of tokens.
    """
    values, starts, stops, _ = words
    o = 0
    for k in range(starts.size):
        w = stops[k] - starts[k]
        for q in range(w):
            scratch.word[q] = values[starts[k] + q]
        before = o
        o, _ = tokenize(scratch.word, w, model, model_scratch, out, o, scratch.ends)
        for t in range(before, o):
            ends[t] = scratch.ends[t - before]
            numbers[t] = k
    return o


@kernel_part
def count_words(words, counter, position):
    """Counts words until they are done or the counter is full; as `bert_wordpiece.count_words`."""
    values, starts, stops, _ = words
    for k in range(position[AT_ROW], starts.size):
        w = stops[k] - starts[k]
        k0, k1 = key_of(values, starts[k], w)
        if not count_word(counter, values, starts[k], w, k0, k1):
            position[AT_ROW] = k
            return False
        counter.state[COUNTER_TOTAL] += 1
    return True


@kernel_part
def count_swallowed(tokenize, words, counts, model, model_scratch, scratch, out, unk_id, characters):
    """Adds up, per code point, how many characters the unknown token swallowed in words that occurred `counts` times.

    Args:
      words: words.Words; counts: int64[n_words].
      unk_id: the unknown token, -1 where there is none.
      characters: int64[0x110000], added to. A character counts once where unknown tokens have any of its bytes, and not
        at all where it is cut in two words.
    """
    values, starts, stops, _ = words
    for k in range(starts.size):
        w = stops[k] - starts[k]
        for q in range(w):
            scratch.word[q] = values[starts[k] + q]
        n_tokens, _ = tokenize(scratch.word, w, model, model_scratch, out, 0, scratch.ends)
        begin = 0
        counted = 0
        for t in range(n_tokens):
            if out[t] == unk_id:
                while begin > counted and continues_character(scratch.word[begin]):
                    begin -= 1
                begin = max(begin, counted)
                counted = add_whole_characters(scratch.word, begin, scratch.ends[t], w, counts[k], characters)
            begin = scratch.ends[t]
