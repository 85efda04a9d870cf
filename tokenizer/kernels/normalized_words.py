# SPDX-License-Identifier: Apache-2.0
"""The encode loop over raw words between white space, for models whose words are normalized one by one.

A span is a word as it is in the raw text, or a part of one. A word that the table does not have is cut, and its parts
are looked up. What the table does not have either is not encoded in the loop: it is *pending*, gets a placeholder id,
and all pending spans are normalized and encoded together after the loop. A span with the FLAG is a later part of a
word, so it gets no "▁" in front.

Its reference implementation is `tokenmill.tokenizer.engines.staged.StagedEngine`;
`tests/tokenizer/engines/test_normalized_words.py` compares them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compiling.kernel import (
    kernel,
    kernel_part,
    leading_zeros,
)
from tokenmill.tokenizer.kernels.ascii_blocks import blank_words
from tokenmill.tokenizer.kernels.by_address import fields_of
from tokenmill.tokenizer.kernels.encode_loop import AT, KEY_0, KEY_1, READS, SLOT, STOP
from tokenmill.tokenizer.kernels.scanners_parts import SPACE, character, run_until, skip_spaces
from tokenmill.tokenizer.kernels.sentencepiece_units import character_hashes, joined
from tokenmill.tokenizer.kernels.span_table import (
    FLAG,
    LONGEST,
    MISSES,
    POOLED,
    UNKNOWN,
    find_span,
    first_slot,
    pool_ids,
    remember_span,
    span_key,
)
from tokenmill.tokenizer.kernels.spans import add_span, expand
from tokenmill.tokenizer.kernels.text_parts import character_before
from tokenmill.tokenizer.kernels.unigram import weigh_paths
from tokenmill.tokenizer.kernels.utf8 import n_characters, next_character

PENDING = 1 << 30
"""The placeholder id of the first pending span; those of the others follow."""
ONE_SPACE, EVERY_SPACE, NO_SPACE = 1, 2, 0
"""Which white space becomes a "▁" of its own: one at the end of a row, each but the last before a word, or none."""
SEPARATES, CUTS = np.uint64(1 << 63), np.uint64(1 << 62)
"""Bits of `WordTables.entries`: the character separates words; words may be cut at it."""
N_PENDING, N_NOTED = 0, 1
"""Places in `Pending.state`."""
_THREE_BYTES = 0xE1
"""The least first byte of characters of three bytes or more, except those of India's scripts, which use spaces."""
_FORGOTTEN = np.uint64(0x40 << 56)
"""Replaces the key of a span that is removed: were the slot empty, spans in later slots would not be found."""
_ONE, _TWO, _THREE, _32 = (np.uint64(c) for c in (1, 2, 3, 32))
_LOW = np.uint64(0xFFFFFFFF)


class WordTables(NamedTuple):
    """The tables that tell where words are, and where they may be cut."""

    classes: npt.NDArray[np.uint8]
    """uint8[0x110000]: SPACE for characters that separate words."""
    entries: npt.NDArray[np.uint64]
    """uint64[0x110000]: SEPARATES, or CUTS and the hashes of the one character that it becomes, see
    `sentencepiece_units`; 0 if what it becomes depends on its neighbours, so that words are not cut there."""
    joins: npt.NDArray[np.uint64]
    """uint64[2**JOIN_BITS / 64]: a bit for every two characters that are neighbours in a token."""
    separators: npt.NDArray[np.uint64]
    """uint64[2]: all ones if tabs, and if line ends, separate words; else 0."""
    spaces: int
    """ONE_SPACE, EVERY_SPACE or NO_SPACE."""
    sums: bool
    """Whether the model sums scores, as Unigram does, so that rounding may decide how it cuts."""


