# SPDX-License-Identifier: Apache-2.0
"""The way that most of text without spaces takes through `normalized_words`: 64 characters at once.

Where parts end, which are of one character, and which of several are known is as hard to foresee as the text, so
nothing branches on it: all parts among 64 characters are found, the slots of the longer ones asked for, then read, and
only then all ids are written. What a character alone becomes is in its entry (see `sentencepiece_units`).
"""

import numpy as np

from tokenizer.kernels.compiling import (
    count_ones,
    intrinsic,
    kernel,
    kernel_of_short_loops,
    kernel_part,
    leading_zeros,
    prefetch,
    trailing_zeros,
    types,
    unlikely,
)
from tokenizer.kernels.normalized_words_parts import fused, marked
from tokenizer.kernels.normalized_words_text import FIRST
from tokenizer.kernels.references import values_of
from tokenizer.kernels.sentencepiece_blocks import BLOCK_READS
from tokenizer.kernels.sentencepiece_runs import COUNTS, PLACES, run_parts
from tokenizer.kernels.sentencepiece_units import (
    BECOMES_UNKNOWN,
    DEPENDS,
    ID_SHIFT,
    IS_ALONE,
    IS_DEPENDENT,
    IS_SEPARATOR,
    MAX_ID,
    character_hashes,
    is_unknown,
)
from tokenizer.kernels.utf8 import next_character
from tokenizer.kernels.vectors import I8, all_of, bits, load_bytes
from tokenizer.kernels.word_cache import HAS_UNKNOWN, ID_BITS, IDS_IN_SLOT, copy_ids
from tokenizer.kernels.word_table import KEY_0, KEY_1, LENGTH, LENGTH_MASK, SHORT_WORD_BYTES, VALUE, first_slot

_ONE = np.uint64(1)
_TWO = np.uint64(2)
_ID_MASK = (1 << ID_BITS) - 1
_FEWEST = 4
_MOST_BYTES = 256
"""Of 64 characters."""

# What `notes` holds beside what `sentencepiece_runs` says. For every place where a part may begin: the slot where the
# search for it begins, and its key.
_SLOTS, _LENGTHS, _KEYS_0, _KEYS_1 = (np.uint64(k) for k in (193, 257, 321, 385))
# Then what is held of 64 characters in which a part was not known, to go on with behind it: where that is, what is left
# of the masks, and how many characters there are.
_AT, _STARTS, _ENDS, _BEHIND, _SINGLES, _N = range(449, 455)
N_NOTES = 455


@kernel
def set_entries(images, separators, has_neighbours, ids, unk_id, has_byte_ids, entries):
    """Fills the entries of all code points.

    Args:
      images: int32[0x110000], the character that each becomes whatever its neighbours, 0 where there is none.
      separators: bool[0x110000], which ones stand between words.
      has_neighbours: bool[0x110000], which ones are in pieces of more than one character.
      ids: int32[0x110000], the pieces of one character, -1 for none.
      unk_id: the unknown token.
      has_byte_ids: whether characters that are not known become bytes.
      entries: int64[0x110000], filled.
    """
    for c in range(entries.size):
        image = np.int64(images[c])
        if separators[c]:
            entries[c] = DEPENDS << ID_SHIFT | IS_SEPARATOR
        elif image == 0:
            entries[c] = DEPENDS << ID_SHIFT | IS_DEPENDENT
        else:
            becomes = np.int64(ids[image])
            if becomes < 0 or becomes == unk_id:
                becomes = DEPENDS if has_byte_ids else BECOMES_UNKNOWN
            elif becomes > MAX_ID:
                becomes = DEPENDS
            is_alone = not has_neighbours[image]
            entries[c] = becomes << ID_SHIFT | is_alone * IS_ALONE | np.int64(character_hashes(image))


@kernel_part
def forget(notes):
    """Holds nothing any more."""
    notes[_AT] = -1


@kernel_part
def _lowest(mask):
    return mask & (~mask + _ONE)


@kernel_part
def _highest_place(mask):
    return np.uint64(63 - leading_zeros(mask))


