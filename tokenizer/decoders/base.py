# SPDX-License-Identifier: Apache-2.0
"""`Decoder`, the interface: a list of tokens to text, and, for columns, one token at a time if possible."""

import abc
from collections.abc import Sequence
from typing import NamedTuple


class TokenTexts(NamedTuple):
    """The text that each token adds, in UTF-8; the lists are parallel to the tokens."""

    first: list[bytes]
    """The text at the start of a row."""
    later: list[bytes]
    """The text everywhere else."""


class Decoder(abc.ABC):
    """Tokens to text.

    For a decoder that works token by token, the text of a row is the `first` text of its first token and the `later`
    texts of the others, joined. If that is not UTF-8, `decode` decides; otherwise the two are equal.

    Source: HF tokenizers `Decoder`.
    """

    is_per_token: bool = False
    """Whether the text of a token depends only on the token and on whether it is the first of its row."""

    @abc.abstractmethod
    def decode_chain(self, tokens: Sequence[str]) -> list[str]:
        """Returns the pieces of a row of tokens; joined they are its text."""

    def decode(self, tokens: Sequence[str]) -> str:
        """Returns the text of a row of tokens."""
        return "".join(self.decode_chain(tokens))

    def token_text(self, token: str, *, first: bool) -> bytes:
        """Returns the bytes that one token adds to the text; first: whether it is the first of its row.

        Raises:
          ValueError: if the decoder needs whole rows.
        """
        raise ValueError(f"{self!r} does not decode token by token; decode whole rows")

    def token_texts(self, tokens: Sequence[str]) -> TokenTexts | None:
        """Returns the texts of the tokens of a vocabulary, None if only `decode` gives the right text."""
        if not self.is_per_token:
            return None
        return TokenTexts(*([self.token_text(t, first=first) for t in tokens] for first in (True, False)))


class TokenDecoder(Decoder):
    """A decoder that turns each token into text independently of the others."""

    is_per_token = True

    @abc.abstractmethod
    def text(self, token: str, *, first: bool) -> str:
        """Returns the text of one token; first: whether it is the first of its row."""

    def decode_chain(self, tokens: Sequence[str]) -> list[str]:
        return [self.text(token, first=i == 0) for i, token in enumerate(tokens)]

    def token_text(self, token: str, *, first: bool) -> bytes:
        return self.text(token, first=first).encode()
