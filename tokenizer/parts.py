# SPDX-License-Identifier: Apache-2.0
"""`Parts`: the content of a tokenizer file. Readers return it, writers take it, a `Tokenizer` is made of it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.models import Unigram
from tokenmill.tokenizer.models.vocabulary import Vocabulary
from tokenmill.tokenizer.normalizers import Normalizer
from tokenmill.tokenizer.post_processors import Padding, PostProcessor, Truncation
from tokenmill.tokenizer.pre_tokenizers import PreTokenizer

OF_FILE = ("ignored_fields", "assumptions", "pad_token")
"""Fields of `Parts` that tell of the file, and are not part of a tokenizer."""


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a tokenizer, without encoding and decoding; fields mean the same as in `Tokenizer`.

    Raises:
      ValueError: if an added token has another id in the vocabulary, or the id of another token.
    """

    model: Any = None
    normalizer: Normalizer | None = None
    pre_tokenizer: PreTokenizer | None = None
    post_processor: PostProcessor | None = None
    decoder: Any = None
    added_tokens: Sequence[AddedToken] = ()
    truncation: Truncation | None = None
    padding: Padding | None = None
    ignored_fields: tuple[str, ...] = ()
    """Fields of the file that have no meaning; they are not written back."""
    assumptions: tuple[str, ...] = ()
    """What the file does not say, and what was concluded from the vocabulary instead: a line each."""
    pad_token: str | None = None
    """The padding token that `padding` of the file, or the files of `transformers` beside it, name."""

    def __post_init__(self) -> None:
        check_added_tokens(self.model, self.added_tokens)

    def get_vocab(self) -> dict[str, int]:
        """Returns token -> id, with the added tokens; a copy."""
        return dict(vocab_of(self.model).items()) | {token.content: token.id for token in self.added_tokens}

    def token_to_id(self, token: str) -> int | None:
        """Returns the id of a token, None if there is no such token."""
        added = {token.content: token.id for token in self.added_tokens}
        found = added[token] if token in added else vocab_of(self.model).find_one(token)
        return found if found >= 0 else None


def vocab_of(model: Any) -> Vocabulary:
    """Returns token -> id of any model, empty for None; of equal Unigram pieces the one in `Unigram.piece_ids`."""
    if isinstance(model, Unigram):
        return model.piece_ids
    return Vocabulary.of({} if model is None else model.vocab)


def check_added_tokens(model: Any, added_tokens: Sequence[AddedToken]) -> None:
    """Checks that added tokens fit the vocabulary of a model and each other.

    Raises:
      ValueError: if one has another id in the vocabulary, or the id of another token.
    """
    if not added_tokens:
        return
    vocab = vocab_of(model)
    contents = [token.content for token in added_tokens]
    try:  # Gemma has 6,414
        own = vocab.find(contents).tolist()
    except ValueError:  # one is no text
        own = [vocab.find_one(content) for content in contents]
    for token, token_id in zip(added_tokens, own, strict=True):
        if token_id not in (-1, token.id):
            raise ValueError(f"added token {token.content!r} has id {token.id}, but the vocabulary gives it {token_id}")
    owners = {token.id: token.content for token, token_id in zip(added_tokens, own, strict=True) if token_id >= 0}
    others = [token.id for token in added_tokens if token.id not in owners]
    if others and np.isin(vocab.ids, others).any():
        owners |= {i: t for t, i in vocab.items() if i in others}
    for token in added_tokens:
        if owners.setdefault(token.id, token.content) != token.content:
            raise ValueError(f"id {token.id} belongs to {owners[token.id]!r} and to added token {token.content!r}")
