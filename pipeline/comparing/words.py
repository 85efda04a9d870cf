# SPDX-License-Identifier: Apache-2.0
"""Words of a corpus by language, how often each occurs, and which gain and lose tokens most."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.statistics.words import Ints, split

WORDS = pa.schema([("language", pa.string()), ("word", pa.large_string()), ("count", pa.int64())])

MAX_WORDS = 2_000_000
MAX_WORD_BYTES = 256 << 20
"""Above this, or above `MAX_WORDS`, the rarest words are left out, down to half of the limit."""

_PENDING_ROWS = 1_000_000


class Words:
    """The words of documents by language. Memory: `MAX_WORDS` words, `MAX_WORD_BYTES`, and those of some batches."""

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
