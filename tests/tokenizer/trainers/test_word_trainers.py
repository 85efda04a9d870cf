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


# Mistakes


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_vocabulary_without_room_for_an_entry_is_refused(kind: type[Trainer[Any]]) -> None:
    with pytest.raises(ValueError, match=r"vocab_size=1 is smaller .* 2 entries: 1 special .*raise vocab_size .* 2$"):
        kind(vocab_size=1).train(table([("a", 1)]))
