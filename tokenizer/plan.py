# SPDX-License-Identifier: Apache-2.0
"""From a composition to what runs: tables, the kernel, and the word caches its threads borrow."""

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenizer import unicode_tables
from tokenizer.counting import Tally
from tokenizer.kernels import bert_wordpiece as kernels
from tokenizer.kernels import caches, word_cache
from tokenizer.models import WordPiece
from tokenizer.normalizers import BertNormalizer
from tokenizer.ragged import Ragged, read_only

_CACHE_REFRESH_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class Alignment:
    """The tokens of one text and where they came from; all arrays have one entry per token."""

    ids: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    """Index in the UTF-8 bytes of the first character of the token."""
    stops: npt.NDArray[np.int64]
    """Index in the UTF-8 bytes of its last character."""
    word_numbers: npt.NDArray[np.int32]


class WordCachePool:
    """Word caches of a fixed size; a thread borrows one for the length of a call, so there are as many as busy threads.

    A cache that has become full is emptied after another 64 MiB of text, so that it follows a corpus whose words change.
    """

    def __init__(self, n_bytes: int) -> None:
        if n_bytes < 1 << 16:
            raise ValueError(f"cache_bytes must be at least {1 << 16}, got {n_bytes!r}")
        self._n_bytes = n_bytes
        self._lock = threading.Lock()
        self._free: list[tuple[caches.CacheArrays, int]] = []

    @contextlib.contextmanager
    def borrow(self, n_text_bytes: int) -> Iterator[caches.CacheArrays]:
        """Lends a cache for a call that will read `n_text_bytes` bytes."""
        with self._lock:
            cache, seen = self._free.pop() if self._free else (caches.new_cache(self._n_bytes), 0)
        if seen > _CACHE_REFRESH_BYTES and cache.state[word_cache.CACHE_WORDS] * 2 >= cache.slots.shape[0]:
            cache.slots.fill(0)
            cache.state.fill(0)
            seen = 0
        yield cache
        # After an exception the cache may be half written; it is not given back.
        with self._lock:
            self._free.append((cache, seen + n_text_bytes))

    def fill(self) -> dict[str, int]:
        """Returns what the idle caches hold: words, and lookups that were not in a cache."""
        with self._lock:
            states = [cache.state for cache, _ in self._free]
        return {
            "caches": len(states),
            "words": int(sum(s[word_cache.CACHE_WORDS] for s in states)),
            "misses": int(sum(s[word_cache.CACHE_MISSES] for s in states)),
        }


class BertWordPiecePlan:
    """BertNormalizer, BertPreTokenizer and WordPiece, fused into one kernel."""

    def __init__(self, normalizer: BertNormalizer, model: WordPiece, cache_bytes: int) -> None:
        self._tables = unicode_tables.bert_tables(**normalizer.options())
        self._model = model.tables
        self.caches = WordCachePool(cache_bytes)

    def new_tally(self) -> Tally:
        return Tally(self._model)

    def encode(self, rows: Ragged, tally: Tally | None = None) -> Ragged:
        """Encodes rows of UTF-8 into ids, int32, without special tokens."""
        ratio = self._tables.max_bytes_ratio
        word_bytes = int(rows.max_row * ratio) + 16
        # Every token takes at least one byte of its normalized word, so ids are no more than bytes after normalization;
        # a cached word stores three ids whatever it has.
        out = np.empty(int(rows.n_values * ratio) + 16, np.int32)
        offsets = np.zeros(rows.n_rows + 1, np.int64)
        position = np.zeros(4, np.int64)
        scratch = caches.new_scratch(word_bytes)
        with self.caches.borrow(rows.n_values) as cache:
            counter = caches.new_counter(1, 0) if tally is None else tally.counter
            while not kernels.encode(
                rows.values, rows.offsets, self._tables, self._model, cache, counter, tally is not None, scratch, position, out, offsets
            ):  # fmt: skip
                assert tally is not None
                tally.make_room(word_bytes)
                counter = tally.counter
        return Ragged(out[: offsets[-1]], offsets)

    def align(self, text: bytes) -> Alignment:
        """Encodes one text and finds where each token came from."""
        data = read_only(np.frombuffer(bytearray(text), np.uint8))
        n = int(data.size * self._tables.max_bytes_ratio) + 16
        ids, starts, stops = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
        numbers = np.empty(n, np.int32)
        scratch = caches.new_scratch(n)
        k = kernels.align(data, 0, data.size, self._tables, self._model, scratch, ids, starts, stops, numbers)
        return Alignment(ids[:k], starts[:k], stops[:k], numbers[:k])

    def describe(self) -> dict[str, Any]:
        """Says what runs in the kernel and what does not, for `Tokenizer.explain`."""
        return {
            "kernel": "bert_wordpiece",
            "fused": ["BertNormalizer", "BertPreTokenizer", "WordPiece"],
            "stages": [],
            "word_cache": self.caches.fill(),
        }
