# SPDX-License-Identifier: Apache-2.0
"""The way that almost all of SentencePiece's text takes: parts that are in the cache, and characters alone.

Two kernels do nothing else, so that what they work with stays in registers. Where parts end is as hard to foresee as
the text, so both first find all ends among 64, without a branch that depends on them, then ask for all slots, and only
then read the slots. `_emit_blocks` is for ASCII and what is scattered in it, and takes 64 bytes. `_emit_runs` is for
other text and takes 64 characters; there most parts are of one character, at least in scripts without spaces, and what
describes a character says what becomes of it alone.
"""

import numpy as np

from tokenizer.kernels.compiling import count_ones, kernel, kernel_part, load_u64, prefetch, trailing_zeros
from tokenizer.kernels.sentencepiece_blocks import BLOCK_READS, block_parts, code_point_at, ends_before
from tokenizer.kernels.sentencepiece_cache import LONGEST_CACHED, emit_long, emit_short, first_slot
from tokenizer.kernels.sentencepiece_sums import MAX_BOUND
from tokenizer.kernels.sentencepiece_units import (
    ALONE,
    FRONT,
    INSIDE,
    SEPARATOR,
    START,
    UNKNOWN,
    alone_id,
    described_by,
)
from tokenizer.kernels.utf8 import HIGH_BITS
from tokenizer.kernels.word_table import SHORT_WORD_BYTES

_ONE = np.uint64(1)
_TWO = np.uint64(2)

# Why a kernel stops: the part wants a closer look, or is for the other kernel.
_CLOSER, _OTHER = 0, 1

# Where in `notes` the places of the characters of a run stand, and the slots that parts are looked for in.
_PLACES, _SLOTS = np.uint64(65), np.uint64(130)
# And where what is held of a block or a run in which a part wanted a closer look, to go on with behind it: which kernel
# it is from, where that part ends, what is left of the masks, and two numbers more: where the block begins and its
# `single`; or how many characters the run has and its `is_closer`.
_KIND, _AT, _STARTS, _ENDS, _BEHIND, _WORDS, _FIRST, _MORE = range(195, 203)
N_NOTES = 203
_RUN, _BLOCK = 1, 2


@kernel_part
def forget(notes):
    """Holds nothing any more."""
    notes[_KIND] = 0


@kernel_part
def _hold(notes, kind, at, starts, ends, behind, words, first, more):
    ends &= ends - _ONE
    if ends == np.uint64(0):
        return
    notes[_KIND], notes[_AT] = kind, at
    notes[_STARTS], notes[_ENDS] = np.int64(starts & (starts - _ONE)), np.int64(ends)
    notes[_BEHIND], notes[_WORDS] = np.int64(behind), np.int64(words)
    notes[_FIRST], notes[_MORE] = first, more


@kernel_part
def _held_masks(notes):
    return np.uint64(notes[_STARTS]), np.uint64(notes[_ENDS]), np.uint64(notes[_BEHIND]), np.uint64(notes[_WORDS])


@kernel_part
def _behind_held(starts, behind, front, in_word):
    """Returns front and in_word for the first of what was held, which separators may stand before."""
    if starts & (~starts + _ONE) & behind != np.uint64(0):
        return (FRONT if front == INSIDE else front), 0
    return front, in_word


@kernel_part
def _count_words(words, begin, passed, in_word):
    """Counts the words that begin from the bit `begin` on, and before the bit `passed`."""
    before = ((words << _ONE) & ~begin) | (begin if in_word else np.uint64(0))
    return count_ones(words & ~before & ~(begin - _ONE) & (passed - _ONE))


@kernel_part
def _begins_run(data, i, tables):
    """Whether a character that is not ASCII is at `i`, or behind one separator there."""
    return data[i] >= 128 or (data[i + 1] >= 128 and tables.kinds[data[i]] == SEPARATOR)


