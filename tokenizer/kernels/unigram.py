# SPDX-License-Identifier: Apache-2.0
"""Unigram on one word: the best path through all ways to cut it into pieces, by Viterbi over a double-array trie.

Its reference implementation is `tokenmill.tokenizer.models.unigram.Unigram.tokenize`;
`tests/tokenizer/models/test_unigram.py` compares them.
"""

import math

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.double_array import BASE_SHIFT, LABEL_MASK, PIECE_MASK, PIECE_SHIFT
from tokenmill.tokenizer.kernels.utf8 import character_bytes

REBASE_BELOW = -100000.0
"""Below this sum sentencepiece 0.2.3 subtracts it and begins again at zero, so that single precision suffices."""


@kernel_part
def _exact_piece(word, start, stop, model):
    """Returns the piece that is exactly `word[start:stop]`, -1 for none."""
    base = np.int64(model.root_base)
    found = np.int64(-1)
    for q in range(start, stop):
        byte = np.int64(word[q])
        unit = model.units[base ^ byte]
        if (unit & LABEL_MASK) != byte:
            return np.int64(-1)
        found = ((unit >> PIECE_SHIFT) & PIECE_MASK) - 1
        base = unit >> BASE_SHIFT
    return found


@kernel_part
def find_best_path(word, w, score, model, scratch):
    """Fills `scores`, `pieces` and `starts` of the scratch for every place in `word[:w]` where a piece may end.

    score: float64, the sum so far. Of paths with equal scores, the one whose last piece is longest wins. Returns False
    if no piece covers some character and there is no unknown token.
    """
    scores, pieces, starts = scratch.scores, scratch.pieces, scratch.starts
    units, piece_scores = model.units, model.scores
    root_base, single, unk_id = model.root_base, model.single, model.unk_id
    for q in range(w + 1):
        starts[q] = -1
    scores[0] = score
    i = 0
    while i < w:
        total = scores[i]
        if single and total < REBASE_BELOW:
            for q in range(i, min(w, i + model.longest) + 1):
                scores[q] = np.float64(np.float32(scores[q] - total))
            total = 0.0
        one = i + character_bytes(word[i])
        has_single = False
        base = np.int64(root_base)
        j = i
        while j < w:
            byte = np.int64(word[j])
            unit = units[base ^ byte]
            if (unit & LABEL_MASK) != byte:
                break
            j += 1
            piece = (unit >> PIECE_SHIFT) & PIECE_MASK
            if piece != 0:
                candidate = piece_scores[piece - 1] + total
                if single:
                    candidate = np.float64(np.float32(candidate))
                if j == one:
                    has_single = True
                if starts[j] < 0 or candidate > scores[j]:
                    scores[j] = candidate
                    starts[j] = i
                    pieces[j] = piece - 1
            base = unit >> BASE_SHIFT
            if base == 0:
                break
        if not has_single:
            candidate = model.unk_score + total
            if single:
                candidate = np.float64(np.float32(candidate))
            if starts[one] < 0 or candidate > scores[one]:
                if unk_id < 0:
                    return False
                scores[one] = candidate
                starts[one] = i
                pieces[one] = unk_id
        i = one
    return True


@kernel_part
def _offer(score, start, stop, piece, scratch):
    """Notes a path to the place `stop`, with the sum of its scores, if it is the best or second best one there."""
    best = scratch.scores[stop]
    if score > best:
        scratch.seconds[stop] = best
        scratch.scores[stop] = score
        scratch.starts[stop] = start
        scratch.pieces[stop] = piece
    elif score > scratch.seconds[stop]:
        scratch.seconds[stop] = score


@kernel_part
def weigh_paths(data, at, w, model, scratch):
    """Finds the best path of `data[at:at + w]`, one byte or more, like `find_best_path`, and its lead over the second.

    Sums begin at 0, in double precision; unknown characters need no unknown token.

    Returns:
      `(least lead at any place that the best path passes; largest absolute sum at any place between characters; number
      of characters)`.
    """
    scores, seconds, starts, units = scratch.scores, scratch.seconds, scratch.starts, model.units
    for q in range(1, w + 1):
        scores[q] = seconds[q] = -np.inf
    scores[0] = 0.0
    largest = 0.0
    n_chars = 0
    i = np.int64(0)
    while i < w:
        n_chars += 1
        total = scores[i]
        one = i + character_bytes(data[at + i])
        has_single = False
        base = np.int64(model.root_base)
        j = i
        while j < w:
            byte = np.int64(data[at + j])
            unit = units[base ^ byte]
            if (unit & LABEL_MASK) != byte:
                break
            j += 1
            piece = (unit >> PIECE_SHIFT) & PIECE_MASK
            if piece != 0:
                has_single = has_single or j == one
                _offer(total + model.scores[piece - 1], i, j, piece - 1, scratch)
            base = unit >> BASE_SHIFT
            if base == 0:
                break
        if not has_single:
            _offer(total + model.unk_score, i, one, model.unk_id, scratch)
        largest = max(largest, abs(scores[one]))
        i = one
    gap = np.inf
    stop = np.int64(w)
    while stop > 0:
        gap = min(gap, scores[stop] - seconds[stop])
        stop = starts[stop]
    return gap, largest, n_chars


@kernel_part
def turn_path(w, scratch):
    """Reverses the path that leads back from `w`: starts[s] becomes the end of the piece that starts at s."""
    starts = scratch.starts
    stop = w
    following = np.int64(-1)
    while stop > 0:
        start = starts[stop]
        starts[stop] = following
        following = stop
        stop = start
    starts[0] = following


