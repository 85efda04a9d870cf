# SPDX-License-Identifier: Apache-2.0
"""What is lost: steps on examples counted by hand, OOV policies on the Universal Declaration in all languages."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import texts
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.fidelity import StepLoss, oov_costs, round_trips, step_losses
from tokenmill.tokenizer.languages import script_name
from tokenmill.tokenizer.text import TextChain, TextTokenizer


def loss(step: object, *documents: str) -> StepLoss:
    return step_losses(TextChain.from_config([step]), documents)[0]


def test_characters_changed_dropped_and_inserted_are_counted() -> None:
    assert loss("zero_width", "a\u200bb", "c") == StepLoss("zero_width", 4, 1, 1, 0, 0, ())
    assert loss("isolate_digits", "a1b") == StepLoss("isolate_digits", 3, 0, 0, 2, 0, ())
    found = loss("lowercase", "Ab", "C")
    assert (found.n_chars, found.n_changed, found.n_dropped, found.n_merged) == (3, 2, 0, 0)


def test_what_becomes_the_same_is_merged() -> None:
    found = loss({"strip_accents": "all"}, "ā á a", "é")
    assert found.n_changed >= 2
    found = loss("lowercase", "Aa B")
    assert (found.n_changed, found.n_merged, found.merged) == (2, 1, (("A", "a", 1),))
    found = loss("punctuation", "“x”")
    assert found.n_merged == 2


def test_each_step_is_measured_on_what_the_one_before_left() -> None:
    first, second = step_losses(TextChain.from_config(["zero_width", "lowercase"]), ["A\u200b"])
    assert (first.n_chars, second.n_chars) == (2, 1)


def test_round_trips_are_counted_by_group_with_bounded_examples() -> None:
    vocab = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##b"])}
    tokenizer = Tokenizer.for_bert(vocab)
    column = pa.array(["a b", "ab", "A b", "a  b", None, "x", "A", "B"])
    plain, other = round_trips(tokenizer, column, ["one"] * 5 + ["two"] * 3, max_examples=2)
    assert (plain.group, plain.n_documents, plain.n_same, plain.n_same_but_spaces) == ("one", 4, 2, 3)
    assert plain.examples == (("A b", "a b"), ("a  b", "a b"))
    assert (other.rate, len(other.examples)) == (0, 2)
    with pytest.raises(ValueError, match="one entry for each of 8 rows"):
        round_trips(tokenizer, column, ["one"])


def test_spans_that_keep_their_source_come_back() -> None:
    vocab = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"])}
    rule = {"token": "[NUM]", "find": "number", "keep_source": True}
    kept = TextTokenizer(Tokenizer.for_bert(vocab), spans=[rule])
    lost = TextTokenizer(Tokenizer.for_bert(vocab), spans=[{"token": "[NUM]", "find": "number"}])
    assert round_trips(kept, ["a 12 a"], ["x"])[0].rate == 1
    assert round_trips(lost, ["a 12 a"], ["x"])[0].rate == 0


def small_tokenizer() -> Tokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##b", "3", "##7", "朵"]
    return Tokenizer.for_bert({token: i for i, token in enumerate(words)})


def test_oov_costs_count_words_and_characters() -> None:
    costs = {cost.policy: cost for cost in oov_costs(small_tokenizer(), ["a 3Ⰻ7 朵 жa"])}
    assert list(costs) == ["word", "contain", "char"]
    word, contain = costs["word"], costs["contain"]
    assert (word.n_words, word.n_chars, word.n_words_touched) == (4, 7, 2)
    assert (word.n_chars_swallowed, word.n_chars_unknown, word.n_chars_nowhere) == (5, 2, 2)
    assert word.swallowed == {"Common": 2, "Cyrillic": 1, "Glagolitic": 1, "Latin": 1}
    assert word.known_but_swallowed == {"3": 1, "7": 1, "a": 1}
    assert (contain.n_chars_swallowed, contain.known_but_swallowed) == (2, {})
    assert contain.swallowed == contain.unknown == {"Cyrillic": 1, "Glagolitic": 1}


def test_characters_of_longer_entries_are_swallowed_only_outside_of_them() -> None:
    vocab = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the"])}
    contain = oov_costs(Tokenizer.for_bert(vocab), ["the eth"], ["contain"])[0]
    assert (contain.n_chars_swallowed, contain.n_chars_unknown, contain.n_chars_nowhere) == (3, 6, 0)


@given(st.lists(st.one_of(texts(), st.text("ab3朵7Ⰻж ", max_size=20)), max_size=6))
def test_contained_mode_loses_the_least_possible(column: list[str]) -> None:
    costs = {cost.policy: cost for cost in oov_costs(small_tokenizer(), pa.array(column, pa.string()))}
    for policy in ("contain", "char"):
        assert costs[policy].swallowed == costs[policy].unknown
    assert costs["word"].n_chars_swallowed >= costs["word"].n_chars_unknown


def test_costs_of_a_model_without_policies_are_refused() -> None:
    with pytest.raises(ValueError, match="OOV policies are WordPiece's"):
        oov_costs(Tokenizer.untrained_bert(), ["a"])


@pytest.mark.parity
@pytest.mark.parametrize("vocab", ["bert-base-uncased", "bert-base-cased", "bert-base-chinese"])
def test_contained_mode_swallows_no_character_that_the_vocabulary_knows(
    shared_data: Path, declarations: dict[str, str], vocab: str
) -> None:
    assert len(declarations) > 100
    tokenizer = Tokenizer.from_file(str(shared_data / "vocab" / f"{vocab}.txt"), lowercase="uncased" in vocab)
    word, contain = oov_costs(tokenizer, list(declarations.values()), ["word", "contain"])
    assert contain.known_but_swallowed == {}
    assert contain.swallowed == contain.unknown
    assert contain.n_chars_swallowed == contain.n_chars_unknown < word.n_chars_swallowed
    # The report says by script what `word` loses beyond the least.
    assert all(word.swallowed[script] >= n for script, n in word.unknown.items())
    assert word.known_but_swallowed
    assert {script_name(ord(c)) for c in word.known_but_swallowed} <= {*word.swallowed}
