# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's text in the encode loop: its spans are parts of raw text, see `sentencepiece_units`.

A part has the FLAG if a "▁" precedes it that is not among its bytes. Text is normalized only on a miss. A part that
ends in a "▁" which may belong to the next unit, or that is very long, makes its row *irregular*: the row is left
without ids, and the engine encodes it as a whole.

Models are called by address, see `word_models`. One that sums scores also gives the sum from which on its ids may be
others, and is then called by another step, see `sentencepiece_unigram`.

Its reference implementation is
`tokenmill.tokenizer.normalizers.sentencepiece.SentencePieceNormalizer.trace`;
`tests/tokenizer/engines/test_sentencepiece_rows.py` compares them.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compiling.kernel import count_ones, kernel, kernel_part, leading_zeros
from tokenmill.tokenizer.compiling.references import refer
from tokenmill.tokenizer.kernels.by_address import Step, call_model, fields_of
from tokenmill.tokenizer.kernels.encode_loop import AT, KEY_0, KEY_1, NEEDED, READS, SLOT, STOP
from tokenmill.tokenizer.kernels.sentencepiece_blocks import block_parts, code_point_at
from tokenmill.tokenizer.kernels.sentencepiece_units import (
    ALONE,
    FRONT,
    INSIDE,
    IS_SEPARATOR,
    SEPARATOR,
    START,
    WORD,
    has_unknown,
    is_apart,
    is_unknown,
    normalize_part,
    part_stop,
    past_graphic,
)
from tokenmill.tokenizer.kernels.span_table import FLAG, MISSES, Entry, find_span, limit_of, remember_limited
from tokenmill.tokenizer.kernels.spans import add_span, expand
from tokenmill.tokenizer.kernels.unigram import REBASE_BELOW
from tokenmill.tokenizer.kernels.utf8 import character_bytes, next_character
from tokenmill.tokenizer.kernels.word_table import COUNTER_TOTAL, add_count, word_key_anywhere

MOST_PART_BYTES = 1 << 14
"""A row with a longer part is encoded as a whole."""

ROW_FIRST, IS_IRREGULAR, N_NOTED, ROW_NOTED, NOTED_END, IS_NOTING, LIMIT = range(7)
"""Cells of `PartsState.cells`: where the ids of the row begin; whether it is irregular; how many words are noted, and
were before this row; where the last noted word ends; whether words with an unknown token are noted; the limit of the
ids that the model found last, -1 if they are not exact, see `sentencepiece_unigram`."""

# `inner` of the loop: whether the row has begun, and whether the last byte is in a word that has been counted.
_HAS_BEGUN, _IN_WORD = 1, 2
_ONE, _TWO, _63 = np.uint64(1), np.uint64(2), np.uint64(63)
_REBASE_BELOW = np.float32(REBASE_BELOW)
_SPARE_IDS = 16
_CHARACTER_READS = 12
"""The bytes that are read from a character on to decode it and the next one."""


class PartsState(NamedTuple):
    """The state that is carried from one part of a row to the next, and what is collected over all rows."""

    cells: npt.NDArray[np.int64]
    """int64[7], see `ROW_FIRST`."""
    sums: npt.NDArray[np.float32]
    """float32[1]: the sum of the scores of the row so far, rounded as in sentencepiece."""
    irregular: npt.NDArray[np.bool_]
    """bool[n_rows or more], False at first: rows that are left without ids."""
    noted: npt.NDArray[np.int64]
    """int64[3 * n], triples: where such a word begins, where it ends, and its `front`, see `sentencepiece_units`."""


class PartsValues(NamedTuple):
    """The values of the steps that look at more than spans."""

    tables: Any
    """engines.sentencepiece_tables.RawTables."""
    scores: npt.NDArray[np.float32]
    """float32[n]: the score of each token, if the model sums them; else of size 0."""
    model: Step
    from_sum: Step
    """Does what `model` does, but from the sum so far, and adds to it."""
    state: PartsState


# Words: stretches without separators, and without control characters that are always alone.


@kernel_part
def _count_words(data, i, stop, in_word, kinds):
    """Counts the words that begin in `data[i:stop]`; returns `(how many, whether the last byte is in one)`."""
    n_words = np.int64(0)
    while i < stop:
        n_more = past_graphic(data, i) - i
        if n_more > 0:
            n_words += 1 - in_word
            in_word = np.int64(1)
            i += n_more
        else:
            is_word = np.int64(kinds[data[np.uint64(i)]] == WORD)
            n_words += is_word & (1 - in_word)
            in_word = is_word
            i += 1
    return n_words, in_word


