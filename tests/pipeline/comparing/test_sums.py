# SPDX-License-Identifier: Apache-2.0
"""Words of texts: as `str.split` cuts them, counted exactly, bounded, and compared one by one."""

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import texts
from tokenmill.pipeline.comparing import sums
from tokenmill.pipeline.comparing.sums import WORDS, Words


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


def test_the_rarest_words_are_left_out_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr(sums, "MAX_WORDS", 4)
    counted = Words()
    counted.add_counts(pa.table([["de"] * 6, list("abcdef"), [5, 1, 4, 3, 2, 6]], schema=WORDS))
    assert [row["word"] for row in counted.table().to_pylist()] == ["f", "a", "c"]
    assert counted.n_left_out == 6
