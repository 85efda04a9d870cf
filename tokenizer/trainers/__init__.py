# SPDX-License-Identifier: Apache-2.0
"""Trainers: word counts in, models out; pure and deterministic."""

from tokenmill.tokenizer.trainers.base import Tell, Trainer
from tokenmill.tokenizer.trainers.bpe import BPETrainer
from tokenmill.tokenizer.trainers.characters import CharacterTrainer
from tokenmill.tokenizer.trainers.parity import ParityBPETrainer
from tokenmill.tokenizer.trainers.unigram import UnigramTrainer
from tokenmill.tokenizer.trainers.word_counts import spelled_word_counts
from tokenmill.tokenizer.trainers.wordlevel import WordLevelTrainer
from tokenmill.tokenizer.trainers.wordpiece import WordPieceTrainer

__all__ = [
    "BPETrainer", "CharacterTrainer", "ParityBPETrainer", "Tell", "Trainer", "UnigramTrainer", "WordLevelTrainer",
    "WordPieceTrainer", "spelled_word_counts",
]  # fmt: skip
