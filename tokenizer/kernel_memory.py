# SPDX-License-Identifier: Apache-2.0
"""The mutable memory of kernels: word counters and scratch, allocated here and passed to kernels as named tuples."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.kernels.word_table import N_COLUMNS

SLOT_BYTES = 8 * N_COLUMNS
CACHE_LINE_BYTES = 64
HUGE_PAGE_BYTES = 1 << 21

Slots = npt.NDArray[np.int64]
"""int64[power of two, 4], see word_table."""


class CounterArrays(NamedTuple):
    """A word counter: word -> how often it occurred; see word_table."""

    slots: npt.NDArray[np.int64]
    """int64[power of two, 4]: three columns of the key, then the count."""
    words: npt.NDArray[np.uint8]
    """uint8[n]: the words longer than 16 bytes."""
    state: npt.NDArray[np.int64]
    """int64[3]: distinct words, bytes used of `words`, words counted in all."""
    characters: npt.NDArray[np.int64]
    """int64[0x10000] or, where none is counted so, int64[0]: words of one character of three bytes, by code point. The
    first has what is not counted."""


class Scratch(NamedTuple):
    """Work space for one word; it must hold the longest possible one, a whole row without a separator."""

    word: npt.NDArray[np.uint8]
    """uint8[n]: the word, normalized."""
    origins: npt.NDArray[np.int64]
    """int64[n]: where in the row each of its bytes comes from."""
    ends: npt.NDArray[np.int64]
    """int64[n or more]: where each of its tokens ends in the word."""


def power_of_two(n: int) -> int:
    """Returns the largest power of two that is at most `n`."""
    return 1 << (n.bit_length() - 1)


def new_counter(n_slots: int, n_pool_bytes: int, n_characters: int = 0) -> CounterArrays:
    """Makes an empty word counter; `n_slots` is a power of two, half of which can be filled."""
    return CounterArrays(
        slots=_new_slots(n_slots),
        words=np.zeros(n_pool_bytes, np.uint8),
        state=np.zeros(3, np.int64),
        characters=np.zeros(n_characters, np.int64),
    )


def _new_slots(n: int) -> Slots:
    """Makes n empty slots that begin at a cache line; otherwise every other slot would touch two lines.

    A table as large as a huge page begins at one, so that all of it is in huge pages if the system has them.
    """
    alignment = CACHE_LINE_BYTES if n * SLOT_BYTES < HUGE_PAGE_BYTES else HUGE_PAGE_BYTES
    size = n * N_COLUMNS + alignment // 8
    memory = recycled.zeros(size, np.int64, size)
    first = -memory.ctypes.data % alignment // 8
    return memory[first : first + n * N_COLUMNS].reshape(n, N_COLUMNS)


def new_scratch(n_word_bytes: int, max_ids_per_byte: int = 1) -> Scratch:
    """Makes scratch for words of up to `n_word_bytes` bytes. Memory pages that no word reaches are never touched."""
    # Short words are written eight bytes at a time; a block of text is 64 bytes, read up to 16 bytes at a time.
    n = max(n_word_bytes, 64) + 16
    return Scratch(
        word=recycled.empty(n, np.uint8),
        origins=recycled.empty(n, np.int64),
        ends=recycled.empty(n * max_ids_per_byte, np.int64),
    )
