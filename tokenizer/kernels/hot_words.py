# SPDX-License-Identifier: Apache-2.0
"""The words that come all the time, in a table small enough to stay close to the processor.

In front of a word cache, which may hold a million words all over 32 MiB: words of up to eight bytes that have up to
three ids, each in the one place where it can be, and a word that is looked up in the cache takes the place of another.
A row of the table, uint64[N_HOT, 2], holds the bytes of a word, and from the lowest bit on: 4 bits its length, 0 for
none, 2 bits how many ids it has, 18 bits for each of the ids. Larger ids are left to the cache.
"""

import numpy as np

from tokenizer.kernels.compiling import kernel_part, load_u64

HOT_BITS = 16
N_HOT = 1 << HOT_BITS
LONGEST_HOT = 8
_MOST_IDS, _ID_BITS = 3, 18
_ID_MASK = np.uint64((1 << _ID_BITS) - 1)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_EVERY = ~np.uint64(0)


@kernel_part
def _key(data, at, w):
    return load_u64(data, at) & (_EVERY >> np.uint64(64 - 8 * w))


@kernel_part
def _place(key, w):
    return ((key + np.uint64(w)) * _MIX) >> np.uint64(64 - HOT_BITS)


@kernel_part
def emit_hot(hot, data, at, w, out, o):
    """Appends the ids of `data[at:at + w]` if it is there; `out` has room for three, `data` goes on for eight bytes.

    Returns `(o, True)`, or `(o before, False)`.
    """
    if w > LONGEST_HOT:
        return o, False
    return emit_hot_key(hot, _key(data, at, w), w, out, o)


@kernel_part
def emit_hot_key(hot, key, w, out, o):
    """As `emit_hot`, for the w bytes of a key, in its lowest places."""
    j = _place(key, w)
    value = hot[j, 1]
    if hot[j, 0] != key or value & np.uint64(15) != np.uint64(w):
        return o, False
    out[np.uint64(o)] = np.int32((value >> np.uint64(6)) & _ID_MASK)
    out[np.uint64(o + 1)] = np.int32((value >> np.uint64(24)) & _ID_MASK)
    out[np.uint64(o + 2)] = np.int32((value >> np.uint64(42)) & _ID_MASK)
    return o + np.int64((value >> np.uint64(4)) & np.uint64(3)), True


@kernel_part
def remember_hot(hot, data, at, w, out, before, o):
    """Puts the ids `out[before:o]` of `data[at:at + w]` into its place, if there can be one for it."""
    if w <= LONGEST_HOT:
        remember_hot_key(hot, _key(data, at, w), w, out, before, o)


@kernel_part
def remember_hot_key(hot, key, w, out, before, o):
    """As `remember_hot`, for the w bytes of a key, in its lowest places."""
    n = o - before
    if n > _MOST_IDS:
        return
    value = np.uint64(w) | np.uint64(n) << np.uint64(4)
    for q in range(n):
        token = np.uint64(out[before + q])
        if token > _ID_MASK:
            return
        value |= token << np.uint64(6 + _ID_BITS * q)
    j = _place(key, w)
    hot[j, 0] = key
    hot[j, 1] = value