@kernel_part
def _run_parts(data, i, end, n_readable, tables, notes):
    """Finds the parts of up to 64 characters, up to an unknown one, or one with which eight bytes of ASCII begin.

    Args:
      data, i, end: as for `emit_known`; n_readable: where to stop at the latest.
      tables: KnownTables.
      notes: int64[N_NOTES], filled with what `tables.characters` has for each character; from _PLACES on, with where
        they begin, and the last one ends.

    Returns:
      `(n, starts, ends, behind_separator, words, is_closer)`: n characters; a bit for each of them where parts begin,
      and end, as far as that is known; as in `block_parts`. Whether what follows wants a closer look.
    """
    characters, kinds, joins = tables.characters, tables.kinds, tables.joins
    at = i
    n = np.uint64(0)
    before = np.int64(0)
    breaks, separators, alone, row_end = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    after_letter = False
    is_closer = False
    limit = min(end, n_readable)
    while n < np.uint64(64) and at < n_readable:
        if at >= end:
            row_end = _ONE << n
            break
        eight = load_u64(data, at)
        is_letter, is_last = False, False
        while eight & np.uint64(0xC0C0F0) == np.uint64(0x8080E0):
            # The same as below, for most of what comes here: characters of three bytes.
            entry = characters[
                (eight & np.uint64(0x0F)) << np.uint64(12)
                | ((eight >> np.uint64(8)) & np.uint64(0x3F)) << np.uint64(6)
                | ((eight >> np.uint64(16)) & np.uint64(0x3F))
            ]
            here = described_by(entry)
            breaks |= ends_before(before, here, joins) << n
            if here == UNKNOWN or n == np.uint64(63) or at + 3 >= limit:
                break
            notes[n] = entry
            notes[_PLACES + n] = at
            n += _ONE
            at += 3
            before = here
            after_letter = False
            eight = load_u64(data, at)
        lead = eight & np.uint64(0xFF)
        if lead >= np.uint64(0x80):
            code_point = code_point_at(data, at)
            after = at + (2 if lead < np.uint64(0xE0) else 3 if lead < np.uint64(0xF0) else 4)
        else:
            code_point = lead
            after = at + 1
            separators |= np.uint64(kinds[lead] == SEPARATOR) << n
            alone |= np.uint64(kinds[lead] == ALONE) << n
            is_letter = (lead | np.uint64(0x20)) - np.uint64(ord("a")) < np.uint64(26)
            is_last = n > np.uint64(0) and eight & HIGH_BITS == np.uint64(0)
        entry = characters[code_point]
        here = described_by(entry)
        if not (after_letter and is_letter):
            breaks |= ends_before(before, here, joins) << n
        is_closer = here == UNKNOWN
        if is_last or is_closer:
            break
        notes[n] = entry
        notes[_PLACES + n] = at
        n += _ONE
        at = after
        before = here
        after_letter = is_letter
    notes[_PLACES + n] = at
    there = ~np.uint64(0) if n == np.uint64(64) else (_ONE << n) - _ONE
    words = there & ~separators & ~alone
    if tables.shrink:
        inside = there & ~separators
        behind = inside & (separators << _ONE)
        starts = inside & (behind | breaks | _ONE)
        ends = inside & ((separators | breaks | row_end) >> _ONE)
    else:
        behind = np.uint64(0)
        breaks |= separators & ~(separators << _ONE)
        starts = there & (breaks | _ONE)
        ends = there & ((breaks | row_end) >> _ONE)
    return np.int64(n), starts, ends, behind, words, is_closer


