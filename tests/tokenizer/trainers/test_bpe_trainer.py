# SPDX-License-Identifier: Apache-2.0
"""`BPETrainer` by hand, against its reference implementation, and on input that must not work or must not hurt."""

import random
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.reference.trainers import train_bpe
from tests.strategies import EXHAUSTIVE
from tests.word_counts import small, table
from tokenmill.tokenizer import BPE, BPETrainer

HUGS = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5}


def train(word_counts: Mapping[str, int] | Mapping[bytes, int], **fields: Any) -> BPE:
    return BPETrainer(**{"vocab_size": 10_000, **fields}).train(table(word_counts.items()))


def learned(word_counts: Mapping[str, int] | Mapping[bytes, int], **fields: Any) -> list[str]:
    return [" ".join(merge) for merge in train(word_counts, **fields).merges]


# By hand


# Against the reference implementation

fields = st.fixed_dictionaries(
    {
        "min_frequency": st.integers(0, 4),
        "special_tokens": st.lists(st.sampled_from(["[UNK]", "ab", "aa", "##b", "c", "#"]), unique=True),
        "user_defined_symbols": st.just([]) | st.lists(st.sampled_from(["<", "<a>", "éb", "bab"]), unique=True),
        "continuing_subword_prefix": st.sampled_from(["", "", "##", "a", "é"]),
        "end_of_word_suffix": st.sampled_from(["", "", "</w>", "a", "#"]),
        "max_token_length": st.none() | st.integers(1, 7),
    }
)
alphabets = st.fixed_dictionaries(
    {
        "limit_alphabet": st.none() | st.integers(3, 6),
        "initial_alphabet": st.lists(st.sampled_from("abz花"), max_size=3),
        "byte_fallback": st.booleans(),
    }
)


def check_against_the_twin(words: Mapping[bytes, int], extra: int, **fields: Any) -> None:
    n_first = len(train_bpe(words, vocab_size=0, **fields)[0])
    vocabulary, merges = train_bpe(words, vocab_size=n_first + extra, **fields)
    model = train(words, vocab_size=n_first + extra, **fields)
    assert list(model.vocab) == vocabulary
    assert list(model.merges) == merges


def has_parts(words: Iterable[bytes], fields: Mapping[str, Any]) -> bool:
    """Whether anything is left of the words when they are cut at the user-defined symbols."""
    symbols = sorted((symbol.encode() for symbol in fields.get("user_defined_symbols", ())), key=len, reverse=True)
    return any(any(re.split(b"|".join(map(re.escape, symbols)) or b"$", word)) for word in words)


@given(words=small(), extra=st.integers(0, 40), fields=fields, alphabet=alphabets)
@example(  # a token made twice, by two pairs, before a size is full
    words={"##a": 2, "#": 1},
    extra=3,
    fields={"continuing_subword_prefix": "##", "min_frequency": 0},
    alphabet={},
)
def test_characters_equal_the_reference_implementation(
    words: dict[str, int], extra: int, fields: dict[str, Any], alphabet: dict[str, Any]
) -> None:
    encoded = {word.encode(): count for word, count in words.items()}
    assume(has_parts(encoded, fields))
    check_against_the_twin(encoded, extra, **fields, **alphabet)


@given(
    words=st.dictionaries(st.text("ab é", max_size=20).map(str.encode) | st.binary(max_size=9), st.integers(1, 5)),
    extra=st.integers(0, 40),
    fields=fields,
)
def test_bytes_equal_the_reference_implementation(words: dict[bytes, int], extra: int, fields: dict[str, Any]) -> None:
    assume(has_parts(words, fields))
    check_against_the_twin(words, extra, byte_level=True, **fields)


