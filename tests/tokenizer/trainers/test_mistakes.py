# SPDX-License-Identifier: Apache-2.0
"""What all trainers refuse, and several sizes of one training."""

from typing import Any

import pytest

from tests.word_counts import table
from tokenmill.tokenizer import BPETrainer, CharacterTrainer, UnigramTrainer, WordLevelTrainer, WordPieceTrainer

MISTAKES: dict[type[Any], list[tuple[dict[str, Any], str]]] = {
    BPETrainer: [
        ({"vocab_size": 0}, "vocab_size must be in 1..16777216, got 0"),
        ({"vocab_size": "8000"}, "vocab_size must be an integer, got '8000'"),
        ({"vocab_size": 8000.0}, "vocab_size must be an integer, got 8000.0"),
        ({"limit_alphabet": True}, "limit_alphabet must be an integer, got True"),
        ({"min_frequency": -1}, "min_frequency must not be negative, got -1"),
        ({"limit_alphabet": 0}, "limit_alphabet must be positive or None, got 0"),
        ({"initial_alphabet": ["ab"]}, "initial_alphabet must hold single characters, got 'ab'"),
        ({"special_tokens": ["a", "a"]}, "special_tokens must each be there once, got 'a' twice"),
        ({"special_tokens": ["a"], "user_defined_symbols": ["a"]}, "user-defined symbols and byte tokens .* got 'a'"),
        ({"special_tokens": ["<0x0A>"], "byte_fallback": True}, "must each be there once, got '<0x0A>' twice"),
        ({"user_defined_symbols": [""]}, "must not be empty"),
        ({"user_defined_symbols": "ab"}, "user_defined_symbols must be a list"),
        ({"unk_token": "<unk>"}, r"special_tokens must hold the unknown token '<unk>', got \[\]"),
        ({"max_token_length": 0}, "max_token_length must be at least 1 or None, got 0"),
        ({"end_of_word_suffix": "\ud800"}, "lone surrogate"),
        ({"byte_level": True, "limit_alphabet": 5}, "byte_level has every byte .* limit_alphabet must not be set"),
        ({"byte_level": True, "initial_alphabet": ["a"]}, "initial_alphabet must not be set"),
        ({"byte_level": True, "byte_fallback": True}, "byte_fallback must not be set"),
    ],
    WordLevelTrainer: [
        ({"vocab_size": 2**24 + 1}, "vocab_size must be in 1..16777216, got 16777217"),
        ({"min_frequency": -1}, "min_frequency must not be negative, got -1"),
        ({"special_tokens": ["<s>"]}, r"special_tokens must hold the unknown token '<unk>', got \['<s>'\]"),
        ({"special_tokens": ["<unk>", "\ud800"]}, "lone surrogate"),
    ],
    CharacterTrainer: [
        ({"vocab_size": 0}, "vocab_size must be in 1..16777216, got 0"),
        ({"special_tokens": ["<unk>", "a", "a"]}, "there once, got 'a'"),
        ({"special_tokens": ["<unk>", "<0x00>"], "byte_fallback": True}, "there once, got '<0x00>'"),
    ],
    WordPieceTrainer: [
        ({"vocab_size": 2**24 + 1}, "vocab_size must be in 1..16777216, got 16777217"),
        ({"rule": "likely"}, "rule must be one of frequency, likelihood, got 'likely'"),
        ({"initial_alphabet": "ab", "limit_alphabet": 1}, "must be a list, got one str, 'ab'"),
        ({"initial_alphabet": ["a", "b"], "limit_alphabet": 1}, "2 characters, more than limit_alphabet=1"),
        ({"special_tokens": ["[PAD]"]}, r"must hold the unknown token '\[UNK\]', got \['\[PAD\]'\]; add it, or name"),
        ({"special_tokens": [""]}, "must not be empty"),
    ],
    UnigramTrainer: [
        ({"vocab_size": 0}, r"vocab_size must be in 1\.\.16777216, got 0"),
        ({"character_coverage": 0}, "character_coverage must be above 0 and at most 1, got 0"),
        ({"character_coverage": 1.1}, "character_coverage must be above 0 and at most 1, got 1.1"),
        ({"shrinking_factor": 1}, "shrinking_factor must be above 0 and below 1, got 1"),
        ({"seed_sentencepiece_size": 0}, "seed_sentencepiece_size must be at least 1, got 0"),
        ({"num_sub_iterations": 0}, "num_sub_iterations must be at least 1, got 0"),
        ({"max_piece_length": 513}, r"max_piece_length must be in 1\.\.512, got 513"),
        ({"unk_id": -1}, "unk_id must not be negative"),
        ({"bos_id": 0}, "bos_id must differ from the other ids, got 0 twice"),
        ({"eos_piece": "<s>"}, "eos_piece must not be empty and differ from the others, got '<s>'"),
        ({"control_symbols": ["<a>"], "user_defined_symbols": ["<a>"]}, "be there once, got '<a>' twice"),
        ({"user_defined_symbols": ["<unk>"]}, "must not hold '<unk>'"),
        ({"user_defined_symbols": ["<0x0A>"], "byte_fallback": True}, "must not hold '<0x0A>'"),
        ({"control_symbols": "abc"}, "control_symbols must be a list, got one str, 'abc'"),
    ],
}


@pytest.mark.parametrize(("kind", "fields", "message"), [(k, *row) for k, rows in MISTAKES.items() for row in rows])
def test_bad_fields_are_refused_at_construction(kind: type[Any], fields: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        kind(**fields)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (BPETrainer, {"byte_level": True, "special_tokens": ["<|end|>"]}),
        (BPETrainer, {"special_tokens": ["ug"]}),
        (WordPieceTrainer, {"rule": "frequency"}),
        (WordPieceTrainer, {"rule": "likelihood"}),
        (WordLevelTrainer, {}),
        (CharacterTrainer, {}),
        (UnigramTrainer, {"hard_vocab_limit": False}),
    ],
)
def test_several_sizes_are_those_of_trainings_of_their_own(kind: type[Any], fields: dict[str, Any]) -> None:
    words = table({"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5, "hugging": 3, "pugs": 2}.items())
    first = 257 if "byte_level" in fields else 17
    sizes = [first + 4, first + 1, first + 400, first + 3]
    models = kind(**fields).train_sizes(words, sizes)
    assert list(models) == sizes
    for size, model in models.items():
        alone = kind(**fields, vocab_size=size).train(words)
        assert list(model.vocab) == list(alone.vocab)
        assert getattr(model, "merges", None) == getattr(alone, "merges", None)
