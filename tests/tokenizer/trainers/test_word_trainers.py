# SPDX-License-Identifier: Apache-2.0
"""`WordLevelTrainer` and `CharacterTrainer` by hand, against their reference implementations, and on input that must
not work."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.trainers import train_characters, train_words
from tests.word_counts import table
from tokenmill.tokenizer import CharacterTrainer, Trainer, WordLevelTrainer

TRAINERS = [WordLevelTrainer, CharacterTrainer]


def train(trainer: Trainer[Any], word_counts: Mapping[str, int]) -> list[str]:
    vocab = trainer.train(table(word_counts.items())).vocab
    assert list(vocab.values()) == list(range(len(vocab)))
    return list(vocab)


# By hand


def test_words_come_by_frequency_then_by_bytes() -> None:
    words = {"the": 25, "é": 12, "z": 12, "roses": 24, "😀": 12, "\uffff": 12, "red": 1}
    assert train(WordLevelTrainer(), words) == ["<unk>", "the", "roses", "z", "é", "\uffff", "😀", "red"]
    assert train(WordLevelTrainer(vocab_size=3), words) == ["<unk>", "the", "roses"]
    assert train(WordLevelTrainer(min_frequency=13), words) == ["<unk>", "the", "roses"]


# Against the reference implementations

word_counts = st.dictionaries(st.text("abé花😀", max_size=5), st.integers(0, 4) | st.just(2**40), min_size=1)
specials = st.lists(st.sampled_from(["<s>", "a", "花", "ab"]), unique=True).map(lambda tokens: ["<unk>", *tokens])


@given(words=word_counts, special_tokens=specials, min_frequency=st.integers(0, 3), extra=st.integers(1, 9))
def test_words_equal_the_reference_implementation(
    words: dict[str, int], special_tokens: list[str], min_frequency: int, extra: int
) -> None:
    words = {**words, "a": 1}
    size = len(special_tokens) + extra
    trainer = WordLevelTrainer(vocab_size=size, special_tokens=special_tokens, min_frequency=min_frequency)
    assert train(trainer, words) == train_words(words, special_tokens, min_frequency)[:size]


@given(
    words=word_counts,
    special_tokens=specials,
    min_frequency=st.integers(0, 3),
    character_coverage=st.sampled_from([1.0, 0.5, 0.9, 1e-9]) | st.floats(0, 1, exclude_min=True),
    extra=st.integers(1, 9),
)
def test_characters_equal_the_reference_implementation(
    words: dict[str, int], special_tokens: list[str], min_frequency: int, character_coverage: float, extra: int
) -> None:
    words = {**words, "a": 1}
    size = len(special_tokens) + extra
    trainer = CharacterTrainer(
        vocab_size=size,
        special_tokens=special_tokens,
        min_frequency=min_frequency,
        character_coverage=character_coverage,
    )
    assert train(trainer, words) == train_characters(words, special_tokens, min_frequency, character_coverage)[:size]


@pytest.mark.parametrize("kind", TRAINERS)
def test_several_sizes_are_those_of_trainings_of_their_own(kind: type[Trainer[Any]]) -> None:
    words = {"the": 25, "roses": 24, "are": 3, "red": 3}
    models = kind().train_sizes(table(words.items()), [4, 2, 100])
    assert list(models) == [4, 2, 100]
    for size, model in models.items():
        assert list(model.vocab) == train(kind(vocab_size=size), words)


# Mistakes


@pytest.mark.parametrize("kind", TRAINERS)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vocab_size": 0}, "vocab_size must be in 1..16777216, got 0"),
        ({"vocab_size": 2**24 + 1}, "vocab_size must be in 1..16777216, got 16777217"),
        ({"min_frequency": -1}, "min_frequency must not be negative, got -1"),
        ({"special_tokens": ["<s>"]}, r"special_tokens must hold the unknown token '<unk>', got \['<s>'\]"),
        ({"special_tokens": ["<unk>", "a", "a"]}, "there once, got 'a'"),
        ({"special_tokens": "<unk>"}, "special_tokens must be a list"),
        ({"special_tokens": ["<unk>", "\ud800"]}, "lone surrogate"),
    ],
)
def test_bad_fields_are_refused_at_construction(kind: type[Trainer[Any]], fields: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        kind(**fields)


def test_byte_tokens_are_not_special_tokens() -> None:
    with pytest.raises(ValueError, match="there once, got '<0x00>'"):
        CharacterTrainer(byte_fallback=True, special_tokens=["<unk>", "<0x00>"])


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_vocabulary_without_room_for_an_entry_is_refused(kind: type[Trainer[Any]]) -> None:
    with pytest.raises(ValueError, match=r"vocab_size=1 is smaller .* 2 entries: 1 special .*raise vocab_size .* 2$"):
        kind(vocab_size=1).train(table([("a", 1)]))
