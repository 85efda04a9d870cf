# SPDX-License-Identifier: Apache-2.0
"""The encode loop over raw words between white space, of models whose words are normalized one by one.

A span is a word as it stands in the text, or a part of one. What the table does not have is not encoded in the loop: it
is *pending*, an id of its own stands for it, and all that is pending is normalized and encoded at once when the loop is
done. A span with the FLAG is a part of a word that is not its first one, so no "▁" stands in front of it.

Its slow twin is `tokenizer.engines.staged.StagedEngine`; `tests/tokenizer/engines/test_normalized_words.py` compares
them.

Its slow twin is `tokenizer.engines.staged.StagedEngine`; `tests/tokenizer/engines/test_normalized_words.py` compares
them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer.kernels.ascii_blocks import blank_words
from tokenizer.kernels.compiling import (
    kernel,
    kernel_of_short_loops,
    kernel_part,
    leading_zeros,
)
from tokenizer.kernels.encode_loop import (
    AT,
    FLAGGED,
    KEY_0,
    KEY_1,
    SLOT,
    STOP,
    emit_all,
    encode_rows,
    nothing_at_end,
    tally_has_room,
)
from tokenizer.kernels.references import refer, values_of
from tokenizer.kernels.scanners_parts import SPACE, character, run_until, skip_spaces
from tokenizer.kernels.sentencepiece_units import character_hashes, joined
from tokenizer.kernels.span_table import FLAG, MISSES, POOLED, UNKNOWN, find_span, remember_span
from tokenizer.kernels.spans import add_span, expand
from tokenizer.kernels.text_parts import character_before
from tokenizer.kernels.unigram import weigh_paths
from tokenizer.kernels.utf8 import next_character

PENDING = 1 << 30
"""The id that stands for the first span that is pending; those of the others follow."""
ONE_SPACE, EVERY_SPACE, NO_SPACE = 1, 2, 0
"""Which white space becomes a "▁" of its own: one at the end of a row, each but the last before a word, or none."""
SEPARATES, CUTS = np.uint64(1 << 63), np.uint64(1 << 62)
"""What `WordTables.entries` say of characters beside their hashes: it stands between words; words may be cut there."""
N_PENDING, N_NOTED = 0, 1
"""Places in `Pending.state`."""
_THREE_BYTES = 0xE1
"""First byte of characters of three bytes and more, but those of the scripts of India, which have spaces."""
_FORGOTTEN = np.uint64(0x40 << 56)
"""In place of a key, which it never is: with an empty slot what lies behind it would not be found."""
_ONE, _TWO, _THREE, _32 = (np.uint64(c) for c in (1, 2, 3, 32))
_LOW = np.uint64(0xFFFFFFFF)


class WordTables(NamedTuple):
    """Where words are."""

    classes: npt.NDArray[np.uint8]
    """uint8[0x110000]: SPACE for what stands between words."""
    entries: npt.NDArray[np.uint64]
    """uint64[0x110000]: SEPARATES, or CUTS and the hashes of the one character that it becomes, see
    `sentencepiece_units`; 0 for what becomes another thing beside another character, where words are not cut."""
    joins: npt.NDArray[np.uint64]
    """uint64[2**JOIN_BITS / 64]: a bit for every two characters that are neighbours in a token."""
    cuts: np.uint64
    """CUTS, or 0 where words are not cut at all."""
    separators: npt.NDArray[np.uint64]
    """uint64[2]: all ones where tabs, and line ends, stand between words."""
    spaces: int
    """ONE_SPACE, EVERY_SPACE or NO_SPACE."""


class Pending(NamedTuple):
    """What the loop leaves to be encoded, and where it met unknown tokens."""

    starts: npt.NDArray[np.uint64]
    stops: npt.NDArray[np.uint64]
    """uint64[n]: the spans that are pending, some of them with the FLAG."""
    slots: npt.NDArray[np.uint64]
    """uint64[n]: where in the table they are."""
    noted: npt.NDArray[np.int64]
    """int64[2 * n]: where a span begins that has an unknown token, or is pending: the number of that, else -1."""
    state: npt.NDArray[np.int64]
    """int64[2], zeros to begin with: how many there are of either."""


@kernel_part
def _count_characters(data, i, stop):
    n = np.int64(0)
    for q in range(i, stop):
        n += np.int64(data[q] & 0xC0 != 0x80)
    return n


@kernel_part
def _add_parts(data, i, inner, end, tables, batch, n, limit):
    """Adds the parts of a word from i on to a batch that has n spans, up to where ASCII begins or the batch is full.

    Returns `(where it stopped, whether that is inside of the word, the new n)`.
    """
    entries, joins = tables.entries, tables.joins
    begin = i
    lead = data[i]
    code_point, q = next_character(data, i)
    before = entries[code_point]
    while q < end:
        next_lead = data[q]
        code_point, after = next_character(data, q)
        entry = entries[code_point]
        if entry & SEPARATES:
            break
        is_long = max(lead, next_lead) >= _THREE_BYTES
        if is_long and before & entry & tables.cuts and joined(before, entry, joins) == 0:
            add_span(FLAGGED, batch, n, begin, q, FLAG if inner else np.uint64(0))
            n += 1
            begin, inner = q, np.int64(1)
            if next_lead < 0x80 or n >= limit:
                return q, inner, n
        lead, before = next_lead, entry
        q = after
    add_span(FLAGGED, batch, n, begin, q, FLAG if inner else np.uint64(0))
    return q, np.int64(0), n + 1


@kernel_part
def _next_spans(data, i, inner, end, tables, model, work, n, n_readable, o):
    """See `encode_loop.encode_rows`; `inner` is 1 inside of a word."""
    batch, limit, classes = work.batch, work.limit, tables.classes
    n_words = np.int64(0)
    while n < limit:
        if inner == 0:
            begin = i
            i = skip_spaces(data, i, end, classes)
            if tables.spaces != NO_SPACE and i > begin and (i == end or tables.spaces == EVERY_SPACE):
                stop = i if i == end else character_before(data, i)
                if tables.spaces == ONE_SPACE:
                    _, stop = next_character(data, begin)
                if stop > begin:
                    add_span(FLAGGED, batch, n, begin, stop, np.uint64(0))
                    n += 1
                    n_words += _count_characters(data, begin, stop)
            if i >= end:
                break
        room = min(end - i, 65)
        if room > 2 and i < n_readable and data[i] < 128 and data[i + 1] < 128 and tables.spaces != EVERY_SPACE:
            starts, stops = blank_words(data, i, tables.separators)
            # Without what lies beyond the text or depends on that.
            starts &= (_TWO << np.uint64(room - 2)) - _ONE
            if starts & ~_ONE != np.uint64(0):
                m = expand(starts, i, AT, batch, n) - 1
                expand(stops, i, STOP, batch, n)
                batch[AT + np.uint64(n)] |= FLAG * np.uint64(inner)
                n_words += m - n - inner
                inner = np.int64(0)
                n = m
                i += 63 - leading_zeros(starts)
                continue
        n_words += np.int64(inner == 0)
        i, inner, n = _add_parts(data, i, inner, end, tables, batch, n, limit)
    return i, inner, n, n_words, o


@kernel
def miss(arguments, k, o):
    """Appends the ids of span k of a batch if the table has them after all; else it is pending.

    arguments: a reference to the text, Pending and the Work.
    """
    data, pending, work = values_of(arguments)
    table, batch, out, state = work.table, work.batch, work.out, pending.state
    flag = batch[AT + k] & FLAG
    at = np.int64(batch[AT + k] ^ flag)
    w = np.int64(batch[STOP + k]) - at
    k0, k1 = batch[KEY_0 + k], batch[KEY_1 + k]
    before = o
    o, found, has_unknown, j = find_span(table, data, at, w, k0, k1, batch[SLOT + k], out, o)
    if not found:
        out[before] = PENDING + state[N_PENDING]
        o = before + 1
        pending.starts[state[N_PENDING]], pending.stops[state[N_PENDING]] = batch[AT + k], batch[STOP + k]
        pending.slots[state[N_PENDING]] = j
        state[N_PENDING] += 1
        table.state[MISSES] += 1
        # Whether it is unknown is not known yet, so that must be looked at again.
        remember_span(table, data, at, w, k0, k1, j, out, before, o, True)
    if work.tallying and (not found or has_unknown):
        pending.noted[2 * state[N_NOTED]] = at
        pending.noted[2 * state[N_NOTED] + 1] = out[before] - PENDING if out[before] >= PENDING else -1
        state[N_NOTED] += 1
    return o


@kernel_of_short_loops
def encode(rows, added, tables, pending, work):
    """Encodes rows; see `encode_loop.encode_rows`.

    Args:
      rows: ragged.Ragged of valid UTF-8.
      added: int32[n_rows], the id of rows that are an added token, -1 for text; or int32[0].
      tables: WordTables; pending: Pending, with room for a span per byte.
    """
    data, offsets = rows
    return encode_rows(
        _next_spans, FLAGGED, tally_has_room, emit_all, miss, nothing_at_end, refer((data, pending, work)),
        data, offsets, added, tables, np.int64(0), work,
    )  # fmt: skip


@kernel
def settle(data, pending, ids, offsets, has_unknown, is_kept, table):
    """Puts the ids of spans into the table that were pending in it, or forgets these.

    Args:
      data: uint8[n_bytes], the text; table: span_table.Table, changed; pending: Pending.
      ids, offsets: int32 and int64[n + 1], their ids.
      has_unknown, is_kept: bool[n].
    """
    slots = table.slots
    for p in range(is_kept.size):
        j = pending.slots[p]
        more = slots[j + _THREE] >> _32
        held = slots[j + _TWO] & _LOW
        if more & np.uint64(POOLED):
            held = np.uint64(table.ids[held])
        # Another span may have taken its place.
        if more & ~np.uint64(POOLED | UNKNOWN) == _ONE and held == np.uint64(PENDING + p):
            at = np.int64(pending.starts[p] & ~FLAG)
            k0, k1 = slots[j], slots[j + _ONE]
            slots[j], slots[j + _ONE] = np.uint64(0), _FORGOTTEN
            if is_kept[p]:
                w, first, last = np.int64(pending.stops[p]) - at, offsets[p], offsets[p + 1]
                remember_span(table, data, at, w, k0, k1, j, ids, first, last, has_unknown[p])


@kernel
def placed_size(ids, offsets, more_offsets):
    """Returns how many ids `place` writes at most."""
    n = np.int64(0)
    for q in range(offsets[0], offsets[offsets.size - 1]):
        n += 1
        if ids[q] >= PENDING:
            n += more_offsets[ids[q] - PENDING + 1] - more_offsets[ids[q] - PENDING]
    return n


@kernel
def place(ids, offsets, more, more_offsets, is_irregular, fused_id, out, out_offsets, irregular):
    """Copies ids, and those of spans that were pending in their place.

    Args:
      ids, offsets: int32 and int64[n_rows + 1].
      more, more_offsets: int32 and int64[n + 1], the ids of what was pending; is_irregular: bool[n].
      fused_id: of this one only the first of several in a row is kept; -1 for none.
      out: int32 with room for `placed_size` ids; out_offsets: int64[n_rows + 1]; filled.
      irregular: bool[n_rows], changed: set for rows with irregular spans: they have no ids then.
    """
    o = np.int64(0)
    out_offsets[0] = 0
    for row in range(offsets.size - 1):
        begin = o
        for q in range(offsets[row], offsets[row + 1]):
            token = ids[q]
            if token < PENDING and token != fused_id:
                out[o] = token
                o += 1
            elif token == fused_id:
                if o == begin or out[o - 1] != fused_id:
                    out[o] = token
                    o += 1
            else:
                p = np.int64(token) - PENDING
                irregular[row] |= is_irregular[p]
                for r in range(more_offsets[p], more_offsets[p + 1]):
                    if more[r] != fused_id or o == begin or out[o - 1] != fused_id:
                        out[o] = more[r]
                        o += 1
        if irregular[row]:
            o = begin
        out_offsets[row + 1] = o


@kernel
def words_around(data, offsets, irregular, noted, classes, starts, stops):
    """Finds the words that noted places are in; returns how many there are.

    Args:
      data, offsets: uint8[n_bytes] and int64[n_rows + 1], the text; classes: uint8[0x110000], see `WordTables`.
      irregular: bool[n_rows], rows to be left out.
      noted: int64[n], the places, in their order.
      starts, stops: int64[n], filled.
    """
    n = 0
    row, passed = 0, np.int64(0)
    for at in noted:
        while offsets[row + 1] <= at:
            row += 1
        if irregular[row] or at < passed:
            continue
        begin = at
        while begin > offsets[row]:
            before = character_before(data, begin)
            if character(data, before, classes)[0] & SPACE:
                break
            begin = before
        passed = run_until(data, at, offsets[row + 1], classes, SPACE)
        starts[n], stops[n] = begin, passed
        n += 1
    return n


@kernel
def border_characters(values, offsets, first, last):
    """Finds the first and the last character of every row, 0 for those that are empty.

    Args:
      values, offsets: uint8[n_bytes] and int64[n + 1], valid UTF-8.
      first, last: int32[n], filled.
    """
    for row in range(offsets.size - 1):
        first[row], last[row] = 0, 0
        if offsets[row] < offsets[row + 1]:
            first[row], _ = next_character(values, offsets[row])
            last[row], _ = next_character(values, character_before(values, offsets[row + 1]))


@kernel
def set_entries(points, images, entries):
    """Says what characters become in whose neighbourhood words may be cut.

    Args:
      points: int64[n], the characters; images: int32[n], what each becomes.
      entries: uint64[0x110000], changed, see `WordTables`.
    """
    for k in range(points.size):
        entries[points[k]] = CUTS | character_hashes(np.int64(images[k]))


@kernel
def find_gaps(values, starts, stops, model, scratch, seconds, gaps):
    """Finds by how much the best path of Unigram leads at each place it passes.

    Args:
      values: uint8[n]; starts, stops: int64[n_words] into it.
      model: UnigramTables; scratch: UnigramScratch for the longest word, for work.
      seconds: float64[n_places], as long as `scratch.scores`, for work.
      gaps: float64[n_words], filled: the least by which it leads.
    """
    for k in range(starts.size):
        gaps[k], _, _ = weigh_paths(values, starts[k], stops[k] - starts[k], model, scratch, seconds)
