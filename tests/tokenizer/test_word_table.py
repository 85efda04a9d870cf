# SPDX-License-Identifier: Apache-2.0
"""Tables keyed by words, and moving them into larger ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenizer.kernels import word_table
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


@given(words=st.lists(st.binary(min_size=1, max_size=30), unique=True, max_size=31), log_slots=st.integers(6, 8))
def test_every_word_is_found_among_twice_as_many_slots(words: list[bytes], log_slots: int) -> None:
    data = np.frombuffer(b"".join(words) + bytes(_PADDING), np.uint8)
    ends = np.cumsum([len(word) for word in words], dtype=np.int64)
    slots, pool = np.zeros((1 << log_slots, word_table.N_COLUMNS), np.int64), np.zeros(2000, np.uint8)
    bigger = np.zeros((2 << log_slots, word_table.N_COLUMNS), np.int64)
    used = 0
    for k, word in enumerate(words):
        used = put(slots, pool, used, data, ends[k] - len(word), len(word), k)
    word_table.rehash(slots, bigger)
    assert np.count_nonzero(bigger[:, LENGTH]) == len(words)
    found = [value_of(bigger, pool, data, ends[k] - len(word), len(word)) for k, word in enumerate(words)]
    assert found == list(range(len(words)))
