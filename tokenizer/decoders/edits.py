# SPDX-License-Identifier: Apache-2.0
"""Decoders that edit strings: `Replace`, `Strip`, `Fuse`."""

import dataclasses
import re
from collections.abc import Sequence

from tokenmill.tokenizer.decoders.base import Decoder, TokenDecoder
from tokenmill.tokenizer.normalizers.base import check_content
from tokenmill.tokenizer.pre_tokenizers.patterns import compiled, find_segments


@dataclasses.dataclass(frozen=True)
class Replace(TokenDecoder):
    """Replaces every match of a pattern in every token; `content` is taken literally.

    Raises:
      ValueError: if the pattern is a regular expression that does not compile, or has no equivalent here.

    Source: HF tokenizers `normalizers/replace.rs`.
    """

    pattern: str
    content: str
    is_regex: bool = False
    """Whether `pattern` is a regular expression, in the dialect of Oniguruma, or a literal."""

    def __post_init__(self) -> None:
        check_content("content", self.content)
        if self.is_regex:
            compiled(self.pattern)  # raises errors now, not at the first token

    def text(self, token: str, *, first: bool) -> str:
        """Returns the text of one token; see `TokenDecoder`. As in HF, nothing matches in an empty token."""
        if not token:
            return token
        if self.pattern and not self.is_regex:
            return token.replace(self.pattern, self.content)
        # An empty literal matches everywhere, like an empty expression.
        expression = self.pattern if self.is_regex else re.escape(self.pattern)
        segments = find_segments(expression, token)
        return "".join(self.content if is_match else token[start:stop] for start, stop, is_match in segments)


@dataclasses.dataclass(frozen=True)
class Strip(TokenDecoder):
    """Removes a character from both ends of every token, up to `start` and `stop` times.

    A token of only this character becomes empty; HF crashes if `stop` then asks for more.

    Source: HF tokenizers `decoders/strip.rs`.
    """

    content: str
    start: int
    stop: int

    def __post_init__(self) -> None:
        if len(self.content) != 1:
            raise ValueError(f"content must be one character, got {self.content!r}")
        for name, n in (("start", self.start), ("stop", self.stop)):
            if n < 0:
                raise ValueError(f"{name} must not be negative, got {n!r}")

    def text(self, token: str, *, first: bool) -> str:
        n_left = min(self.start, len(token) - len(token.lstrip(self.content)))
        n_right = min(self.stop, len(token) - len(token.rstrip(self.content)))
        return token[n_left : max(0, len(token) - n_right)]


@dataclasses.dataclass(frozen=True)
class Fuse(Decoder):
    """Joins all tokens, so that the next decoder gets the row as one.

    Source: HF tokenizers `decoders/fuse.rs`.
    """

    is_per_token = True

    def token_text(self, token: str, *, first: bool) -> bytes:
        return token.encode()

    def decode_chain(self, tokens: Sequence[str]) -> list[str]:
        """Returns the text of a row of tokens as one piece."""
        return ["".join(tokens)]
