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

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_of_short_loops, kernel_part, unlikely
from tokenmill.tokenizer.compiling.references import refer, values_of
from tokenmill.tokenizer.kernels.encode_loop import AT, FLAGGED, KEY_0, KEY_1, SLOT, STOP, encode_rows
from tokenmill.tokenizer.kernels.sentencepiece_spans import (
    PartsArguments,
    end_row,
    has_room,
    miss_part,
    part_spans,
    unknown_or_miss,
)
from tokenmill.tokenizer.kernels.span_table import FLAG, LIMIT_SHIFT, MAX_LIMIT, POOLED, UNKNOWN, copy_four, emit_pooled
from tokenmill.tokenizer.kernels.unigram import REBASE_BELOW, find_best_path, turn_path, weigh_paths

_REBASE_BELOW = np.float32(REBASE_BELOW)
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
def _begin_again(total):
    return total if total >= _REBASE_BELOW else np.float32(0.0)


@kernel_part
def _add(total, token, model):
    """Adds the score of a token to the sum so far; of the byte tokens of a character only the first has a score."""
    return _begin_again(np.float32(total + model.steps[token]))


@kernel_part
def _tokenize(word, n, model, scratch, out, o, ends):
    """Appends the ids of the exact path; also returns their limit, see above, -1 and no ids if the text is too long."""
    if n > LONGEST_EXACT:
        return o, np.int64(-1)
    gap, largest, n_chars = weigh_paths(word, np.int64(0), n, model, scratch)
    # Half of what the proof above allows. A unit in the last place of x is at most |x| / 2^23.
    limit = np.int64(max(min(gap * 4194304.0 / n_chars, -REBASE_BELOW) - largest - 1.0, 0.0))
    turn_path(n, scratch)
    return _emit_pieces(word, n, model, scratch, out, o), limit


@kernel_part
def _from_sum(word, n, total, model, scratch, out, o):
    """Appends the ids of the path that sentencepiece finds from the sum so far; also returns the sum after it."""
    find_best_path(word, n, np.float64(total), model, scratch)
    total = _begin_again(np.float32(scratch.scores[n]))
    turn_path(n, scratch)
    return _emit_pieces(word, n, model, scratch, out, o), total


@kernel_part
def _emit_summed(miss, arguments, data, work, first, n, o):
    """Does what `encode_loop.emit_all` does, and sums the scores; absent ids score 0, so there is no branch."""
    _, _, _, model, _, state, _ = values_of(arguments)
    batch, out, slots = work.batch, work.out, work.table.slots
    steps, sums = model.steps, state.sums
    total = sums[0]
    for counter in range(first, n):
        k = np.uint64(counter)
        j, k0, k1 = batch[SLOT + k], batch[KEY_0 + k], batch[KEY_1 + k]
        j += np.uint64((slots[j] ^ k0) | (slots[j + _ONE] ^ k1) != np.uint64(0)) << _TWO
        ids, more = slots[j + _TWO], slots[j + _THREE]
        others = (slots[j] ^ k0) | (slots[j + _ONE] ^ k1) | (more >> _32) & np.uint64(UNKNOWN)
        limit = np.int64((more >> LIMIT_SHIFT) & np.uint64(MAX_LIMIT))
        if unlikely((others != np.uint64(0)) | (np.int64(abs(total)) >= limit)):
            sums[0] = total
            o = miss(arguments, k, o)
            total = sums[0]
        elif unlikely((more >> _32) & np.uint64(POOLED) != np.uint64(0)):
            at = batch[AT + k] & ~FLAG
            before = o
            o, is_same = emit_pooled(work.table, data, np.int64(at), np.int64(batch[STOP + k] - at), j, out, o)
            if is_same:
                for q in range(before, o):
                    total = np.float32(total + steps[out[q]])
            else:
                sums[0] = total
                o = miss(arguments, k, o)
                total = sums[0]
        else:
            copy_four(slots, j + _TWO, out, o)
            total = np.float32(total + steps[ids & _LOW])
            total = np.float32(total + steps[ids >> _32])
            total = np.float32(total + steps[more & _LOW])
            o += np.int64((more >> _32) & _THREE)
    sums[0] = total
    return o


@kernel
def _miss_part(arguments, k, o):
    return miss_part(True, _tokenize, _from_sum, _add, arguments, k, o)


@kernel
def _miss(arguments, k, o):
    return unknown_or_miss(_add, _miss_part, arguments, k, o)


@kernel_of_short_loops
def encode(tables, model, rows, added, scratch, state, work):
    """Encodes rows; see `encode_loop.encode_rows`.

    Args:
      rows: ragged.Ragged of valid UTF-8.
      added: int32[n_rows], the id of rows that are an added token, -1 for text; or int32[0].
      tables: engines.sentencepiece_tables.RawTables; model: UnigramTables; scratch: UnigramScratch.
      state: sentencepiece_spans.PartsState.
      work: encode_loop.Work.
    """
    data, offsets = rows
    arguments = refer(PartsArguments(data, offsets, tables, model, scratch, state, work))
    return encode_rows(
        part_spans, FLAGGED, has_room, _emit_summed, _miss, end_row, arguments,
        data, offsets, added, tables, model, work,
    )  # fmt: skip
