# SPDX-License-Identifier: Apache-2.0
"""Unigram over whole rows, exactly as sentencepiece does it, and still with a table of parts.

A row is a chain of parts (see `sentencepiece_units`): every path passes through the places between them, and the only
thing that a part takes over from those before it is one number, the sum so far, in single precision. That number
decides how sums inside the part are rounded, and so which of two nearly equal paths wins. So the scores of all ids are
added, one by one. The table holds for each part its best path by exact sums, and a limit: while the sum so far is
smaller than that in size, rounding cannot change the path. Otherwise, or if the row's sum may begin again at zero
inside the part, the part is tokenized again from the sum so far.

Why the limit holds: a sum over k pieces is rounded k times, each time by at most half a unit in the last place of a
number no larger than the sum so far plus the largest sum inside the part; taking the larger of two sums does not
enlarge an error. So two sums that differ by more than k whole units keep their order. k is at most the number of
characters of the part.

Its reference implementation is `tokenmill.tokenizer.models.unigram.Unigram.tokenize`;
`tests/tokenizer/engines/test_sentencepiece_rows.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part, unlikely
from tokenmill.tokenizer.kernels.by_address import fields_of
from tokenmill.tokenizer.kernels.encode_loop import AT, KEY_0, KEY_1, SLOT, STOP, call_miss
from tokenmill.tokenizer.kernels.sentencepiece_spans import LIMIT, begin_again
from tokenmill.tokenizer.kernels.span_table import FLAG, LIMIT_SHIFT, MAX_LIMIT, POOLED, UNKNOWN, copy_four, emit_pooled
from tokenmill.tokenizer.kernels.unigram import REBASE_BELOW, find_best_path, turn_path, weigh_paths

LONGEST_EXACT = 192
"""The most bytes of normalized text for which a limit is computed."""
_ONE, _TWO, _THREE, _32 = (np.uint64(c) for c in (1, 2, 3, 32))
_LOW = np.uint64(0xFFFFFFFF)


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
def tokenize(own, buffers, w, is_part, o):
    """Appends the ids of the exact path and sets their LIMIT, see above; -1 and no ids if the text is too long.

    own: a reference to UnigramTables, UnigramScratch and PartsState.
    """
    model, scratch, state = fields_of(own)
    word, out, _ = fields_of(buffers)
    state.cells[LIMIT] = -1
    if w > LONGEST_EXACT:
        return o, False
    gap, largest, n_chars = weigh_paths(word, np.int64(0), w, model, scratch)
    # Half of what the proof above allows. A unit in the last place of x is at most |x| / 2^23.
    limit = max(min(gap * 4194304.0 / n_chars, -REBASE_BELOW) - largest - 1.0, 0.0)
    state.cells[LIMIT] = np.int64(limit)
    turn_path(w, scratch)
    return _emit_pieces(word, w, model, scratch, out, o), False


@kernel_part
def from_sum(own, buffers, w, is_part, o):
    """Appends the ids of the path that sentencepiece finds from the sum so far, and adds to that."""
    model, scratch, state = fields_of(own)
    word, out, _ = fields_of(buffers)
    find_best_path(word, w, np.float64(state.sums[0]), model, scratch)
    state.sums[0] = begin_again(np.float32(scratch.scores[w]))
    turn_path(w, scratch)
    return _emit_pieces(word, w, model, scratch, out, o), False


@kernel_part
def emit_summed(own, loop, first, n, o):
    """Does what `encode_loop.emit_all` does, and sums the scores; absent ids score 0, so there is no branch."""
    _, scores, _, _, state = fields_of(own)
    data, _, _, work = fields_of(loop)
    batch, out, slots, sums = work.batch, work.out, work.table.slots, state.sums
    total = sums[0]
    k = np.uint64(first)
    while k < np.uint64(n):
        j, k0, k1 = batch[SLOT + k], batch[KEY_0 + k], batch[KEY_1 + k]
        j += np.uint64((slots[j] ^ k0) | (slots[j + _ONE] ^ k1) != np.uint64(0)) << _TWO
        ids, more = slots[j + _TWO], slots[j + _THREE]
        others = (slots[j] ^ k0) | (slots[j + _ONE] ^ k1) | (more >> _32) & np.uint64(UNKNOWN)
        limit = np.int64((more >> LIMIT_SHIFT) & np.uint64(MAX_LIMIT))
        if unlikely((others != np.uint64(0)) | (np.int64(abs(total)) >= limit)):
            sums[0] = total
            o = call_miss(loop, k, o)
            total = sums[0]
        elif unlikely((more >> _32) & np.uint64(POOLED) != np.uint64(0)):
            at = batch[AT + k] & ~FLAG
            before = o
            o, is_same = emit_pooled(work.table, data, np.int64(at), np.int64(batch[STOP + k] - at), j, out, o)
            if is_same:
                for q in range(before, o):
                    total = np.float32(total + scores[out[q]])
            else:
                sums[0] = total
                o = call_miss(loop, k, o)
                total = sums[0]
        else:
            copy_four(slots, j + _TWO, out, o)
            total = np.float32(total + scores[ids & _LOW])
            total = np.float32(total + scores[ids >> _32])
            total = np.float32(total + scores[more & _LOW])
            o += np.int64((more >> _32) & _THREE)
        k += _ONE
    sums[0] = total
    return o
