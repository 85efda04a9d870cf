# SPDX-License-Identifier: Apache-2.0
"""Tables keyed by words that become twice as large in their own memory."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenizer.kernels import caches, word_table
from tokenizer.kernels.compiling import kernel
from tokenizer.kernels.word_table import LENGTH, VALUE

_PADDING = 64


@kernel
def put(slots, pool, used, data, at, w, value):  # type: ignore[no-untyped-def]
    k0, k1 = word_table.word_key(data, at, w)
    j, found = word_table.find(slots, pool, data, at, w, k0, k1)
    if not found:
        used = word_table.insert(slots, pool, used, j, data, at, w, k0, k1)
        slots[j, VALUE] = value
    return used


@kernel
def value_of(slots, pool, data, at, w):  # type: ignore[no-untyped-def]
    k0, k1 = word_table.word_key(data, at, w)
    j, found = word_table.find(slots, pool, data, at, w, k0, k1)
    return slots[j, VALUE] if found else -1


@given(words=st.lists(st.binary(min_size=1, max_size=30), unique=True, max_size=48), log_slots=st.integers(6, 8))
def test_every_word_is_found_among_twice_as_many_slots(words: list[bytes], log_slots: int) -> None:
    n = 1 << log_slots
    data = np.frombuffer(b"".join(words) + bytes(_PADDING), np.uint8)
    ends = np.cumsum([len(word) for word in words], dtype=np.int64)
    slots, pool = np.full((2 * n, word_table.N_COLUMNS), -1, np.int64), np.zeros(2000, np.uint8)
    slots[:n] = 0
    used = 0
    for k, word in enumerate(words):
        used = put(slots[:n], pool, used, data, ends[k] - len(word), len(word), k)
    goes_round = slots[n - 1, LENGTH] != 0
    slots[n:] = 0
    taken = np.full(2 * n // 64, -1, np.int64).view(np.uint64)
    word_table.spread(slots, n, taken)
    assert np.count_nonzero(slots[:, LENGTH]) == len(words)
    bits = np.unpackbits(taken.view(np.uint8), bitorder="little").astype(np.bool_)
    assert bits.tolist() == (slots[:, LENGTH] != 0).tolist()
    found = [value_of(slots, pool, data, ends[k] - len(word), len(word)) for k, word in enumerate(words)]
    if not goes_round and slots[2 * n - 1, LENGTH] == 0:
        assert found == list(range(len(words)))
    # Else a word may be where no search finds it; it is never taken for another one.
    assert all(value in (k, -1) for k, value in enumerate(found))


def test_a_cache_grows_in_its_own_memory() -> None:
    cache = caches.new_cache(1 << 23)
    bigger = caches.grown(cache)
    assert bigger.slots.shape[0] == 2 * cache.slots.shape[0]
    assert np.shares_memory(bigger.slots, cache.slots)
    assert not bigger.slots.any()
    while caches.can_grow(bigger):
        bigger = caches.grown(bigger)
    assert bigger.slots.shape == bigger.room.shape
