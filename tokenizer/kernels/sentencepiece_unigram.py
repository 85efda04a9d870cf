# SPDX-License-Identifier: Apache-2.0
"""Unigram over whole rows, exactly as sentencepiece does it, and still with a word cache.

A row is a chain of parts (see `sentencepiece_units`): every path passes through the places between them, and all that
a part knows of those before it is one number, the sum so far, in single precision. That number decides how sums inside
the part are rounded, and so which of two nearly equal paths wins. The cache holds for each part its best path by exact
sums, and below which size of the sum so far rounding cannot change it; beyond, or where the row's sum may begin again
at zero inside the part, the part is tokenized anew from the sum so far.

Why the bound holds: a sum over k pieces is rounded k times, each time by at most half a unit in the last place of a
number no larger than the sum so far plus the largest sum inside the part; taking the larger of two sums does not
enlarge an error. So two sums that differ by more than k whole units keep their order. k is at most the number of
characters of the part.
"""

import numpy as np

from tokenizer.kernels import sentencepiece_rows
from tokenizer.kernels.compiling import kernel, kernel_part
from tokenizer.kernels.sentencepiece_cache import LONGEST_CACHED
from tokenizer.kernels.sentencepiece_sums import SUM_UNIT
from tokenizer.kernels.unigram import (
    REBASE_BELOW,
    emit_path,
    find_best_path,
    turn_path,
    width,
)

# A state of the trie, see engines.sentencepiece_tables.ScoredUnigram.
_LABEL_MASK, _HAS_PIECE, _BASE_SHIFT = np.uint32(511), np.uint32(512), np.uint32(10)

_REBASE_BELOW = np.float32(REBASE_BELOW)
_LONGEST_EXACT = 4 * LONGEST_CACHED
"""Bytes of normalized text beyond which no safe size is looked for; few parts that short become so long."""


@kernel_part
def _arrive(scratch, place, candidate, start, state):
    """Notes a path to a place. Of equal ones the first stays; no branches, for nothing could foresee them."""
    best = scratch.scores[place]
    better = candidate > best
    scratch.seconds[place] = max(scratch.seconds[place], best if better else candidate)
    scratch.scores[place] = candidate if better else best
    scratch.arrivals[place] = (start << 32) | state if better else scratch.arrivals[place]


@kernel_part
def _find_exact_path(word, w, model, scratch):
    """Finds the best path by sums in double precision that begin at 0, as `find_best_path` otherwise.

    Returns below which size of the sum so far sentencepiece finds the same path; -1 where it may find another at 0
    already.
    """
    scores, pieces, starts, seconds = scratch.scores, scratch.pieces, scratch.starts, scratch.seconds
    units, found_scores = model.units, model.scores
    unk_score, root = model.unigram.unk_score, np.uint32(model.unigram.root_base)
    for q in range(w + 1):
        scores[q] = -np.inf
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
        if one == i + 1:
            place = root ^ np.uint32(word[i])
            unit = units[place]
            if (unit & _LABEL_MASK) == word[i] and unit & _HAS_PIECE:
                has_single = True
                _arrive(scratch, one, found_scores[place] + total, i, np.int64(place))
        j = i + 2
        place = model.pairs[np.int64(word[i]) << 8 | np.int64(word[i + 1])] if j <= w else np.uint32(0)
        if place != 0:
            unit = units[place]
            while True:
                if unit & _HAS_PIECE:
                    has_single = has_single or j == one
                    _arrive(scratch, j, found_scores[place] + total, i, np.int64(place))
                if j == w:
                    break
                place = (unit >> _BASE_SHIFT) ^ np.uint32(word[j])
                unit = units[place]
                if (unit & _LABEL_MASK) != word[j]:
                    break
                j += 1
        if not has_single:
            _arrive(scratch, one, unk_score + total, i, np.int64(0))
        i = one
    largest = max(largest, abs(scores[w]))
    gap = np.inf
    stop = np.int64(w)
    while stop > 0:
        gap = min(gap, scores[stop] - seconds[stop])
        state = scratch.arrivals[stop] & 0xFFFFFFFF
        pieces[stop] = model.pieces[state] if state != 0 else np.int32(model.unigram.unk_id)
        starts[stop] = scratch.arrivals[stop] >> 32
        stop = starts[stop]
    # Half as much as the argument allows. A unit in the last place of x is at most |x| / 2^23.
    safe = min(gap * 4194304.0 / n_chars, -REBASE_BELOW) - largest - 1.0
    return np.int64(safe) if safe >= 0 else np.int64(-1)


@kernel_part
def _emit_pieces(word, w, model, scratch, out, o):
    """Writes the tokens of a path turned forward: an unknown token for every unknown character, or its bytes."""
    i = np.int64(0)
    while i < w:
        stop = scratch.starts[i]
        piece = scratch.pieces[stop]
        if piece == model.unk_id and model.byte_fallback:
            for q in range(i, stop):
                out[o] = model.byte_ids[word[q]]
                o += 1
        else:
            out[o] = piece
            o += 1
        i = stop
    return o


@kernel_part
def _follow(total, out, first, last, model):
    """Adds the scores of tokens to the sum so far, rounding as sentencepiece does.

    A character in bytes scores with its first byte, the others with 0.
    """
    for t in range(first, last):
        total = np.float32(total + model.steps[out[t]])
    return _begin_again(total)


@kernel_part
def _begin_again(total):
    return total if total >= _REBASE_BELOW else np.float32(0.0)


@kernel_part
def _encode_part(text, w, total, model, scratch, out, o):
    """See `sentencepiece_rows`. The ids are those of the exact path, unless `safe` is -1."""
    safe = np.int64(-1)
    first = o
    if w <= _LONGEST_EXACT:
        safe = _find_exact_path(text, w, model, scratch)
        turn_path(w, scratch)
        first = _emit_pieces(text, w, model.unigram, scratch, out, o)
        if abs(total) < safe:
            return first, _follow(total, out, o, first, model), safe // SUM_UNIT
    find_best_path(text, w, np.float64(total), model.unigram, scratch)
    total = _begin_again(np.float32(scratch.scores[w]))
    turn_path(w, scratch)
    last = _emit_pieces(text, w, model.unigram, scratch, out, first)
    same = last - first == first - o
    for q in range(last - first):
        same = same and out[o + q] == out[first + q]
        out[o + q] = out[first + q]
    return o + last - first, total, safe // SUM_UNIT if same else np.int64(-1)


@kernel_part
def _encode_row(text, w, model, scratch, out, o):
    """See `sentencepiece_rows`."""
    find_best_path(text, w, 0.0, model.unigram, scratch)
    turn_path(w, scratch)
    o, _ = emit_path(text, w, model.unigram, scratch, out, o, scratch.ends)
    return o


@kernel
def encode_raw_rows(rows, added, tables, model, scratch, work, tallying):
    """See `sentencepiece_rows.encode_raw_rows`; model: engines.sentencepiece_tables.ScoredUnigram, scratch likewise."""
    return sentencepiece_rows.encode_raw_rows(
        _encode_part, _follow, _encode_row, rows, added, tables, model, scratch, work, tallying
    )