@kernel_part
def _ask(data, slots, slot_mask, notes, first, last, is_inner):
    """Notes where the part from one character to another is looked for, and asks for that slot."""
    place = notes[PLACES + first]
    w = notes[PLACES + last + _ONE] - place
    k0, k1, n = marked(data, place, min(w, SHORT_WORD_BYTES - 1), is_inner)
    j = first_slot(n, k0, k1, slot_mask)
    prefetch(slots, j)
    notes[_SLOTS + first] = j
    notes[_LENGTHS + first] = n if w < SHORT_WORD_BYTES else -1
    notes[_KEYS_0 + first] = k0
    notes[_KEYS_1 + first] = k1


@kernel_part
def _read_slots(slots, slot_mask, notes, starts, ends):
    """Notes the ids of parts that have been asked for; returns the bit where one begins that is not known, 0 if none.

    Not known is one that is too long, not cached, or has an unknown token.
    """
    while ends != np.uint64(0):
        first = np.uint64(trailing_zeros(starts))
        n = notes[_LENGTHS + first]
        k0, k1 = np.uint64(notes[_KEYS_0 + first]), np.uint64(notes[_KEYS_1 + first])
        j = np.uint64(notes[_SLOTS + first])
        while True:
            held = slots[j, LENGTH]
            differs = (k0 ^ np.uint64(slots[j, KEY_0])) | (k1 ^ np.uint64(slots[j, KEY_1]))
            if (differs == np.uint64(0) and held & LENGTH_MASK == n) or held == 0:
                break
            j = (j + np.uint64(1)) & slot_mask
        n_ids = held >> 32
        if unlikely((n < 0) | (held == 0) | (n_ids >= HAS_UNKNOWN)):
            return _ONE << first
        notes[first] = slots[j, VALUE]
        notes[COUNTS + first] = n_ids
        starts &= starts - _ONE
        ends &= ends - _ONE
    return np.uint64(0)


@kernel_part
def _write_ids(pool, notes, parts, out, o):
    """Appends the noted ids of parts, a bit each where they begin; returns the new o."""
    while parts != np.uint64(0):
        first = np.uint64(trailing_zeros(parts))
        value, n = notes[first], notes[COUNTS + first]
        if unlikely(n > IDS_IN_SLOT):
            copy_ids(pool, value, n, out, o)
        else:
            out[np.uint64(o)] = np.int32(value & _ID_MASK)
            out[np.uint64(o + 1)] = np.int32((value >> ID_BITS) & _ID_MASK)
            out[np.uint64(o + 2)] = np.int32(value >> (2 * ID_BITS))
        o += n
        parts &= parts - _ONE
    return o


@intrinsic
def _long_characters(typingctx, data, i):
    """Returns a bit for each of sixteen bytes from i on: whether a character of three bytes or more begins there."""

    def codegen(context, builder, signature, args):
        text = context.make_array(signature.args[0])(context, builder, args[0]).data
        block = load_bytes(builder, builder.gep(text, [args[1]]), 16)
        return bits(builder, builder.icmp_unsigned(">=", block, all_of(I8, 16, int(FIRST))))

    return types.uint64(data, types.int64), codegen


@kernel_part
def begins_run(data, i):
    """Whether among sixteen bytes there are so many characters of three bytes or more that a run is worth while."""
    return count_ones(_long_characters(data, i)) >= _FEWEST


