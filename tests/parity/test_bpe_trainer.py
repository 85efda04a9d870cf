# SPDX-License-Identifier: Apache-2.0
"""`BPETrainer` and `WordLevelTrainer` against HF's trainers, byte-level merges against rustbpe, gigatoken and bpeasy.

Ours and HF's break ties alike, by pair of ids, so ids and merges are equal with nothing left to tolerance. With a
prefix or a suffix HF numbers the marked characters in the order of a hash table, another one in every run; the order a
run has drawn is the beginning of its vocabulary, and given that order as special tokens ours must learn the same.

rustbpe, bpeasy and gigatoken break ties by pair of ids too, but number bytes by value; GPT-2's order puts printable
ones first. With every byte of the words replaced by the one that has its place in that order ours must learn the same.
"""

import collections
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import regex

from tests import corpora
from tests.strategies import EXHAUSTIVE
from tokenmill.tokenizer import BPETrainer, CharacterTrainer, Tokenizer, Trainer, WordLevelTrainer, WordPieceTrainer
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import ByteLevel, WhitespaceSplit

hf = pytest.importorskip("tokenizers")
pytestmark = pytest.mark.parity

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""GPT-2's pattern, which also every peer here can be given."""

N_TOKENS = 32_000 if EXHAUSTIVE else 12_000
"""More than the Chinese corpus has characters."""

SEPARATOR = "\ufdd0"
"""A noncharacter."""


def words_of(texts: Iterable[str]) -> collections.Counter[str]:
    pattern = regex.compile(GPT2)
    counts: collections.Counter[str] = collections.Counter()
    for text in texts:
        counts.update(pattern.findall(text))
    return counts


def table(counts: Mapping[bytes, int]) -> pa.Table:
    words = pa.array(list(counts), pa.large_binary())
    return pa.table({"word": words, "count": pa.array(list(counts.values()), pa.int64())})


def encoded(counts: Mapping[str, int]) -> dict[bytes, int]:
    return {word.encode(): count for word, count in counts.items()}


def documents(counts: Mapping[str, int]) -> Iterator[str]:
    """Texts in which exactly these words stand, each followed by a character that no text should hold."""
    assert not any(SEPARATOR in word for word in counts)
    for word, count in counts.items():
        for start in range(0, count, 1000):
            yield f"{word}{SEPARATOR}" * min(1000, count - start)


def hf_train(counts: Mapping[str, int], trainer: Any, model: Any, *, byte_level: bool = False) -> Any:
    """Returns HF's trained tokenizer as a dictionary."""
    pre_tokenizers = hf.pre_tokenizers
    steps = [pre_tokenizers.Split(SEPARATOR, "removed")]
    if byte_level:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer = hf.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.train_from_iterator(documents(counts), trainer)
    return json.loads(tokenizer.to_str())["model"]


def hf_bpe(counts: Mapping[str, int], *, byte_level: bool = False, **fields: Any) -> tuple[list[str], list[Any]]:
    if byte_level:
        fields["initial_alphabet"] = hf.pre_tokenizers.ByteLevel.alphabet()
    fields = {name: value for name, value in fields.items() if value is not None}
    trainer = hf.trainers.BpeTrainer(show_progress=False, **fields)
    trained = hf_train(counts, trainer, hf.models.BPE(), byte_level=byte_level)
    vocabulary = sorted(trained["vocab"], key=trained["vocab"].__getitem__)
    return vocabulary, [tuple(merge) for merge in trained["merges"]]


def ours(counts: Mapping[str, int], **fields: Any) -> tuple[list[str], list[tuple[str, str]]]:
    model = BPETrainer(**fields).train(table(encoded(counts)))
    return list(model.vocab), list(model.merges)


def random_words(rng: random.Random, alphabet: str) -> collections.Counter[str]:
    counts: collections.Counter[str] = collections.Counter()
    for _ in range(rng.randint(1, 40)):
        counts["".join(rng.choices(alphabet, k=rng.randint(1, 20)))] += rng.randint(1, 6)
    return counts


