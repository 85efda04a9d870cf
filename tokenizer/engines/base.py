# SPDX-License-Identifier: Apache-2.0
"""What every engine can do, and what they share: word caches, and running a kernel until all rows are done."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tokenizer import recycled
from tokenizer.aligned import AlignedText
from tokenizer.counting import Tally
from tokenizer.kernels import caches, word_cache
from tokenizer.ragged import Ragged

_CACHE_REFRESH_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class AlignedToken:
    """One token of one text, and where it came from."""

    id: int
    span: tuple[int, int]
    """Range of characters of the original text."""
    word: int
    """Number of its pre-token in the text."""
    matched: str = ""
    """Of an added token that was found in the text, what it took: white space beside it too."""


class Engine(Protocol):
    """Turns rows of text into ids. Rows may be segments of documents, cut at added tokens."""

    @property
    def unk_id(self) -> int:
        """The unknown token, -1 where there is none."""

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows.

        Args:
          rows: valid UTF-8, normalized already if `normalize` says that this is a step of its own.
          added: int32[n_rows], the id of rows that are an added token, -1 for text; or int32[0] where none is.
          is_first: bool[n_rows], whether the row is at the start of its document.
          tally: counts words, and those with an unknown token.
        """

    def align(self, text: AlignedText, is_first: bool, first_word: int) -> tuple[list[AlignedToken], int]:
        """Encodes one row with where each token came from; returns the number of the next word as well."""

    def new_tally(self) -> Tally:
        """Returns an empty tally."""

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the name of the kernel, the components fused into it, and the stages beside it."""


@dataclasses.dataclass
class LentCache:
    """A word cache for the length of a call."""

    cache: caches.CacheArrays
    """Given back as it is then, also if it is another one."""
    counter: caches.CounterArrays
    """For the kernel to count the words it meets: the tally's to begin with, if there is one."""


@dataclasses.dataclass(frozen=True)
class CacheInfo:
    """What the word caches of a tokenizer hold, and what they were good for since it was made.

    A word that is cut, as those of scripts without spaces are, is met once, but each of its parts may miss; so a hit is
    a word that is met and no miss.
    """

    words: int
    """Words, and parts of words, that are held."""
    bytes: int
    """Bytes that they take: of slots, and of what is in the pools. Tables have their full size all the time, of which
    the system gives memory to what has been touched."""
    bound: int
    """Bytes of all tables that there are now, one for each thread that encoded at a time."""
    hits: int
    misses: int

    @property
    def hit_rate(self) -> float:
        """Hits by all that was asked, 0 where nothing was."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0


class WordCachePool:
    """Word caches of bounded size; a thread borrows one for the length of a call, so there are as many as busy threads.

    A cache that has become full is emptied after another 64 MiB of text, so that it follows a corpus whose words
    change.
    """

    def __init__(self, n_bytes: int) -> None:
        if n_bytes < 1 << 16:
            raise ValueError(f"cache_bytes must be at least {1 << 16}, got {n_bytes!r}")
        self._n_bytes = n_bytes
        self._lock = threading.Lock()
        self._free: list[tuple[caches.CacheArrays, int]] = []
        self._others: list[WordCachePool] = []
        self._n_met = self._n_misses = 0
        self._tables: Any = None

    @property
    def tables(self) -> Any:
        """The tables of the encode loop, a `tables.TablePool`."""
        from tokenizer.engines.tables import TablePool

        if self._tables is None:
            self._tables = TablePool(self._n_bytes)
        return self._tables

    def another(self) -> "WordCachePool":
        """Returns a pool of caches of the same size, for other keys."""
        other = WordCachePool(self._n_bytes)
        self._others.append(other)
        return other

    @contextlib.contextmanager
    def borrow(self, n_text_bytes: int, tally: Tally | None) -> Iterator[LentCache]:
        """Lends a cache for a call that will read `n_text_bytes` bytes, and counts into a tally or nowhere."""
        with self._lock:
            cache, seen = self._free.pop() if self._free else (caches.new_cache(self._n_bytes), 0)
        if seen > _CACHE_REFRESH_BYTES and caches.is_full(cache) and not caches.can_grow(cache):
            caches.empty(cache)
            seen = 0
        lent = LentCache(cache, caches.new_counter(1, 0) if tally is None else tally.counter)
        met_before = int(lent.counter.state[word_cache.COUNTER_TOTAL])
        misses_before = int(cache.state[word_cache.CACHE_MISSES])
        yield lent
        counter = lent.counter if tally is None else tally.counter
        # After an exception the cache may be half written; it is not given back.
        with self._lock:
            self._free.append((lent.cache, seen + n_text_bytes))
            self._n_met += int(counter.state[word_cache.COUNTER_TOTAL]) - met_before
            self._n_misses += int(lent.cache.state[word_cache.CACHE_MISSES]) - misses_before

    def info(self) -> CacheInfo:
        """Returns what the idle caches hold, those for other keys too."""
        with self._lock:
            held = [cache for cache, _ in self._free]
            met, misses = self._n_met, self._n_misses
        infos = [other.info() for other in self._others]
        if self._tables is not None:
            infos.append(self._tables.info())
        return CacheInfo(
            words=sum(int(cache.state[word_cache.CACHE_WORDS]) for cache in held) + sum(i.words for i in infos),
            bytes=sum(map(caches.held_bytes, held)) + sum(i.bytes for i in infos),
            bound=len(held) * self._n_bytes + sum(i.bound for i in infos),
            hits=max(met - misses, 0) + sum(i.hits for i in infos),
            misses=misses + sum(i.misses for i in infos),
        )


def run(
    kernel: Callable[..., bool], arguments: tuple[Any, ...], model: tuple[Any, ...], pool: WordCachePool,
    tally: Tally | None, *, n_rows: int, n_bytes: int, n_ids: int, word_bytes: int, max_ids_per_byte: int = 1,
) -> Ragged:  # fmt: skip
    """Calls an encode kernel until all rows are done, making room in cache and tally whenever it asks for it.

    Args:
      kernel: called with `arguments`, `model`, a caches.Work and whether to tally.
      arguments: the rows, as the kernel wants them.
      model: likewise.
      pool: to borrow a word cache from.
      tally: may be None.
      n_rows, n_bytes: of the input.
      n_ids: no more ids than this can come out.
      word_bytes: no word is longer.
      max_ids_per_byte: of a word.
    """
    with pool.borrow(n_bytes, tally) as lent:
        work = caches.Work(
            cache=lent.cache,
            tally=lent.counter,
            scratch=caches.new_scratch(word_bytes, max_ids_per_byte),
            position=np.zeros(4, np.int64),
            out=recycled.empty(n_ids + 16, np.int32),  # a cached word stores up to eight ids whatever it has
            out_offsets=np.zeros(n_rows + 1, np.int64),
        )
        while not kernel(*arguments, *model, work, tally is not None):
            if caches.is_full(lent.cache) and caches.can_grow(lent.cache):
                lent.cache = caches.grown(lent.cache)
                work = work._replace(cache=lent.cache)
            else:
                assert tally is not None
                tally.make_room(word_bytes)
                work = work._replace(tally=tally.counter)
    return Ragged(work.out[: work.out_offsets[-1]], work.out_offsets)
