# SPDX-License-Identifier: Apache-2.0
"""`WordPieceTrainer` by hand, against its reference implementation, and on input that must not work."""

import random
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.reference.trainers import train_wordpiece
from tests.word_counts import small, table
from tokenmill.tokenizer.trainers import WordPieceTrainer
from tokenmill.tokenizer.trainers.kernels.merge_by_likelihood import compare_scores

RULES = ("frequency", "likelihood")
EVERYTHING = {"vocab_size": 10_000, "min_frequency": 0, "limit_alphabet": None, "special_tokens": ()}
"""Fields that leave nothing out."""

HUGS = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5}
HUGS_ALPHABET = ["b", "g", "h", "n", "p", "s", "u", "##g", "##n", "##s", "##u"]


def fields_for(**fields: Any) -> dict[str, Any]:
    """Adds to the first entries of the vocabulary the unknown token, which a model must have."""
    fields = {**EVERYTHING, **fields}
    if "[UNK]" not in fields["special_tokens"]:
        fields["special_tokens"] = ["[UNK]", *fields["special_tokens"]]
        fields["vocab_size"] += 1
    return fields


def train(word_counts: Mapping[str, int], **fields: Any) -> list[str]:
    """The vocabulary, without an unknown token that the fields do not ask for."""
    tokens = list(WordPieceTrainer(**fields_for(**fields)).train(table(word_counts.items())).vocab)
    return tokens if "[UNK]" in fields.get("special_tokens", ()) else tokens[1:]


# By hand


def test_likelihood_merges_the_pair_that_is_frequent_for_its_parts() -> None:
    # "##g ##s" 5 / (20 * 5); every other pair has 1 / 36, as no "##u" is without it and no other part is.
    # "b ##u" is the first of them by ids; then "bu ##n" has 4 / (4 * 16).
    # "##u" now occurs 32 times, so "h ##u" has 15 / (15 * 32), first of many; then "hu ##gs" 5 / (15 * 5).
    # "hu ##g" 10 / (10 * 15) beats "p ##u", which the fall of "##u" to 17 lifted to 17 / (17 * 17).
    assert train(HUGS, rule="likelihood", vocab_size=17) == [*HUGS_ALPHABET, "##gs", "bu", "bun", "hu", "hugs", "hug"]


# Against the reference implementation


@given(
    word_counts=small(),
    rule=st.sampled_from(RULES),
    extra=st.integers(0, 40),
    min_frequency=st.integers(0, 4),
    limit_alphabet=st.none() | st.integers(3, 6),
    initial_alphabet=st.lists(st.sampled_from("abz花"), max_size=3),
    special_tokens=st.lists(st.sampled_from(["[UNK]", "ab", "##b", "##ab", "c", "#"]), unique=True),
    prefix=st.sampled_from(["##", "##", "", "a", "é"]),
)
@example(  # a symbol's last occurrence goes while its row still stands in the tournament
    word_counts={"ab": 3, "cb": 1},
    rule="likelihood",
    extra=9,
    min_frequency=0,
    limit_alphabet=None,
    initial_alphabet=[],
    special_tokens=[],
    prefix="##",
)
def test_equals_the_reference_implementation(
    word_counts: dict[str, int], extra: int, prefix: str, special_tokens: list[str], **fields: Any
) -> None:
    fields |= {"continuing_subword_prefix": prefix, "special_tokens": special_tokens}
    n_first = len(train_wordpiece(word_counts, vocab_size=0, **fields))
    assume(n_first)
    fields["vocab_size"] = n_first + extra
    assert train(word_counts, **fields) == train_wordpiece(word_counts, **fields)


@pytest.mark.parametrize("rule", RULES)
def test_equals_the_reference_implementation_when_every_table_has_to_grow(rule: str) -> None:
    rng = random.Random(7)
    counts = {"".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=12)): rng.randint(1, 3) for _ in range(150)}
    counts |= {"".join(rng.choices("ab", k=1500)): 1}
    fields = {"vocab_size": 300, "min_frequency": 2, "rule": rule}
    assert train(counts, **fields) == train_wordpiece(counts, **fields)
    assert len(train(counts, **{**fields, "vocab_size": 1500, "min_frequency": 1})) == 1500


positive = st.integers(1, 2**63 - 1)


@given(positive, positive, positive, positive, positive, positive, st.integers(-2, 2))
def test_scores_compare_exactly(a: int, b: int, c: int, d: int, e: int, f: int, nudge: int) -> None:
    def check(*parts: int) -> None:
        count, first, second, count_2, first_2, second_2 = parts
        difference = Fraction(count, first * second) - Fraction(count_2, first_2 * second_2)
        assert compare_scores(*parts) == (difference > 0) - (difference < 0)

    check(a, b, c, d, e, f)
    check(a, b, c, a, c, b)
    check(a, b, c, min(max(a + nudge, 1), 2**63 - 1), c, b)  # too close for float64


# Cost


@pytest.mark.parametrize("rule", RULES)
def test_one_long_word_is_not_quadratic(rule: str) -> None:
    train({"ab": 1}, rule=rule)  # compiles
    word = bytes(random.Random(1).choices(b"abcdefghijklmnop", k=1_000_000)).decode()
    # A scan of the word for each merge would take 2e9 steps.
    assert len(train({word: 1}, rule=rule, vocab_size=2000)) == 2000
    # By frequency the run doubles with each merge; by likelihood the first "a", as rare as can be, takes one at a time.
    last = train({"a" * 2**20: 1}, rule=rule, vocab_size=2000)[-1]
    assert last == "a" * (2**20 if rule == "frequency" else 1999)


# Mistakes
