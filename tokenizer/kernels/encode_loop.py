# SPDX-License-Identifier: Apache-2.0
"""The encode loop: rows of text in, ids or counts out, whatever the tokenizer.

    rows -> spans of a batch -> keys of all, their lines asked for -> sink: one look at each line, ids stored
                                                                       `-> miss: model, remember

A span is a word, or a part of one whose ends no token reaches across. What finds spans, what takes them, what encodes
those that are not in the table, are `Steps`, called by address: the loop is compiled once, for all tokenizers. See
docs/explanation/encoding.md.

Its reference implementation is in `tests/reference/bert.py`; `tests/tokenizer/kernels/test_encode_loop.py` compares
whole columns with texts by themselves, and `tests/tokenizer/test_encode.py` with the reference.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_of_short_loops, kernel_part, leading_zeros, unlikely
from tokenmill.tokenizer.compiling.references import refer
from tokenmill.tokenizer.kernels.by_address import NO_STEP, Step, call_number, call_spans, fields_of
from tokenmill.tokenizer.kernels.span_table import (
    FLAG,
    UNKNOWN,
    Table,
    ask_for_line,
    copy_four,
    emit_pooled,
    first_slot,
    key_within,
    span_key,
)
from tokenmill.tokenizer.kernels.word_table import COUNTER_POOL_USED, COUNTER_TOTAL, COUNTER_WORDS

BATCH = 128
"""The number of spans that completes a batch; the last block of text may add some."""
ROOM = BATCH + 128
N_COLUMNS = 6
AT, STOP, KEY_0, KEY_1, SLOT, ROW = (np.uint64(ROOM * column) for column in range(N_COLUMNS))
"""Where columns of `Work.batch` begin: a span's start, stop, two of its key, its line; how many spans precede a row."""
JOINED, APART, FLAGGED = 0, 1, 2
"""Whether each span ends where the next one begins; spans have stops of their own; so, and some have the FLAG."""
AT_ROW, AT_PLACE, AT_INNER, AT_ID, NEEDED = 0, 1, 2, 3, 4
"""Places in `Work.position`."""
READS = 80
"""Bytes that may be read from a place on: a block, and a key that begins with its last byte."""
_ONE, _TWO, _THREE, _FOUR, _32 = (np.uint64(c) for c in (1, 2, 3, 4, 32))


class Work(NamedTuple):
    """The state of the loop, besides its input and its steps."""

    table: Table
    tally: Any
    """kernel_memory.CounterArrays: counts words with an unknown token if `tallying`; always the number of all words."""
    tallying: bool
    """Whether spans with an unknown token go to `miss` every time, for example to be counted."""
    batch: npt.NDArray[np.uint64]
    """uint64[ROOM * N_COLUMNS]."""
    limit: int
    """The number of spans that completes a batch: BATCH, or less in tests."""
    word: npt.NDArray[np.uint8]
    """uint8[n]: room for the longest span and 16 bytes more, for models that read beyond it or change it."""
    ends: npt.NDArray[np.int64]
    """int64[n]: room for the ends of the longest span's tokens."""
    out: npt.NDArray[np.int32]
    """int32[n]: the ids; room for the most that can come out, and three more."""
    out_offsets: npt.NDArray[np.int64]
    """int64[n_rows + 1]: the offsets of the rows of ids."""
    position: npt.NDArray[np.int64]
    """int64[5], zeros at first except the place: row, place in its text, place in the word there, ids written; and,
    if the loop stops for lack of room, how much it needs, see `Steps.has_room`."""


class Steps(NamedTuple):
    """What the loop does for a tokenizer. All steps get a reference to the Loop, after their own values."""

    kind: int
    """JOINED, APART or FLAGGED."""
    spans: Step
    """`spans(own, loop, i, inner, end, n, o) -> (i, inner, n, n_words, o)` adds spans from place i of a row on to a
    batch that has n of them, up to the end of the row or until the batch is full. While the batch is empty, it may
    append ids itself. `inner`, 0 at first, is what it needs to go on inside a word; `n_words` is how many words begin
    in what it has passed."""
    sink: Step
    """`sink(own, loop, first, n, o) -> o` handles the spans first..n-1 of a batch, for example `emit_all`."""
    miss: Step
    """`miss(own, loop, k, o) -> o` appends the ids of span k of the batch."""
    has_room: Step = NO_STEP
    """`has_room(own, loop, n, o) -> 0 or 1`: whether there is room for the output of the n spans of a batch. Asked
    before any of them is handled; without it, whether the tally has room."""
    end_row: Step = NO_STEP
    """`end_row(own, loop, row, o) -> o`, called after the ids of a row; may be missing."""