class Pending(NamedTuple):
    """The spans that the loop leaves to be encoded, and the places where it met unknown tokens."""

    starts: npt.NDArray[np.uint64]
    stops: npt.NDArray[np.uint64]
    """uint64[n]: where each pending span starts, some with the FLAG, and where it stops."""
    slots: npt.NDArray[np.uint64]
    """uint64[n]: its slot in the table."""
    noted: npt.NDArray[np.int64]
    """int64[2 * n], pairs: where a span begins that is pending or has an unknown token; its pending number or -1."""
    state: npt.NDArray[np.int64]
    """int64[2], zeros at first: the number of pending spans, and of noted ones."""


@kernel_part
def _stays(data, q, end, tables):
    """Whether the character at q, if there is one, leaves that before it as it is. "e" before U+0301 becomes "é"."""
    if q >= end:
        return True
    code_point, _ = next_character(data, q)
    return tables.entries[code_point] & (CUTS | SEPARATES) != 0


@kernel_part
def _part_end(data, lead, before, q, end, tables, least):
    """Finds where a part of a word ends: at white space, at `end`, or where the word may be cut.

    Args:
      lead, before, q: of the first character of the part: its first byte, its entry, where the next character begins.
      least: the larger first byte of the two characters beside a cut is at least this; 0 allows every cut, 256 none.

    Returns:
      `(where it ends, and of the character there: lead, entry, where the next one begins)`.
    """
    next_lead, entry, after = lead, before, q
    while q < end:
        next_lead = data[q]
        code_point, after = next_character(data, q)
        entry = tables.entries[code_point]
        if entry & SEPARATES:
            break
        may_cut = max(lead, next_lead) >= least and before & entry & CUTS
        if may_cut and joined(before, entry, tables.joins) == 0 and _stays(data, after, end, tables):
            break
        lead, before, q = next_lead, entry, after
    return q, next_lead, entry, after


@kernel_part
def _add_parts(data, i, inner, end, tables, batch, n, limit):
    """Adds parts of a word from i on, at least one, to a batch with n spans, until ASCII begins or the batch is full.

    Returns `(where it stopped, whether that is inside the word, the new n)`.
    """
    code_point, q = next_character(data, i)
    lead, entry = data[i], tables.entries[code_point]
    while True:
        stop, lead, entry, q = _part_end(data, lead, entry, q, end, tables, _THREE_BYTES)
        add_span(batch, n, i, stop, FLAG if inner else np.uint64(0))
        n += 1
        i, inner = stop, np.int64(1)
        if stop == end or entry & SEPARATES:
            return stop, np.int64(0), n
        if lead < 0x80 or n >= limit:
            return i, inner, n


@kernel_part
def spans(own, loop, i, inner, end, n, o):
    """Finds words, or parts of them; see `encode_loop.Steps`. own: a reference to WordTables; `inner`: 1 in a word."""
    (tables,) = fields_of(own)
    data, _, _, work = fields_of(loop)
    batch, limit, classes, n_readable = work.batch, work.limit, tables.classes, data.size - READS
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
                    add_span(batch, n, begin, stop, np.uint64(0))
                    n += 1
                    n_words += n_characters(data, begin, stop)
            if i >= end:
                break
        room = min(end - i, 65)
        if room > 2 and i < n_readable and data[i] < 128 and data[i + 1] < 128 and tables.spaces != EVERY_SPACE:
            starts, stops = blank_words(data, i, tables.separators)
            # Drops the bits beyond the text, and those that depend on bytes there.
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


@kernel_part
def _has_run(data, at, stop):
    """Whether three consecutive bytes are the same."""
    found = False
    for q in range(at + 2, stop):
        found |= data[q] == data[q - 1] and data[q] == data[q - 2]
    return found


@kernel_part
def _note(pending, at, number):
    """Notes that the span at `at` has an unknown token, or may have one; number: that of a pending span, else -1."""
    n = pending.state[N_NOTED]
    pending.noted[2 * n], pending.noted[2 * n + 1] = at, number
    pending.state[N_NOTED] = n + 1