@kernel_part
def _word_around(data, at, stop, begin, end, row_front, tables):
    """Returns `(first, stop, front)` of the word that `data[at:stop]` is in, or of a character that is always alone.

    Separators before the word that become a "▁" are included. The row is `data[begin:end]`; `row_front` is its front.
    """
    kinds, shrink = tables.known.kinds, tables.steps.shrink
    first = at
    if kinds[data[at]] != ALONE:
        while kinds[data[first]] == WORD and first > begin and kinds[data[first - 1]] == WORD:
            first -= 1
        while not shrink and first > begin and kinds[data[first - 1]] == SEPARATOR:
            first -= 1
    if kinds[data[stop - 1]] != ALONE:
        while stop < end and kinds[data[stop]] == WORD:
            stop += 1
    before = first
    while shrink and before > begin and kinds[data[before - 1]] == SEPARATOR:
        before -= 1
    front = row_front if before == begin else FRONT if before < first else INSIDE
    return first, stop, front


@kernel
def _note_word(own, loop, at, stop):
    """Notes the word of a part that becomes an unknown token, unless it is the last noted one."""
    tables, _, _, _, state = fields_of(own)
    data, offsets, _, _ = fields_of(loop)
    cells, noted = state.cells, state.noted
    row, after = 0, offsets.size - 1
    while after - row > 1:
        middle = (row + after) // 2
        if offsets[middle] <= at:
            row = middle
        else:
            after = middle
    row_front = FRONT if tables.steps.prefix else START if tables.steps.shrink else INSIDE
    first, stop, front = _word_around(data, at, stop, offsets[row], offsets[row + 1], row_front, tables)
    n = 3 * cells[N_NOTED]
    noted[n], noted[n + 1], noted[n + 2] = first, stop, front
    cells[N_NOTED] += 1
    cells[NOTED_END] = stop


@kernel
def count_noted(data, tables, tally, noted, first, stop, text):
    """Counts the noted words first..stop-1; returns the number of the first that the tally has no room for, or `stop`.

    Args:
      data: uint8[n_bytes], the text; tables: engines.sentencepiece_tables.RawTables.
      tally: kernel_memory.CounterArrays, changed.
      noted: int64[3 * n], see `PartsState`.
      text: uint8 with room for the longest word, normalized; for work.
    """
    for k in range(first, stop):
        n, _ = normalize_part(data, noted[3 * k], noted[3 * k + 1], noted[3 * k + 2], tables, text)
        if n > 0:
            k0, k1 = word_key_anywhere(text, 0, n)
            if not add_count(tally, text, 0, n, k0, k1, 1):
                return k
    return stop


# Spans.


@kernel_part
def _is_unknown_at(data, i, characters):
    """Whether the character at i is not ASCII and always unknown; `data` is readable for eight bytes from i."""
    return data[i] >= 128 and is_unknown(characters[code_point_at(data, i)])


@kernel_part
def _other_spans(data, i, end, known, batch, limit, n, n_readable):
    """Adds the parts from i on that have no ASCII; a run of characters that are always unknown is one part.

    Every character is decoded and looked up once. Returns where it stopped, and the new n.
    """
    characters, joins = known.characters, known.joins
    here, entry = i, characters[code_point_at(data, i)]
    in_run = False
    while n < limit:
        after = here + character_bytes(data[here])
        if after >= end:
            add_span(batch, n, i, end, np.uint64(0))
            return end, n + 1
        is_ascii = data[after] < 128
        following = characters[code_point_at(data, after)]
        is_readable = after < n_readable
        is_inner = is_unknown(entry) and is_unknown(following) and not is_ascii and is_readable
        if is_inner and (here == i or in_run):
            here, in_run = after, True
            continue
        stop = here
        if is_apart(np.uint64(entry), np.uint64(following), joins) != 0 or following & IS_SEPARATOR != 0:
            stop = after
        if stop == after or in_run:
            # Without the last unknown character if it may become something else together with the next one.
            add_span(batch, n, i, stop, np.uint64(0))
            n += 1
            i = stop
        in_run = False
        if is_ascii or not is_readable:
            break
        here, entry = after, following
    return i, n


