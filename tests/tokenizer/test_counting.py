# SPDX-License-Identifier: Apache-2.0
"""Word counting against its reference implementation."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.reference.counting import count_pre_tokens
from tokenmill.tokenizer import Tokenizer, word_counter
from tokenmill.tokenizer import normalizers as nm
from tokenmill.tokenizer import pre_tokenizers as pt
from tokenmill.tokenizer.counting import WORD_COUNTS, add_word_counts, count_characters
from tokenmill.tokenizer.kernels import encode_loop
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS

COMPOSITIONS = {
    "gpt2": (None, pt.ByteLevel(add_prefix_space=False)),
    "prefix space": (nm.NFC(), pt.ByteLevel(add_prefix_space=True)),
    "cl100k": (None, pt.Split(TIKTOKEN_PATTERNS["llama3"], "isolated", is_regex=True)),
    "o200k": (None, pt.Split(TIKTOKEN_PATTERNS["o200k_base"], "isolated", is_regex=True)),
    "unknown pattern": (None, pt.Split(r"\p{Lu}\p{Ll}+|\s+", "removed", invert=True, is_regex=True)),
    "metaspace": (nm.NFKC(), pt.Metaspace()),
    "metaspace first": (nm.Strip(), pt.Metaspace(prepend_scheme="first")),
    "t5": (nm.Nmt(), pt.Sequence((pt.WhitespaceSplit(), pt.Metaspace()))),
    "word level": (nm.Lowercase(), pt.Whitespace()),
    "several steps": (
        nm.BertNormalizer(), pt.Sequence((pt.WhitespaceSplit(), pt.Punctuation(), pt.Digits(individual_digits=True)))
    ),
    "bert words, another normalizer": (nm.NFD(), pt.BertPreTokenizer()),
    "no pre-tokenizer": (nm.Sequence((nm.Prepend("\u2581"), nm.Replace(" ", "\u2581"))), None),
    "nothing": (None, None),
}  # fmt: skip


def counts(table: pa.Table) -> dict[str, int]:
    return {row["word"].decode(): row["count"] for row in table.to_pylist()}


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_counts_after_any_composition_equal_the_reference(name: str) -> None:
    normalizer, pre_tokenizer = COMPOSITIONS[name]
    tokenizer = Tokenizer(model=None, normalizer=normalizer, pre_tokenizer=pre_tokenizer)

    @given(st.lists(st.lists(strategies.texts(), max_size=5), max_size=3))
    def check(batches: list[list[str]]) -> None:
        counter = tokenizer.new_word_counter()
        for batch in batches:
            counter.update(pa.array(batch, pa.large_string()))
        expected = count_pre_tokens([t for b in batches for t in b], normalizer, pre_tokenizer)
        assert counts(counter.to_table()) == expected
        assert counter.n_words == expected.total()

    check()


@pytest.mark.parametrize("name", ["gpt2", "cl100k", "word level", "unknown pattern", "bert"])
@pytest.mark.parametrize("batch", [1, 2, 3, 128])
def test_words_that_lose_their_place_in_the_table_stay_counted(name: str, batch: int, monkeypatch) -> None:
    """A table of two lines, which then becomes one of four; batches as long and short as can be."""
    normalizer, pre_tokenizer = {**COMPOSITIONS, "bert": (nm.BertNormalizer(), pt.BertPreTokenizer())}[name]
    monkeypatch.setattr(word_counter, "_FIRST_LINES", 2)
    monkeypatch.setattr(word_counter, "_LINES", 4)
    monkeypatch.setattr(word_counter, "_FIRST_SLOTS", 512)
    monkeypatch.setattr(word_counter, "_FIRST_POOL_BYTES", 0)
    monkeypatch.setattr(encode_loop, "BATCH", batch)
    tokenizer = Tokenizer(model=None, normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    words = ["a", "the", "The", "字", "é" * 8, "x" * 15, "y" * 16, "z" * 17, "\0", "\u0301"]
    few = st.lists(st.sampled_from(words), max_size=40)
    some_texts = st.lists(few.map(" ".join) | few.map("".join) | strategies.texts(), max_size=5)

    @given(st.lists(some_texts, max_size=3), st.booleans())
    def check(columns: list[list[str]], asks: bool) -> None:
        counter = tokenizer.new_word_counter()
        expected: Counter[str] = Counter()
        for column in columns:
            counter.update(pa.array(column, pa.large_string()).slice(1))
            expected += count_pre_tokens(column[1:], normalizer, pre_tokenizer)
            if asks:
                assert (counter.n_words, counter.n_distinct) == (expected.total(), len(expected))
        assert counts(counter.to_table()) == counts(counter.to_table(ordered=False)) == expected

    check()


def test_counts_add_up_to_63_bits() -> None:
    def table(*values: int) -> pa.Table:
        words = pa.array([b"a"] * len(values), pa.large_binary())
        return pa.table([words, pa.array(values, pa.int64())], schema=WORD_COUNTS)

    most = (1 << 63) - 1
    assert add_word_counts([table(most - 5), table(5)])["count"].to_pylist() == [most]
    with pytest.raises(OverflowError, match=f"the counts of 3 words add up to {most + 1}"):
        add_word_counts([table(most - 5, 5), table(1)])
    assert add_word_counts([]).num_rows == 0


@given(st.data())
def test_words_are_added_up_in_any_order(data: st.DataObject) -> None:
    """Words that begin alike, that end in zeros, that are longer than any key."""
    word = st.sampled_from([b"", b"12345678", b"1234567", b"a" * 15, b"a" * 40]).flatmap(
        lambda begin: st.binary(max_size=2).map(begin.__add__) | st.just(begin + bytes(3))
    )
    rows = data.draw(st.lists(st.tuples(word, st.integers(0, 1 << 40)), max_size=30))
    expected: dict[bytes, int] = {}
    for each, n in rows:
        expected[each] = expected.get(each, 0) + n
    cut = data.draw(st.integers(0, len(rows)))
    columns = [pa.array([each for each, _ in rows], pa.large_binary()), pa.array([n for _, n in rows], pa.int64())]
    table = pa.table(columns, schema=WORD_COUNTS)
    added = add_word_counts([table.slice(cut), table.slice(0, cut)])
    assert [(row["word"], row["count"]) for row in added.to_pylist()] == sorted(expected.items())


@given(st.dictionaries(strategies.texts(20), st.integers(1, 1 << 40), max_size=8))
def test_characters_are_counted_as_often_as_their_words(words: dict[str, int]) -> None:
    columns = [pa.array([word.encode() for word in words], pa.large_binary()), pa.array(words.values(), pa.int64())]
    characters = np.zeros(0x110000, np.int64)
    count_characters(pa.table(columns, schema=WORD_COUNTS), characters)
    expected: Counter[int] = Counter()
    for word, count in words.items():
        for character in word:
            expected[ord(character)] += count
    assert {int(c): int(characters[c]) for c in np.flatnonzero(characters)} == expected


def test_characters_of_what_is_not_utf8_are_refused() -> None:
    table = pa.table([pa.array([b"a\xff"], pa.large_binary()), pa.array([1], pa.int64())], schema=WORD_COUNTS)
    with pytest.raises(ValueError, match=r"word 0 is not UTF-8: invalid start byte 0xff at byte 1 of it$"):
        count_characters(table, np.zeros(0x110000, np.int64))
