# SPDX-License-Identifier: Apache-2.0
"""The word cache and the tally of unknown words, as the encode kernels use them.

In a cache slot the high half of the length column holds the number of ids, with `HAS_UNKNOWN` added where one of them
is the unknown token; the value column holds up to three ids, or where in the id pool there are more. Ids that are too
large for a slot, of which no vocabulary known has any, are not kept.

Slots are far away, and a new word is known to be new only when the slot has come where it would be. So a bit for each
slot says whether there is a word in it: all of them are close to the processor.
"""

import numpy as np

from tokenizer.kernels.compiling import kernel_part, unlikely
from tokenizer.kernels.word_table import (
    KEY_0,
    KEY_1,
    LENGTH,
    LENGTH_MASK,
    SHORT_WORD_BYTES,
    VALUE,
    find,
    first_slot,
    insert,
    short_key,
)

HAS_UNKNOWN = 1 << 30
IDS_IN_SLOT, ID_BITS = 3, 21
COPIED_IDS = 8
_ID_MASK = (1 << ID_BITS) - 1

# Cells of the state arrays.
CACHE_WORDS, CACHE_POOL_USED, CACHE_IDS_USED, CACHE_MISSES, CACHE_MOST_SLOTS = 0, 1, 2, 3, 4
COUNTER_WORDS, COUNTER_POOL_USED, COUNTER_TOTAL = 0, 1, 2

# Where a kernel stopped for want of room in a counter or a cache, and where it goes on: row, byte or word, ids
# written, whether the second is meant.
AT_ROW, AT_BYTE, AT_ID, IN_ROW = 0, 1, 2, 3


@kernel_part
def _is_taken(taken, j):
    return (taken[j >> np.uint64(6)] >> (j & np.uint64(63))) & np.uint64(1) != np.uint64(0)


@kernel_part
def find_cached(cache, data, at, w, k0, k1):
    """As `word_table.find`, in a word cache."""
    j = first_slot(w, k0, k1, np.uint64(cache.slots.shape[0] - 1))
    if not _is_taken(cache.taken, j):
        return j, False
    return find(cache.slots, cache.words, data, at, w, k0, k1)


@kernel_part
def emit_cached(slots, ids, j, out, o):
    """Appends the ids of the word in slot `j`; `out` has room for three more. Returns `(o, has_unknown)`."""
    n = slots[j, LENGTH] >> 32
    has_unknown = n >= HAS_UNKNOWN
    n &= HAS_UNKNOWN - 1
    value = slots[j, VALUE]
    if n <= IDS_IN_SLOT:
        out[o] = np.int32(value & _ID_MASK)
        out[o + 1] = np.int32((value >> ID_BITS) & _ID_MASK)
        out[o + 2] = np.int32(value >> (2 * ID_BITS))
    else:
        for q in range(n):
            out[o + q] = ids[value + q]
    return o + n, has_unknown


@kernel_part
def copy_ids(ids, first, n, out, o):
    """Copies n ids from the pool to `out[o:]`, and whatever follows them, up to COPIED_IDS in all."""
    # Almost always these are all: a loop that ends somewhere else each time is slower.
    for q in range(COPIED_IDS):
        out[np.uint64(o + q)] = ids[np.uint64(first + q)]
    for q in range(COPIED_IDS, n):
        out[o + q] = ids[first + q]


@kernel_part
def emit_short(taken, slots, slot_mask, ids, data, at, w, out, o):
    """Appends the ids of `data[at:at + w]` if it is short, cached and has no unknown token.

    This is the way that almost every word takes, so it does nothing else. `slot_mask` is uint64, one less than there
    are slots; `data` is readable for 16 bytes after `at`, `out` has room for COPIED_IDS more. Returns `(o, True)`, or
    `(o before, False)`.
    """
    if unlikely(w > SHORT_WORD_BYTES):
        return o, False
    k0, k1 = short_key(data, at, w)
    return emit_short_key(taken, slots, slot_mask, ids, k0, k1, w, out, o)


