# SPDX-License-Identifier: Apache-2.0
"""`UnigramTrainer` against sentencepiece's own trainer: the same special pieces and characters, as few tokens.

Both get the same lines, with spaces as sentencepiece's identity normalization leaves them; sentencepiece itself then
cuts held-out lines with either model. The pieces are not the same: sentencepiece finds its seeds in whole lines, ours
are found in words, so ours are more, and the vocabulary takes fewer tokens (see `UnigramTrainer`).
"""

import dataclasses
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.corpora import documents
from tests.strategies import EXHAUSTIVE
from tokenmill.tokenizer.formats import sentencepiece as sentencepiece_file
from tokenmill.tokenizer.models.unigram import PieceType, Unigram
from tokenmill.tokenizer.models.vocabulary import ScoredTokens
from tokenmill.tokenizer.trainers import UnigramTrainer

sentencepiece = pytest.importorskip("sentencepiece")
pytestmark = pytest.mark.parity

MAY_BE_MORE = 1.005
"""Tokens that ours may take on held-out text, for one of sentencepiece's."""


def train_theirs(lines: Iterable[str], **fields: Any) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="unigram", normalization_rule_name="identity",
        num_threads=1, max_sentence_length=1 << 20, minloglevel=2, **fields,
    )  # fmt: skip
    return model.getvalue()


def train_ours(lines: Iterable[str], **fields: Any) -> Unigram:
    counts = Counter("▁" + word for line in lines for word in line.split(" ") if word)
    words = pa.array([word.encode() for word in counts], pa.large_binary())
    return UnigramTrainer(**fields).train(pa.table({"word": words, "count": pa.array(counts.values(), pa.int64())}))


def as_file(model: Unigram, theirs: bytes) -> bytes:
    """Puts our pieces into the file of a model of sentencepiece."""
    vocab = ScoredTokens.of(model.vocab)
    file = sentencepiece_file.read(theirs, "theirs")
    types = np.array(model.piece_types)
    return sentencepiece_file.write(dataclasses.replace(file, pieces=vocab.tokens, scores=vocab.scores, types=types))


def tokens(model: bytes, lines: Sequence[str]) -> int:
    return sum(map(len, sentencepiece.SentencePieceProcessor(model_proto=model).encode(list(lines))))


def hold_out(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns lines to train on and, of every ten stretches of 50 lines, one to measure on."""
    lines = [line for line in (line.rstrip("\r") for line in lines) if line.strip(" ")]  # sentencepiece drops "\r"
    held = [i // 50 % 10 == 3 for i in range(len(lines))]
    train = [line for line, is_held in zip(lines, held, strict=True) if not is_held]
    return train, [line for line, is_held in zip(lines, held, strict=True) if is_held]


def characters(pieces: Sequence[str], types: Sequence[int]) -> set[str]:
    return {piece for piece, kind in zip(pieces, types, strict=True) if kind == PieceType.NORMAL and len(piece) == 1}


def check_size(lines: Sequence[str], vocab_size: int) -> None:
    train, held_out = hold_out(lines)
    theirs = train_theirs(train, vocab_size=vocab_size)
    ours = train_ours(train, vocab_size=vocab_size)
    assert len(ours.vocab) == vocab_size
    file = sentencepiece_file.read(theirs, "theirs")
    pieces = [piece for piece, _ in ours.vocab]
    assert characters(pieces, ours.piece_types or ()) == characters(file.pieces, file.types)
    assert tokens(as_file(ours, theirs), held_out) <= MAY_BE_MORE * tokens(theirs, held_out)


@pytest.fixture(scope="module")
def topics() -> list[str]:
    texts = pytest.importorskip("pydoc_data.topics").topics
    return [line for name in sorted(texts) for line in texts[name].split("\n")]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pad_id": 3},
        {"unk_id": 3, "bos_id": 0, "eos_id": -1, "pad_id": 1},
        {"byte_fallback": True, "bos_id": 5},
        {
            "control_symbols": ["<mask>", "<s>"],
            "user_defined_symbols": ["</s>", "the", "(x)"],
            "character_coverage": 1.0,
        },
        {"unk_piece": "[UNK]", "pad_piece": "[PAD]", "pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1},
        {"required_chars": "ß漢"},
        {"character_coverage": 0.98},
        {"split_digits": True},
    ],
)
def test_special_pieces_and_characters_are_theirs(topics: list[str], fields: dict[str, Any]) -> None:
    lines = topics[:3000]
    theirs = sentencepiece_file.read(train_theirs(lines, vocab_size=600, **fields), "theirs")
    ours = train_ours(lines, vocab_size=600, **fields)
    for kind in PieceType:
        if kind != PieceType.NORMAL:
            found = [(i, piece) for i, (piece, _) in enumerate(ours.vocab) if (ours.piece_types or ())[i] == kind]
            assert found == theirs.of_type(kind)
    assert characters([piece for piece, _ in ours.vocab], ours.piece_types or ()) == characters(
        theirs.pieces, theirs.types
    )


@pytest.mark.parametrize(
    ("corpus", "vocab_size"),
    # The Chinese alphabet alone has more than 8,000 characters.
    [("en", 8000), ("zh", 12_000), ("multi", 8000), *([("en", 32_000)] if EXHAUSTIVE else [])],
)
def test_corpora(shared_data: Path, corpus: str, vocab_size: int) -> None:
    check_size([line for text in documents(shared_data, corpus) for line in text.split("\n")], vocab_size)
