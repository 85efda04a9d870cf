# SPDX-License-Identifier: Apache-2.0
"""The mutable memory of kernels: word caches, word counters, scratch. Made here, passed to kernels as named tuples."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer import recycled
from tokenizer.kernels import word_table
from tokenizer.kernels.classes import N_CODE_POINTS
from tokenizer.kernels.hot_words import N_HOT
from tokenizer.kernels.word_cache import CACHE_IDS_USED, CACHE_MOST_SLOTS, CACHE_POOL_USED, CACHE_WORDS
from tokenizer.kernels.word_table import N_COLUMNS

SLOT_BYTES = 8 * N_COLUMNS
CACHE_LINE_BYTES = 64
HUGE_PAGE_BYTES = 1 << 21
_FIRST_SLOTS = 1 << 15

Slots = npt.NDArray[np.int64]
"""int64[power of two, 4], see word_table."""


class CacheArrays(NamedTuple):
    """A word cache: normalized word -> ids."""

    slots: Slots
    """See word_table and word_cache."""
    room: Slots
    """All slots that there may be, of which `slots` are the first. The others hold anything."""
    taken: npt.NDArray[np.uint64]
    """uint64: a bit for each slot, whether it holds a word, see word_cache."""
    words: npt.NDArray[np.uint8]
    """uint8[n]: bytes of words longer than 16."""
    ids: npt.NDArray[np.int32]
    """int32[n]: ids of words that have more than three."""
    isolated: npt.NDArray[np.int32]
    """int32[0x110000]: id + 1 of characters that are a word of their own and became one token, its negative where that
    is the unknown token, 0 where not yet seen."""
    hot: npt.NDArray[np.uint64]
    """uint64[N_HOT, 2]: the words that come all the time, see hot_words."""
    state: npt.NDArray[np.int64]
    """int64[5]: words held, bytes used of `words`, used of `ids`, misses so far, the most slots there may be."""


class CounterArrays(NamedTuple):
    """A word counter: normalized word -> how often."""

    slots: npt.NDArray[np.int64]
    """int64[power of two, 4]: the key, then the count."""
    words: npt.NDArray[np.uint8]
    """uint8[n]: bytes of words longer than 16."""
    state: npt.NDArray[np.int64]
    """int64[3]: distinct words, bytes used of `words`, words counted in all."""
    characters: npt.NDArray[np.int64]
    """int64[0x110000], or of no size where nothing needs it: occurrences of characters that are a word of their own."""


class Scratch(NamedTuple):
    """Room for the longest word there can be: a whole row without a separator."""

    word: npt.NDArray[np.uint8]
    origins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


class Work(NamedTuple):
    """What an encode kernel works with and on, beside its input and its model."""

    cache: CacheArrays
    tally: CounterArrays
    """Counts words that contain an unknown token, if the kernel is told to."""
    scratch: Scratch
    """For the longest word."""
    position: npt.NDArray[np.int64]
    """int64[4], zeros to begin with; says where to go on when a kernel stops for want of room in the tally."""
    out: npt.NDArray[np.int32]
    """int32: the ids, as many as the caller can prove to be enough, and `word_cache.COPIED_IDS` more."""
    out_offsets: npt.NDArray[np.int64]
    """int64[n_rows + 1]: the rows of ids."""


def power_of_two(n: int) -> int:
    """Returns the largest power of two that is at most `n`."""
    return 1 << (n.bit_length() - 1)


def new_cache(n_bytes: int) -> CacheArrays:
    """Makes an empty word cache that may grow to about `n_bytes` bytes.

    It has few slots to begin with: a small table is closer to the processor than a large one with as few words in it.
    More are taken from the memory behind them, so that no other memory is touched for what they hold already.

    On top come 7.25 MiB for single characters, of which only the pages that a text's scripts need are ever touched.
    """
    most_slots = power_of_two(n_bytes // 2 // SLOT_BYTES)
    n_slots = min(_FIRST_SLOTS, most_slots)
    room = _new_slots(most_slots, n_slots)
    return CacheArrays(
        slots=room[:n_slots],
        room=room,
        taken=np.zeros(max(most_slots // 64, 1), np.uint64),
        words=recycled.empty(n_bytes // 8, np.uint8),
        ids=recycled.empty(n_bytes // 4 // 4, np.int32),
        isolated=np.zeros(N_CODE_POINTS, np.int32),
        hot=recycled.zeros(2 * N_HOT, np.uint64, 2 * N_HOT).reshape(N_HOT, 2),
        state=np.array([0, 0, 0, 0, most_slots], np.int64),
    )


def is_full(cache: CacheArrays) -> bool:
    """Whether a cache keeps no new words."""
    return bool(cache.state[CACHE_WORDS] * 2 >= cache.slots.shape[0])


def can_grow(cache: CacheArrays) -> bool:
    """Whether a cache may have more slots."""
    return bool(cache.slots.shape[0] < cache.state[CACHE_MOST_SLOTS])


def grown(cache: CacheArrays, spread: Callable[[Slots, int, Any], None] = word_table.spread) -> CacheArrays:
    """Returns a cache with twice as many slots, and the same words, in its memory: the old one is of no use then.

    `spread` moves the words of the first half of some slots to where they belong among all, and notes which are taken.
    """
    n = cache.slots.shape[0]
    slots = cache.room[: 2 * n]
    slots[n:] = 0
    spread(slots, n, cache.taken[: max(2 * n // 64, 1)])
    return cache._replace(slots=slots)


def held_bytes(cache: CacheArrays) -> int:
    """Returns how many bytes of a cache hold something: its table, and what is used of the words and the ids."""
    used = cache.state[CACHE_POOL_USED] + cache.ids.itemsize * cache.state[CACHE_IDS_USED]
    return cache.slots.nbytes + int(used)


def empty(cache: CacheArrays) -> None:
    """Forgets all words."""
    cache.slots.fill(0)
    cache.taken.fill(0)
    cache.state[:CACHE_MOST_SLOTS] = 0


def new_counter(n_slots: int, n_pool_bytes: int, n_characters: int = 0) -> CounterArrays:
    """Makes an empty word counter; `n_slots` is a power of two, half of which can be filled."""
    return CounterArrays(
        slots=_new_slots(n_slots, n_slots),
        words=np.zeros(n_pool_bytes, np.uint8),
        state=np.zeros(3, np.int64),
        characters=np.zeros(n_characters, np.int64),
    )


def _new_slots(n: int, n_empty: int) -> Slots:
    """Makes n slots, the first of them empty, that begin at a cache line: else every other slot has two of these.

    Many begin at a huge page, so that all of them are in such where the system has them.
    """
    alignment = CACHE_LINE_BYTES if n * SLOT_BYTES < HUGE_PAGE_BYTES else HUGE_PAGE_BYTES
    memory = recycled.zeros(n * N_COLUMNS + alignment // 8, np.int64, n_empty * N_COLUMNS + alignment // 8)
    first = -memory.ctypes.data % alignment // 8
    return memory[first : first + n * N_COLUMNS].reshape(n, N_COLUMNS)


def new_scratch(n_word_bytes: int, max_ids_per_byte: int = 1) -> Scratch:
    """Makes scratch for words of up to `n_word_bytes` bytes. Pages that no word reaches are never touched."""
    # Short words are spelled eight bytes at a time, and a block of text has 64, read up to 16 bytes at a time.
    n = max(n_word_bytes, 64) + 16
    return Scratch(
        word=recycled.empty(n, np.uint8),
        origins=recycled.empty(n, np.int64),
        ends=recycled.empty(n * max_ids_per_byte, np.int64),
    )
