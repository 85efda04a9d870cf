# SPDX-License-Identifier: Apache-2.0
"""The `tokenizer` section of a config to a `Tokenizer`: loaded from a file, or trained on word counts. No Beam here."""

import pyarrow as pa

from pipeline.config import TokenizerConfig
from tokenizer import Tokenizer
from tokenizer.trainers import WordPieceTrainer


def load_tokenizer(config: TokenizerConfig) -> Tokenizer:
    """Returns the tokenizer of `config.file`, changed as the rest of `config` says.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if there is no `file`, it is not a tokenizer, or it cannot do what is asked of it.
    """
    if config.file is None:
        raise ValueError("tokenizer.file must be given to load a tokenizer")
    tokenizer = Tokenizer.from_file(
        config.file, lowercase=config.lowercase, strip_accents=config.strip_accents, oov=config.oov
    )
    return _shape_rows(tokenizer, config)


def train_tokenizer(counts: pa.Table, config: TokenizerConfig) -> Tokenizer:
    """Returns the tokenizer that `config.train` describes, with a vocabulary trained on `counts`.

    Deterministic: a function of the counts and the config.

    Args:
      counts: `schemas.WORD_COUNTS`.
      config: the section, with `train`.

    Raises:
      ValueError: if there is no `train`, or it cannot be done, as with an alphabet larger than the vocabulary.
    """
    if config.train is None:
        raise ValueError("tokenizer.train must be given to train a vocabulary")
    trainer = WordPieceTrainer(
        vocab_size=config.train.vocab_size,
        min_frequency=config.train.min_frequency,
        rule=config.train.rule,
        limit_alphabet=config.train.limit_alphabet,
        special_tokens=tuple(config.train.special_tokens),
    )
    tokenizer = Tokenizer.for_bert(
        trainer.train(counts).vocab,
        lowercase=_lowercase(config),
        strip_accents=config.strip_accents,
        oov=config.oov or "word",
    )
    return _shape_rows(tokenizer, config)


def counting_tokenizer(config: TokenizerConfig) -> Tokenizer:
    """Returns what says what a word is: the tokenizer of `config.file`, or BERT's, before there is a vocabulary."""
    if config.file is not None:
        return load_tokenizer(config)
    return Tokenizer.untrained_bert(lowercase=_lowercase(config), strip_accents=config.strip_accents)


def _lowercase(config: TokenizerConfig) -> bool:
    return True if config.lowercase is None else config.lowercase


def _shape_rows(tokenizer: Tokenizer, config: TokenizerConfig) -> Tokenizer:
    """Makes `tokenizer` truncate and pad as `config` says, and not as its file did; returns it."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if config.truncation is not None:
        tokenizer.enable_truncation(config.truncation.max_length, direction=config.truncation.side)
    if config.padding is not None:
        tokenizer.enable_padding(length=config.padding.length, direction=config.padding.side)
    return tokenizer
