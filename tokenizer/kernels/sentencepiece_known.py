# SPDX-License-Identifier: Apache-2.0
"""The way that almost all of SentencePiece's text takes: parts that are in the cache, and characters alone.

Two kernels do nothing else, so that what they work with stays in registers. `_emit_blocks` is for ASCII and what is
scattered in it, and takes 64 bytes. `_emit_runs` is for other text and takes 64 characters; there most parts are of one
character, at least in scripts without spaces, and what describes a character says what becomes of it alone.

Where parts end, and which are of one character, is as hard to foresee as the text. So nothing branches on it: both
kernels first find all parts among 64, then ask for the slots of those that must be looked up, then read these slots,
and only then write the ids, those of characters alone among them.
"""

import numpy as np

from tokenizer.kernels.compiling import (
    count_ones,
    kernel_of_short_loops,
    kernel_part,
    leading_zeros,
    prefetch,
    trailing_zeros,
    unlikely,
)
from tokenizer.kernels.references import values_of
from tokenizer.kernels.sentencepiece_blocks import BLOCK_READS, block_parts
from tokenizer.kernels.sentencepiece_cache import (
    FRONT_SHIFT,
    LONGEST_CACHED,
    bytes_of,
    cost_of_slot,
    find_long,
    find_short,
    n_ids_of,
    put_ids,
    safe_of,
)
from tokenizer.kernels.sentencepiece_runs import COUNTS, PLACES, run_parts
from tokenizer.kernels.sentencepiece_sums import MAX_BOUND
from tokenizer.kernels.sentencepiece_units import (
    FRONT,
    INSIDE,
    SEPARATOR,
    START,
    alone_id,
)
from tokenizer.kernels.word_table import SHORT_WORD_BYTES, VALUE, first_slot, short_key

_ONE = np.uint64(1)
_TWO = np.uint64(2)

# Why a kernel stops: the part wants a closer look, or is for the other kernel.
_CLOSER, _OTHER = 0, 1

# What `notes` holds beside what `sentencepiece_runs` says. For every place where a part may begin: the slot that it is
# looked for in, and its key.
_SLOTS, _WANTED, _KEYS_0, _KEYS_1 = (np.uint64(k) for k in (193, 257, 321, 385))
# Then what is held of a block or a run in which a part wanted a closer look, to go on with behind it: which kernel it
# is from, where that part begins and ends, what is left of the masks, and two numbers more: where the block begins, or
# how many characters the run has and its `is_closer`.
_KIND, _BEGIN, _AT, _STARTS, _ENDS, _BEHIND, _WORDS, _SINGLES, _FIRST, _MORE = range(449, 459)
N_NOTES = 459
_RUN, _BLOCK = 1, 2


@kernel_part
def forget(notes):
    """Holds nothing any more."""
    notes[_KIND] = 0
    notes[_BEGIN] = -1


@kernel_part
def end_of_unknown(notes, begin):
    """Returns where the part at `begin` ends, which wanted a closer look; 0 where that is not known."""
    return notes[_AT] if notes[_BEGIN] == begin else np.int64(0)


@kernel_part
def _hold(notes, kind, begin, at, starts, ends, behind, words, singles, first, more):
    """Holds what comes after the first part of `starts` and `ends`, which is at `begin` and ends at `at`."""
    starts &= starts - _ONE
    ends &= ends - _ONE
    notes[_BEGIN], notes[_AT] = begin, at
    if ends == np.uint64(0):
        return
    notes[_KIND] = kind
    notes[_STARTS], notes[_ENDS] = np.int64(starts), np.int64(ends)
    notes[_BEHIND], notes[_WORDS] = np.int64(behind), np.int64(words)
    notes[_SINGLES], notes[_FIRST], notes[_MORE] = np.int64(singles & starts), first, more


@kernel_part
def _held_masks(notes):
    starts, ends, behind = np.uint64(notes[_STARTS]), np.uint64(notes[_ENDS]), np.uint64(notes[_BEHIND])
    return starts, ends, behind, np.uint64(notes[_WORDS]), np.uint64(notes[_SINGLES])


