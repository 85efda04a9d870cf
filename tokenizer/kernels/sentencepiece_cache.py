# SPDX-License-Identifier: Apache-2.0
"""The word cache of SentencePiece's kernels: raw bytes of a part, and what stands in front of it, to ids.

The slots are those of `word_table`, but filled in another way: up to three ids stand in the slot.
"""

import numpy as np

from tokenizer.kernels.compiling import kernel, kernel_part, load_u64, unlikely
from tokenizer.kernels.sentencepiece_units import ID_SHIFT, alone_id
from tokenizer.kernels.word_cache import (
    CACHE_IDS_USED,
    CACHE_MOST_SLOTS,
    CACHE_POOL_USED,
    CACHE_WORDS,
    COPIED_IDS,
    copy_ids,
)
from tokenizer.kernels.word_encoding import key_of
from tokenizer.kernels.word_table import (
    KEY_0,
    KEY_1,
    LENGTH,
    SHORT_WORD_BYTES,
    VALUE,
    first_slot,
    short_key,
    spread_slots,
)

LONGEST_CACHED = 48
"""Bytes of the longest part that the cache keeps."""

# The length column of a slot: bits 0..7 bytes, 8..9 what stands in front, 10 whether an unknown token is among the
# ids, 11 whether the part is irregular, 16..31 how many ids, 32..47 up to which sum the ids hold, 48..62 what they add
# to the bound of the sum, both in units of SUM_UNIT.
FRONT_SHIFT, HAS_UNKNOWN, IRREGULAR, N_SHIFT, _SAFE_SHIFT, _COST_SHIFT = 8, 1 << 10, 1 << 11, 16, 32, 48
_BYTES_MASK, _KEY_MASK, _N_MASK, _SAFE_MASK, _MAX_COST = 0xFF, 0x3FF, 0xFFFF, 0xFFFF, 0x7FFF
# The value column of up to three ids: the first where an entry has that of its character, the others below.
_ID_BITS = ID_SHIFT // 2
_ID_MASK = (1 << _ID_BITS) - 1
MOST_IDS_IN_SLOT = 3
_BYTES_PER_WORD = 64


@kernel_part
def _same_bytes(pool, p, data, at, w):
    for q in range(0, w - 7, 8):
        if load_u64(pool, p + q) != load_u64(data, at + q):
            return False
    return load_u64(pool, p + w - 8) == load_u64(data, at + w - 8)


@kernel_part
def find_part(slots, words, data, at, w, front):
    """Returns `(slot, whether it holds the part, the key)`; w is in 1..LONGEST_CACHED; slots, words: of the cache."""
    mask = np.uint64(slots.shape[0] - 1)
    if w <= SHORT_WORD_BYTES and at + SHORT_WORD_BYTES <= data.size:
        k0, k1 = short_key(data, at, w)
    else:
        k0, k1 = key_of(data, at, w)
    wanted = w | (front << FRONT_SHIFT)
    j = first_slot(wanted, k0, k1, mask)
    while True:
        found = slots[j, LENGTH]
        if found == 0:
            return j, False, k0, k1
        if (found & _KEY_MASK) == wanted and slots[j, KEY_0] == np.int64(k0):
            if w <= SHORT_WORD_BYTES:
                if slots[j, KEY_1] == np.int64(k1):
                    return j, True, k0, k1
            elif _same_bytes(words, slots[j, KEY_1], data, at, w):
                return j, True, k0, k1
        j = (j + np.uint64(1)) & mask


@kernel_part
def _most_words(n_slots):
    # The parts that come all the time come early, and have the slots where their search begins. The fuller the slots
    # are, the more of them stay in the processor's own memory.
    return n_slots // 4 * 3


@kernel_part
def is_too_small(cache, n_bytes):
    """Whether a cache that can have more slots should have them for another row of so many bytes.

    It does not grow within a row, so there must be slots to spare.
    """
    n_slots = cache.slots.shape[0]
    if n_slots >= cache.state[CACHE_MOST_SLOTS]:
        return False
    return cache.state[CACHE_WORDS] + n_bytes // _BYTES_PER_WORD >= _most_words(n_slots)


# Of a length column:


@kernel_part
def bytes_of(notes):
    """Returns how many bytes a part has."""
    return notes & _BYTES_MASK


@kernel_part
def n_ids_of(notes):
    """Returns how many ids it has."""
    return (notes >> N_SHIFT) & _N_MASK


@kernel_part
def safe_of(notes):
    """Returns up to which bound of the sum so far these hold."""
    return (notes >> _SAFE_SHIFT) & _SAFE_MASK


