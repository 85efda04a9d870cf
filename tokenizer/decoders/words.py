# SPDX-License-Identifier: Apache-2.0
"""Decoders for tokens that mark words, or that repeat: `WordPiece`, `BPEDecoder`, `Metaspace`, `CTC`."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Sequence
from typing import Literal

from tokenmill.tokenizer.decoders.base import Decoder, TokenDecoder

_CLEANUPS = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip
_MAY_BE_CLEANED = re.compile("|".join(re.escape(before) for before, _ in _CLEANUPS))
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def _cleaned(text: str) -> str:
    if not _MAY_BE_CLEANED.search(text):  # most words
        return text
    return functools.reduce(lambda text, rule: text.replace(*rule), _CLEANUPS, text)


@dataclasses.dataclass(frozen=True)
class WordPiece(TokenDecoder):
    """Joins tokens with spaces, except those that continue a word; optionally closes the gap before punctuation.

    With `byte_tokens`, `<0x00>` to `<0xFF>` become bytes, without a space before them; HF has no such policy.

    Source: HF tokenizers `decoders/wordpiece.rs`.
    """

    prefix: str = "##"
    cleanup: bool = True
    byte_tokens: bool = False

    def text(self, token: str, *, first: bool) -> str:
        if not first:
            token = token.removeprefix(self.prefix) if token.startswith(self.prefix) else f" {token}"
        return _cleaned(token) if self.cleanup else token

    def token_text(self, token: str, *, first: bool) -> bytes:
        if self.byte_tokens and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match.group(1), 16)])
        return self.text(token, first=first).encode()

    def decode_chain(self, tokens: Sequence[str]) -> list[str]:
        """Returns the pieces of a row of tokens: only one if there may be byte tokens."""
        if not self.byte_tokens:
            return super().decode_chain(tokens)
        joined = b"".join(self.token_text(token, first=i == 0) for i, token in enumerate(tokens))
        return [joined.decode("utf-8", "replace")]


@dataclasses.dataclass(frozen=True)
class Metaspace(TokenDecoder):
    """Turns the visible space back into a space; that of the first token is removed if one was put in front.

    Source: HF tokenizers `pre_tokenizers/metaspace.rs`.
    """

    replacement: str = "\u2581"
    prepend_scheme: Literal["always", "never", "first"] = "always"
    split: bool = True
    """Without effect: HF reads it in pre-tokenizing only."""

    def __post_init__(self) -> None:
        if len(self.replacement) != 1:
            raise ValueError(f"replacement must be one character, got {self.replacement!r}")
        if self.prepend_scheme not in ("always", "never", "first"):
            raise ValueError(f"prepend_scheme must be 'always', 'never' or 'first', got {self.prepend_scheme!r}")

    def text(self, token: str, *, first: bool) -> str:
        return token.replace(self.replacement, "" if first and self.prepend_scheme != "never" else " ")


@dataclasses.dataclass(frozen=True)
class BPEDecoder(Decoder):
    """Turns the end-of-word suffix into a space, or, in the last token, into nothing.

    Source: HF tokenizers `decoders/bpe.rs`.
    """

    suffix: str = "</w>"

    def decode_chain(self, tokens: Sequence[str]) -> list[str]:
        last = len(tokens) - 1
        return [token.replace(self.suffix, "" if i == last else " ") for i, token in enumerate(tokens)]


@dataclasses.dataclass(frozen=True)
class CTC(Decoder):
    """Drops tokens that repeat the one before, then padding, which separates repetitions that are meant.

    Source: HF tokenizers `decoders/ctc.rs`.
    """

    pad_token: str = "<pad>"
    word_delimiter_token: str = "|"
    """Becomes a space."""
    cleanup: bool = True
    """Whether to close the gap before punctuation; if not, word delimiters stay too, as in HF."""

    def decode_chain(self, tokens: Sequence[str]) -> list[str]:
        pieces = []
        for token, _ in itertools.groupby(tokens):
            piece = token.replace(self.pad_token, "")
            if self.cleanup:
                piece = _cleaned(piece).replace(self.word_delimiter_token, " ")
            if piece:
                pieces.append(piece)
        return pieces
