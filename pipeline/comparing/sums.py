# SPDX-License-Identifier: Apache-2.0
"""What is kept of the texts or word counts of a comparison: sums by group and by block, words, and counts of ids.

Ratios of the sums have bootstrap intervals. Each document is in one of `N_BLOCKS` blocks, by a hash of its place. The
bootstrap draws blocks, not documents: however large the corpus, a group takes `N_BLOCKS` sums of each column.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.statistics.words import Encoded, split, unknown
from tokenmill.tokenizer import Tokenizer

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

N_BLOCKS = 100
N_RESAMPLES = 1000
CONFIDENCE = 0.95

LEAST_BLOCKS = 10
"""A group with documents in fewer blocks has no intervals: they would be meaningless."""

MAX_GROUPS = 20_000
OTHER = "(other)"
"""Groups of one kind after the first `MAX_GROUPS` are summed up under this name."""

ALL = "all"
KINDS = ("source", "language", "script")

SUMMED = ("documents", "bytes", "characters", "words")
"""The first columns of the sums; after them come the tokens of every tokenizer, then the unknown tokens of each."""

_SEED = 1

WORDS = pa.schema([("language", pa.string()), ("word", pa.large_string()), ("count", pa.int64())])

MAX_WORDS = 2_000_000
MAX_WORD_BYTES = 256 << 20
"""Above this, or above `MAX_WORDS`, the rarest words are left out, down to half of the limit."""

_PENDING_ROWS = 1_000_000


class Words:
    """The words of documents by language, and how often each occurs.

    Memory: `MAX_WORDS` words, `MAX_WORD_BYTES`, and those of some batches.
    """

    def __init__(self) -> None:
        """Starts without words."""
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
        found = [languages.dictionary.take(counted["number"].combine_chunks()), counted["word"], counted["count_all"]]
        self.add_counts(pa.table(found, schema=WORDS))
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


def changes(words: Sequence[Any], counts: Ints, before: Ints, after: Ints, top: int) -> dict[str, list[dict[str, Any]]]:
    """Returns the words of which a tokenizer makes fewer tokens than another, and those of which it makes more.

    Each list has the `top` words that make up most of it: `count` times the difference, ties in the order of `words`.
    """
    difference = (after - before) * counts
    order = np.argsort(difference, kind="stable")
    found = {}
    for name, best in (("gained", order[:top]), ("lost", np.argsort(-difference, kind="stable")[:top])):
        sign = -1 if name == "gained" else 1
        found[name] = [
            {
                "word": str(words[i]),
                "count": int(counts[i]),
                "tokens_before": int(before[i]),
                "tokens_after": int(after[i]),
                "tokens": int(difference[i]),
            }
            for i in best.tolist()
            if sign * difference[i] > 0
        ]
    return found


class GroupSums:
    """Sums over documents of several numbers, by the groups of one kind."""

    def __init__(self, n_columns: int) -> None:
        """Starts with no group; `n_columns`: how many numbers a document has."""
        self._numbers: dict[str, int] = {}
        self._sums = np.zeros((16, N_BLOCKS, n_columns), np.int64)

    @property
    def names(self) -> list[str]:
        """The groups, in the order in which they were met."""
        return list(self._numbers)

    @property
    def blocks(self) -> Ints:
        """The sums, int64[n_groups, N_BLOCKS, n_columns]."""
        return self._sums[: len(self._numbers)]

    def add(self, groups: pa.DictionaryArray, blocks: Ints, values: Ints) -> None:
        """Adds documents.

        Args:
          groups: dictionary<int32, string>[n], the group of each, no nulls.
          blocks: int64[n], the block of each.
          values: int64[n, n_columns].
        """
        used, indices = np.unique(groups.indices.to_numpy(), return_inverse=True)
        numbers = np.array([self._number(groups.dictionary[i].as_py()) for i in used.tolist()], np.int64)
        if len(self._numbers) > self._sums.shape[0]:
            larger = np.zeros((2 * len(self._numbers), *self._sums.shape[1:]), np.int64)
            larger[: self._sums.shape[0]] = self._sums
            self._sums = larger
        np.add.at(self._sums, (numbers[indices], blocks), values)

    def _number(self, name: str) -> int:
        if name not in self._numbers and len(self._numbers) >= MAX_GROUPS:
            name = OTHER
        return self._numbers.setdefault(name, len(self._numbers))


class Bootstrap:
    """Resamples of the blocks of groups; the same in every run, and the same blocks for all columns."""

    def __init__(self) -> None:
        """Draws the blocks of all resamples."""
        drawn = np.random.default_rng(_SEED).integers(0, N_BLOCKS, (N_RESAMPLES, N_BLOCKS))
        self._weights = np.zeros((N_RESAMPLES, N_BLOCKS))
        np.add.at(self._weights, (np.arange(N_RESAMPLES)[:, None], drawn), 1.0)

    def resample(self, blocks: Ints) -> Floats:
        """Returns the sums of each resample, float64[N_RESAMPLES, n_columns]; `blocks`: int64[N_BLOCKS, n_columns]."""
        return self._weights @ blocks


def intervals(resampled: Floats) -> list[list[float] | None]:
    """Returns the limits between which `CONFIDENCE` of the values of each column lie; None where one is not finite.

    Args:
      resampled: float64[N_RESAMPLES, n].
    """
    tail = 100 * (1 - CONFIDENCE) / 2
    is_told = np.all(np.isfinite(resampled), axis=0)
    limits = np.percentile(np.where(is_told, resampled, 0), [tail, 100 - tail], axis=0).T.tolist()
    return [found if told else None for found, told in zip(limits, is_told.tolist(), strict=True)]


@dataclass(frozen=True)
class Found:
    """The counts of a comparison, from which `measure.report` computes ratios."""

    groups: Mapping[str, GroupSums]
    """Sums by kind of group: `ALL` and those of `KINDS` that are known."""
    ids: Sequence[Ints]
    """How often each tokenizer made each id, int64[n_ids]."""
    words: pa.DictionaryArray
    """dictionary<int32, large_string>[n]: the word of each row of `rows`."""
    rows: pa.Table
    """The language and the count of each word in `words`."""
    encoded: Sequence[Encoded]
    """For each tokenizer, how many tokens each distinct word has."""
    n_left_out: int
    """Occurrences of words that were left out."""
    has_documents: bool
    """Whether texts were read: the sums are by blocks of documents, so that there are intervals, and a word by itself
    is a text, too."""


class Sums:
    """What is kept while texts or words are read."""

    def __init__(self, tokenizers: Sequence[Tokenizer], kinds: Iterable[str]) -> None:
        """Starts with nothing; `kinds` are those of the groups."""
        self._tokenizers = tokenizers
        self.groups = {kind: GroupSums(len(SUMMED) + 2 * len(tokenizers)) for kind in kinds}
        self.ids = [np.zeros(each.n_ids, np.int64) for each in tokenizers]
        self.words = Words()

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
            *(unknown(each, rows) for each, rows in zip(self._tokenizers, ids, strict=True)),
        ]
        return np.stack(columns, axis=1).astype(np.int64) * counts[:, None]

    def add(self, groups: Mapping[str, pa.DictionaryArray], values: Ints, blocks: Ints | None = None) -> None:
        """Adds such columns to the groups of each kind; all of them to block 0 if there are no `blocks`, int64[n]."""
        for kind, names in groups.items():
            self.groups[kind].add(names, np.zeros(len(names), np.int64) if blocks is None else blocks, values)

    def found(self, encode: Callable[[Tokenizer, pa.Array], Encoded], *, has_documents: bool) -> Found:
        """Returns what was found so far; every distinct word is encoded here, by `encode`."""
        table = self.words.table()
        words, rows = table["word"].combine_chunks().dictionary_encode(), table.select(["language", "count"])
        encoded = [encode(each, words.dictionary) for each in self._tokenizers]
        return Found(self.groups, self.ids, words, rows, encoded, self.words.n_left_out, has_documents)


def constant(name: str, n: int) -> pa.DictionaryArray:
    """Returns a column of `n` equal groups."""
    return pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), pa.array([name], pa.string()))