@kernel_part
def cost_of_slot(notes):
    """Returns what they add to the bound."""
    return notes >> _COST_SHIFT


@kernel_part
def remember_part(cache, j, data, at, w, k0, k1, front, out, first, last, notes, safe, cost):
    """Keeps the ids `out[first:last]` of a part in the empty slot `j`, if there is room.

    notes: HAS_UNKNOWN, IRREGULAR; safe: up to which bound the ids hold, in 0.._SAFE_MASK; cost: what they add to it.
    """
    slots, words, ids, state = cache.slots, cache.words, cache.ids, cache.state
    n = last - first
    if (
        state[CACHE_WORDS] >= _most_words(slots.shape[0])
        or (w > SHORT_WORD_BYTES and state[CACHE_POOL_USED] + w > words.size)
        or (n > MOST_IDS_IN_SLOT and state[CACHE_IDS_USED] + max(n, COPIED_IDS) > ids.size)
        or n > _N_MASK
        or cost > _MAX_COST
    ):
        return
    slots[j, KEY_0] = np.int64(k0)
    slots[j, KEY_1] = np.int64(k1)
    if w > SHORT_WORD_BYTES:
        slots[j, KEY_1] = state[CACHE_POOL_USED]
        for q in range(w):
            words[state[CACHE_POOL_USED] + q] = data[at + q]
        state[CACHE_POOL_USED] += w
    slots[j, LENGTH] = (
        w | (front << FRONT_SHIFT) | notes | (n << N_SHIFT) | (safe << _SAFE_SHIFT) | (cost << _COST_SHIFT)
    )
    if n <= MOST_IDS_IN_SLOT:
        value = np.int64(0)
        for q in range(n):
            value |= np.int64(out[first + q]) << (_ID_BITS * (MOST_IDS_IN_SLOT - 1 - q))
        slots[j, VALUE] = value
    else:
        slots[j, VALUE] = state[CACHE_IDS_USED]
        for q in range(n):
            ids[state[CACHE_IDS_USED] + q] = out[first + q]
        state[CACHE_IDS_USED] += n
    state[CACHE_WORDS] += 1


@kernel
def spread(slots, n, taken):
    """As `word_table.spread`, but for `taken`, which is of no use here: slots are asked for before they are read."""
    spread_slots(slots, n, _KEY_MASK, _BYTES_MASK)


@kernel_part
def put_ids(pool, value, n, out, o):
    """Appends n ids, by the value column of a slot; `out` has room for COPIED_IDS more. Returns the new o."""
    if unlikely(n > MOST_IDS_IN_SLOT):
        copy_ids(pool, value, n, out, o)
    else:
        out[np.uint64(o)] = np.int32(alone_id(value))
        out[np.uint64(o + 1)] = np.int32((value >> _ID_BITS) & _ID_MASK)
        out[np.uint64(o + 2)] = np.int32(value & _ID_MASK)
    return o + n


@kernel_part
def find_short(slots, slot_mask, j, k0, k1, wanted):
    """Returns `(slot, its length column)` of a part of up to 16 bytes, 0 if it is not there or wants a closer look.

    This is the way that almost every part takes, so it does nothing else. `slot_mask` is uint64, one less than there
    are slots; `j`: `first_slot`; wanted: bytes and front.
    """
    while True:
        notes = slots[j, LENGTH]
        differs = (k0 ^ np.uint64(slots[j, KEY_0])) | (k1 ^ np.uint64(slots[j, KEY_1]))
        if differs == np.uint64(0) and notes & (_KEY_MASK | HAS_UNKNOWN | IRREGULAR) == wanted:
            return j, notes
        if notes == 0:
            return j, np.int64(0)
        j = (j + np.uint64(1)) & slot_mask


@kernel_part
def find_long(slots, words, data, at, wanted):
    """As `find_short`, for a part of 17 to LONGEST_CACHED bytes; `words` holds the bytes of such."""
    j, found, _, _ = find_part(slots, words, data, at, bytes_of(wanted), wanted >> FRONT_SHIFT)
    notes = slots[j, LENGTH]
    return j, (notes if found and notes & (HAS_UNKNOWN | IRREGULAR) == 0 else np.int64(0))


@kernel_part
def fuse_unknown(out, first, last, row_first, unk_id):
    """Makes one of every run of unknown tokens in `out[first:last]`, and of those before; returns the new end."""
    o = first
    for q in range(first, last):
        if out[q] == unk_id and o > row_first and out[o - 1] == unk_id:
            continue
        out[o] = out[q]
        o += 1
    return o
