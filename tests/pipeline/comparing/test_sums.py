# SPDX-License-Identifier: Apache-2.0
"""Words of texts: as `str.split` cuts them, counted exactly, bounded, and compared one by one."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import texts
from tokenmill.pipeline.comparing import sums
from tokenmill.pipeline.comparing.measure import changes
from tokenmill.pipeline.comparing.sums import WORDS, Words

COUNTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6), st.integers(0, 6)), max_size=12)


@given(st.lists(st.tuples(texts(), st.sampled_from(["de", "en"])), max_size=10))
def test_words_are_those_of_str_split(rows):
    counted, expected = Words(), Counter()
    for text, language in rows:
        n = counted.add(pa.array([text]), pa.array([language]).dictionary_encode())
        assert n.tolist() == [len(text.split())]
        expected.update((language, word) for word in text.split())
    table = counted.table()
    found = {(row["language"], row["word"]): row["count"] for row in table.to_pylist()}
    assert found == expected
    assert list(found) == sorted(found, key=lambda key: (-found[key], key))
    assert counted.n_left_out == 0


@pytest.mark.parametrize("text", ["a b\t", "a b \u2008", "a b\x1d", " "])
def test_what_lies_behind_a_column_in_memory_is_no_word(text):
    data = text.encode()
    offsets, behind = np.array([0, len(data)], np.int32), b"\x80\xff"
    column = pa.StringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(data + behind))
    assert Words().add(column, pa.array(["de"]).dictionary_encode()).tolist() == [len(text.split())]


def test_the_rarest_words_are_left_out_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr(sums, "MAX_WORDS", 4)
    counted = Words()
    counted.add_counts(pa.table([["de"] * 6, list("abcdef"), [5, 1, 4, 3, 2, 6]], schema=WORDS))
    assert [row["word"] for row in counted.table().to_pylist()] == ["f", "a", "c"]
    assert counted.n_left_out == 6


@given(COUNTS, st.integers(1, 20))
def test_words_that_gain_and_lose_most(rows, top):
    words = [f"w{i}" for i in range(len(rows))]
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(3)]
    found = changes(words, *columns, top)
    by_hand = {word: (after - before) * n for word, (n, before, after) in zip(words, rows, strict=True)}
    for name, sign in (("gained", -1), ("lost", 1)):
        best = sorted((word for word in words if sign * by_hand[word] > 0), key=lambda word: -sign * by_hand[word])
        assert [each["word"] for each in found[name]] == best[:top]
        assert [each["tokens"] for each in found[name]] == [by_hand[word] for word in best[:top]]