@kernel_part
def part_spans(own, loop, i, inner, end, n, o):
    """Finds parts; see `encode_loop.Steps`. own: a reference to RawTables.

    Runs of characters that are always unknown are one span, see `_other_spans`.
    """
    (tables,) = fields_of(own)
    data, _, _, work = fields_of(loop)
    known, batch, limit, n_readable = tables.known, work.batch, work.limit, data.size - READS
    kinds, shrink = known.kinds, known.shrink
    has_begun, in_word = inner & _HAS_BEGUN, inner >> 1
    n_words = np.int64(0)
    while i < end and n < limit:
        if i < n_readable and data[i] < 128:
            starts, ends, behind, words = block_parts(data, i, end - i, known)
            if ends != np.uint64(0):
                before = n
                expand(starts, i, AT, batch, n)
                n = expand(ends, i + 1, STOP, batch, n)
                if behind != np.uint64(0):
                    for counter in range(before, n):
                        k = np.uint64(counter)
                        batch[AT + k] |= ((behind >> (batch[AT + k] - np.uint64(i))) & _ONE) << _63
                if has_begun == 0:
                    at = batch[AT + np.uint64(before)] & ~FLAG
                    batch[AT + np.uint64(before)] = at | (FLAG if tables.steps.prefix else np.uint64(0))
                    has_begun = np.int64(1)
                last = np.uint64(63 - leading_zeros(ends))
                words &= (_TWO << last) - _ONE
                n_words += count_ones(words & ~(words << _ONE | np.uint64(in_word)))
                in_word = np.int64(words >> last)
                i += np.int64(last) + 1
                continue
        elif i < n_readable and has_begun != 0:
            first = i
            i, n = _other_spans(data, i, end, known, batch, limit, n, n_readable)
            if i > first:
                n_words += 1 - in_word
                in_word = np.int64(1)
                continue
        at = i
        if shrink:
            while at < end and kinds[data[at]] == SEPARATOR:
                at += 1
            if at == end:
                i = end
                break
            in_word *= np.int64(at == i)
        has_space = at > i if has_begun != 0 else tables.steps.prefix
        code_point, after = next_character(data, at)
        i = part_stop(data, after, end, code_point, tables)
        add_span(batch, n, at, i, FLAG if has_space else np.uint64(0))
        n += 1
        has_begun = np.int64(1)
        n_more, in_word = _count_words(data, at, i, in_word, kinds)
        n_words += n_more
    return i, has_begun | in_word << 1, n, n_words, o


@kernel_part
def has_room(own, loop, n, o):
    """Whether there is room for the ids and noted words of a batch; if not, NEEDED is the room for ids, 0 for words."""
    tables, _, _, _, state = fields_of(own)
    _, offsets, _, work = fields_of(loop)
    batch = work.batch
    # Each row may be an added token, which takes an id.
    most = work.out.size - o - n - offsets.size - _SPARE_IDS
    n_bytes = np.int64(batch[STOP + np.uint64(n - 1)] - (batch[AT] & ~FLAG))
    if n_bytes * tables.ids_per_byte > most:
        n_bytes = np.int64(0)
        for counter in range(n):
            k = np.uint64(counter)
            n_bytes += min(np.int64(batch[STOP + k] - (batch[AT + k] & ~FLAG)), MOST_PART_BYTES)
        n_ids = np.int64(n_bytes * tables.ids_per_byte)
        if n_ids > most:
            work.position[NEEDED] = work.out.size + n_ids - most
            return np.int64(0)
    work.position[NEEDED] = 0
    return np.int64(state.cells[IS_NOTING] == 0 or 3 * (state.cells[N_NOTED] + n) <= state.noted.size)


@kernel_part
def end_row(own, loop, row, o):
    """Begins another row; drops the ids and the noted words of an irregular one."""
    _, _, _, _, state = fields_of(own)
    cells = state.cells
    if cells[IS_IRREGULAR] != 0:
        state.irregular[row] = True
        cells[IS_IRREGULAR] = 0
        o = cells[ROW_FIRST]
        cells[N_NOTED] = cells[ROW_NOTED]
    cells[ROW_FIRST], cells[ROW_NOTED] = o, cells[N_NOTED]
    state.sums[0] = np.float32(0.0)
    return o


# Parts that are not in the table.


@kernel_part
def _fuse_unknown(out, first, last, row_first, unk_id):
    """Makes each run of unknown tokens in `out[first:last]` one, with those before it; returns the new end."""
    o = first
    for q in range(first, last):
        if out[q] == unk_id and o > row_first and out[o - 1] == unk_id:
            continue
        out[o] = out[q]
        o += 1
    return o