@kernel_part
def emit_short_key(taken, slots, slot_mask, ids, k0, k1, w, out, o):
    """As `emit_short`, for a key of w bytes."""
    j = first_slot(w, k0, k1, slot_mask)
    if not _is_taken(taken, j):
        return o, False
    while True:
        held = slots[j, LENGTH]
        differs = (k0 ^ np.uint64(slots[j, KEY_0])) | (k1 ^ np.uint64(slots[j, KEY_1]))
        if differs == np.uint64(0) and held & LENGTH_MASK == w:
            break
        if held == 0:
            return o, False
        j = (j + np.uint64(1)) & slot_mask
    n_ids = held >> 32
    value = slots[j, VALUE]
    if unlikely(n_ids > IDS_IN_SLOT):
        if n_ids >= HAS_UNKNOWN:
            return o, False
        copy_ids(ids, value, n_ids, out, o)
    else:
        out[np.uint64(o)] = np.int32(value & _ID_MASK)
        out[np.uint64(o + 1)] = np.int32((value >> ID_BITS) & _ID_MASK)
        out[np.uint64(o + 2)] = np.int32(value >> (2 * ID_BITS))
    return o + n_ids, True


@kernel_part
def is_too_small(cache):
    """Whether a cache is as full as it may be and can have more slots, see `caches.grown`."""
    n_slots = cache.slots.shape[0]
    return cache.state[CACHE_WORDS] * 2 >= n_slots and n_slots < cache.state[CACHE_MOST_SLOTS]


@kernel_part
def remember(cache, j, data, at, w, k0, k1, out, before, o, has_unknown):
    """Keeps the ids `out[before:o]` of a word in the empty slot `j`, if there is room for it."""
    slots, words, ids, state = cache.slots, cache.words, cache.ids, cache.state
    n = o - before
    largest = np.int32(0)
    for q in range(before, o):
        largest = max(largest, out[q])
    if (
        largest > _ID_MASK
        or state[CACHE_WORDS] * 2 >= slots.shape[0]
        or (w > SHORT_WORD_BYTES and state[CACHE_POOL_USED] + w > words.size)
        or (n > IDS_IN_SLOT and state[CACHE_IDS_USED] + max(n, COPIED_IDS) > ids.size)
    ):
        return
    state[CACHE_POOL_USED] = insert(slots, words, state[CACHE_POOL_USED], j, data, at, w, k0, k1)
    slots[j, LENGTH] = w | ((n + (HAS_UNKNOWN if has_unknown else 0)) << 32)
    if n <= IDS_IN_SLOT:
        value = np.int64(0)
        for q in range(n):
            value |= np.int64(out[before + q]) << (ID_BITS * q)
        slots[j, VALUE] = value
    else:
        slots[j, VALUE] = state[CACHE_IDS_USED]
        for q in range(n):
            ids[state[CACHE_IDS_USED] + q] = out[before + q]
        state[CACHE_IDS_USED] += n
    state[CACHE_WORDS] += 1
    cache.taken[j >> np.uint64(6)] |= np.uint64(1) << (j & np.uint64(63))


@kernel_part
def count_word(counter, data, at, w, k0, k1):
    """Counts one occurrence of a word; returns False where the counter has no room for a new one."""
    return add_count(counter, data, at, w, k0, k1, 1)


@kernel_part
def add_count(counter, data, at, w, k0, k1, n):
    """Counts n occurrences of a word, as `count_word`; the bytes are looked at for long words only."""
    slots, words, state = counter.slots, counter.words, counter.state
    j, found = find(slots, words, data, at, w, k0, k1)
    if not found:
        if state[COUNTER_WORDS] * 2 >= slots.shape[0] or (
            w > SHORT_WORD_BYTES and state[COUNTER_POOL_USED] + w > words.size
        ):
            return False
        state[COUNTER_POOL_USED] = insert(slots, words, state[COUNTER_POOL_USED], j, data, at, w, k0, k1)
        state[COUNTER_WORDS] += 1
    slots[j, VALUE] += n
    return True
