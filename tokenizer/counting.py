# SPDX-License-Identifier: Apache-2.0
"""Counting words at encoding speed: `WordCounter` for training vocabularies, `Tally` for what an encoding met."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenizer.kernels import bert_wordpiece, caches, word_cache, word_table
from tokenizer.kernels.classes import N_CODE_POINTS
from tokenizer.ragged import byte_rows, text_rows
from tokenizer.unicode_tables import BertTables
from tokenizer.words import Words

CountSwallowed = Callable[[Words, npt.NDArray[np.int64], npt.NDArray[np.int64]], None]
"""Adds to the second array, int64[0x110000], the characters swallowed in words that occur as the first says."""

SpellCharacters = Callable[[npt.NDArray[np.int64]], list[bytes]]
"""Returns the normalized word of each code point that is a word of its own."""

WORD_COUNTS = pa.schema(
    [pa.field("word", pa.large_binary(), nullable=False), pa.field("count", pa.int64(), nullable=False)]
)
"""Distinct words, as UTF-8 bytes, with how often each occurred; ordered by word bytes."""

_FIRST_SLOTS = 1 << 15
_FIRST_POOL_BYTES = 1 << 18
_TALLY_SLOTS = 1 << 16
_TALLY_POOL_BYTES = 1 << 20
MAX_TALLY_WORDS = 1 << 16
"""Distinct unknown words a tally keeps; beyond that the rarest are dropped, and counted as untracked."""


def word_count_table(counter: caches.CounterArrays) -> pa.Table:
    """Copies a counter's words into a table of `WORD_COUNTS`."""
    n_words = int(counter.state[word_cache.COUNTER_WORDS])
    lengths = counter.slots[:, word_table.LENGTH] & word_table.LENGTH_MASK
    offsets = np.zeros(n_words + 1, np.int64)
    values = np.empty(int(lengths.sum()), np.uint8)
    counts = np.empty(n_words, np.int64)
    word_table.export(counter.slots, counter.words, offsets, values, counts)
    words = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), n_words, [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    )
    return pa.Table.from_arrays([words, pa.array(counts)], schema=WORD_COUNTS).sort_by("word")


def add_word_counts(tables: list[pa.Table]) -> pa.Table:
    """Adds up tables of `WORD_COUNTS`, word by word."""
    merged = pa.concat_tables(tables).group_by("word", use_threads=False).aggregate([("count", "sum")])
    columns = [merged["word"].combine_chunks(), merged["count_sum"].combine_chunks()]
    return pa.Table.from_arrays(columns, schema=WORD_COUNTS).sort_by("word")


class WordCounter:
    """Counts the normalized pre-tokens of text columns. Not for use by several threads at once.

    It grows with the number of distinct words; a caller that must bound its memory looks at `n_bytes` between updates,
    takes the counts away with `to_table` and goes on after `clear`. One update adds at most the words of one column.
    """

    def __init__(self, tables: BertTables) -> None:
        self._tables = tables
        self.clear()

    def clear(self) -> None:
        """Forgets everything counted so far."""
        self._counter = caches.new_counter(_FIRST_SLOTS, _FIRST_POOL_BYTES)

    @property
    def n_words(self) -> int:
        """Words counted, every occurrence."""
        return int(self._counter.state[word_cache.COUNTER_TOTAL])

    @property
    def n_distinct(self) -> int:
        """Distinct words."""
        return int(self._counter.state[word_cache.COUNTER_WORDS])

    @property
    def n_bytes(self) -> int:
        """Memory held, in bytes."""
        return self._counter.slots.nbytes + self._counter.words.nbytes

    def update(self, texts: Any) -> None:
        """Counts the words of a text column; nulls have none."""
        rows = text_rows(texts)
        word_bytes = int(rows.max_row * self._tables.max_bytes_ratio) + 16
        scratch = caches.new_scratch(word_bytes)
        position = np.zeros(4, np.int64)
        while not bert_wordpiece.count_words(rows.values, rows.offsets, self._tables, self._counter, scratch, position):
            self._grow(word_bytes)

    def _grow(self, word_bytes: int) -> None:
        slots, words, state, characters = self._counter
        if state[word_cache.COUNTER_WORDS] * 2 >= slots.shape[0]:
            bigger = np.zeros((slots.shape[0] * 2, slots.shape[1]), np.int64)
            word_table.rehash(slots, bigger)
            slots = bigger
        if state[word_cache.COUNTER_POOL_USED] + word_bytes > words.size:
            longer = np.zeros(words.size * 2 + word_bytes, np.uint8)
            longer[: words.size] = words
            words = longer
        self._counter = caches.CounterArrays(slots, words, state, characters)

    def to_table(self) -> pa.Table:
        """Returns the counts, a table of `WORD_COUNTS`."""
        return word_count_table(self._counter)


