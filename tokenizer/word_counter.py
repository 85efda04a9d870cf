# SPDX-License-Identifier: Apache-2.0
"""`WordCounter`: the words of text columns, counted at encoding speed, after any normalizer and pre-tokenizer."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tokenizer import unicode_tables
from tokenizer.counting import word_count_table
from tokenizer.engines.choice import NO_NORMALIZER
from tokenizer.engines.staged import whole_rows
from tokenizer.kernels import bert_wordpiece, caches, word_cache, word_counting, word_table
from tokenizer.models.unigram import SPACE
from tokenizer.normalizers import BertNormalizer, Normalizer, SentencePieceNormalizer, Sequence
from tokenizer.normalizing import NormalizingStage
from tokenizer.pre_tokenizers import BertPreTokenizer, PreTokenizer, Split
from tokenizer.ragged import Ragged, read_only, text_rows
from tokenizer.words import Words

_FIRST_SLOTS = 1 << 15
_FIRST_POOL_BYTES = 1 << 18
_BATCH_CHARACTERS = 4 << 20


class WordCounter:
    """Counts the normalized pre-tokens of text columns. Not for use by several threads at once.

    Words are UTF-8 as it is in the text, also where a model spells bytes as GPT-2's letters. What
    `SentencePieceNormalizer` makes has no pre-tokenizer; there a word begins at every "▁", or ends there where white
    space is a suffix, as sentencepiece cuts text when it trains.

    It grows with the number of distinct words; a caller that must bound its memory looks at `n_bytes` between updates,
    takes the counts away with `to_table` and goes on after `clear`. One update adds at most the words of one column.
    """

    def __init__(self, normalizer: Normalizer | None, pre_tokenizer: PreTokenizer | None) -> None:
        """Starts to count; None leaves text as it is, or takes every text for one word."""
        self._scan: _Scan
        if isinstance(pre_tokenizer, BertPreTokenizer) and (
            normalizer is None or isinstance(normalizer, BertNormalizer)
        ):
            self._scan = _BertScan(normalizer or NO_NORMALIZER)
        else:
            self._scan = _StagedScan(normalizer, pre_tokenizer)
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
        """Counts the words of a text column; nulls have none.

        Raises:
          TimeoutError: if a pattern that no scanner covers does not finish on a text; nothing is counted then.
        """
        self.add(self.scan(texts))

    def scan(self, texts: Any) -> "ScannedTexts":
        """Does what may fail of `update`; what it returns is for `add`, once."""
        return self._scan.start(text_rows(texts))

    def add(self, scanned: "ScannedTexts") -> None:
        """Counts the words of texts that `scan` has looked at."""
        while not scanned.count(self._counter):
            self._grow(scanned.word_bytes)

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


def count_texts(counter: WordCounter, texts: Iterable[str | Iterable[str]]) -> pa.Table:
    """Counts texts, or batches of texts, a few megabytes at a time; returns a table of `WORD_COUNTS`.

    Raises:
      TypeError: if there is something else than a str.
    """
    pending: list[str] = []
    n_pending = 0
    for item in texts:
        for text in (item,) if isinstance(item, str) else item:
            if not isinstance(text, str):
                raise TypeError(f"texts to train on must be str, got {type(text).__name__}")
            pending.append(text)
            n_pending += len(text)
            if n_pending > _BATCH_CHARACTERS:
                counter.update(pending)
                pending, n_pending = [], 0
    counter.update(pending)
    return counter.to_table()


def read_lines(files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Iterator[str]:
    """Yields the lines of text files in UTF-8, with their line ends.

    Raises:
      OSError: if a file cannot be read. ValueError: if it is not UTF-8.
    """
    for path in (files,) if isinstance(files, (str, os.PathLike)) else files:
        with open(path, encoding="utf-8", newline="\n") as lines:
            try:
                yield from lines
            except UnicodeDecodeError as error:
                raise ValueError(f"{os.fspath(path)!r} is not UTF-8: {error.reason} at byte {error.start}") from error


class ScannedTexts(Protocol):
    """The words of one column, to be counted."""

    @property
    def word_bytes(self) -> int:
        """No word is longer."""

    def count(self, counter: caches.CounterArrays) -> bool:
        """Counts on from where it stopped; False where the counter must grow first."""


class _Scan(Protocol):
    def start(self, rows: Ragged) -> ScannedTexts:
        """Returns what counts the words of rows."""


class _BertScan:
    """BERT's normalizer and pre-tokenizer in one kernel."""

    def __init__(self, normalizer: BertNormalizer) -> None:
        self._tables = unicode_tables.bert_tables(**normalizer.options())

    def start(self, rows: Ragged) -> ScannedTexts:
        return _BertBatch(rows, self._tables)


class _BertBatch:
    def __init__(self, rows: Ragged, tables: unicode_tables.BertTables) -> None:
        self._rows, self._tables = rows, tables
        self.word_bytes = int(rows.max_row * tables.max_bytes_ratio) + 16
        self._scratch = caches.new_scratch(self.word_bytes)
        self._position = np.zeros(4, np.int64)

    def count(self, counter: caches.CounterArrays) -> bool:
        values, offsets = self._rows
        return bool(bert_wordpiece.count_words(values, offsets, self._tables, counter, self._scratch, self._position))


class _StagedScan:
    """Any normalizer, then any pre-tokenizer, then counting, each over the whole column."""

    def __init__(self, normalizer: Normalizer | None, pre_tokenizer: PreTokenizer | None) -> None:
        self._stage = NormalizingStage(normalizer, pre_tokenizer)
        last = normalizer.normalizers[-1] if isinstance(normalizer, Sequence) and normalizer.normalizers else normalizer
        if pre_tokenizer is None and isinstance(last, SentencePieceNormalizer) and last.escape_whitespaces:
            at_end = last.treat_whitespace_as_suffix
            pre_tokenizer = Split(SPACE, "merged_with_previous" if at_end else "merged_with_next")
        self._pre_tokenizer = pre_tokenizer

    def start(self, rows: Ragged) -> ScannedTexts:
        rows, is_first = self._stage.run(rows, read_only(np.ones(rows.n_rows, np.bool_)))
        words = whole_rows(rows) if self._pre_tokenizer is None else self._pre_tokenizer.split_rows(rows, is_first)
        return _StagedBatch(Words(*map(read_only, words)))


class _StagedBatch:
    def __init__(self, words: Words) -> None:
        self._words = words
        self.word_bytes = words.max_word
        self._position = np.zeros(4, np.int64)

    def count(self, counter: caches.CounterArrays) -> bool:
        return bool(word_counting.count_words(self._words, counter, self._position))
