# SPDX-License-Identifier: Apache-2.0
"""How a tokenizer cuts counted words, and how two tokenizers cut them differently, by language and source."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.pre_tokenizers import ByteLevel, is_byte_level
from tokenmill.tokenizer.ragged import id_rows
from tokenmill.tokenizer.trainers.word_counts import words_as_bytes, words_as_code_points

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def model_alone(tokenizer: Tokenizer) -> Tokenizer:
    """Returns a tokenizer that takes each text as one word: without normalizer, pre-tokenizer and template."""
    spells_bytes = ByteLevel(add_prefix_space=False, use_regex=False)
    return tokenizer.replace(
        normalizer=None, pre_tokenizer=spells_bytes if is_byte_level(tokenizer.pre_tokenizer) else None,
        post_processor=None, truncation=None, padding=None, special="plain",
    )  # fmt: skip


class Cuts(NamedTuple):
    """The tokens of each word."""

    values: npt.NDArray[np.int32]
    """int32[n_tokens]."""
    offsets: Ints
    """int64[n + 1], from 0."""
    unknown: Ints
    """int64[n]: the unknown tokens among them."""

    @property
    def lengths(self) -> Ints:
        """int64[n]: the number of tokens."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> Ints:
        """int64[n_tokens]: the number of the word of each."""
        return np.repeat(np.arange(self.unknown.size), self.lengths)

    def have(self, wanted: Flags) -> Flags:
        """Returns bool[n]: which words have a token of those that are wanted, bool[n_ids]."""
        return np.bincount(self.rows, wanted[self.values], self.unknown.size) > 0


@dataclasses.dataclass(frozen=True, eq=False)
class CountedWords:
    """Distinct words of each group, as a counts artifact has them."""

    words: pa.LargeStringArray
    counts: Ints
    """int64[n], all positive."""
    labels: Mapping[str, pa.DictionaryArray]
    """By kind, as `lang` and `source`: the label of each word, dictionary<int32, string>[n]."""

    @classmethod
    def of(cls, table: pa.Table) -> "CountedWords":
        """Checks a table with the columns `word` and `count`, and any columns of labels.

        Raises:
          TypeError, ValueError: as `Trainer.train`, for words that are text.
        """
        words_as_code_points(table)
        words_as_bytes(table)  # so that sums of tokens are below 2**63, too
        table = table.filter(pc.and_(pc.greater(table["count"], 0), pc.greater(pc.binary_length(table["word"]), 0)))
        labels = {
            name: table[name].cast(pa.string()).combine_chunks().dictionary_encode()
            for name in table.column_names
            if name not in ("word", "count")
        }
        words = table["word"].combine_chunks().cast(pa.large_string())
        return cls(words, table["count"].to_numpy().astype(np.int64), labels)

    def table(self) -> pa.Table:
        """Returns words and counts as trainers take them."""
        return pa.table({"word": self.words.cast(pa.large_binary()), "count": self.counts})

    def cut(self, tokenizer: Tokenizer) -> Cuts:
        """Returns the tokens that the model of a tokenizer makes of each word."""
        ids = id_rows(model_alone(tokenizer).encode_bare(self.words))
        rows = np.repeat(np.arange(ids.n_rows), np.diff(ids.offsets))
        return Cuts(*ids, np.bincount(rows[ids.values == tokenizer.unk_token_id], minlength=ids.n_rows))

    def groups(self, before: "Cuts", after: "Cuts", changed: Flags) -> dict[str, list[dict[str, Any]]]:
        """Returns how many words are cut differently, and the tokens before and after, for all words and by label."""
        columns = {
            "words": np.ones_like(self.counts), "occurrences": self.counts,
            "tokens_before": before.lengths * self.counts, "tokens_after": after.lengths * self.counts,
            "unknown_before": before.unknown * self.counts, "unknown_after": after.unknown * self.counts,
            "changed_words": changed.astype(np.int64), "changed_occurrences": changed * self.counts,
        }  # fmt: skip
        values = np.stack(list(columns.values()), axis=1)
        kinds = {"all": pa.repeat("all", len(self.counts)).dictionary_encode(), **self.labels}
        report: dict[str, list[dict[str, Any]]] = {}
        for kind, labels in kinds.items():
            sums = np.zeros((len(labels.dictionary), len(columns)), np.int64)
            np.add.at(sums, labels.indices.to_numpy(), values)
            rows = sorted(zip(labels.dictionary.to_pylist(), sums.tolist(), strict=True))
            report[kind] = [{"name": name, **dict(zip(columns, row, strict=True))} for name, row in rows]
        return report


def cut_differently(before: Cuts, after: Cuts) -> Flags:
    """Returns bool[n]: which words have other tokens."""
    changed = before.lengths != after.lengths
    in_both = np.repeat(~changed, before.lengths), np.repeat(~changed, after.lengths)
    differ = before.values[in_both[0]] != after.values[in_both[1]]
    changed[before.rows[in_both[0]][differ]] = True
    return changed


def token_counts(cuts: Cuts, counts: Ints, n_ids: int) -> Ints:
    """Returns how often each id occurs, int64[n_ids], if each word occurs so often."""
    sums = np.zeros(n_ids, np.int64)
    np.add.at(sums, cuts.values, np.repeat(counts, cuts.lengths))
    return sums