@kernel_part
def begin_again(total):
    """Returns the sum of a row from which sentencepiece goes on: 0 instead of a very low one."""
    return total if total >= _REBASE_BELOW else np.float32(0.0)


@kernel_part
def miss(own, loop, k, o):
    """Appends one unknown token for a run of unknown characters, unless the last token is one; else calls `_miss_part`.

    Kept apart from that, because in some texts such runs are frequent, and a call of it takes long to start. own: a
    reference to PartsValues.
    """
    tables, scores, _, _, state = fields_of(own)
    data, _, _, work = fields_of(loop)
    at = np.int64(work.batch[AT + k])
    stop = np.int64(work.batch[STOP + k])
    characters = tables.known.characters
    if at < 0 or at + _CHARACTER_READS > data.size or not _is_unknown_at(data, at, characters):
        return _miss_part(own, loop, k, o)
    # After such a character, a part that is no run goes on with a character that depends on its neighbours.
    after = at + character_bytes(data[at])
    if after < stop and not _is_unknown_at(data, after, characters):
        return _miss_part(own, loop, k, o)
    cells, out = state.cells, work.out
    if cells[IS_NOTING] != 0 and at >= cells[NOTED_END]:
        _note_word(own, loop, at, stop)
    total = state.sums[0]
    while scores.size > 0 and at < stop:
        total = begin_again(np.float32(total + scores[tables.unk_id]))
        at += character_bytes(data[at])
    state.sums[0] = total
    if o > cells[ROW_FIRST] and out[o - 1] == tables.unk_id:
        return o
    out[o] = tables.unk_id
    return o + 1


@kernel
def _miss_part(own, loop, k, o):
    """Appends the ids of part k of a batch and puts them in the table."""
    tables, scores, model, from_sum, state = fields_of(own)
    data, _, _, work = fields_of(loop)
    table, batch, out, cells, sums = work.table, work.batch, work.out, state.cells, state.sums
    unk_id, shrink, summed = tables.unk_id, tables.steps.shrink, scores.size > 0
    flag = batch[AT + k] & FLAG
    at = np.int64(batch[AT + k] ^ flag)
    w = np.int64(batch[STOP + k]) - at
    k0, k1 = batch[KEY_0 + k], batch[KEY_1 + k]
    before = o
    o, found, unknown, j = find_span(table, data, at, w, k0, k1, batch[SLOT + k], out, o)
    is_added = False
    if not found or (summed and np.int64(abs(sums[0])) >= limit_of(table.slots, j)):
        if w > MOST_PART_BYTES:
            cells[IS_IRREGULAR] = 1
            return before
        # A part that may begin with spaces begins a unit.
        front = FRONT if flag != np.uint64(0) else START if shrink else INSIDE
        n, is_regular = normalize_part(data, at, at + w, front, tables, work.word)
        if n == 0:
            # Normalized it is empty, so it was no word, and the next part takes its place.
            work.tally.state[COUNTER_TOTAL] -= 1
            is_regular = not shrink or front == FRONT
        if not is_regular:
            cells[IS_IRREGULAR] = 1
        if not is_regular or n == 0:
            return before
        cells[LIMIT] = 0
        table.state[MISSES] += 1
        buffers = refer((work.word, out, work.ends))
        if not found:
            o, _ = call_model(model, (buffers, n, False, before))
            unknown = has_unknown(out, before, o, unk_id)
            if cells[LIMIT] >= 0:
                entry = Entry(at, w, k0, k1, j, np.uint64(cells[LIMIT]), np.uint64(tables.absent_id))
                remember_limited(table, data, entry, out, before, o, unknown)
        if summed and np.int64(abs(sums[0])) >= cells[LIMIT]:
            o, _ = call_model(from_sum, (buffers, n, False, before))
            unknown = has_unknown(out, before, o, unk_id)
            is_added = True
    if summed and not is_added:
        # Of the byte tokens of a character only the first has a score.
        for q in range(before, o):
            sums[0] = begin_again(np.float32(sums[0] + scores[out[q]]))
    if unknown:
        if cells[IS_NOTING] != 0 and at >= cells[NOTED_END]:
            _note_word(own, loop, at, at + w)
        o = _fuse_unknown(out, before, o, cells[ROW_FIRST], unk_id)
    return o