@kernel
def _emit_runs(data, i, end, front, in_word, bound, tables, slots, pool, held_words, notes, out, o):
    """As `emit_known`, as long as there are never more than seven bytes of ASCII; `_begins_run` at `i`.

    Returns:
      `(i, front, in_word, bound, n_words, o, why)`.
    """
    n_words = np.int64(0)
    slot_mask = np.uint64(slots.shape[0] - 1)
    n_readable = data.size - BLOCK_READS - SHORT_WORD_BYTES
    most = MAX_BOUND - 64 * tables.alone_cost
    # With START, a row begins, at most.
    while bound <= most and front != START:
        is_held = notes[_KIND] == _RUN and notes[_AT] == i
        if not is_held and tables.shrink and tables.kinds[data[i]] == SEPARATOR:
            in_word = 0
            front = FRONT if front == INSIDE else front
            while i < end and tables.kinds[data[i]] == SEPARATOR:
                i += 1
            if i >= end or i >= n_readable:
                return i, front, in_word, bound, n_words, o, _OTHER
        if is_held:
            starts, ends, behind, words = _held_masks(notes)
            n, is_closer = notes[_FIRST], notes[_MORE] != 0
            front, in_word = _behind_held(starts, behind, front, in_word)
            asked_starts, asked_ends = np.uint64(0), np.uint64(0)
        else:
            n, starts, ends, behind, words, is_closer = _run_parts(data, i, end, n_readable, tables, notes)
            asked_starts, asked_ends = starts & ~ends, ends & ~starts
        notes[_KIND] = 0
        begin = starts & (~starts + _ONE)
        if front == FRONT:
            behind |= begin
        # All slots are asked for before the first is read. Those of single characters are seldom needed.
        while asked_ends != np.uint64(0):
            first = np.uint64(trailing_zeros(asked_starts))
            last = np.uint64(trailing_zeros(asked_ends))
            asked_starts &= asked_starts - _ONE
            asked_ends &= asked_ends - _ONE
            w = notes[_PLACES + last + _ONE] - notes[_PLACES + first]
            j = first_slot(data, notes[_PLACES + first], w, np.int64((behind >> first) & _ONE), slot_mask)
            notes[_SLOTS + first] = j
            prefetch(slots, j)
        if ends == np.uint64(0) and not is_closer and n < 64:
            # A part that goes on in ASCII.
            return i, front, in_word, bound, n_words, o, _OTHER
        lonely = starts & ends & ~behind
        is_known = ends != np.uint64(0)
        passed = np.uint64(0)
        while ends != np.uint64(0):
            first = np.uint64(trailing_zeros(starts))
            stop = first + np.uint64(trailing_zeros(~(lonely >> first)) if bound <= most else 0)
            at = first
            while at < stop:
                token = alone_id(notes[at])
                if token < 0:
                    break
                out[np.uint64(o)] = token
                o += 1
                at += _ONE
            if at > first:
                bound += tables.alone_cost * np.int64(at - first)
                passed = _ONE << at
                starts &= ~(passed - _ONE)
                ends &= ~(passed - _ONE)
                continue
            last = np.uint64(trailing_zeros(ends))
            place = notes[_PLACES + first]
            front = np.int64((behind >> first) & _ONE)
            w = notes[_PLACES + last + _ONE] - place
            is_known = False
            if w <= SHORT_WORD_BYTES:
                j = first_slot(data, place, w, front, slot_mask) if first == last else np.uint64(notes[_SLOTS + first])
                o, bound, is_known = emit_short(slots, pool, slot_mask, j, data, place, w, front, bound, out, o)
            elif w <= LONGEST_CACHED:
                o, bound, is_known = emit_long(slots, pool, held_words, data, place, w, front, bound, out, o)
            if not is_known:
                i = place
                _hold(notes, _RUN, notes[_PLACES + last + _ONE], starts, ends, behind, words, n, is_closer)
                break
            starts &= starts - _ONE
            ends &= ends - _ONE
            passed = _TWO << last
        if passed != np.uint64(0):
            if is_known:
                i = notes[_PLACES + np.uint64(trailing_zeros(passed))]
                front = INSIDE
            else:
                # Up to the separators in front of the next part.
                passed = starts & (~starts + _ONE)
            n_words += _count_words(words, begin, passed, in_word)
            in_word = np.int64(words & (passed >> _ONE) != np.uint64(0))
        if not is_known or (is_closer and i == notes[_PLACES + np.uint64(n)]):
            break
        if n < 64 or i >= end or i >= n_readable:
            return i, front, in_word, bound, n_words, o, _OTHER
    return i, front, in_word, bound, n_words, o, _CLOSER