@kernel_part
def _await(data, at, w, flag, k0, k1, j, pending, work, o):
    """Makes a span pending: puts its key into slot j and appends its placeholder id. Returns the new o."""
    table, out, number = work.table, work.out, pending.state[N_PENDING]
    out[o] = PENDING + number
    pending.starts[number], pending.stops[number] = np.uint64(at) | flag, np.uint64(at + w)
    pending.slots[number] = j
    pending.state[N_PENDING] = number + 1
    table.state[MISSES] += 1
    # Marked as unknown, so that every occurrence comes to `miss` until the ids are known.
    remember_span(table, data, at, w, k0, k1, j, out, o, o + 1, True)
    if work.tallying:
        _note(pending, at, number)
    return o + 1


@kernel_part
def miss(own, loop, k, o):
    """Appends the ids of span k of a batch, or of its parts, if the table has them; what it lacks becomes pending.

    own: a reference to WordTables and Pending.
    """
    tables, pending = fields_of(own)
    data, _, _, work = fields_of(loop)
    table, batch, out = work.table, work.batch, work.out
    flag = batch[AT + k] & FLAG
    at, stop = np.int64(batch[AT + k] ^ flag), np.int64(batch[STOP + k])
    k0, k1 = batch[KEY_0 + k], batch[KEY_1 + k]
    first = o
    o, found, has_unknown, j = find_span(table, data, at, stop - at, k0, k1, batch[SLOT + k], out, o)
    if found:
        if work.tallying and has_unknown:
            _note(pending, at, out[first] - PENDING if out[first] >= PENDING else -1)
        return o
    code_point, q = next_character(data, at)
    lead, entry = data[at], tables.entries[code_point]
    if entry & SEPARATES:
        return _await(data, at, stop - at, flag, k0, k1, j, pending, work, o)
    cut, is_known, is_unknown = at, True, False
    shift = np.uint64(leading_zeros(np.uint64(table.slots.size // 8 - 1)))
    # Rounding decides how Unigram cuts a run of one character, so such a word is encoded as a whole.
    least = 256 if tables.sums and _has_run(data, at, stop) else 0
    while cut < stop:
        begin, before = cut, o
        cut, lead, entry, q = _part_end(data, lead, entry, q, stop, tables, least)
        if cut - begin == stop - at:
            return _await(data, at, stop - at, flag, k0, k1, j, pending, work, o)
        p0, p1 = span_key(data, begin, cut - begin)
        p1 ^= flag
        slot = first_slot(p0, p1, shift)
        o, found, has_unknown, slot = find_span(table, data, begin, cut - begin, p0, p1, slot, out, o)
        if not found:
            o = _await(data, begin, cut - begin, flag, p0, p1, slot, pending, work, o)
        elif has_unknown:
            is_unknown = True
            if work.tallying:
                _note(pending, begin, out[before] - PENDING if out[before] >= PENDING else -1)
        is_known &= found and (o == before or out[before] < PENDING)
        flag = FLAG
    if is_known:
        remember_span(table, data, at, stop - at, k0, k1, j, out, first, o, is_unknown)
    return o


@kernel
def cut_rows(data, offsets, added, tables, size, out, owners):
    """Cuts rows into pieces of at least `size` bytes, at white space between characters that become one each.

    No step looks across such white space, and a piece that begins with it is encoded as it is inside the row.

    Args:
      data, offsets: uint8[n_bytes] and int64[n_rows + 1], valid UTF-8; tables: WordTables.
      added: see `encode_loop.run`.
      size: the least size of a piece in bytes, except for the last one of a row.
      out, owners: int64[n_rows + n_bytes // size + 1], filled: the offsets of the pieces, and their rows.

    Returns:
      How many pieces there are.
    """
    entries, n = tables.entries, 0
    for row in range(offsets.size - 1):
        out[n], owners[n] = offsets[row], row
        n += 1
        q, end = offsets[row] + size, offsets[row + 1]
        while q + 1 < end and (added.size == 0 or added[row] < 0):
            if data[q] < 0x80 and entries[data[q]] & SEPARATES:
                before, _ = next_character(data, character_before(data, q))
                behind, _ = next_character(data, q + 1)
                if entries[before] & entries[behind] & CUTS:
                    out[n], owners[n] = q, row
                    n += 1
                    q += size - 1
            q += 1
    out[n] = offsets[offsets.size - 1]
    return n


@kernel
def settle(data, pending, ids, offsets, has_unknown, is_kept, table):
    """Puts the ids of pending spans into the table, or removes those spans from it that are not kept.

    Args:
      data: uint8[n_bytes], the text; table: span_table.Table, changed; pending: Pending.
      ids, offsets: int32 and int64[n + 1], their ids.
      has_unknown, is_kept: bool[n], whether a span has an unknown token, and whether the table may keep it.
    """
    slots = table.slots
    for p in range(is_kept.size):
        j = pending.slots[p]
        more = slots[j + _THREE] >> _32
        held = slots[j + _TWO] & _LOW
        if more & np.uint64(POOLED):
            held = np.uint64(table.ids[held])
        # Another span may have taken its slot.
        if more & ~np.uint64(POOLED | UNKNOWN) == _ONE and held == np.uint64(PENDING + p):
            at = np.int64(pending.starts[p] & ~FLAG)
            w, first, last = np.int64(pending.stops[p]) - at, offsets[p], offsets[p + 1]
            k0, k1 = slots[j], slots[j + _ONE]
            if is_kept[p] and w > LONGEST:
                # Its bytes are in the pool already, so only its ids are added.
                mark = np.uint64(UNKNOWN if has_unknown[p] else 0) << _32
                if pool_ids(table, j, np.int64(slots[j + _TWO] >> _32), ids, first, last, mark):
                    continue
            slots[j], slots[j + _ONE] = np.uint64(0), _FORGOTTEN
            if is_kept[p] and w <= LONGEST:
                remember_span(table, data, at, w, k0, k1, j, ids, first, last, has_unknown[p])


@kernel
def placed_size(ids, offsets, more_offsets):
    """Returns the most ids that `place` writes."""
    n = np.int64(0)
    for q in range(offsets[0], offsets[offsets.size - 1]):
        n += 1
        if ids[q] >= PENDING:
            n += more_offsets[ids[q] - PENDING + 1] - more_offsets[ids[q] - PENDING]
    return n


@kernel
def place(ids, offsets, more, more_offsets, is_irregular, fused_id, out, out_offsets, irregular):
    """Copies rows of ids, and replaces the placeholders of pending spans by their ids.

    Args:
      ids, offsets: int32 and int64[n_rows + 1].
      more, more_offsets: int32 and int64[n + 1], the ids of pending spans; is_irregular: bool[n], of them.
      fused_id: the id of which several in a row become one; -1 for none.
      out: int32 with room for `placed_size` ids; out_offsets: int64[n_rows + 1]; filled.
      irregular: bool[n_rows], changed: set for rows with irregular spans, which get no ids.
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
    """Finds the words that noted places are in; returns their number.

    Args:
      data, offsets: uint8[n_bytes] and int64[n_rows + 1], the text; classes: uint8[0x110000], see `WordTables`.
      irregular: bool[n_rows], rows to leave out.
      noted: int64[n], the places, ascending.
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
    """Finds the first and the last character of every row, 0 if it is empty.

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
    """Fills the entries of the characters at which words may be cut.

    Args:
      points: int64[n], the characters; images: int32[n], what each becomes.
      entries: uint64[0x110000], changed, see `WordTables`.
    """
    for k in range(points.size):
        entries[points[k]] = CUTS | character_hashes(np.int64(images[k]))


@kernel
def find_gaps(values, starts, stops, model, scratch, gaps):
    """Finds the least lead of Unigram's best path, over the second best, in each word.

    Args:
      values: uint8[n]; starts, stops: int64[n_words] into it.
      model: UnigramTables; scratch: UnigramScratch for the longest word, for work.
      gaps: float64[n_words], filled: the least lead at any place that the best path passes.
    """
    for k in range(starts.size):
        gaps[k], _, _ = weigh_paths(values, starts[k], stops[k] - starts[k], model, scratch)
