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

    def another(self) -> "WordCachePool":
        """Returns a pool of caches of the same size, for other keys."""
        return WordCachePool(self._n_bytes)

    @contextlib.contextmanager
    def borrow(self, n_text_bytes: int) -> Iterator[LentCache]:
        """Lends a cache for a call that will read `n_text_bytes` bytes."""
        with self._lock:
            cache, seen = self._free.pop() if self._free else (caches.new_cache(self._n_bytes), 0)
        if seen > _CACHE_REFRESH_BYTES and caches.is_full(cache) and not caches.can_grow(cache):
            caches.empty(cache)
            seen = 0
        lent = LentCache(cache)
        yield lent
        # After an exception the cache may be half written; it is not given back.
        with self._lock:
            self._free.append((lent.cache, seen + n_text_bytes))

    def fill(self) -> dict[str, int]:
        """Returns what the idle caches hold: words, and lookups that were not in a cache."""
        with self._lock:
            states = [cache.state for cache, _ in self._free]
        return {
            "caches": len(states),
            "words": int(sum(s[word_cache.CACHE_WORDS] for s in states)),
            "misses": int(sum(s[word_cache.CACHE_MISSES] for s in states)),
        }


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
    with pool.borrow(n_bytes) as lent:
        work = caches.Work(
            cache=lent.cache,
            tally=caches.new_counter(1, 0) if tally is None else tally.counter,
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