@kernel_of_short_loops
def emit_run(text_of_rows, i, end, is_inner, word_at, word_first, o):
    """Appends the ids of parts from i on that are known, in whatever words they are.

    Args:
      text_of_rows: see `normalized_words_text.normalized`.
      i, end: where a part begins, and its row ends.
      is_inner: whether it is not the first of its word.
      word_at, word_first: where its word begins, and the ids of that.
      o: how many ids there are.

    Returns:
      `(where it stopped, where the part ends that begins there and is not known, word_at, word_first, n_words, o)`.
      It stops behind a part, or at i; the second is 0 where more is to be found out; `n_words` have begun behind i.
    """
    data, tables, work = values_of(text_of_rows)
    cache, notes, out = work.cache, work.notes, work.out
    slots, pool = cache.slots, cache.ids
    slot_mask = np.uint64(slots.shape[0] - 1)
    n_readable = data.size - BLOCK_READS - SHORT_WORD_BYTES
    limit = out.size - tables.spare_ids
    n_words = np.int64(0)
    unknown_stop = np.int64(0)
    while i < n_readable and o <= limit and i + _MOST_BYTES <= word_at + tables.longest_cut:
        is_held = notes[_AT] == i
        if is_held:
            starts, ends = np.uint64(notes[_STARTS]), np.uint64(notes[_ENDS])
            behind, singles = np.uint64(notes[_BEHIND]), np.uint64(notes[_SINGLES])
            n = notes[_N]
            if not is_inner:
                # That word has been begun.
                behind &= ~_lowest(starts)
        else:
            n, starts, ends, behind, _, has_id, _ = run_parts(
                data, i, end, n_readable, tables.entries, tables.joins, True, notes
            )
            if tables.counts_spaces:
                # Up to where there is more than one separator.
                some = _lowest(behind & ~(ends << _TWO))
                starts &= some - _ONE
                ends &= some - _ONE
            fronts = behind if is_inner else behind | _ONE
            singles = has_id & starts & ends & ~fronts
            # In place of entries, ids as the cache has them.
            for q in range(64):
                notes[q] >>= ID_SHIFT
            asked, asked_starts = ends & ~singles, starts & ~singles
            while asked != np.uint64(0):
                first, last = np.uint64(trailing_zeros(asked_starts)), np.uint64(trailing_zeros(asked))
                _ask(data, slots, slot_mask, notes, first, last, (fronts >> first) & _ONE == np.uint64(0))
                asked &= asked - _ONE
                asked_starts &= asked_starts - _ONE
        notes[_AT] = -1
        if ends == np.uint64(0):
            break
        missed = _read_slots(slots, slot_mask, notes, starts & ~singles, ends & ~singles)
        # All of them where none is missed.
        known_ends = ends & (missed - _ONE)
        if known_ends != np.uint64(0):
            last_end = _highest_place(known_ends)
            known = starts & ((_TWO << last_end) - _ONE)
            begun = known & behind
            if begun != np.uint64(0):
                last = _highest_place(begun)
                o = _write_ids(pool, notes, known & ((_ONE << last) - _ONE), out, o)
                word_at, word_first = notes[PLACES + last], o
                n_words += count_ones(begun)
                known &= ~((_ONE << last) - _ONE)
            o = _write_ids(pool, notes, known, out, o)
            i = notes[PLACES + last_end + _ONE]
            is_inner = True
        if missed != np.uint64(0):
            starts &= ~(missed - _ONE)
            ends &= ~(missed - _ONE)
            at = notes[PLACES + np.uint64(trailing_zeros(missed))]
            if at == i:
                unknown_stop = notes[PLACES + np.uint64(trailing_zeros(ends)) + _ONE]
                starts &= starts - _ONE
                ends &= ends - _ONE
                at = notes[PLACES + np.uint64(trailing_zeros(starts))]
            if ends != np.uint64(0):
                notes[_AT], notes[_N] = at, n
                notes[_STARTS], notes[_ENDS] = np.int64(starts), np.int64(ends)
                notes[_BEHIND], notes[_SINGLES] = np.int64(behind), np.int64(singles)
            break
        if n < 64 or i >= end:
            break
    return i, unknown_stop, word_at, word_first, n_words, o


@kernel_part
def emit_unknown(data, i, end, word_first, tables, unk_id, out, o):
    """Appends the unknown tokens of characters from i on that are parts by themselves and inside of a word.

    Returns:
      `(where it stopped, the new o)`; it stops at a character that is none of these, where the word ends, or where
      there is no more room.
    """
    entries = tables.entries
    limit = out.size - tables.spare_ids
    code_point, after = next_character(data, i)
    entry = entries[code_point]
    while is_unknown(entry) and o <= limit:
        following, beyond = np.int64(IS_SEPARATOR), after
        if after < end:
            code_point, beyond = next_character(data, after)
            following = entries[code_point]
        if following & IS_DEPENDENT != 0:
            break
        out[o] = unk_id
        o = fused(tables, out, word_first, o, o + 1, unk_id)
        i, after, entry = after, beyond, following
    return i, o
