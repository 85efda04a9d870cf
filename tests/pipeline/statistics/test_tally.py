# SPDX-License-Identifier: Apache-2.0
"""Statistics and samples of splits: the same whatever the batches, merges and trips through a file."""

import collections

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline import schemas
from tokenmill.pipeline.statistics import sample, tally
from tokenmill.pipeline.statistics.sample import SAMPLE_BYTES, Sample
from tokenmill.pipeline.statistics.tally import Statistics
from tokenmill.tokenizer import Tokenizer

VOCAB = ["[PAD]", "[UNK]", "a", "b", "c"]


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


TOKENIZER = Tokenizer.for_bert(["[PAD]", "[UNK]"])


def chosen(n_documents, size, n_planned, n_batch):
    """Returns the numbers of the documents that are sampled."""
    rows = pa.array([f"{i:06d}".ljust(size) for i in range(n_documents)])
    numbers = pa.array(range(n_documents))
    ids = pa.array([[1]] * n_documents, pa.large_list(pa.int32()))
    found = Sample(TOKENIZER, n_planned, has_spans=False)
    kept = []
    for start in range(0, n_documents, n_batch):
        part = slice(start, start + n_batch)
        if found.add(rows[part], ids[part], numbers[part]):
            kept += found.counts()[0][0].to_pylist()
    return [*kept, *(column for columns in found.counts()[0] for column in columns.to_pylist())]


def test_a_small_split_is_sampled_whole_and_a_large_one_in_part(monkeypatch):
    assert chosen(500, 20, SAMPLE_BYTES, 7) == list(range(500))
    of_large = chosen(50_000, 20, 10 * SAMPLE_BYTES, 999)
    assert 4500 < len(of_large) < 5500
    assert of_large == chosen(50_000, 20, 10 * SAMPLE_BYTES, 50_000), "batches make no difference"
    monkeypatch.setattr(sample, "_PENDING_BYTES", 1000)
    assert of_large == chosen(50_000, 20, 10 * SAMPLE_BYTES, 999), "nor does looking at them early"
