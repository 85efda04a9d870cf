# SPDX-License-Identifier: Apache-2.0
"""Turns the `tokenizer` section of a config into a `Tokenizer`, loaded or trained on word counts. No Beam here."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.tokenizer import TokenizerConfig, TrainConfig
from tokenmill.tokenizer import Tokenizer, WordPiece

if TYPE_CHECKING:
    from tokenmill.tokenizer.trainers import Tell, Trainer


def load_tokenizer(config: TokenizerConfig) -> Tokenizer:
    """Returns the tokenizer of `config.file`, changed as the rest of `config` says.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if there is no `file`, it is not a tokenizer, or it cannot do what the config asks for.
    """
    if config.file is None:
        raise ValueError("tokenizer.file must be given to load a tokenizer")
    tokenizer = Tokenizer.from_file(
        config.file,
        lowercase=config.lowercase,
        strip_accents=config.strip_accents,
        oov=config.oov,
        pattern=config.pattern,
        as_class=config.as_class,
        unicode=config.unicode,
    )
    if tokenizer.model is None:
        raise ValueError(f"{config.file!r} has no model, so no text can be tokenized with it; train a vocabulary first")
    return shape_rows(tokenizer, config)


def given_tokenizer(config: Config) -> Tokenizer:
    """Returns the tokenizer of `tokenizer.file` as a job uses it, with the tokens of spans; see `load_tokenizer`."""
    tokenizer = load_tokenizer(config.tokenizer)
    # A job without text steps and spans does not import their library.
    return config.text.wrap(tokenizer).tokenizer if config.text else tokenizer


def train_tokenizer(
    counts: pa.Table, config: TokenizerConfig, span_tokens: Sequence[str] = (), tell: "Tell | None" = None
) -> dict[int, Tokenizer]:
    """Returns the tokenizers that `config.train` describes, one for each size, from one training on `counts`.

    Deterministic: a function of the counts and the config.

    Args:
      counts: `schemas.WORD_COUNTS`.
      config: the section, with `train`.
      span_tokens: special tokens besides those of the config.
      tell: told about the progress of training, see `Tell` of `tokenmill.tokenizer.trainers.base`.

    Raises:
      ValueError: if there is no `train`, or training fails, for example if the alphabet is larger than the vocabulary.
    """
    if config.train is None:
        raise ValueError("tokenizer.train must be given to train a vocabulary")
    train = config.train
    if not counts.num_rows:
        raise ValueError("there are no words to train on: the input holds no text, or all of it was left out")
    models = _trainer(train, span_tokens).train_sizes(counts, train.sizes, tell)
    untrained = counting_tokenizer(config)
    tokenizers = {}
    for size in train.sizes:
        model = models[size]
        if isinstance(model, WordPiece):
            model = dataclasses.replace(model, oov_policy=config.oov or "word")
        tokenizers[size] = untrained.with_model(model, (*train.tokens, *span_tokens), train.user_defined_symbols or ())
    return tokenizers


def stand_in(config: Config) -> Tokenizer | None:
    """Returns a tokenizer of the kind that a job will train, of one letter; None if its options do not allow that."""
    train = config.tokenizer.train
    if train is None:
        return None
    limit = None if train.hard_vocab_limit is None else False  # one letter gives few pieces
    options = {"vocab_size": max(train.sizes), "hard_vocab_limit": limit}
    often = 1_000  # more often than any min_frequency that makes sense
    counts = pa.table({"word": [b"a"], "count": [often]}, schema=schemas.WORD_COUNTS)
    try:
        of = config.tokenizer.model_copy(update={"train": train.model_copy(update=options)})
        return train_tokenizer(counts, of, tuple(config.text.tokens))[max(train.sizes)]
    except ValueError:
        return None


def _trainer(train: TrainConfig, span_tokens: Sequence[str]) -> "Trainer[Any]":
    from tokenmill.tokenizer import trainers  # which a job with a given tokenizer does not need

    def unigram(special_tokens: Sequence[str], unk_token: str, **options: Any) -> "Trainer[Any]":
        """Returns a trainer that turns the special tokens into pieces, with ids in the order of the list."""
        return trainers.UnigramTrainer(
            unk_id=special_tokens.index(unk_token),
            unk_piece=unk_token,
            bos_id=-1,
            eos_id=-1,
            control_symbols=tuple(token for token in special_tokens if token != unk_token),
            **options,
        )

    make: Mapping[str, Callable[..., Trainer[Any]]] = {
        "wordpiece": trainers.WordPieceTrainer,
        "bpe": trainers.BPETrainer,
        "byte_level_bpe": functools.partial(trainers.BPETrainer, byte_level=True),
        "unigram": unigram,
        "wordlevel": trainers.WordLevelTrainer,
        "char": trainers.CharacterTrainer,
    }
    options = dict(train.trainer_options)
    options["special_tokens"] = tuple(dict.fromkeys([*options["special_tokens"], *span_tokens]))
    return make[train.model](vocab_size=max(train.sizes), **options)


def counting_tokenizer(config: TokenizerConfig, span_tokens: Sequence[str] = ()) -> Tokenizer:
    """Returns a tokenizer whose normalizer and pre-tokenizer define the words to count; it may have no vocabulary.

    It is the tokenizer of `config.file`, else one with the normalizer and pre-tokenizer of `config.train`, else BERT's.

    Args:
      config: the section.
      span_tokens: special tokens besides those of the config.

    Raises:
      ValueError: if the trainer of `config.train` refuses its options, which then shows before any work.
    """
    if config.file is not None:
        return load_tokenizer(config)
    if config.train is None:
        lowercase = True if config.lowercase is None else config.lowercase
        return Tokenizer.untrained_bert(lowercase=lowercase, strip_accents=config.strip_accents)
    train = config.train
    try:
        _trainer(train, span_tokens)
    except ValueError as error:
        raise ValueError(f"train: {error}") from error
    is_bert = train.normalizer == "bert"
    return Tokenizer.untrained(
        train.normalizer or "none",
        train.pre_tokenizer or "none",
        lowercase=is_bert if config.lowercase is None else config.lowercase,
        strip_accents=config.strip_accents,
        byte_level=train.model == "byte_level_bpe",
        user_defined_symbols=train.user_defined_symbols or (),
    )


def shape_rows(tokenizer: Tokenizer, config: TokenizerConfig) -> Tokenizer:
    """Makes `tokenizer` truncate and pad as `config` says, whatever its file says; returns it.

    Raises:
      ValueError: if rows are to be padded, and the tokenizer has no such token, or names none.
    """
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if config.truncation is not None:
        truncation = config.truncation
        tokenizer.enable_truncation(truncation.max_length, stride=truncation.stride, direction=truncation.side)
    if config.padding is not None:
        length, side, token = config.padding.length, config.padding.side, config.padding.pad_token
        pad_id = tokenizer.pad_token_id if token is None else tokenizer.token_to_id(token)
        if pad_id is None:
            said = f"{token!r}: the tokenizer has no such token" if token else "the tokenizer names no padding token"
            raise ValueError(f"tokenizer.padding.pad_token: {said}; name one that it has, for example '<|endoftext|>'")
        token = tokenizer.id_to_token(pad_id)
        assert token is not None
        tokenizer.enable_padding(length=length, direction=side, pad_id=pad_id, pad_token=token)
    return tokenizer
