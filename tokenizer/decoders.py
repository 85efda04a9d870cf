# SPDX-License-Identifier: Apache-2.0
"""Decoders: ids back to text."""

import dataclasses
import functools
import re

_CLEANUPS = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


@dataclasses.dataclass(frozen=True)
class WordPiece:
    """Joins tokens with spaces, except those that continue a word; optionally closes the gap before punctuation.

    With `byte_tokens`, `<0x00>` to `<0xFF>` stand for bytes, and join what is before them: HF has no such policy.

    Source: HF tokenizers `decoders/wordpiece.rs`.
    """

    prefix: str = "##"
    cleanup: bool = True
    byte_tokens: bool = False

    def token_text(self, token: str, *, first: bool) -> bytes:
        """Returns what one token adds to the text; `first` when nothing stands before it."""
        if self.byte_tokens and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match.group(1), 16)])
        if not first:
            token = token.removeprefix(self.prefix) if token.startswith(self.prefix) else f" {token}"
        if self.cleanup:
            token = functools.reduce(lambda text, rule: text.replace(*rule), _CLEANUPS, token)
        return token.encode()
