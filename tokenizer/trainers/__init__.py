# SPDX-License-Identifier: Apache-2.0
"""Trainers: word counts in, vocabulary out; pure and deterministic."""

from tokenizer.trainers.wordpiece import WordPieceTrainer

__all__ = ["WordPieceTrainer"]
