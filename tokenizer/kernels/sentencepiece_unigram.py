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
from tokenizer.kernels.compiling import float_of_bits, kernel_of_short_loops, kernel_part
from tokenizer.kernels.sentencepiece_cache import LONGEST_CACHED
from tokenizer.kernels.sentencepiece_sums import SUM_UNIT, catch_up, cost_of, exactly
from tokenizer.kernels.unigram import REBASE_BELOW, emit_path, find_best_path, turn_path, width
from tokenizer.kernels.unigram_automaton import (
    ROOT,
    SCORE_SHIFT,
    advance,
    longest_piece,
    piece_bytes,
    root_base,
    shorter_piece,
)

_SCORE_SHIFT = np.uint64(SCORE_SHIFT)

_REBASE_BELOW = np.float32(REBASE_BELOW)
LONGEST_EXACT = 4 * LONGEST_CACHED
"""Bytes of normalized text beyond which no safe size is looked for; few parts that short become so long."""


@kernel_part
def _find_exact_path(word, w, model, scratch):
    """Finds the best path by sums in double precision that begin at 0, as `find_best_path` otherwise.

    Place by place the best of all pieces that end there is chosen, of equal ones the longest.

    Returns below which size of the sum so far sentencepiece finds the same path; -1 where it may find another at 0
    already.
    """
    scores, pieces, starts, seconds = scratch.scores, scratch.pieces, scratch.starts, scratch.seconds
    ends = scratch.ends
    states = model.states
    unk_score = model.unigram.unk_score
    scores[0] = 0.0
    largest = 0.0
    n_chars = 0
    base = root_base(states)
    state = ROOT
    i = np.int64(0)
    while i < w:
        n_chars += 1
        stop = i + width(word[i])
        for q in range(i, stop):
            state, base = advance(states, state, base, np.uint64(word[q]))
        best, second = -np.inf, -np.inf
        start, best_state = i, ROOT
        length = np.int64(0)
        end_state, more = longest_piece(states, state)
        while end_state != ROOT:
            length = piece_bytes(states, end_state)
            candidate = float_of_bits(more >> _SCORE_SHIFT) + scores[stop - length]
            better = candidate > best
            second = max(second, best if better else candidate)
            best = candidate if better else best
            start = stop - length if better else start
            best_state = end_state if better else best_state
            end_state, more = shorter_piece(states, more)
        if length != stop - i:
            # The shortest piece is not the character alone: it may be unknown.
            candidate = unk_score + scores[i]
            better = candidate > best
            second = max(second, best if better else candidate)
            best = candidate if better else best
            start = i if better else start
            best_state = ROOT if better else best_state
        scores[stop] = best
        seconds[stop] = second
        starts[stop] = start
        ends[stop] = best_state
        largest = max(largest, abs(best))
        i = stop
    gap = np.inf
    stop = np.int64(w)
    while stop > 0:
        gap = min(gap, scores[stop] - seconds[stop])
        state = np.uint64(ends[stop])
        pieces[stop] = model.pieces[state] if state != ROOT else np.int32(model.unigram.unk_id)
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
def _encode_part(text, w, is_unsafe, sums, model, scratch, out, o):
    """See `sentencepiece_rows`. The ids are those of the exact path, unless `safe` is -1."""
    safe, cost = np.int64(-1), np.int64(0)
    first = o
    if not is_unsafe and w <= LONGEST_EXACT:
        safe = _find_exact_path(text, w, model, scratch) // SUM_UNIT
        cost = cost_of(scratch.scores[w])
        turn_path(w, scratch)
        first = _emit_pieces(text, w, model.unigram, scratch, out, o)
        if sums[2] >= safe:
            sums = catch_up(_follow, sums, out, o, model)
        if sums[2] < safe:
            return first, (sums[0], sums[1], sums[2] + cost), safe, cost
    sums = catch_up(_follow, sums, out, o, model)
    find_best_path(text, w, np.float64(sums[0]), model.unigram, scratch)
    total = _begin_again(np.float32(scratch.scores[w]))
    turn_path(w, scratch)
    last = _emit_pieces(text, w, model.unigram, scratch, out, first)
    same = last - first == first - o
    for q in range(last - first):
        same = same and out[o + q] == out[first + q]
        out[o + q] = out[first + q]
    o += last - first
    return o, exactly(total, o), safe if same else np.int64(-1), cost


@kernel_part
def _encode_row(text, w, model, scratch, out, o):
    """See `sentencepiece_rows`."""
    find_best_path(text, w, 0.0, model.unigram, scratch)
    turn_path(w, scratch)
    o, _ = emit_path(text, w, model.unigram, scratch, out, o, scratch.ends)
    return o


@kernel_of_short_loops
def encode_raw_rows(rows, added, tables, model, scratch, work, tallying):
    """See `sentencepiece_rows.encode_raw_rows`; model: engines.sentencepiece_tables.ScoredUnigram, scratch likewise."""
    return sentencepiece_rows.encode_raw_rows(
        _encode_part, _follow, _encode_row, rows, added, tables, model, scratch, work, tallying
    )
