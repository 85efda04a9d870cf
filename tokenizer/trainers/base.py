# SPDX-License-Identifier: Apache-2.0
"""`Trainer`, the interface of all trainers: word counts in, models out, one training for several sizes; and checks."""

import abc
import dataclasses
import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from tokenmill.tokenizer.errors import check_strings
from tokenmill.tokenizer.models.vocabulary import MAX_ID

MAX_INT = (1 << 63) - 1
"""The largest integer of kernels."""

ModelT_co = TypeVar("ModelT_co", covariant=True)

Tell = Callable[[str, int, Callable[[], int]], None]
"""Called to report progress: with the unit, the expected number of them, and a function that returns how many are done.

That function may be called at any time, from any thread: it reads what the kernels count anyway.
"""

BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The tokens that `byte_fallback` adds to a vocabulary."""


class Trainer(abc.ABC, Generic[ModelT_co]):
    """Learns a model from word counts; an immutable value, whose fields are the options.

    The model depends only on the words, their counts and the fields: rows may come in any order, and a word may be
    spread over several of them.
    """

    vocab_size: int

    def train(self, word_counts: pa.Table) -> ModelT_co:
        """Returns the model with up to `vocab_size` entries; the order of `model.vocab` is that of the ids.

        Args:
          word_counts: columns `word` (large_binary) and `count` (int64), no nulls, rows in any order. The counts of a
            word in several rows add up; empty words and words with the count 0 are ignored.

        Raises:
          TypeError: if a column is missing or of another type.
          ValueError: before any work, if there is no word; a count is negative or null; a word is null, or not UTF-8
            though words are text; the counts times the words' lengths add up to more than `word_counts.MAX_TOTAL`; the
            words have more than `word_counts.MAX_CHARACTERS` characters; or `vocab_size` is too small for the entries
            that the vocabulary begins with.
        """
        return self.train_sizes(word_counts, [self.vocab_size])[self.vocab_size]

    @abc.abstractmethod
    def train_sizes(
        self, word_counts: pa.Table, sizes: Sequence[int], tell: Tell | None = None
    ) -> dict[int, ModelT_co]:
        """Returns the model of each size, from one training; each is what `train` returns for that `vocab_size`.

        Args:
          word_counts: as in `train`.
          sizes: the values to use instead of `vocab_size`, in any order.
          tell: called to report the progress of merges, or of rounds, if a training has them.

        Raises:
          TypeError: as `train`.
          ValueError: as `train`, for the smallest size; or if there is no size.
        """


def check_sizes(sizes: Sequence[int], n_first: int, parts: Sequence[str], remedy: str = "") -> None:
    """Checks that every size has room for the entries that a vocabulary begins with.

    Args:
      sizes: entries of the vocabularies.
      n_first: the number of entries that each of them begins with.
      parts: what these are, for the message.
      remedy: how there can be fewer, for the message.

    Raises:
      TypeError: if a size is no integer.
      ValueError: if there is no size, or one is too small.
    """
    if not sizes:
        raise ValueError("sizes must name at least one vocabulary size, got none")
    for size in sizes:
        _check_integer("a vocabulary size", size)
    check_size(max(sizes))
    smallest = min(sizes)
    if smallest < max(1, n_first):
        raise ValueError(
            f"vocab_size={smallest!r} is smaller than what the vocabulary begins with, {n_first} entries: "
            f"{', '.join(parts)}; raise vocab_size to at least {n_first}{remedy}"
        )


def freeze_strings(trainer: Any, *names: str) -> None:
    """Turns list fields of a frozen dataclass into tuples.

    Raises:
      TypeError: if one is not a list of strings.
    """
    for name in names:
        value = getattr(trainer, name)
        check_strings(name, value)
        object.__setattr__(trainer, name, tuple(value))


def check_integers(trainer: Any) -> None:
    """Checks that all fields of a dataclass that are declared as integers are such, numpy's included.

    Raises:
      TypeError: if one is of another type.
    """
    for field in dataclasses.fields(trainer):
        value = getattr(trainer, field.name)
        if field.type is int or (field.type == int | None and value is not None):
            _check_integer(field.name, value)


def _check_integer(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if not -MAX_INT <= value <= MAX_INT:
        raise ValueError(f"{name} must be at most {MAX_INT}, as kernels count with 64 bits, got {reprlib.repr(value)}")


def check_numbers(vocab_size: int, min_frequency: int) -> None:
    """Checks the two numbers that most trainers have.

    Raises:
      ValueError: if one is out of range.
    """
    check_size(vocab_size)
    if min_frequency < 0:
        raise ValueError(f"min_frequency must not be negative, got {min_frequency!r}")


def check_size(vocab_size: int) -> None:
    """Checks the size of a vocabulary.

    Raises:
      ValueError: if it is out of range.
    """
    if not 1 <= vocab_size <= MAX_ID + 1:
        raise ValueError(f"vocab_size must be in 1..{MAX_ID + 1}, got {vocab_size!r}")


def check_tokens(name: str, tokens: Sequence[str]) -> None:
    """Checks tokens that will be in a vocabulary.

    Raises:
      ValueError: if one is empty or occurs twice.
    """
    seen: set[str] = set()
    for token in tokens:
        if not token:
            raise ValueError(f"{name} must not be empty, got {token!r}; leave it out")
        if token in seen:
            raise ValueError(f"{name} must each be there once, got {token!r} twice")
        seen.add(token)


def check_encodable(texts: Iterable[str]) -> None:
    """Checks that texts can be written to a file as UTF-8.

    Raises:
      ValueError: if one holds a lone surrogate.
    """
    for text in texts:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError(f"a vocabulary is UTF-8, which cannot hold the lone surrogate in {text!r}")


def check_unk_token(unk_token: str, special_tokens: Sequence[str]) -> None:
    """Checks that the unknown token will be in the vocabulary.

    Raises:
      ValueError: if it is no special token.
    """
    if unk_token not in special_tokens:
        raise ValueError(
            f"special_tokens must hold the unknown token {unk_token!r}, got {list(special_tokens)!r}; add it, or name "
            "another with unk_token="
        )