@kernel_part
def emit_path(word, w, model, scratch, out, o, ends):
    """Writes the tokens of a reversed path; unknown characters in a row become one token, or bytes."""
    pieces, starts = scratch.pieces, scratch.starts
    unk_id = model.unk_id
    first = o
    unknown = False
    i = np.int64(0)
    while i < w:
        stop = starts[i]
        piece = np.int64(pieces[stop])
        if piece != unk_id:
            out[o] = piece
            ends[o - first] = stop
            o += 1
            i = stop
            continue
        while stop < w and pieces[starts[stop]] == unk_id:
            stop = starts[stop]
        found = np.int64(-1)
        if not model.single:
            # HF looks the fused run up again: it may be a piece that scored worse than its unknown characters.
            found = _exact_piece(word, i, stop, model)
        spelled = model.byte_fallback and found < 0
        if spelled:
            for q in range(i, stop):
                if model.byte_ids[word[q]] < 0:
                    spelled = False
        if spelled:
            for q in range(i, stop):
                out[o] = model.byte_ids[word[q]]
                ends[o - first] = stop
                o += 1
        else:
            token = found if found >= 0 else np.int64(unk_id)
            out[o] = token
            ends[o - first] = stop
            o += 1
            unknown = unknown or token == unk_id
        i = stop
    return o, unknown


@kernel_part
def unigram_word(word, w, model, scratch, out, o, ends):
    """Tokenizes `word[:w]` into `out[o:]`: O(w * longest piece).

    Args:
      word: uint8, at least `w` bytes of valid UTF-8, `w` at least 1.
      model: the vocabulary, see `models.unigram.UnigramTables`.
      scratch: `models.unigram.UnigramScratch` for at least `w` bytes.
      out: int32 with room for one id per byte: every token covers at least one byte, a byte token exactly one.
      ends: int64 likewise, filled with where each token ends in the word; the byte tokens of one run share its end.

    Returns:
      `(new o, has_unknown)`. If no piece covers some character and there is no unknown token, the only token is -1.
    """
    if not find_best_path(word, w, 0.0, model, scratch):
        out[o] = -1
        ends[0] = w
        return o + 1, True
    turn_path(w, scratch)
    return emit_path(word, w, model, scratch, out, o, ends)


@kernel_part
def random_unit(key, counter):
    """Returns a number in [0, 1) that depends only on its arguments: step `counter` of splitmix64 from `key`."""
    z = key + (np.uint64(counter) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel_part
def _add_logs(x, y):
    """Returns log(exp(x) + exp(y))."""
    if x < y:
        x, y = y, x
    return x + math.log1p(math.exp(y - x))


@kernel_part
def sample_word(word, w, model, alpha, key, scratch, out, o, ends):
    """Tokenizes `word[:w]` by one of all its paths, drawn with a probability proportional to exp(alpha * its score).

    From end to beginning, it computes for each place the logarithm of the summed weights of all paths from there; then
    it draws piece after piece from the beginning. The draw at byte i is `random_unit(key, i)`: equal keys, equal paths.

    Arguments and result as for `unigram_word`; key: uint64.

    Source: sentencepiece `Lattice::Sample`, which goes in the other direction, with the same distribution.
    """
    sums, pieces, starts = scratch.scores, scratch.pieces, scratch.starts
    sums[w] = 0.0
    i = np.int64(w)
    while i > 0:
        i -= 1
        while (word[i] & 0xC0) == 0x80:
            i -= 1
        sums[i], _, _ = _weigh(word, i, w, model, alpha, sums, np.inf)
    i = np.int64(0)
    while i < w:
        # The first piece at which the summed weights reach the drawn share of the whole.
        limit = sums[i] + math.log(1.0 - random_unit(key, i))
        _, stop, piece = _weigh(word, i, w, model, alpha, sums, limit)
        if piece < 0:
            out[o] = -1
            ends[0] = w
            return o + 1, True
        starts[i] = stop
        pieces[stop] = piece
        i = stop
    return emit_path(word, w, model, scratch, out, o, ends)


@kernel_part
def _weigh(word, i, w, model, alpha, sums, limit):
    """Adds up the weights of all pieces that may begin at `i`, shorter ones first, until `limit` is reached.

    Returns `(logarithm of the sum, end and id of the last piece)`.
    """
    one = i + character_bytes(word[i])
    base = np.int64(model.root_base)
    total = -np.inf
    has_single = False
    stop = one
    found = np.int64(model.unk_id)
    j = i
    while j < w:
        byte = np.int64(word[j])
        unit = model.units[base ^ byte]
        if (unit & LABEL_MASK) != byte:
            break
        j += 1
        piece = (unit >> PIECE_SHIFT) & PIECE_MASK
        if piece != 0:
            has_single = has_single or j == one
            stop = j
            found = piece - 1
            weight = alpha * model.scores[piece - 1] + sums[j]
            total = _add_logs(total, weight) if total > -np.inf else weight
            if total >= limit:
                return total, stop, found
        base = unit >> BASE_SHIFT
    if not has_single:
        stop = one
        found = np.int64(model.unk_id)
        weight = alpha * model.unk_score + sums[one]
        total = _add_logs(total, weight) if total > -np.inf else weight
    return total, stop, found


@kernel
def sample_one(word, model, alpha, key, scratch, out, ends):
    """Runs `sample_word` on a whole array; returns the number of tokens.

    Args:
      word: uint8[n], valid UTF-8.
      model: UnigramTables; scratch: UnigramScratch for it, for work.
      out: int32[n]; ends: int64[n]; filled.
    """
    o, _ = sample_word(word, np.int64(word.size), model, alpha, key, scratch, out, np.int64(0), ends)
    return o


@kernel
def random_number(key, counter):
    """Returns `random_unit` to Python."""
    return random_unit(key, counter)