@pytest.mark.parametrize("seed", range(40))
def test_random_words(seed: int) -> None:
    rng = random.Random(seed)
    counts = random_words(rng, "abcé花😀gh"[: rng.randint(1, 8)])
    fields = {"min_frequency": rng.randint(0, 4), "special_tokens": rng.choice([[], ["[UNK]"], ["<s>", "b", "ab"]])}
    fields["max_token_length"] = rng.choice([None, 1, 2, 3, 4, 5, 9])
    size = rng.randint(11, 80)
    assert ours(counts, vocab_size=size, **fields) == hf_bpe(counts, vocab_size=size, **fields)
    byte_fields = {"vocab_size": 250 + size, "byte_level": True, **fields}
    assert ours(counts, **byte_fields) == hf_bpe(counts, **byte_fields)


@pytest.mark.parametrize("name", ["en", "zh", "code", "multi"])
def test_corpora(shared_data: Path, name: str) -> None:
    counts = words_of(corpora.documents(shared_data, name))
    # HF leaves it to chance which of equally frequent characters are at the edge of a limit, so there is none.
    for byte_level in (False, True):
        fields = {"vocab_size": N_TOKENS, "min_frequency": 2, "byte_level": byte_level}
        vocabulary, merges = ours(counts, **fields)
        assert len(vocabulary) == N_TOKENS
        assert (vocabulary, merges) == hf_bpe(counts, **fields)


def test_word_level() -> None:
    counts = words_of(pytest.importorskip("pydoc_data.topics").topics.values())
    for fields in ({"vocab_size": 500}, {"vocab_size": 5000, "min_frequency": 3}, {"vocab_size": 10**6}):
        trainer = hf.trainers.WordLevelTrainer(show_progress=False, special_tokens=["<unk>", "<s>"], **fields)
        theirs = hf_train(counts, trainer, hf.models.WordLevel(unk_token="<unk>"))["vocab"]
        model = WordLevelTrainer(special_tokens=["<unk>", "<s>"], **fields).train(table(encoded(counts)))
        assert dict(model.vocab) == theirs


@pytest.mark.parametrize(
    "trainer",
    [
        BPETrainer(vocab_size=2000, byte_level=True),
        BPETrainer(vocab_size=2000, byte_fallback=True, limit_alphabet=50, special_tokens=["<unk>"], unk_token="<unk>"),
        BPETrainer(vocab_size=2000, end_of_word_suffix="</w>", limit_alphabet=50),
        CharacterTrainer(character_coverage=0.999),
        WordLevelTrainer(vocab_size=500),
        WordPieceTrainer(vocab_size=2000),
    ],
    ids=lambda trainer: type(trainer).__name__,
)
def test_trained_models_are_read_by_hf(trainer: Trainer[Any]) -> None:
    texts = list(pytest.importorskip("pydoc_data.topics").topics.values())
    is_byte_level = getattr(trainer, "byte_level", False)
    words = words_of(texts[::2]) if is_byte_level else collections.Counter(" ".join(texts[::2]).split())
    pre_tokenizer = ByteLevel(add_prefix_space=False) if is_byte_level else WhitespaceSplit()
    ours = Tokenizer(model=trainer.train(table(encoded(words))), pre_tokenizer=pre_tokenizer)
    theirs = hf.Tokenizer.from_str(ours.to_str())
    for text in [*texts[1:20:2], "naïve 花 😀"]:
        assert ours.encode(text).ids == theirs.encode(text).ids


# Byte-level peers


def tokens(counts: Mapping[bytes, int]) -> list[bytes]:
    """Returns what the ids of a trained vocabulary of 32,000 stand for."""
    model = BPETrainer(vocab_size=N_TOKENS, byte_level=True).train(table(counts))
    return [bytes(map(BYTE_ALPHABET.index, token)) for token in model.vocab]