@kernel_part
def _lowest(mask):
    return mask & (~mask + _ONE)


@kernel_part
def _ask(data, slots, slot_mask, notes, first, place, w, front):
    """Notes where a part is looked for, and asks for that slot."""
    k0, k1 = short_key(data, place, min(w, SHORT_WORD_BYTES))
    wanted = w | (front << FRONT_SHIFT)
    j = first_slot(wanted, k0, k1, slot_mask)
    prefetch(slots, j)
    notes[_SLOTS + first] = j
    notes[_WANTED + first] = wanted
    notes[_KEYS_0 + first] = k0
    notes[_KEYS_1 + first] = k1


@kernel_part
def _read_slots(data, slots, slot_mask, held_words, notes, starts, ends, singles, alone_cost, bound):
    """Notes the ids of parts that have been asked for, up to one that wants a closer look.

    Args:
      starts, ends: of all parts; singles: which are characters whose entries say what becomes of them.
      alone_cost: what one of these adds to the bound.

    Returns:
      `(passed, bound, is_known)`: the bit where that one begins, or behind the last; the bound there; whether there
      was none.
    """
    left = ends & ~singles
    left_starts = starts & ~singles
    n_singles = np.int64(0)
    while left != np.uint64(0):
        begin = _lowest(left_starts)
        first = np.uint64(trailing_zeros(begin))
        n_singles = count_ones(singles & (begin - _ONE))
        wanted = notes[_WANTED + first]
        w = bytes_of(wanted)
        j = np.uint64(notes[_SLOTS + first])
        if unlikely(w > SHORT_WORD_BYTES):
            found = np.int64(0)
            if w <= LONGEST_CACHED:
                j, found = find_long(slots, held_words, data, notes[PLACES + first], wanted)
        else:
            k0, k1 = np.uint64(notes[_KEYS_0 + first]), np.uint64(notes[_KEYS_1 + first])
            j, found = find_short(slots, slot_mask, j, k0, k1, wanted)
        n = n_ids_of(found)
        if unlikely((n == 0) | (bound + n_singles * alone_cost >= safe_of(found))):
            return begin, bound + n_singles * alone_cost, False
        notes[first] = slots[j, VALUE]
        notes[COUNTS + first] = n
        bound += cost_of_slot(found)
        left &= left - _ONE
        left_starts &= left_starts - _ONE
        if unlikely(bound + 64 * alone_cost > MAX_BOUND):
            # As good as never: what follows may be too much.
            return begin, bound, False
    return _TWO << np.uint64(63 - leading_zeros(ends)), bound + count_ones(singles) * alone_cost, True


@kernel_part
def _write_ids(pool, notes, parts, out, o):
    """Appends the noted ids of parts, a bit each where they begin; returns the new o."""
    while parts != np.uint64(0):
        first = np.uint64(trailing_zeros(parts))
        o = put_ids(pool, notes[first], notes[COUNTS + first], out, o)
        parts &= parts - _ONE
    return o


@kernel_part
def _count_words(words, begin, passed, in_word):
    """Counts the words that begin from the bit `begin` on, and before the bit `passed`."""
    before = ((words << _ONE) & ~begin) | (begin if in_word else np.uint64(0))
    return count_ones(words & ~before & ~(begin - _ONE) & (passed - _ONE))


@kernel_part
def _begins_run(data, i, tables):
    """Whether a character that is not ASCII is at `i`, or behind one separator there."""
    return data[i] >= 128 or (data[i + 1] >= 128 and tables.kinds[data[i]] == SEPARATOR)


