# SPDX-License-Identifier: Apache-2.0
"""Open-addressing tables keyed by words: what both the word cache and the word counter are made of.

One slot is one row of an int64 array, so that a lookup touches one cache line. The first three columns are the key:

    0, 1   words of up to 16 bytes: their bytes; longer words: hash of the bytes, index of the bytes in a pool
    2      length of the word in bytes; 0 marks an empty slot

What the other columns mean is up to the user of the table. Short words are their own key, so there is nothing to compare
beyond two integers; long words compare bytes in the pool.
"""

import numpy as np

from tokenizer.kernels.compiling import kernel, kernel_part, load_u64, store_u64

KEY_0, KEY_1, LENGTH = 0, 1, 2
SHORT_WORD_BYTES = 16

_MIX_1 = np.uint64(0x9E3779B97F4A7C15)
_MIX_2 = np.uint64(0xC2B2AE3D27D4EB4F)


@kernel_part
def word_key(word, w, k0, k1):
    """Returns the key of a word as the slots hold it; for long words the second half is set on insertion."""
    if w > SHORT_WORD_BYTES:
        k0 = np.uint64(w)
        k1 = np.uint64(0)
        for q in range(0, w - 7, 8):
            k0 = (k0 ^ load_u64(word, q)) * _MIX_1
            k0 ^= k0 >> np.uint64(29)
        # The last eight bytes, overlapping the ones before: long words have more than eight.
        k0 = (k0 ^ load_u64(word, w - 8)) * _MIX_1
        k0 ^= k0 >> np.uint64(32)
    return k0, k1


@kernel_part
def _same_bytes(pool, p, word, w):
    """Whether the pool holds the long word `word[:w]` at `p`."""
    for q in range(0, w - 7, 8):
        if load_u64(pool, p + q) != load_u64(word, q):
            return False
    return load_u64(pool, p + w - 8) == load_u64(word, w - 8)


@kernel_part
def find(slots, pool, word, w, k0, k1):
    """Returns `(slot, found)`: where the word is, or the empty slot where it belongs. The table is never full."""
    mask = np.uint64(slots.shape[0] - 1)
    mixed = (k0 ^ (k1 * _MIX_2) ^ np.uint64(w)) * _MIX_1
    j = (mixed >> np.uint64(32)) & mask
    while True:
        length = slots[j, LENGTH]
        if length == 0:
            return j, False
        if length == w and slots[j, KEY_0] == np.int64(k0):
            if w <= SHORT_WORD_BYTES:
                if slots[j, KEY_1] == np.int64(k1):
                    return j, True
            else:
                if _same_bytes(pool, slots[j, KEY_1], word, w):
                    return j, True
        j = (j + np.uint64(1)) & mask


@kernel_part
def insert(slots, pool, pool_used, j, word, w, k0, k1):
    """Fills the key columns of the empty slot `j`; returns the new fill of the pool, which has room for the word."""
    slots[j, KEY_0] = np.int64(k0)
    slots[j, LENGTH] = w
    if w <= SHORT_WORD_BYTES:
        slots[j, KEY_1] = np.int64(k1)
    else:
        slots[j, KEY_1] = pool_used
        for q in range(w):
            pool[pool_used + q] = word[q]
        pool_used += w
    return pool_used


@kernel_part
def spell(word, k0, k1):
    """Writes a word that stands only in its keys into `word`, which has room for 16 bytes."""
    store_u64(word, 0, k0)
    store_u64(word, 8, k1)


@kernel
def rehash(slots, bigger):
    """Moves every slot of a table into an empty, bigger one; pools stay as they are."""
    mask = np.uint64(bigger.shape[0] - 1)
    for s in range(slots.shape[0]):
        if slots[s, LENGTH] == 0:
            continue
        k1 = np.uint64(slots[s, KEY_1]) if slots[s, LENGTH] <= SHORT_WORD_BYTES else np.uint64(0)
        mixed = (np.uint64(slots[s, KEY_0]) ^ (k1 * _MIX_2) ^ np.uint64(slots[s, LENGTH])) * _MIX_1
        j = (mixed >> np.uint64(32)) & mask
        while bigger[j, LENGTH] != 0:
            j = (j + np.uint64(1)) & mask
        for column in range(slots.shape[1]):
            bigger[j, column] = slots[s, column]


@kernel
def export(slots, pool, value_column, offsets, values, counts):
    """Writes the words of a table, in slot order, into flat arrays.

    Args:
      slots, pool: the table.
      value_column: which column to copy into `counts`.
      offsets: int64[n + 1]; values: uint8[total bytes of the words]; counts: int64[n]; all filled.
    """
    n = 0
    at = 0
    offsets[0] = 0
    for s in range(slots.shape[0]):
        w = slots[s, LENGTH]
        if w == 0:
            continue
        if w <= SHORT_WORD_BYTES:
            for q in range(min(w, 8)):
                values[at + q] = np.uint8((slots[s, KEY_0] >> (8 * q)) & 255)
            for q in range(8, w):
                values[at + q] = np.uint8((slots[s, KEY_1] >> (8 * (q - 8))) & 255)
        else:
            p = slots[s, KEY_1]
            for q in range(w):
                values[at + q] = pool[p + q]
        at += w
        counts[n] = slots[s, value_column]
        n += 1
        offsets[n] = at
