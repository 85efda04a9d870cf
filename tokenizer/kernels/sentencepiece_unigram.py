# SPDX-License-Identifier: Apache-2.0
"""Unigram over whole normalized rows, exactly as sentencepiece does it, and still with a word cache.

Where no piece has "▁" after another character (`Unigram.splits_at_spaces`), every path passes through the place in
front of each "▁": a row is a chain of words, and all that one word knows of those before it is one number, the sum so
far, in single precision. That number decides how sums inside the word are rounded, and so which of two nearly equal
paths wins. The cache holds for each word its best path by exact sums, and up to which size of the sum so far rounding
cannot change it; beyond, or where the row's sum may begin again at zero inside the word, the word is tokenized anew
from the sum so far.

Why the bound holds: a sum over k pieces is rounded k times, each time by at most half a unit in the last place of a
number no larger than the sum so far plus the largest sum inside the word; taking the larger of two sums does not
enlarge an error. So two sums that differ by more than k whole units keep their order. k is at most the number of
characters of the word.
"""

import numpy as np

from tokenizer.kernels.compiling import kernel, kernel_part, load_u64, trailing_zeros
from tokenizer.kernels.unigram import (
    BASE_SHIFT,
    PIECE_MASK,
    PIECE_SHIFT,
    REBASE_BELOW,
    emit_path,
    find_best_path,
    turn_path,
    width,
)
from tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS, LOW_BITS
from tokenizer.kernels.word_cache import CACHE_IDS_USED, CACHE_MISSES, CACHE_POOL_USED, CACHE_WORDS
from tokenizer.kernels.word_encoding import key_of
from tokenizer.kernels.word_table import LENGTH, SHORT_WORD_BYTES, VALUE, find, insert

LONGEST_CACHED = 40
"""Bytes; longer words do not come back often enough."""

_FIRST_OF_SPACE = np.uint64(0xE2) * EACH_BYTE

# The high half of a slot's length column: how many ids, then the largest size of the sum so far, in units of 4.
_N_SHIFT, _N_MASK, _SAFE_SHIFT, _SAFE_UNIT = 32, 0xFFFF, 48, 4
_IDS_IN_SLOT = 2


@kernel_part
def _find_exact_path(word, w, model, scratch, seconds):
    """Finds the best path by sums in double precision that begin at 0, as `find_best_path` otherwise.

    Returns up to which size of the sum so far sentencepiece finds the same path; -1 where it may find another at 0
    already.
    """
    scores, pieces, starts = scratch.scores, scratch.pieces, scratch.starts
    for q in range(w + 1):
        starts[q] = -1
        seconds[q] = -np.inf
    scores[0] = 0.0
    largest = 0.0
    n_chars = 0
    i = np.int64(0)
    while i < w:
        n_chars += 1
        total = scores[i]
        largest = max(largest, abs(total))
        one = i + width(word[i])
        has_single = False
        base = np.int64(model.root_base)
        j = i
        while j < w:
            byte = np.int64(word[j])
            unit = model.units[base ^ byte]
            if (unit & 511) != byte:
                break
            j += 1
            piece = (unit >> PIECE_SHIFT) & PIECE_MASK
            if piece != 0:
                candidate = model.scores[piece - 1] + total
                has_single = has_single or j == one
                if starts[j] < 0 or candidate > scores[j]:
                    if starts[j] >= 0:
                        seconds[j] = scores[j]
                    scores[j] = candidate
                    starts[j] = i
                    pieces[j] = piece - 1
                elif candidate > seconds[j]:
                    seconds[j] = candidate
            base = unit >> BASE_SHIFT
        if not has_single:
            candidate = model.unk_score + total
            if starts[one] < 0 or candidate > scores[one]:
                if starts[one] >= 0:
                    seconds[one] = scores[one]
                scores[one] = candidate
                starts[one] = i
                pieces[one] = model.unk_id
            elif candidate > seconds[one]:
                seconds[one] = candidate
        i = one
    largest = max(largest, abs(scores[w]))
    gap = np.inf
    stop = np.int64(w)
    while stop > 0:
        if pieces[stop] == model.unk_id:
            return np.int64(-1)  # the pieces of a fused run are not in the cache, so its sum could not be followed
        gap = min(gap, scores[stop] - seconds[stop])
        stop = starts[stop]
    # Half as much as the argument allows. A unit in the last place of x is at most |x| / 2^23.
    safe = min(gap * 4194304.0 / n_chars, -REBASE_BELOW) - largest - 1.0
    return np.int64(safe) if safe >= 0 else np.int64(-1)