@kernel_of_short_loops
def _emit_runs(arrays, i, end, front, in_word, bound, o):
    """As `emit_known`, as long as there are never more than seven bytes of ASCII; `_begins_run` at `i`.

    Returns:
      `(i, front, in_word, bound, n_words, o, why)`.
    """
    data, tables, slots, pool, held_words, notes, out = values_of(arrays)
    n_words = np.int64(0)
    slot_mask = np.uint64(slots.shape[0] - 1)
    n_readable = data.size - BLOCK_READS - SHORT_WORD_BYTES
    limit = out.size - tables.spare_ids
    # With START, a row begins, at most.
    while bound + 64 * tables.alone_cost <= MAX_BOUND and front != START and o <= limit:
        is_held = notes[_KIND] == _RUN and notes[_AT] == i and front == INSIDE
        if not is_held and tables.shrink and tables.kinds[data[i]] == SEPARATOR:
            in_word = 0
            front = FRONT if front == INSIDE else front
            while i < end and tables.kinds[data[i]] == SEPARATOR:
                i += 1
            if i >= end or i >= n_readable:
                return i, front, in_word, bound, n_words, o, _OTHER
        if is_held:
            starts, ends, behind, words, singles = _held_masks(notes)
            n, is_closer = notes[_FIRST], notes[_MORE] != 0
            begin = _lowest(starts)
            if behind & begin != np.uint64(0):
                front, in_word = FRONT, 0
        else:
            n, starts, ends, behind, words, singles, is_closer = run_parts(
                data, i, end, n_readable, tables.characters, tables.joins, tables.shrink, notes
            )
            begin = _lowest(starts)
            if front == FRONT:
                behind |= begin
            singles &= starts & ends & ~behind
            asked, asked_starts = ends & ~singles, starts & ~singles
            while asked != np.uint64(0):
                first, last = np.uint64(trailing_zeros(asked_starts)), np.uint64(trailing_zeros(asked))
                place = notes[PLACES + first]
                w = notes[PLACES + last + _ONE] - place
                _ask(data, slots, slot_mask, notes, first, place, w, np.int64((behind >> first) & _ONE))
                asked &= asked - _ONE
                asked_starts &= asked_starts - _ONE
        notes[_KIND] = 0
        if ends == np.uint64(0):
            # A part that goes on in ASCII, or is too long.
            why = _OTHER if not is_closer and n < 64 else _CLOSER
            return i, front, in_word, bound, n_words, o, why
        passed, bound, is_known = _read_slots(
            data, slots, slot_mask, held_words, notes, starts, ends, singles, tables.alone_cost, bound
        )
        o = _write_ids(pool, notes, starts & (passed - _ONE), out, o)
        if passed != begin:
            n_words += _count_words(words, begin, passed, in_word)
            in_word = np.int64(words & (passed >> _ONE) != np.uint64(0))
        at = np.uint64(trailing_zeros(passed))
        i = notes[PLACES + at]
        if not is_known:
            front = np.int64((behind >> at) & _ONE)
            starts &= ~(passed - _ONE)
            ends &= ~(passed - _ONE)
            end_of_part = notes[PLACES + np.uint64(trailing_zeros(ends)) + _ONE]
            _hold(notes, _RUN, i, end_of_part, starts, ends, behind, words, singles, n, np.int64(is_closer))
            break
        front = INSIDE
        if is_closer and i == notes[PLACES + np.uint64(n)]:
            break
        if n < 64 or i >= end or i >= n_readable:
            return i, front, in_word, bound, n_words, o, _OTHER
    return i, front, in_word, bound, n_words, o, _CLOSER


