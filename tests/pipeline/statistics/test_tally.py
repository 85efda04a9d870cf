# SPDX-License-Identifier: Apache-2.0
"""Statistics: against a count in plain Python, whatever the batches, merges and trips through a file."""

import collections
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline import schemas
from tokenmill.pipeline.reporting.stats import length_percentile, summarize
from tokenmill.pipeline.reporting.stats_file import StatsFile
from tokenmill.pipeline.statistics import tally
from tokenmill.pipeline.statistics.sample import COUNTED
from tokenmill.pipeline.statistics.tally import Statistics
from tokenmill.pipeline.statistics.token_table import token_counts
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


def test_lengths_fall_into_the_buckets_the_docstring_names():
    lengths = [0, 1, 4095, 4096, 8191, 8192, 16_383, (1 << 31) - 1]
    s = Statistics(5, None)
    ids = np.zeros(16_383, np.int32)
    for length in lengths[:-1]:
        s.update(pa.array(["x"]), ids, np.array([0]), np.array([length]))
    assert {i: n for i, n in enumerate(s.length_counts.tolist()) if n} == {0: 1, 1: 1, 4095: 1, 4096: 2, 4097: 2}
    assert 4096 + (lengths[-1].bit_length() - 13) == tally.LENGTH_BUCKETS - 1


def test_percentiles_are_nearest_rank():
    s = counted([("x", [2] * n) for n in (1, 2, 3, 4)] * 25)
    assert [length_percentile(s, p) for p in (1, 25, 26, 50, 75, 76, 99)] == [1, 1, 2, 2, 3, 4, 4]
    s.update(pa.array(["x"]), np.zeros(9000, np.int32), np.array([0]), np.array([9000]))
    assert length_percentile(s, 100) == 8192  # the lower end of its bucket
    assert length_percentile(Statistics(5, 1), 50) is None


def test_summary_by_hand():
    tally = FakeTally(
        n_words=5, words={b"\xe7\x8e\xab": 2, "x\u0301".encode(): 2, b"z": 1}, chars={0x73AB: 3, 0x1F600: 3, 0x61: 4}
    )
    s = counted([("ab 玫", [2, 3, 1]), ("", []), ("c", [4, 1, 1, 1])], tally)
    of_two = [[1, 1], [2, 4], [0, 1], [1, 1], [1, 3], [1, 2]]
    s.add_sample({name: np.array(numbers) for name, numbers in zip(COUNTED, of_two, strict=True)})
    assert summary(s) == {
        "format_version": 3,
        "documents": 3,
        "bytes": 7,
        "characters": 5,
        "words": 5,
        "spaced_words": 3,
        "tokens": 7,
        "tokens_made": {
            "text": 6,
            "cut": 3,
            "kept": 3,
            "special": 3,
            "added": 3,
            "share_cut": 0.5,
            "documents_cut": 2,
            "share_of_documents_cut": 2 / 3,
        },
        "tokens_per_word": 1.2,
        "share_of_continuations": 1 / 6,
        "tokens_per_spaced_word": 2.0,
        "bytes_per_token": 7 / 6,
        "characters_per_token": 5 / 6,
        "sample": {
            "documents": 2,
            "bytes": 6,
            "documents_round_trip": 1,
            "documents_round_trip_but_for_spaces": 2,
            "share_round_trip": 0.5,
            "spaced_words": 4,
            "whole_words": 3,
            "strr": 0.75,
        },
        "vocabulary": {
            "size": 5,
            "used": 4,
            "coverage": 0.8,
            "dead": 1,
            "under_trained": 4,
            "unreachable": 0,
            "unreachable_tokens": [],
            "pieces": {"entries": 0, "tokens": 0, "share_of_tokens": 0.0},
            "entropy_bits": pytest.approx(-(4 / 7) * math.log2(4 / 7) - 3 / 7 * math.log2(1 / 7)),
            "renyi_efficiency": pytest.approx(math.log2((4**2.5 + 3) / 7**2.5) / -1.5 / math.log2(5)),
            "zipf_slope": pytest.approx(-1.01588, abs=1e-5),
            "coverage_curve": [
                {"entries": 1, "share": pytest.approx(4 / 7)},
                {"entries": 2, "share": pytest.approx(5 / 7)},
                {"entries": 4, "share": 1.0},
            ],
            "top_tokens": [
                {"id": 1, "token": "[UNK]", "count": 4},
                {"id": 2, "token": "a", "count": 1},
                {"id": 3, "token": "b", "count": 1},
                {"id": 4, "token": "c", "count": 1},
            ],
        },
        "oov": {
            "tokens": 4,
            "share_of_tokens": 4 / 7,
            "characters": 10,
            "share_of_characters": 2.0,
            "words": 5,
            "share_of_words": 1.0,
            "words_not_listed": 0,
            "distinct_characters": 3,
            "distinct_words": 3,
            "characters_to_add": {"50%": 2, "90%": 3, "95%": 3, "99%": 3, "100%": 3},
            "scripts": [
                {"script": "Latin", "count": 4},
                {"script": "Common", "count": 3},
                {"script": "Han", "count": 3},
            ],
            "top_characters": [
                {"code_point": "U+0061", "character": "a", "count": 4},
                {"code_point": "U+73AB", "character": "玫", "count": 3},
                {"code_point": "U+1F600", "character": "😀", "count": 3},
            ],
            "top_words": [
                {"word": "x\u0301", "count": 2},
                {"word": "玫", "count": 2},
                {"word": "z", "count": 1},
            ],
        },
        "added_tokens_in_text": [],
        "lengths": {
            "min": 0,
            "max": 4,
            "mean": 7 / 3,
            "percentiles": {"p1": 0, "p5": 0, "p25": 0, "p50": 3, "p75": 4, "p90": 4, "p95": 4, "p99": 4},
            "histogram": [
                {"from": 0, "to": 0, "rows": 1},
                {"from": 1, "to": 1, "rows": 0},
                {"from": 2, "to": 3, "rows": 1},
                {"from": 4, "to": 7, "rows": 1},
            ],
        },
    }


def test_summary_of_nothing_is_json():
    empty = json.loads(json.dumps(summary(Statistics(5, None)), allow_nan=False))
    assert empty["tokens_per_word"] is None
    assert empty["lengths"]["histogram"] == []


def test_token_counts_name_every_entry():
    table = token_counts(counted([("x", [2, 2, 4])]).token_counts, TOKENIZER)
    kinds = ["added", "added", *["ordinary"] * 3]
    assert table.to_pydict() == {"id": [0, 1, 2, 3, 4], "token": VOCAB, "count": [0, 0, 2, 0, 1], "kind": kinds}


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