@kernel
def _emit_blocks(data, i, end, front, in_word, bound, tables, slots, pool, held_words, notes, out, o):
    """As `emit_known`, but for runs of characters that are not ASCII.

    Returns:
      `(i, front, in_word, bound, n_words, o, why)`.
    """
    n_words = np.int64(0)
    slot_mask = np.uint64(slots.shape[0] - 1)
    n_readable = data.size - BLOCK_READS - SHORT_WORD_BYTES
    most = MAX_BOUND - BLOCK_READS * tables.alone_cost
    while bound <= most:
        is_held = notes[_KIND] == _BLOCK and notes[_AT] == i
        if not is_held and tables.shrink and tables.kinds[data[i]] == SEPARATOR:
            in_word = 0
            front = FRONT if front == INSIDE else front
            while i < end and tables.kinds[data[i]] == SEPARATOR:
                i += 1
            if i >= end or i >= n_readable:
                return i, front, in_word, bound, n_words, o, _OTHER
        if is_held:
            starts, ends, behind, words = _held_masks(notes)
            block, single = notes[_FIRST], np.uint64(notes[_MORE])
            front, in_word = _behind_held(starts, behind, front, in_word)
            asked_starts, asked_ends = np.uint64(0), np.uint64(0)
        else:
            block = i
            starts, ends, single, behind, words = block_parts(data, i, end - i, tables)
            asked_starts, asked_ends = starts & ~ends, ends & ~starts
        notes[_KIND] = 0
        begin = starts & (~starts + _ONE)
        # All slots are asked for before the first is read. Those of single characters are seldom needed.
        while asked_ends != np.uint64(0):
            first = np.uint64(trailing_zeros(asked_starts))
            last = np.uint64(trailing_zeros(asked_ends))
            asked_starts &= asked_starts - _ONE
            asked_ends &= asked_ends - _ONE
            asked_front = np.int64((behind >> first) & _ONE) if first > np.uint64(0) else front
            w = np.int64(last - first) + 1
            j = first_slot(data, block + np.int64(first), w, asked_front, slot_mask)
            notes[_SLOTS + first] = j
            prefetch(slots, j)
        is_known = ends != np.uint64(0)
        passed = np.uint64(0)
        while ends != np.uint64(0):
            first = trailing_zeros(starts)
            last = trailing_zeros(ends)
            token = np.int64(-1)
            if (single >> np.uint64(last)) & _ONE != np.uint64(0) and front == INSIDE and bound <= most:
                token = alone_id(tables.characters[code_point_at(data, block + first)])
            if token >= 0:
                out[np.uint64(o)] = token
                o += 1
                bound += tables.alone_cost
            else:
                w = last + 1 - first
                is_known = w <= SHORT_WORD_BYTES
                if is_known:
                    at = block + first
                    j = (
                        first_slot(data, at, w, front, slot_mask)
                        if first == last
                        else np.uint64(notes[_SLOTS + np.uint64(first)])
                    )
                    o, bound, is_known = emit_short(slots, pool, slot_mask, j, data, at, w, front, bound, out, o)
                elif w <= LONGEST_CACHED:
                    o, bound, is_known = emit_long(
                        slots, pool, held_words, data, block + first, w, front, bound, out, o
                    )
                if not is_known:
                    i = block + first
                    _hold(notes, _BLOCK, block + last + 1, starts, ends, behind, words, block, np.int64(single))
                    break
            starts &= starts - _ONE
            ends &= ends - _ONE
            passed = _TWO << np.uint64(last)
            i = block + last + 1
            # Where no part begins any more, the shift is by 64 and its outcome is not used.
            front = np.int64((behind >> (np.uint64(trailing_zeros(starts)) & np.uint64(63))) & _ONE)
        if passed != np.uint64(0):
            if not is_known:
                passed = starts & (~starts + _ONE)
            n_words += _count_words(words, begin, passed, in_word)
            in_word = np.int64(words & (passed >> _ONE) != np.uint64(0))
            if is_known:
                front = INSIDE
        if not is_known:
            break
        if i >= end or i >= n_readable or _begins_run(data, i, tables):
            return i, front, in_word, bound, n_words, o, _OTHER
    return i, front, in_word, bound, n_words, o, _CLOSER


@kernel_part
def emit_known(data, i, end, front, in_word, bound, tables, slots, pool, held_words, notes, out, o):
    """Appends the ids of parts from `i` on, up to the first one that wants a closer look.

    Args:
      data: uint8; i: where a part begins, or separators; end: where the row ends.
      front: what stands in front of the part; in_word: 1 where it is in a word that has been counted, else 0.
      bound: of the sum so far, see `sentencepiece_sums`.
      tables: KnownTables; slots, pool, held_words: of the cache; out, o: the ids.
      notes: int64[N_NOTES], for work; what is held is to be forgotten where a row begins, by `forget`.

    Returns:
      `(i, front, in_word, bound, n_words, o)`: the same, further on; and how many words have begun.
    """
    n_words = np.int64(0)
    n_readable = data.size - BLOCK_READS - SHORT_WORD_BYTES
    while i < end and i < n_readable:
        before = i
        held_kind = notes[_KIND] if notes[_AT] == i else np.int64(0)
        if i + 1 < end and held_kind != _BLOCK and (held_kind == _RUN or _begins_run(data, i, tables)):
            i, front, in_word, bound, n_more, o, why = _emit_runs(
                data, i, end, front, in_word, bound, tables, slots, pool, held_words, notes, out, o
            )
            n_words += n_more
            if why == _CLOSER:
                break
            if i > before:
                continue
        i, front, in_word, bound, n_more, o, why = _emit_blocks(
            data, i, end, front, in_word, bound, tables, slots, pool, held_words, notes, out, o
        )
        n_words += n_more
        if why == _CLOSER:
            break
    return i, front, in_word, bound, n_words, o
