# SPDX-License-Identifier: Apache-2.0
"""Unigram by HF's rules in the loop of `normalized_words`."""

import numpy as np

from tokenizer.kernels.compiling import kernel, kernel_part
from tokenizer.kernels.normalized_words import encode_rows
from tokenizer.kernels.unigram import emit_path, turn_path, width
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


@kernel_part
def _find_path(word, w, model, scratch):
    """Finds the best path as `unigram.find_best_path` does, in one walk over an automaton.

    Place by place the best of all pieces that end there is chosen, of equal ones the longest.

    Returns:
      By how much it is better than any other at the least, at the places it passes.
    """
    scores, pieces, starts, seconds = scratch.scores, scratch.pieces, scratch.starts, scratch.seconds
    states, piece_scores = model.states, model.unigram.scores
    unk_score = model.unigram.unk_score
    scores[0] = 0.0
    base = root_base(states)
    state = ROOT
    i = np.int64(0)
    while i < w:
        stop = i + width(word[i])
        for q in range(i, stop):
            state, base = advance(states, state, base, np.uint64(word[q]))
        best, second = -np.inf, -np.inf
        start, piece = i, np.int64(-1)
        length = np.int64(0)
        end_state, more = longest_piece(states, state)
        while end_state != ROOT:
            length = piece_bytes(states, end_state)
            candidate_piece = np.int64(more >> _SCORE_SHIFT)
            candidate = piece_scores[np.uint64(candidate_piece)] + scores[stop - length]
            better = candidate > best
            second = max(second, best if better else candidate)
            best = candidate if better else best
            start = stop - length if better else start
            piece = candidate_piece if better else piece
            end_state, more = shorter_piece(states, more)
        if length != stop - i:
            # The shortest piece is not the character alone: it may be unknown.
            candidate = unk_score + scores[i]
            better = candidate > best
            second = max(second, best if better else candidate)
            best = candidate if better else best
            start = i if better else start
            piece = np.int64(model.unigram.unk_id) if better else piece
        scores[stop] = best
        seconds[stop] = second
        starts[stop] = start
        pieces[stop] = piece
        i = stop
    gap = np.inf
    stop = np.int64(w)
    while stop > 0:
        gap = min(gap, scores[stop] - seconds[stop])
        stop = starts[stop]
    return gap


@kernel_part
def _encode_text(text, n, model, scratch, out, o):
    gap = _find_path(text, n, model, scratch)
    turn_path(n, scratch)
    o, _ = emit_path(text, n, model.unigram, scratch, out, o, scratch.ends)
    return o, gap


@kernel
def encode(rows, added, tables, model, scratch, work, tallying):
    """See `normalized_words.encode_rows`. model: ExactUnigram; scratch: ScoredScratch."""
    return encode_rows(_encode_text, rows, added, tables, model, scratch, work, tallying)
