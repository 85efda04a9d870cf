# SPDX-License-Identifier: Apache-2.0
"""What every decoder is: a list of tokens to text, and where possible one token at a time, for columns."""

import abc
from collections.abc import Sequence
from typing import NamedTuple


class TokenTexts(NamedTuple):
    """What each of some tokens adds to a text."""

    first: list[bytes]
    """At the start of a row."""
    later: list[bytes]
    """Everywhere else."""


class Decoder(abc.ABC):
    """Tokens to text.

    For a decoder that works token by token, a row is the texts of its tokens joined: the first one's `first` text, the
    others' `later` texts. Where that is not UTF-8, the row is what `decode` says; everywhere else the two are equal.

    Source: HF tokenizers `Decoder`.
    """

    @abc.abstractmethod
    def decode_chain(self, tokens: Sequence[str]) -> list[str]:
        """Returns the pieces that a row of tokens becomes; joined they are its text."""

    def decode(self, tokens: Sequence[str]) -> str:
        """Returns the text of a row of tokens."""
        return "".join(self.decode_chain(tokens))

    @property
    def is_per_token(self) -> bool:
        """Whether what a token adds depends only on itself and on whether it is the first of its row."""
        return False

    def token_text(self, token: str, *, first: bool) -> bytes:
        """Returns what one token adds to the text; `first` when it is the first of its row.

        Raises:
          ValueError: if the decoder needs whole rows.
        """
        raise ValueError(f"{self!r} does not decode token by token; decode whole rows")

    def token_texts(self, tokens: Sequence[str]) -> TokenTexts | None:
        """Returns what each of the tokens of a vocabulary adds, None where only `decode` gives the right text."""
        if not self.is_per_token:
            return None
        return TokenTexts(*([self.token_text(t, first=first) for t in tokens] for first in (True, False)))


class TokenDecoder(Decoder):
    """A decoder that turns each token into a text of its own."""

    @abc.abstractmethod
    def text(self, token: str, *, first: bool) -> str:
        """Returns what one token becomes; `first` when it is the first of its row."""

    def decode_chain(self, tokens: Sequence[str]) -> list[str]:
        """Returns the pieces that a row of tokens becomes; see `Decoder`."""
        return [self.text(token, first=i == 0) for i, token in enumerate(tokens)]

    @property
    def is_per_token(self) -> bool:
        """Always; see `Decoder`."""
        return True

    def token_text(self, token: str, *, first: bool) -> bytes:
        """Returns what one token adds to the text; see `Decoder`."""
        return self.text(token, first=first).encode()
