# SPDX-License-Identifier: Apache-2.0
"""`Parts`: what a tokenizer file says, which readers return, writers take, and a `Tokenizer` is made of."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokenizer.added_tokens import AddedToken
from tokenizer.models import Unigram
from tokenizer.models.vocabulary import ids_of
from tokenizer.normalizers import Normalizer
from tokenizer.post_processors import Padding, PostProcessor, Truncation
from tokenizer.pre_tokenizers import PreTokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a tokenizer, with nothing that encodes or decodes; their meaning is that in `Tokenizer`.

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
    """Fields of the file that have no meaning; not written again."""

    def __post_init__(self) -> None:
        check_added_tokens(self.model, self.added_tokens)

    def get_vocab(self) -> dict[str, int]:
        """Returns token -> id, with the added tokens; a copy."""
        return dict(vocab_of(self.model).items()) | {token.content: token.id for token in self.added_tokens}

    def token_to_id(self, token: str) -> int | None:
        """Returns the id of a token, None where there is no such token."""
        added = {token.content: token.id for token in self.added_tokens}
        return added[token] if token in added else vocab_of(self.model).get(token)


def vocab_of(model: Any) -> Mapping[str, int]:
    """Returns token -> id of any model, nothing for none; of equal Unigram pieces as `Unigram.piece_ids`."""
    if model is None:
        return {}
    return model.piece_ids if isinstance(model, Unigram) else model.vocab


def check_added_tokens(model: Any, added_tokens: Sequence[AddedToken]) -> None:
    """Checks that added tokens fit the vocabulary of a model and each other.

    Raises:
      ValueError: if one has another id in the vocabulary, or the id of another token.
    """
    if not added_tokens:
        return
    vocab = vocab_of(model)
    for token in added_tokens:
        if vocab.get(token.content, token.id) != token.id:
            raise ValueError(
                f"added token {token.content!r} has id {token.id}, but the vocabulary gives it {vocab[token.content]}"
            )
    owners = {token.id: token.content for token in added_tokens if token.content in vocab}
    others = [token.id for token in added_tokens if token.id not in owners]
    if others and np.isin(ids_of(vocab), others).any():
        owners |= {i: t for t, i in vocab.items() if i in others}
    for token in added_tokens:
        if owners.setdefault(token.id, token.content) != token.content:
            raise ValueError(f"id {token.id} belongs to {owners[token.id]!r} and to added token {token.content!r}")
