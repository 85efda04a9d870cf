# SPDX-License-Identifier: Apache-2.0
"""Statistics: against a count in plain Python, whatever the batches, merges and trips through a file."""

import collections

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline import schemas
from tokenmill.pipeline.reporting.stats import length_percentile, summarize
from tokenmill.pipeline.reporting.stats_file import StatsFile
from tokenmill.pipeline.statistics import tally
from tokenmill.pipeline.statistics.tally import Statistics
from tokenmill.pipeline.statistics.vocabulary import token_counts
from tokenmill.tokenizer import Tokenizer

VOCAB = ["[PAD]", "[UNK]", "a", "b", "c"]
TOKENIZER = Tokenizer.for_bert(VOCAB)


def summary(statistics):
    """Returns what stats.json says; that it is what the schema says, too."""
    found = summarize(statistics, token_counts(statistics.token_counts, TOKENIZER))
    assert StatsFile.model_validate(found).model_dump(exclude_unset=True) == found
    return found


class FakeTally:
    """A tally with given words and characters, as the tokenizer would count them."""

    def __init__(self, n_words=0, words=None, chars=None, untracked=0, added=None):
        self.added_token_hits = collections.Counter(added or {})
        self.n_words = n_words
        self.n_oov_words_untracked = untracked
        self._words = dict(sorted((words or {}).items()))
        self._chars = dict(sorted((chars or {}).items()))
        self.n_oov_characters = sum(self._chars.values())

    def oov_words(self):
        return pa.table([list(self._words), list(self._words.values())], schema=schemas.WORD_COUNTS)

    def oov_characters(self):
        return np.array(list(self._chars), np.int32), np.array(list(self._chars.values()), np.int64)


def counted(documents, tally=None):
    """Returns the statistics of (text, ids) pairs."""
    result = Statistics(len(VOCAB), 1)
    lengths = [len(ids) for _, ids in documents]
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    ids = np.array([i for _, row in documents for i in row], np.int32)
    n_oov = result.update(pa.array([text for text, _ in documents], pa.string()), ids, offsets[:-1], offsets[1:])
    assert n_oov.tolist() == [row.count(1) for _, row in documents]
    kept = np.maximum(np.diff(offsets) - 2, 0)  # as if rows were framed and cut
    result.add_layout(kept + kept % 3, kept, 1, 1)
    if tally:
        result.add_tally(tally)
    return result


def back(s):
    """Returns statistics from the columns in a file and the numbers of an entry."""
    columns = Statistics.from_bytes(s.to_bytes(), 1)
    columns.add_groups(s.groups)
    return columns


def same(a, b):
    return a.to_arrow().equals(b.to_arrow()) and a.groups == b.groups


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
documents_lists = st.lists(st.tuples(texts, st.lists(st.integers(0, 4), max_size=6)), max_size=8)
word_counts = st.dictionaries(texts.map(str.encode), st.integers(1, 9), max_size=4)
tallies = st.builds(
    FakeTally,
    st.integers(0, 99),
    word_counts,
    st.dictionaries(st.integers(0, 0x10FFFF), st.integers(1, 9), max_size=4),
    st.integers(0, 3),
    st.dictionaries(texts, st.integers(1, 9), max_size=3),
)
all_statistics = st.builds(counted, documents_lists, tallies)


@given(documents_lists, tallies)
def test_counts_equal_a_count_in_plain_python(documents, tally):
    s = counted(documents, tally)
    tokens = collections.Counter(i for _, row in documents for i in row)
    lengths = [len(row) for _, row in documents]
    assert s["n_documents"] == len(documents)
    assert s["n_text_bytes"] == sum(len(text.encode()) for text, _ in documents)
    assert s["n_chars"] == sum(len(text) for text, _ in documents)
    assert s["n_tokens"] == sum(lengths)
    assert s["n_oov_tokens"] == tokens[1]
    assert s.token_counts.tolist() == [tokens[i] for i in range(len(VOCAB))]
    assert {i: n for i, n in enumerate(s.length_counts.tolist()) if n} == dict(collections.Counter(lengths))
    assert (s["min_tokens"], s["max_tokens"]) == ((min(lengths), max(lengths)) if lengths else (0, 0))
    assert s["n_words"] == tally.n_words
    assert s["n_oov_words"] == sum(tally._words.values()) + tally.n_oov_words_untracked
    assert s.n_oov_words_dropped == tally.n_oov_words_untracked
    assert s.oov_words().to_pydict() == {"word": list(tally._words), "count": list(tally._words.values())}
    assert dict(zip(*(part.tolist() for part in s.oov_chars()), strict=True)) == tally._chars
    assert s.groups.get("added tokens", {}) == tally.added_token_hits