def test_equals_the_reference_implementation_when_every_table_has_to_grow() -> None:
    rng = random.Random(7)
    words = {bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz012345", k=12)): rng.randint(1, 3) for _ in range(150)}
    words |= {bytes(rng.choices(b"ab", k=1500)): 1}
    check_against_the_twin(words, 250, min_frequency=2)


# Large numbers


def test_counts_are_64_bits_wide() -> None:
    # In 32 bits, 2**32 is 0 and 2**32 + 1 is 1.
    assert learned({"ab": 2**32 + 1, "cd": 3}) == ["a b", "c d"]
    assert learned({"ab": 2**31, "abx": 2**31, "cd": 3}) == ["a b", "ab x", "c d"]
    assert learned({b"ab": 2**32, b"cd": 2**32 + 1}, byte_level=True) == ["c d", "a b"]
    assert train({"ab": 2**32, "a": 2**33}, limit_alphabet=1).vocab == {"a": 0}


# Cost


@pytest.mark.parametrize("n_bytes", [1_000_000, 10_000_000] if EXHAUSTIVE else [1_000_000])
def test_a_word_may_be_as_long_as_a_corpus(n_bytes: int) -> None:
    # A scan of the word for each merge would take 3e10 steps, for the longer one ten times as many.
    assert len(train({random.Random(1).randbytes(n_bytes): 1}, byte_level=True, vocab_size=32_000).merges) == 31_744
    n_doublings = n_bytes.bit_length() - 1
    model = train({b"a" * 2**n_doublings: 1}, byte_level=True)
    assert [len(token) for token in model.vocab][256:] == [2**i for i in range(1, n_doublings + 1)]


# Mistakes


def test_a_vocabulary_too_small_for_its_alphabet_names_the_numbers_and_the_remedies() -> None:
    message = (
        "vocab_size=9 is smaller than what the vocabulary begins with, 11 entries: 1 special tokens, 7 characters, "
        "3 of them again with '@'; raise vocab_size to at least 11, or keep fewer characters with limit_alphabet"
    )
    fields = {"special_tokens": ["<s>"], "end_of_word_suffix": "@"}
    with pytest.raises(ValueError, match=message):
        train({"hug": 1, "pun": 1, "bun": 1, "hugs": 1, "s": 1, "bg": 1, "n": 1}, vocab_size=9, **fields)
    message = "vocab_size=256 is smaller .* 257 entries: 1 special tokens, 256 characters; raise vocab_size .* 257$"
    with pytest.raises(ValueError, match=message):
        train(HUGS, vocab_size=256, byte_level=True, special_tokens=["<s>"])
    with pytest.raises(ValueError, match="265 entries: 0 special tokens, 2 user-defined symbols, 256 byte tokens, 7"):
        train(HUGS, vocab_size=99, byte_fallback=True, user_defined_symbols=["x", "y"])
    for sizes, message in (
        ([], "at least one vocabulary size, got none"),
        ([10, 2**25], "in 1..16777216, got 33554432"),
    ):
        with pytest.raises(ValueError, match=message):
            BPETrainer().train_sizes(table(HUGS.items()), sizes)
    with pytest.raises(TypeError, match="a vocabulary size must be an integer, got 300"):
        BPETrainer().train_sizes(table(HUGS.items()), [300, 300.0])  # type: ignore[list-item]


@pytest.mark.parametrize("byte_level", [False, True])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no words"),
        ([("a", 0), ("", 9)], "holds no words"),
        ([("a", 1), ("b", -3)], "counts must not be negative, got -3"),
        ([("ab", 2**62), ("c", 1)], r"add up to 9223372036854775809 (bytes|characters), more than 2\*\*63 - 1"),
        ([("a", 2**63 - 1), ("b", 2**63 - 1)], "add up to 18446744073709551614"),
    ],
)
def test_bad_word_counts_are_refused(byte_level: bool, rows: list[tuple[str, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BPETrainer(byte_level=byte_level).train(table(rows))


def test_words_of_characters_must_be_text() -> None:
    with pytest.raises(ValueError, match=r"words must be UTF-8, got b'\\xff'"):
        train({b"\xff": 1, b"a": 2})
