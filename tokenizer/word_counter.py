# SPDX-License-Identifier: Apache-2.0
"""`WordCounter`: counts the words of text columns at encoding speed, after any normalizer and pre-tokenizer."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokenmill.tokenizer import kernel_memory
from tokenmill.tokenizer.counting import export, word_count_table
from tokenmill.tokenizer.engines.choice import fused_with_bert
from tokenmill.tokenizer.engines.steps import SPANS, BoundSteps, counting
from tokenmill.tokenizer.engines.tables import call_loop, new_table
from tokenmill.tokenizer.kernels import bert_wordpiece, encode_loop, word_counting, word_table
from tokenmill.tokenizer.kernels.by_address import Bound
from tokenmill.tokenizer.kernels.encode_loop import APART, JOINED, N_COLUMNS, NEEDED, ROOM, Work
from tokenmill.tokenizer.kernels.pattern_spans import pattern_spans
from tokenmill.tokenizer.kernels.span_table import EVICTIONS
from tokenmill.tokenizer.kernels.spans import found_spans
from tokenmill.tokenizer.kernels.word_table import COUNTER_POOL_USED, COUNTER_TOTAL, COUNTER_WORDS
from tokenmill.tokenizer.models.bpe_tables import NO_CUTS
from tokenmill.tokenizer.models.unigram import SPACE
from tokenmill.tokenizer.normalizers import Normalizer, SentencePieceNormalizer, Sequence
from tokenmill.tokenizer.normalizing import NormalizingStage
from tokenmill.tokenizer.pre_tokenizers import BertPreTokenizer, PreTokenizer, Split
from tokenmill.tokenizer.pre_tokenizers.sequence import one_step, scanner_of
from tokenmill.tokenizer.ragged import Errors, Ragged, read_only, text_rows
from tokenmill.tokenizer.unicode import tables as unicode_tables
from tokenmill.tokenizer.words import Words, whole_rows

_FIRST_LINES, _LINES = 1 << 14, 1 << 16
"""The table's lines: at first, and once as many words have been evicted as the table has slots."""
_FIRST_SLOTS = 1 << 12
_FIRST_POOL_BYTES = 1 << 16
_BATCH_CHARACTERS = 4 << 20
_NO_ADDED = np.empty(0, np.int32)


class ScannedTexts(NamedTuple):
    """Texts whose words are ready to be counted; normalized already, unless the kernel does that."""

    bound: BoundSteps
    rows: Ragged
    """Of bytes, or the words of each row, as the steps count them."""