@kernel_part
def _word_stop(data, i, end):
    """Returns where the word at `i` ends: in front of the next "▁"."""
    i += width(data[i])
    while i < end:
        while i + 8 <= data.size:
            # The high bit of every byte that is not the first one of "▁".
            others = load_u64(data, i) ^ _FIRST_OF_SPACE
            others = ((others & LOW_BITS) + LOW_BITS) | others
            n = trailing_zeros(~others & HIGH_BITS) >> 3
            i += n
            if n < 8:
                break
        if i + 2 >= end:
            return end
        if data[i] == 0xE2 and data[i + 1] == 0x96 and data[i + 2] == 0x81:
            return i
        i += 1
    return min(i, end)


@kernel_part
def _follow(sum_so_far, out, first, last, model):
    """Adds the scores of tokens to the sum so far, rounding as sentencepiece does."""
    total = np.float32(sum_so_far)
    for t in range(first, last):
        total = np.float32(total + np.float32(model.scores[out[t]]))
    return np.float64(total)


@kernel
def encode_rows(data, offsets, splits, model, model_scratch, seconds, cache, ends, out, out_offsets):
    """Tokenizes normalized rows.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      splits: whether rows may be cut in front of every "▁"; if not, each row is one word and the cache is not used.
      model: models.unigram.UnigramTables made with piece types; model_scratch: UnigramScratch for the longest row.
      seconds: float64[LONGEST_CACHED + 1]; ends: int64, for the longest row.
      cache: kernels.caches.CacheArrays, for this kernel alone: its slots are filled in another way than others'.
      out: int32 with room for one id per byte of the rows and 2 more; out_offsets: int64[n_rows + 1], filled.
    """
    slots, words, ids, state = cache.slots, cache.words, cache.ids, cache.state
    o = np.int64(0)
    out_offsets[0] = 0
    for row in range(offsets.size - 1):
        i = np.int64(offsets[row])
        end = np.int64(offsets[row + 1])
        total = 0.0
        while i < end:
            stop = _word_stop(data, i, end) if splits else end
            w = stop - i
            if total < REBASE_BELOW:
                total = 0.0
            safe = np.int64(-1)
            if splits and w <= LONGEST_CACHED:
                k0, k1 = key_of(data, i, w)
                j, found = find(slots, words, data, i, w, k0, k1)
                if found:
                    n = (slots[j, LENGTH] >> _N_SHIFT) & _N_MASK
                    safe = (slots[j, LENGTH] >> _SAFE_SHIFT) * _SAFE_UNIT
                    if abs(total) < safe:
                        value = slots[j, VALUE]
                        if n <= _IDS_IN_SLOT:
                            out[o] = np.int32(value)
                            out[o + 1] = np.int32(value >> 32)
                        else:
                            for q in range(n):
                                out[o + q] = ids[value + q]
                        total = _follow(total, out, o, o + n, model)
                        o += n
                        i = stop
                        continue
                else:
                    state[CACHE_MISSES] += 1
                    safe = _find_exact_path(data[i:stop], w, model, model_scratch, seconds)
                    turn_path(w, model_scratch)
                    before = o
                    o, _ = emit_path(data[i:stop], w, model, model_scratch, out, o, ends)
                    n = o - before
                    if (
                        state[CACHE_WORDS] * 2 < slots.shape[0]
                        and (w <= SHORT_WORD_BYTES or state[CACHE_POOL_USED] + w <= words.size)
                        and (n <= _IDS_IN_SLOT or state[CACHE_IDS_USED] + n <= ids.size)
                    ):
                        state[CACHE_POOL_USED] = insert(slots, words, state[CACHE_POOL_USED], j, data, i, w, k0, k1)
                        slots[j, LENGTH] = w | (n << _N_SHIFT) | ((max(safe, 0) // _SAFE_UNIT) << _SAFE_SHIFT)
                        if n <= _IDS_IN_SLOT:
                            value = np.int64(0)
                            for q in range(n):
                                value |= np.int64(out[before + q]) << (32 * q)
                            slots[j, VALUE] = value
                        else:
                            slots[j, VALUE] = state[CACHE_IDS_USED]
                            for q in range(n):
                                ids[state[CACHE_IDS_USED] + q] = out[before + q]
                            state[CACHE_IDS_USED] += n
                        state[CACHE_WORDS] += 1
                    if abs(total) < safe:
                        total = _follow(total, out, before, o, model)
                        i = stop
                        continue
                    o = before
            find_best_path(data[i:stop], w, total, model, model_scratch)
            total = model_scratch.scores[w]
            turn_path(w, model_scratch)
            o, _ = emit_path(data[i:stop], w, model, model_scratch, out, o, ends)
            i = stop
        out_offsets[row + 1] = o