class Loop(NamedTuple):
    """What steps see of a loop."""

    data: npt.NDArray[np.uint8]
    """uint8[n_bytes], readable for READS bytes from all but the last places."""
    offsets: npt.NDArray[np.int64]
    """int64[n_rows + 1]: rows of places, in bytes or whatever `spans` counts."""
    steps: Steps
    work: Work


@kernel_part
def _ask_for(kind, is_within, data, batch, slots, k, shift):
    """Finds the key and the line of span k of a batch, and prefetches the line. is_within: see `key_within`."""
    at = batch[AT + k]
    if kind == JOINED:
        batch[STOP + k] = batch[AT + _ONE + k]
    if kind == FLAGGED:
        at &= ~FLAG
    w = np.int64(batch[STOP + k]) - np.int64(at)
    k0, k1 = key_within(data, np.int64(at), w) if is_within else span_key(data, np.int64(at), w)
    if kind == FLAGGED:
        k1 ^= batch[AT + k] & FLAG
    j = first_slot(k0, k1, shift)
    batch[KEY_0 + k], batch[KEY_1 + k], batch[SLOT + k] = k0, k1, j
    ask_for_line(slots, j)


@kernel_part
def _ask_for_all(kind, data, batch, slots, n, shift):
    """Finds the keys and lines of the n spans of a batch.

    A loop for each kind, because a test for each span takes a third of the time of a key. numba's `range` takes eight
    instructions for each number; but with flags LLVM makes of `while` a loop that takes 1.4 times as long.
    """
    is_within = kind == JOINED  # their places ascend, so that one look at the last is enough
    if kind == FLAGGED or (is_within and np.int64(batch[AT + np.uint64(n)]) + 16 > data.size):
        for counter in range(n):
            _ask_for(kind, False, data, batch, slots, np.uint64(counter), shift)
    else:
        k = np.uint64(0)
        while k < np.uint64(n):
            _ask_for(kind, is_within, data, batch, slots, k, shift)
            k += _ONE


@kernel
def call_miss(loop, k, o):
    """Calls the loop's `miss`. Apart, so that a sink keeps nothing ready for it, and all it needs in registers."""
    _, _, steps, _ = fields_of(loop)
    return call_number(steps.miss, (loop, k, o))


@kernel_part
def emit_all(own, loop, first, n, o):
    """Appends the ids of the spans first..n-1 of a batch; returns the new o. A sink, without values of its own."""
    data, _, _, work = fields_of(loop)
    table, batch, out = work.table, work.batch, work.out
    slots = table.slots
    # Unless they are counted, spans with an unknown token are like all others.
    mask = ~np.uint64(0) if work.tallying else ~np.uint64(UNKNOWN)
    k = np.uint64(first)
    while k < np.uint64(n):
        j, k0, k1 = batch[SLOT + k], batch[KEY_0 + k], batch[KEY_1 + k]
        # A frequent span comes early, and has the first slot of its line.
        if unlikely((slots[j] ^ k0) | (slots[j + _ONE] ^ k1) != np.uint64(0)):
            j += _FOUR
            if unlikely((slots[j] ^ k0) | (slots[j + _ONE] ^ k1) != np.uint64(0)):
                o = call_miss(loop, k, o)
                k += _ONE
                continue
        m = (slots[j + _THREE] >> _32) & mask
        if unlikely(m > _THREE):
            is_done = False
            if m & np.uint64(UNKNOWN) == np.uint64(0):
                at = batch[AT + k] & ~FLAG
                o, is_done = emit_pooled(table, data, np.int64(at), np.int64(batch[STOP + k] - at), j, out, o)
            if not is_done:
                o = call_miss(loop, k, o)
        else:
            copy_four(slots, j + _TWO, out, o)
            o += np.int64(m)
        k += _ONE
    return o


