# SPDX-License-Identifier: Apache-2.0
"""`UnigramTrainer` by hand, against its reference implementation, and on what goes wrong."""

import random
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.reference import unigram_trainer as reference
from tests.word_counts import small_marked, table
from tokenmill.tokenizer.models.unigram import PieceType, Unigram
from tokenmill.tokenizer.trainers import UnigramTrainer

HUGS = {"▁hug": 100, "▁pug": 50, "▁pun": 120, "▁bun": 40, "▁hugs": 50}


def train(counts: Mapping[str, int], **fields: Any) -> Unigram:
    fields = {"hard_vocab_limit": False, **fields}
    return UnigramTrainer(**fields).train(table(list(counts.items())))


def learned(model: Unigram) -> list[tuple[str, float]]:
    assert model.piece_types is not None
    return [entry for entry, kind in zip(model.vocab, model.piece_types, strict=True) if kind == PieceType.NORMAL]


# By hand


def test_special_pieces_stand_where_their_ids_are() -> None:
    model = train(
        HUGS, vocab_size=300, unk_id=2, bos_id=-1, eos_id=0, pad_id=5, byte_fallback=True,
        control_symbols=["<mask>", "</s>"], user_defined_symbols=["<x>"],
    )  # fmt: skip
    pieces = [piece for piece, _ in model.vocab]
    assert pieces[:7] == ["</s>", "<mask>", "<unk>", "<x>", "<0x00>", "<pad>", "<0x01>"]
    assert pieces[6 : 6 + 255] == [f"<0x{byte:02X}>" for byte in range(1, 256)]
    kinds = list(model.piece_types or ())
    assert kinds[:7] == [3, 3, 2, 4, 6, 3, 6]
    assert model.unk_id == 2
    assert model.byte_fallback
    assert all(score == 0 for (_, score), kind in zip(model.vocab, kinds, strict=True) if kind != PieceType.NORMAL)
    assert kinds.count(PieceType.NORMAL) > 8


# Against the reference implementation


@given(
    counts=small_marked(),
    extra=st.integers(0, 30),
    coverage=st.sampled_from([1.0, 0.9995, 0.8]),
    required=st.sampled_from(["", "az"]),
    longest=st.sampled_from([1, 2, 3, 16]),
    n_seeds=st.sampled_from([1, 5, 1_000_000]),
    shrinking=st.sampled_from([0.75, 0.5]),
    n_steps=st.integers(1, 2),
    flags=st.lists(st.booleans(), min_size=6, max_size=6),
    symbols=st.sampled_from([(), ("ab",), ("<", "b<")]),
)
def test_equals_the_reference_implementation(
    counts: dict[str, int],
    extra: int,
    coverage: float,
    required: str,
    longest: int,
    n_seeds: int,
    shrinking: float,
    n_steps: int,
    flags: list[bool],
    symbols: tuple[str, ...],
) -> None:
    trainer = UnigramTrainer(
        vocab_size=20 + extra,
        character_coverage=coverage,
        required_chars=required,
        max_piece_length=longest,
        seed_sentencepiece_size=n_seeds,
        shrinking_factor=shrinking,
        num_sub_iterations=n_steps,
        user_defined_symbols=symbols,
        hard_vocab_limit=False,
        split_by_unicode_script=flags[0],
        split_by_number=flags[1],
        split_by_whitespace=flags[2],
        split_digits=flags[3],
        treat_whitespace_as_suffix=flags[4],
        allow_whitespace_only_pieces=flags[5],
    )
    special = ["<unk>", "<s>", "</s>", *symbols]
    # Nothing but symbols is an error, tested below.
    assume(any(re.sub("|".join(map(re.escape, symbols)), "", word) for word in counts))
    assert learned(trainer.train(table(list(counts.items())))) == reference.train_unigram(trainer, counts, special)


# Only words and their total counts matter


# Large numbers


def test_the_largest_counts_that_fit_are_counted_right() -> None:
    counts = {"ab": 2**56, "ba": 2**55, "c": 1}
    trainer = UnigramTrainer(vocab_size=20, hard_vocab_limit=False)
    assert learned(trainer.train(table(list(counts.items())))) == reference.train_unigram(trainer, counts)
    with pytest.raises(
        ValueError, match=r"add up to 288230376151711744 characters, which times max_piece_length=16 is"
    ):
        train({"a": 2**58})


def test_one_word_of_a_million_characters_is_a_word() -> None:
    word = bytes(random.Random(1).choices(b"abcdefghijklmnop", k=1_000_000)).decode()
    model = train({word: 1}, vocab_size=1000)
    assert len(model.vocab) == 1000
    assert [piece for piece, _ in learned(train({"a" * 1_000_000: 1}, vocab_size=12))] == ["a", "a" * 16]


# Mistakes


def test_a_vocabulary_too_large_says_how_many_pieces_there_are() -> None:
    with pytest.raises(ValueError, match=r"vocab_size=8000 is too high, these words give \d+ pieces, special ones"):
        train(HUGS, vocab_size=8000, hard_vocab_limit=True)
    n = len(train(HUGS, vocab_size=8000).vocab)
    assert len(train(HUGS, vocab_size=n, hard_vocab_limit=True).vocab) == n
    with pytest.raises(ValueError, match=f"these words give {n} pieces, .*; lower vocab_size to {n} or less"):
        train(HUGS, vocab_size=n + 1, hard_vocab_limit=True)


def test_an_id_beyond_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the id 5000 of '<pad>' must be below the number of pieces, \d+;"):
        train(HUGS, pad_id=5000)
    with pytest.raises(ValueError, match="the id 5000 of '<pad>' must be below the number of pieces, 4000;"):
        train(HUGS, pad_id=5000, vocab_size=4000)


def test_no_size_is_refused() -> None:
    with pytest.raises(ValueError, match="sizes must name at least one"):
        UnigramTrainer().train_sizes(table([("a", 1)]), [])