class Tally:
    """What encodings met: words, and what the unknown token swallowed. Not for use by several threads at once.

    Characters are exact whatever the text. Words are exact up to `MAX_TALLY_WORDS` distinct ones; then the rarest
    (ties: greatest bytes first) are dropped, and their occurrences counted in `n_oov_words_untracked`. Memory
    is bounded by the two.
    """

    def __init__(self, count_swallowed: CountSwallowed, spell: SpellCharacters | None = None) -> None:
        """Starts to count.

        Args:
          count_swallowed: what the model loses of words.
          spell: the words of characters that the engine counts one by one, None if it does not.
        """
        self._count_swallowed = count_swallowed
        self._spell = spell
        self._kept = WORD_COUNTS.empty_table()
        self._characters = np.zeros(N_CODE_POINTS, np.int64)
        self.n_oov_words_untracked = 0
        self.added_token_hits: Counter[str] = Counter()
        """How often the text of each added token occurred, whether it became the token or stayed text."""
        self.counter = self._new_counter()

    def _new_counter(self) -> caches.CounterArrays:
        n_characters = 0 if self._spell is None else N_CODE_POINTS
        return caches.new_counter(_TALLY_SLOTS, _TALLY_POOL_BYTES, n_characters)

    @property
    def n_words(self) -> int:
        """Pre-tokens met, every occurrence."""
        return int(self.counter.state[word_cache.COUNTER_TOTAL])

    @property
    def n_oov_characters(self) -> int:
        """Characters of normalized words that the unknown token swallowed."""
        self._drain()
        return int(self._characters.sum())

    def oov_words(self) -> pa.Table:
        """Returns the words that contain an unknown token, a table of `WORD_COUNTS`."""
        self._drain()
        return self._kept

    def oov_characters(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Returns the swallowed characters: code points int32[k], ascending, and how often int64[k]."""
        self._drain()
        code_points = np.flatnonzero(self._characters)
        return code_points.astype(np.int32), self._characters[code_points]

    def make_room(self, word_bytes: int) -> None:
        """Empties the kernel's table into the kept words; the next word of up to `word_bytes` bytes then fits."""
        self._drain()
        if word_bytes > self.counter.words.size:
            longer = np.zeros(word_bytes, np.uint8)
            self.counter = self.counter._replace(words=longer)

    def _drain(self) -> None:
        tables = []
        if self.counter.state[word_cache.COUNTER_WORDS]:
            tables.append(word_count_table(self.counter))
        code_points = np.flatnonzero(self.counter.characters)
        if code_points.size and self._spell is not None:
            words = pa.array(self._spell(code_points), pa.large_binary())
            counts = pa.array(self.counter.characters[code_points])
            tables.append(pa.Table.from_arrays([words, counts], schema=WORD_COUNTS))
        if not tables:
            return
        fresh = add_word_counts(tables)
        rows = byte_rows(fresh["word"])
        one_row = np.array([0, rows.n_rows], np.int64)
        words = Words(rows.values, rows.offsets[:-1].copy(), rows.offsets[1:].copy(), one_row)
        self._count_swallowed(words, fresh["count"].to_numpy(), self._characters)
        kept = add_word_counts([self._kept, fresh])
        if len(kept) > MAX_TALLY_WORDS:
            before = int(pc.sum(kept["count"]).as_py())
            ordered = kept.sort_by([("count", "descending"), ("word", "ascending")])
            kept = ordered.slice(0, MAX_TALLY_WORDS // 2).sort_by("word")
            self.n_oov_words_untracked += before - int(pc.sum(kept["count"]).as_py())
        self._kept = kept
        total = self.counter.state[word_cache.COUNTER_TOTAL]
        self.counter = self._new_counter()
        self.counter.state[word_cache.COUNTER_TOTAL] = total
