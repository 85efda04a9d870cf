# SPDX-License-Identifier: Apache-2.0
"""Word counting against its slow twin."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tokenizer import Tokenizer, reference
from tokenizer.counting import WORD_COUNTS, add_word_counts


def counts(table: pa.Table) -> dict[str, int]:
    return {row["word"].decode(): row["count"] for row in table.to_pylist()}


@given(st.lists(st.lists(strategies.texts(), max_size=5), max_size=4), st.booleans())
def test_counts_equal_the_reference(batches: list[list[str]], lowercase: bool) -> None:
    tokenizer = Tokenizer.untrained_bert(lowercase=lowercase)
    counter = tokenizer.new_word_counter()
    for batch in batches:
        counter.update(pa.array(batch, pa.string()))
    expected = reference.count_words([t for b in batches for t in b], tokenizer.normalizer)
    table = counter.to_table()
    assert table.schema == WORD_COUNTS
    assert counts(table) == expected
    assert counter.n_words == expected.total()
    assert counter.n_distinct == len(expected)
    assert table["word"].to_pylist() == sorted(table["word"].to_pylist())


def test_the_table_grows_and_forgets_nothing() -> None:
    counter = Tokenizer.untrained_bert().new_word_counter()
    before = counter.n_bytes
    long = "x" * 300
    counter.update(pa.array([" ".join(f"w{i} {long}{i % 1000}" for i in range(60_000))] * 2))
    expected = {f"w{i}": 2 for i in range(60_000)} | {f"{long}{i}": 120 for i in range(1000)}
    assert counts(counter.to_table()) == expected
    assert counter.n_bytes > before
    counter.clear()
    assert (counter.n_words, counter.n_bytes, counter.to_table().num_rows) == (0, before, 0)


@given(st.lists(st.lists(strategies.small_words(), max_size=4), min_size=1, max_size=4))
def test_counts_of_parts_add_up(parts: list[list[str]]) -> None:
    tokenizer = Tokenizer.untrained_bert()
    tables = []
    whole = tokenizer.new_word_counter()
    for part in parts:
        counter = tokenizer.new_word_counter()
        counter.update(pa.array(part, pa.string()))
        whole.update(pa.array(part, pa.string()))
        tables.append(counter.to_table())
    assert add_word_counts(tables).equals(whole.to_table())
