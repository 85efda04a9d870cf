# SPDX-License-Identifier: Apache-2.0
"""Trainers: word counts in, models out; pure and deterministic."""

from tokenizer.trainers.base import Trainer
from tokenizer.trainers.bpe import BPETrainer
from tokenizer.trainers.wordpiece import WordPieceTrainer

__all__ = ["BPETrainer", "Trainer", "WordPieceTrainer"]
