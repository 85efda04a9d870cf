# SPDX-License-Identifier: Apache-2.0
"""Counters of words, for tallies and exact counts: a `word_table`, which the caller makes larger when it is full."""

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.word_table import SHORT_WORD_BYTES, VALUE, find, insert

COUNTER_WORDS, COUNTER_POOL_USED, COUNTER_TOTAL = 0, 1, 2
"""Cells of `kernel_memory.CounterArrays.state`."""


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
