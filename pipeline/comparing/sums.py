# SPDX-License-Identifier: Apache-2.0
"""What is kept of the texts or word counts of a comparison: sums by group and block, words, and counts of ids.

A document is in one of `N_BLOCKS` blocks, by a hash of its place, because intervals are drawn from blocks, not from
documents: however large the corpus, a group takes `N_BLOCKS` sums of each column.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.statistics.words import split, unknown
from tokenmill.tokenizer import Tokenizer

Ints = npt.NDArray[np.int64]

N_BLOCKS = 100

MAX_GROUPS = 20_000
OTHER = "(other)"
"""Groups of one kind after the first `MAX_GROUPS` are summed up under this name."""

ALL = "all"
KINDS = ("source", "language", "script")

SUMMED = ("documents", "bytes", "characters", "words")
"""The first columns of the sums; after them come the tokens of every tokenizer, then the unknown tokens of each."""

WORDS = pa.schema([("language", pa.string()), ("word", pa.large_string()), ("count", pa.int64())])

MAX_WORDS = 2_000_000
MAX_WORD_BYTES = 256 << 20
"""Above this, or above `MAX_WORDS`, the rarest words are left out, down to half of the limit."""

_PENDING_ROWS = 1_000_000


@dataclass(frozen=True)
class Candidate:
    """A tokenizer that is compared."""

    label: str
    path: str
    tokenizer: Tokenizer
    load_seconds: float
    """How long reading its file took."""


class Words:
    """The words of documents by language, and how often each occurs.

    Memory: `MAX_WORDS` words, `MAX_WORD_BYTES`, and those of some batches.
    """

    def __init__(self) -> None:
        self._kept = WORDS.empty_table()
        self._pending: list[pa.Table] = []
        self._n_pending = 0
        self.n_left_out = 0
        """Occurrences of words that were left out."""

    def add(self, texts: pa.Array, languages: pa.DictionaryArray) -> Ints:
        """Adds the words of texts; returns how many each text has, int64[n]."""
        words, rows = split(texts)
        table = pa.table({"number": languages.indices.take(rows), "word": words})
        counted = table.group_by(["number", "word"]).aggregate([([], "count_all")])
        names = languages.dictionary.take(counted["number"].combine_chunks())
        self.add_counts(pa.table([names, counted["word"], counted["count_all"]], schema=WORDS))
        return np.bincount(rows, minlength=len(texts))

    def add_counts(self, table: pa.Table) -> None:
        """Adds words with their counts, a table of `WORDS`."""
        self._pending.append(table)
        self._n_pending += table.num_rows
        if self._n_pending > _PENDING_ROWS:
            self._merge()

    def table(self) -> pa.Table:
        """Returns the words: a table of `WORDS`, the most frequent first, ties by language and word."""
        self._merge()
        return self._ordered()

    def _ordered(self) -> pa.Table:
        return self._kept.sort_by([("count", "descending"), ("language", "ascending"), ("word", "ascending")])

    def _merge(self) -> None:
        both = pa.concat_tables([self._kept, *self._pending])
        self._pending, self._n_pending = [], 0
        summed = both.group_by(["language", "word"]).aggregate([("count", "sum")])
        self._kept = summed.rename_columns(WORDS.names).combine_chunks()
        while self._kept.num_rows > MAX_WORDS or self._kept.nbytes > MAX_WORD_BYTES:
            ordered = self._ordered()
            n = ordered.num_rows // 2
            self.n_left_out += int(pc.sum(ordered["count"][n:]).as_py())
            self._kept = ordered.take(np.arange(n))  # a copy, not a view of all of it


class Sums:
    """Sums over documents, or over words, by group; the words, and how often each tokenizer made each id."""

    def __init__(self, tokenizers: Sequence[Tokenizer], kinds: Iterable[str]) -> None:
        """Starts with nothing; `kinds` are those of the groups."""
        self.tokenizers = tokenizers
        self.ids = [np.zeros(each.n_ids, np.int64) for each in tokenizers]
        self.words = Words()
        self._places: dict[str, dict[str, int]] = {kind: {} for kind in kinds}
        self._n_groups = 0
        self._sums = np.zeros((16, N_BLOCKS, len(SUMMED) + 2 * len(tokenizers)), np.int64)

    @property
    def kinds(self) -> list[str]:
        """The kinds of groups."""
        return list(self._places)

    def groups(self, kind: str) -> dict[str, Ints]:
        """Returns the sums of each group of a kind, int64[N_BLOCKS, n_columns], in the order in which they were met."""
        return {name: self._sums[place] for name, place in self._places[kind].items()}

    def values(
        self, texts: pa.Array, n_words: Ints, ids: Sequence[pa.LargeListArray], counts: Ints, n_documents: int
    ) -> Ints:
        """Returns the columns of the sums for each text or word, int64[n, n_columns], and counts their ids.

        Args:
          texts: n of them, no nulls.
          n_words: int64[n], the words in each.
          ids: their tokens, by tokenizer.
          counts: int64[n], how often each occurred.
          n_documents: how many documents each is.
        """
        for sums, rows in zip(self.ids, ids, strict=True):
            np.add.at(sums, rows.values.to_numpy(), np.repeat(counts, np.diff(rows.offsets.to_numpy())))
        columns = [
            np.full(len(texts), n_documents),
            pc.binary_length(texts).to_numpy(),
            pc.utf8_length(texts).to_numpy(),
            n_words,
            *(np.diff(rows.offsets.to_numpy()) for rows in ids),
            *(unknown(each, rows) for each, rows in zip(self.tokenizers, ids, strict=True)),
        ]
        return np.stack(columns, axis=1).astype(np.int64) * counts[:, None]

    def add(self, groups: Mapping[str, pa.DictionaryArray], values: Ints, blocks: Ints | None = None) -> None:
        """Adds such columns to groups.

        Args:
          groups: by kind, dictionary<int32, string>[n], the group of each row, no nulls.
          values: int64[n, n_columns].
          blocks: int64[n], the block of each; None: block 0 for all.
        """
        blocks = np.zeros(len(values), np.int64) if blocks is None else blocks
        for kind, names in groups.items():
            used, indices = np.unique(names.indices.to_numpy(), return_inverse=True)
            places = np.array([self._place(kind, names.dictionary[i].as_py()) for i in used.tolist()], np.int64)
            np.add.at(self._sums, (places[indices], blocks), values)

    def _place(self, kind: str, name: str) -> int:
        places = self._places[kind]
        if name not in places and len(places) >= MAX_GROUPS:
            name = OTHER
        if name not in places:
            places[name] = self._n_groups
            self._n_groups += 1
            if self._n_groups > len(self._sums):
                self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
        return places[name]


def constant(name: str, n: int) -> pa.DictionaryArray:
    """Returns a column of `n` equal groups."""
    return pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), pa.array([name], pa.string()))