@kernel_of_short_loops
def _emit_blocks(arrays, i, end, front, in_word, bound, o):
    """As `emit_known`, but for runs of characters that are not ASCII.

    Returns:
      `(i, front, in_word, bound, n_words, o, why)`.
    """
    data, tables, slots, pool, held_words, notes, out = values_of(arrays)
    n_words = np.int64(0)
    slot_mask = np.uint64(slots.shape[0] - 1)
    n_readable = data.size - BLOCK_READS - SHORT_WORD_BYTES
    limit = out.size - tables.spare_ids
    while bound + 64 * tables.alone_cost <= MAX_BOUND and o <= limit:
        is_held = notes[_KIND] == _BLOCK and notes[_AT] == i and front == INSIDE
        if not is_held and tables.shrink and tables.kinds[data[i]] == SEPARATOR:
            in_word = 0
            front = FRONT if front == INSIDE else front
            while i < end and tables.kinds[data[i]] == SEPARATOR:
                i += 1
            if i >= end or i >= n_readable:
                return i, front, in_word, bound, n_words, o, _OTHER
        if is_held:
            starts, ends, behind, words, singles = _held_masks(notes)
            block = notes[_FIRST]
            begin = _lowest(starts)
            if behind & begin != np.uint64(0):
                front, in_word = FRONT, 0
        else:
            block = i
            starts, ends, behind, words = block_parts(data, i, end - i, tables)
            begin = _ONE
            singles = np.uint64(0)
            alone = starts & ends & ~behind
            if front != INSIDE:
                alone &= ~begin
            while alone != np.uint64(0):
                first = np.uint64(trailing_zeros(alone))
                entry = tables.characters[np.uint64(data[np.uint64(block) + first])]
                notes[first] = entry
                notes[COUNTS + first] = 1
                singles |= np.uint64(alone_id(entry) >= 0) << first
                alone &= alone - _ONE
            asked, asked_starts = ends & ~singles, starts & ~singles
            while asked != np.uint64(0):
                first, last = np.uint64(trailing_zeros(asked_starts)), np.uint64(trailing_zeros(asked))
                part_front = np.int64((behind >> first) & _ONE) if first > np.uint64(0) else front
                place = block + np.int64(first)
                notes[PLACES + first] = place
                _ask(data, slots, slot_mask, notes, first, place, np.int64(last - first) + 1, part_front)
                asked &= asked - _ONE
                asked_starts &= asked_starts - _ONE
        notes[_KIND] = 0
        if ends == np.uint64(0):
            break
        passed, bound, is_known = _read_slots(
            data, slots, slot_mask, held_words, notes, starts, ends, singles, tables.alone_cost, bound
        )
        o = _write_ids(pool, notes, starts & (passed - _ONE), out, o)
        if passed != begin:
            n_words += _count_words(words, begin, passed, in_word)
            in_word = np.int64(words & (passed >> _ONE) != np.uint64(0))
        if not is_known:
            at = np.uint64(trailing_zeros(passed))
            if passed != begin:
                front = np.int64((behind >> at) & _ONE)
            i = block + np.int64(at)
            starts &= ~(passed - _ONE)
            ends &= ~(passed - _ONE)
            end_of_part = block + trailing_zeros(ends) + 1
            _hold(notes, _BLOCK, i, end_of_part, starts, ends, behind, words, singles, block, 0)
            break
        front = INSIDE
        i = block + 64 - leading_zeros(ends)
        if i >= end or i >= n_readable or _begins_run(data, i, tables):
            return i, front, in_word, bound, n_words, o, _OTHER
    return i, front, in_word, bound, n_words, o, _CLOSER


@kernel_part
def emit_known(arrays, i, end, front, in_word, bound, o):
    """Appends the ids of parts from `i` on, up to the first one that wants a closer look, or as far as there is room.

    Args:
      arrays: a reference (see `references`) to the row's data, uint8; KnownTables; slots, pool and words of the cache;
        `notes`, int64[N_NOTES], for work, where what is held is to be forgotten as a row begins, by `forget`; the ids.
      i: where a part begins, or separators; end: where the row ends.
      front: what stands in front of the part; in_word: 1 where it is in a word that has been counted, else 0.
      bound: of the sum so far, see `sentencepiece_sums`; o: how many ids there are.

    Returns:
      `(i, front, in_word, bound, n_words, o)`: the same, further on; and how many words have begun.
    """
    data, tables, _, _, _, notes, _ = values_of(arrays)
    n_words = np.int64(0)
    n_readable = data.size - BLOCK_READS - SHORT_WORD_BYTES
    while i < end and i < n_readable:
        before = i
        held_kind = notes[_KIND] if notes[_AT] == i else np.int64(0)
        if i + 1 < end and held_kind != _BLOCK and (held_kind == _RUN or _begins_run(data, i, tables)):
            i, front, in_word, bound, n_more, o, why = _emit_runs(arrays, i, end, front, in_word, bound, o)
            n_words += n_more
            if why == _CLOSER:
                break
            if i > before:
                continue
        i, front, in_word, bound, n_more, o, why = _emit_blocks(arrays, i, end, front, in_word, bound, o)
        n_words += n_more
        if why == _CLOSER:
            break
    return i, front, in_word, bound, n_words, o