class WordCounter:
    """Counts the normalized pre-tokens of text columns. Not for use by several threads at once.

    Words are the UTF-8 of the text, even if the model spells bytes as GPT-2's letters. After a
    `SentencePieceNormalizer`, without a pre-tokenizer, a word begins at every "▁", or ends with it if white space is a
    suffix, as sentencepiece cuts text when it trains.

    It grows with the number of distinct words. To bound its memory, look at `n_bytes` between updates, take the counts
    with `to_table`, and go on after `clear`. One update adds at most the words of one column.
    """

    def __init__(self, normalizer: Normalizer | None, pre_tokenizer: PreTokenizer | None) -> None:
        """Starts to count; without a normalizer text stays as it is, without a pre-tokenizer every text is one word."""
        pre_tokenizer = one_step(pre_tokenizer)
        self._bert: unicode_tables.BertTables | None = None
        fused = fused_with_bert(normalizer, pre_tokenizer) if isinstance(pre_tokenizer, BertPreTokenizer) else None
        if fused is not None:
            # Words are counted as they are in the raw text, and normalized only when the counts are read.
            self._bert = unicode_tables.bert_tables(**fused.options())
        self._stage = NormalizingStage(normalizer, pre_tokenizer)
        last = normalizer.normalizers[-1] if isinstance(normalizer, Sequence) and normalizer.normalizers else normalizer
        if pre_tokenizer is None and isinstance(last, SentencePieceNormalizer) and last.escape_whitespaces:
            at_end = last.treat_whitespace_as_suffix
            pre_tokenizer = Split(SPACE, "merged_with_previous" if at_end else "merged_with_next")
        self._pre_tokenizer = pre_tokenizer
        self.clear()

    def clear(self) -> None:
        """Forgets everything counted so far."""
        self._table = new_table(_FIRST_LINES, 0)
        self._counter = kernel_memory.new_counter(_FIRST_SLOTS, _FIRST_POOL_BYTES)

    @property
    def n_words(self) -> int:
        """The number of words counted, every occurrence."""
        return int(self._all_counts().state[COUNTER_TOTAL])

    @property
    def n_distinct(self) -> int:
        """The number of distinct words."""
        return int(self._all_counts().state[COUNTER_WORDS])

    @property
    def n_bytes(self) -> int:
        """Memory held, in bytes."""
        return self._table.slots.nbytes + self._counter.slots.nbytes + self._counter.words.nbytes

    def update(self, texts: Any, errors: Errors = "strict") -> None:
        """Counts the words of a text column; nulls have none.

        Args:
          texts, errors: as for `Tokenizer.encode_arrow`.

        Raises:
          TypeError: if `texts` is not a text column. ValueError: if it is not valid.
          TimeoutError: if a pattern does not finish on a text; nothing is counted then.
        """
        self.add(self.scan(texts, errors))

    def scan(self, texts: Any, errors: Errors = "strict") -> ScannedTexts:
        """Does the part of `update` that may fail; pass the result to `add`, once."""
        rows = text_rows(texts, errors)
        if self._bert is not None:
            return ScannedTexts(counting(APART, Bound(bert_wordpiece.spans, SPANS, self._bert)), rows)
        rows, is_first = self._stage.run(rows, read_only(np.ones(rows.n_rows, np.bool_)))
        scanner = None if self._pre_tokenizer is None else scanner_of(self._pre_tokenizer)
        if scanner is not None:
            spans = Bound(pattern_spans, SPANS, scanner.new_cuts(), NO_CUTS)
            return ScannedTexts(counting(APART if scanner.are_apart else JOINED, spans), rows)
        words = whole_rows(rows) if self._pre_tokenizer is None else self._pre_tokenizer.split_rows(rows, is_first)
        spans = Bound(found_spans, SPANS, Words(*map(read_only, words)), NO_CUTS)
        return ScannedTexts(counting(APART, spans), Ragged(words.values, words.row_offsets))

    def add(self, scanned: ScannedTexts) -> None:
        """Counts the words of texts that `scan` has prepared."""
        work = Work(
            table=self._table, tally=self._counter, tallying=True, batch=np.empty(ROOM * N_COLUMNS, np.uint64),
            limit=encode_loop.BATCH, word=np.empty(0, np.uint8), ends=np.empty(0, np.int64), out=np.empty(0, np.int32),
            out_offsets=np.empty(scanned.rows.n_rows + 1, np.int64),
            position=np.array([0, scanned.rows.offsets[0], 0, 0, 0], np.int64),
        )  # fmt: skip
        while not call_loop(scanned.bound, scanned.rows, _NO_ADDED, work):
            self._make_room(ROOM, int(work.position[NEEDED]))
            work = work._replace(tally=self._counter)
        slots = self._table.slots
        if slots.size < 8 * _LINES and self._table.state[EVICTIONS] > slots.size // 4:
            self._empty_table()
            self._table = new_table(_LINES, 0)

    def _make_room(self, n_words: int, n_bytes: int) -> None:
        slots, words, state, _ = self._counter
        while (state[COUNTER_WORDS] + n_words) * 2 > slots.shape[0]:
            bigger = np.zeros((slots.shape[0] * 2, slots.shape[1]), np.int64)
            word_table.rehash(slots, bigger)
            slots = bigger
        if state[COUNTER_POOL_USED] + n_bytes > words.size:
            longer = np.zeros(words.size * 2 + n_bytes, np.uint8)
            longer[: words.size] = words
            words = longer
        self._counter = self._counter._replace(slots=slots, words=words)

    def _empty_table(self) -> None:
        self._make_room(int(np.count_nonzero(self._table.slots[1::4])), 0)
        word_counting.move_counts(self._table.slots, self._counter)

    def _all_counts(self) -> kernel_memory.CounterArrays:
        """Returns the counts of all words, normalized."""
        self._empty_table()
        if self._bert is None:
            return self._counter
        values, offsets, counts = export(self._counter)
        normalized = kernel_memory.new_counter(
            self._counter.slots.shape[0], int(values.size * self._bert.max_bytes_ratio)
        )
        longest = int(np.diff(offsets).max(initial=0) * self._bert.max_bytes_ratio) + 16
        scratch = kernel_memory.new_scratch(longest)
        bert_wordpiece.add_normalized(values, offsets, counts, self._bert, scratch.word, scratch.origins, normalized)
        return normalized

    def to_table(self, *, ordered: bool = True) -> pa.Table:
        """Returns the counts as a table of `WORD_COUNTS`; unless `ordered`, in no particular order."""
        return word_count_table(self._all_counts(), ordered=ordered)


def count_texts(counter: WordCounter, texts: Iterable[str | Iterable[str]]) -> pa.Table:
    """Counts texts, or batches of texts, a few megabytes at a time; returns a table of `WORD_COUNTS`.

    Raises:
      TypeError: if a text is not a str.
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