@given(documents_lists, st.integers(0, 8))
def test_batches_make_no_difference(documents, cut):
    assert same(counted(documents[:cut]).merge(counted(documents[cut:])), counted(documents))


@given(all_statistics, all_statistics, all_statistics)
def test_merging_is_associative_and_commutative(a, b, c):
    def start():
        return Statistics(len(VOCAB), 1)

    def copy(s):
        return back(s)

    left = start().merge(copy(a).merge(b)).merge(c)
    assert same(left, start().merge(a).merge(copy(b).merge(c)))
    assert same(left, start().merge(c).merge(b).merge(a))


@given(all_statistics)
def test_a_trip_through_a_file_changes_nothing(s):
    assert same(back(s), s)
    assert back(s).to_bytes() == s.to_bytes()


def test_a_slice_of_text_counts_its_own_bytes():
    s = Statistics(5, None)
    s.update(pa.array(["xx", "é", "yyyy"]).slice(1, 1), np.array([9, 1, 9], np.int32), np.array([1]), np.array([2]))
    assert (s["n_documents"], s["n_text_bytes"], s["n_chars"], s["n_tokens"], s["n_oov_tokens"]) == (1, 2, 1, 1, 0)


def test_percentiles_are_nearest_rank():
    s = counted([("x", [2] * n) for n in (1, 2, 3, 4)] * 25)
    assert [length_percentile(s, p) for p in (1, 25, 26, 50, 75, 76, 99)] == [1, 1, 2, 2, 3, 4, 4]
    s.update(pa.array(["x"]), np.zeros(9000, np.int32), np.array([0]), np.array([9000]))
    assert length_percentile(s, 100) == 8192  # the lower end of its bucket
    assert length_percentile(Statistics(5, 1), 50) is None


def test_the_table_of_words_is_bounded_and_says_what_it_dropped(monkeypatch):
    monkeypatch.setattr(tally, "MAX_OOV_WORDS", 3)
    s = counted([], FakeTally(words={b"a": 1, b"b": 5, b"c": 1}))
    s.merge(counted([], FakeTally(words={b"b": 1, b"d": 2, b"e": 1}, untracked=7)))
    assert s.oov_words().to_pydict() == {"word": [b"a", b"b", b"d"], "count": [1, 6, 2]}
    assert s["n_oov_words"] == 5 + 2 + 4 + 7
    assert s.n_oov_words_dropped == 2 + 7
    assert s["n_oov_words"] == s.n_oov_words_dropped + sum(s.oov_words().column("count").to_pylist())


@pytest.mark.parametrize("bad", [-1, 5, 1 << 30])
def test_ids_outside_the_vocabulary_are_refused(bad):
    with pytest.raises(ValueError, match=f"id {bad} is not in the vocabulary of 5 tokens"):
        counted([("x", [2, bad])])


def test_statistics_of_other_vocabularies_do_not_merge():
    with pytest.raises(ValueError, match="different vocabularies"):
        Statistics(5, 1).merge(Statistics(6, 1))
    with pytest.raises(ValueError, match="different vocabularies"):
        Statistics(5, 1).merge(Statistics(5, None))


def test_other_files_are_refused():
    with pytest.raises(ValueError, match="not an Arrow file of statistics"):
        Statistics.from_bytes(b"something else")
    with pytest.raises(ValueError, match="not one row of statistics"):
        Statistics.from_arrow(pa.record_batch({"a": [1]}))


def test_the_summary_counts_special_tokens_in_text():
    s = counted([("a", [2])], FakeTally(added={"[SEP]": 2, "<b>": 5, "<a>": 5}))
    assert summary(s)["added_tokens_in_text"] == [
        {"token": "<a>", "count": 5}, {"token": "<b>", "count": 5}, {"token": "[SEP]", "count": 2},
    ]  # fmt: skip