@kernel_part
def _has_room(loop, steps, work, n, o):
    """Whether there is room for all words of a batch; NEEDED gets how many bytes these have together."""
    if steps.has_room.code != 0:
        return call_number(steps.has_room, (loop, n, o)) != 0
    if not work.tallying:
        return True
    batch, tally = work.batch, work.tally
    n_bytes = np.int64(batch[STOP + np.uint64(n - 1)] - (batch[AT] & ~FLAG))
    n_words, n_used = tally.state[COUNTER_WORDS] + n, tally.state[COUNTER_POOL_USED] + n_bytes
    work.position[NEEDED] = n_bytes
    return n_words * 2 <= tally.slots.shape[0] and n_used <= tally.words.size


@kernel_part
def _end_row(loop, steps, row, o):
    return call_number(steps.end_row, (loop, row, o)) if steps.end_row.code != 0 else o


@kernel_of_short_loops
def run(steps, rows, added, work):
    """Runs the loop.

    Args:
      steps: Steps.
      rows: ragged.Ragged: bytes, and rows of places, see `Loop`.
      added: int32[n_rows], the id of rows that are an added token, -1 for text; or int32[0].
      work: Work.

    Returns:
      Whether all is done; if not, make more room, and call again: the loop goes on where it stopped.
    """
    data, offsets = rows
    batch, out, out_offsets, position = work.batch, work.out, work.out_offsets, work.position
    loop = refer(Loop(data, offsets, steps, work))
    slots = work.table.slots
    shift = np.uint64(leading_zeros(np.uint64(slots.size // 8 - 1)))
    n_rows = offsets.size - 1
    row, i, inner, o = position[AT_ROW], position[AT_PLACE], position[AT_INNER], position[AT_ID]
    n_all_words = np.int64(0)
    while row < n_rows:
        n, n_words = np.int64(0), np.int64(0)
        first_row, first, first_inner, first_id = row, i, inner, o
        # Collect spans from as many rows as fit into a batch.
        while row < n_rows and n < work.limit and row - first_row < BATCH:
            end = offsets[row + 1]
            if added.size > 0 and added[row] >= 0:
                if n > 0:
                    break
                out[o] = added[row]
                o += 1
                i = end
            if i < end:
                i, inner, n, more, o = call_spans(steps.spans, (loop, i, inner, end, n, o))
                n_words += more
                if i < end:
                    break
            inner = np.int64(0)
            if n > 0:
                batch[ROW + np.uint64(row - first_row)] = np.uint64(n)
                row += 1
            else:
                o = _end_row(loop, steps, row, o)
                row += 1
                out_offsets[row] = o
                first_row, first, first_inner, first_id = row, i, inner, o
                n_all_words += n_words
                n_words = np.int64(0)
        if n > 0:
            if steps.kind == JOINED:
                _ask_for_all(JOINED, data, batch, slots, n, shift)
            elif steps.kind == APART:
                _ask_for_all(APART, data, batch, slots, n, shift)
            else:
                _ask_for_all(FLAGGED, data, batch, slots, n, shift)
            if not _has_room(loop, steps, work, n, o):
                position[AT_ROW], position[AT_PLACE], position[AT_INNER] = first_row, first, first_inner
                position[AT_ID] = first_id
                work.tally.state[COUNTER_TOTAL] += n_all_words
                return False
            k = np.int64(0)
            for r in range(first_row, row + 1):
                stop = n if r == row else np.int64(batch[ROW + np.uint64(r - first_row)])
                if k < stop:
                    o = call_number(steps.sink, (loop, k, stop, o))
                if r < row:
                    o = _end_row(loop, steps, r, o)
                    out_offsets[r + 1] = o
                k = stop
        n_all_words += n_words
    position[AT_ID] = o
    work.tally.state[COUNTER_TOTAL] += n_all_words
    return True
