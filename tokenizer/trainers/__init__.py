# SPDX-License-Identifier: Apache-2.0
"""Trainers: word counts in, models out; pure and deterministic."""

from tokenizer.trainers.base import Tell, Trainer
from tokenizer.trainers.bpe import BPETrainer
from tokenizer.trainers.characters import CharacterTrainer
from tokenizer.trainers.unigram import UnigramTrainer
from tokenizer.trainers.word_counts import spelled_word_counts
from tokenizer.trainers.wordlevel import WordLevelTrainer
from tokenizer.trainers.wordpiece import WordPieceTrainer

__all__ = [
    "BPETrainer", "CharacterTrainer", "Tell", "Trainer", "UnigramTrainer", "WordLevelTrainer", "WordPieceTrainer",
    "spelled_word_counts",
]  # fmt: skip
