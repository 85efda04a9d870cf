# SPDX-License-Identifier: Apache-2.0
"""Open-addressing tables keyed by words: what word counters and vocabularies are made of.

A table is one int64 array of four columns, 32 bytes a slot, so that a lookup touches one cache line:

    0, 1   the key. Words of up to 16 bytes: their bytes; longer words: hash of the bytes, index of the bytes in a pool
    2      length of the word in bytes, low 32 bits, never 0; the high 32 bits belong to the user of the table
    3      belongs to the user of the table

Column 2 is 0 in empty slots. Short words are their own key, so there is nothing to compare beyond two integers; long
words compare bytes in the pool.

Counters of words, for tallies and exact counts, are such tables, which the caller makes larger when they are full.

Its reference implementation is in `tests/reference/bert.py`; `tests/tokenizer/test_counting.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64, store_u64

KEY_0, KEY_1, LENGTH, VALUE = 0, 1, 2, 3
N_COLUMNS = 4
LENGTH_MASK = (1 << 32) - 1
SHORT_WORD_BYTES = 16

_MIX_1 = np.uint64(0x9E3779B97F4A7C15)
_MIX_2 = np.uint64(0xC2B2AE3D27D4EB4F)

COUNTER_WORDS, COUNTER_POOL_USED, COUNTER_TOTAL = 0, 1, 2
"""Cells of `kernel_memory.CounterArrays.state`."""


@kernel_part
def word_key(data, at, w):
    """Returns the key of the word `data[at:at + w]`, two uint64; `data` is readable for 16 bytes from `at`.

    The second half of a long word's key is 0 until the word is inserted.
    """
    if w <= 8:
        return first_bytes(load_u64(data, at), w), np.uint64(0)
    if w <= 16:
        return load_u64(data, at), first_bytes(load_u64(data, at + 8), w - 8)
    return long_key(data, at, w), np.uint64(0)


@kernel_part
def word_key_anywhere(data, at, w):
    """Returns the same key, even if `data` ends before those 16 bytes."""
    if w > SHORT_WORD_BYTES or at + SHORT_WORD_BYTES <= data.size:
        return word_key(data, at, w)
    k0 = np.uint64(0)
    k1 = np.uint64(0)
    for q in range(min(w, 8)):
        k0 |= np.uint64(data[at + q]) << np.uint64(8 * q)
    for q in range(8, w):
        k1 |= np.uint64(data[at + q]) << np.uint64(8 * (q - 8))
    return k0, k1


@kernel_part
def first_bytes(eight, n):
    """Returns `eight` with all but its first n bytes cleared; n in 0..8."""
    if n >= 8:
        return eight
    return eight & ((np.uint64(1) << np.uint64(8 * n)) - np.uint64(1))


@kernel_part
def long_key(data, at, w):
    """Returns the first half of the key of a long word, its hash; w is at least 8."""
    k0 = np.uint64(w)
    for q in range(at, at + w - 7, 8):
        k0 = (k0 ^ load_u64(data, q)) * _MIX_1
        k0 ^= k0 >> np.uint64(29)
    # The last eight bytes, overlapping the ones before: long words have more than eight.
    k0 = (k0 ^ load_u64(data, at + w - 8)) * _MIX_1
    return k0 ^ (k0 >> np.uint64(32))


@kernel_part
def same_bytes(pool, p, data, at, w):
    """Whether `pool[p:p + w]` equals `data[at:at + w]`; w is at least 8."""
    for q in range(0, w - 7, 8):
        if load_u64(pool, p + q) != load_u64(data, at + q):
            return False
    return load_u64(pool, p + w - 8) == load_u64(data, at + w - 8)


@kernel_part
def first_slot(w, k0, k1, mask):
    """Returns the slot where the search for a word begins; `mask` is uint64, one less than the number of slots."""
    mixed = (k0 ^ (k1 * _MIX_2) ^ np.uint64(w)) * _MIX_1
    return (mixed >> np.uint64(32)) & mask


@kernel_part
def find(slots, pool, data, at, w, k0, k1):
    """Returns `(slot, found)`: where the word is, or the empty slot where it belongs. The table is never full.

    The bytes `data[at:at + w]` are only read for long words.
    """
    mask = np.uint64(slots.shape[0] - 1)
    j = first_slot(w, k0, k1, mask)
    while True:
        length = slots[j, LENGTH] & LENGTH_MASK
        if length == 0:
            return j, False
        if length == w and slots[j, KEY_0] == np.int64(k0):
            if w <= SHORT_WORD_BYTES:
                if slots[j, KEY_1] == np.int64(k1):
                    return j, True
            elif same_bytes(pool, slots[j, KEY_1], data, at, w):
                return j, True
        j = (j + np.uint64(1)) & mask


@kernel_part
def insert(slots, pool, pool_used, j, data, at, w, k0, k1):
    """Fills the key columns of the empty slot `j`; returns the new `pool_used`. The pool has room for a long word."""
    slots[j, KEY_0] = np.int64(k0)
    slots[j, LENGTH] = w
    if w <= SHORT_WORD_BYTES:
        slots[j, KEY_1] = np.int64(k1)
    else:
        slots[j, KEY_1] = pool_used
        copy_long(data, at, w, pool, pool_used)
        pool_used += w
    return pool_used


@kernel_part
def copy_long(data, at, w, out, o):
    """Copies `data[at:at + w]` to `out[o:]`; w is at least 8."""
    for q in range(0, w - 7, 8):
        store_u64(out, o + q, load_u64(data, at + q))
    # The last eight, overlapping the ones before.
    store_u64(out, o + w - 8, load_u64(data, at + w - 8))


@kernel_part
def spell(word, k0, k1):
    """Writes a short word, given its key, into `word`, which has room for 16 bytes."""
    store_u64(word, 0, k0)
    store_u64(word, 8, k1)


@kernel
def rehash(slots, bigger):
    """Moves every slot of a table into an empty, bigger one; pools stay as they are.

    Args:
      slots: int64[n_slots, N_COLUMNS]; bigger: int64[n_bigger, N_COLUMNS], zeros, filled.
    """
    mask = np.uint64(bigger.shape[0] - 1)
    for s in range(slots.shape[0]):
        w = slots[s, LENGTH] & LENGTH_MASK
        if w == 0:
            continue
        k1 = np.uint64(slots[s, KEY_1]) if w <= SHORT_WORD_BYTES else np.uint64(0)
        j = first_slot(w, np.uint64(slots[s, KEY_0]), k1, mask)
        while bigger[j, LENGTH] != 0:
            j = (j + np.uint64(1)) & mask
        for column in range(N_COLUMNS):
            bigger[j, column] = slots[s, column]


@kernel
def export(slots, pool, offsets, values, counts):
    """Writes the words of a table, in slot order, into flat arrays.

    Args:
      slots: int64[n_slots, N_COLUMNS]; pool: uint8[n_pool]: the table.
      offsets: int64[n + 1], counts: int64[n], column VALUE; filled.
      values: uint8[total bytes of the words and SHORT_WORD_BYTES more], filled.
    """
    n = 0
    at = 0
    offsets[0] = 0
    for s in range(slots.shape[0]):
        w = slots[s, LENGTH] & LENGTH_MASK
        if w == 0:
            continue
        if w <= SHORT_WORD_BYTES:
            store_u64(values, at, np.uint64(slots[s, KEY_0]))
            store_u64(values, at + 8, np.uint64(slots[s, KEY_1]))
        else:
            copy_long(pool, slots[s, KEY_1], w, values, at)
        at += w
        counts[n] = slots[s, VALUE]
        n += 1
        offsets[n] = at


@kernel_part
def add_count(counter, data, at, w, k0, k1, n):
    """Counts n occurrences of a word; returns False if the word is new and the counter has no room for it.

    counter: kernel_memory.CounterArrays, changed; k0, k1: the key of the word `data[at:at + w]`, see `word_table`. The
    bytes in `data` are only read for long words.
    """
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
