# SPDX-License-Identifier: Apache-2.0
"""`Sequence`: decoders one after the other, recognised where together they still work token by token."""

import collections.abc
import dataclasses
import functools
from typing import NamedTuple

from tokenizer.decoders.base import Decoder, TokenDecoder, TokenTexts
from tokenizer.decoders.byte_tokens import ByteFallback, ByteLevel
from tokenizer.decoders.edits import Fuse, Replace, Strip
from tokenizer.decoders.words import WordPiece


class _Steps(NamedTuple):
    """A sequence that works token by token: each token is edited, read as bytes, and then the row loses its start."""

    edits: list[TokenDecoder]
    reader: ByteFallback | ByteLevel | None
    stripped: bytes
    """What goes from the start of a row, once; empty for nothing."""


@dataclasses.dataclass(frozen=True)
class Sequence(Decoder):
    """Runs decoders one after the other on what the one before made of the row.

    Works token by token where it is, in this order, edits of single tokens (Replace, Strip, Metaspace, WordPiece), then
    at most one of ByteFallback and ByteLevel, then Fuse, and then a Strip of one character from the start of the row:
    Llama 2's.

    Source: HF tokenizers `decoders/sequence.rs`.
    """

    decoders: tuple[Decoder, ...]

    def flat(self) -> list[Decoder]:
        """Returns the decoders in order, those of sequences among them in their place."""
        return [part for d in self.decoders for part in (d.flat() if isinstance(d, Sequence) else [d])]

    @functools.cached_property
    def _steps(self) -> _Steps | None:
        edits: list[TokenDecoder] = []
        reader: ByteFallback | ByteLevel | None = None
        is_one = False
        stripped = b""
        for decoder in self.flat():
            if isinstance(decoder, Fuse):
                is_one = True
            elif reader is None and not is_one and isinstance(decoder, ByteFallback | ByteLevel):
                reader = decoder
                is_one = isinstance(decoder, ByteLevel)
            elif reader is None and not is_one and isinstance(decoder, TokenDecoder):
                if isinstance(decoder, WordPiece) and decoder.byte_tokens:
                    return None
                edits.append(decoder)
            elif is_one and not stripped and isinstance(decoder, Strip) and (decoder.start, decoder.stop) == (1, 0):
                stripped = decoder.content.encode()
                if reader is not None and len(stripped) > 1:
                    return None  # several tokens may spell the character
            else:
                return None
        return _Steps(edits, reader, stripped)

    @property
    def is_per_token(self) -> bool:
        """Whether the decoders come in the order above; see `Decoder`."""
        return self._steps is not None

    def _unstripped(self, steps: _Steps, token: str, *, first: bool) -> bytes:
        for edit in steps.edits:
            token = edit.text(token, first=first)
        return steps.reader.token_text(token, first=first) if steps.reader else token.encode()

    def token_text(self, token: str, *, first: bool) -> bytes:
        """Returns what one token adds to the text; see `Decoder`."""
        if self._steps is None:
            return super().token_text(token, first=first)
        text = self._unstripped(self._steps, token, first=first)
        return text.removeprefix(self._steps.stripped) if first else text

    def token_texts(self, tokens: collections.abc.Sequence[str]) -> TokenTexts | None:
        """Returns what each token adds; see `Decoder`.

        None also if a token is empty where that tells: it parts bytes, or leaves the start of the row to the next.
        """
        steps = self._steps
        if steps and (steps.stripped or isinstance(steps.reader, ByteFallback)):
            unstripped = (self._unstripped(steps, t, first=first) for t in tokens for first in (True, False))
            if not all(unstripped):
                return None
        return super().token_texts(tokens)

    def decode_chain(self, tokens: collections.abc.Sequence[str]) -> list[str]:
        """Returns the pieces that a row of tokens becomes; see `Decoder`."""
        pieces = list(tokens)
        for decoder in self.decoders:
            pieces = decoder.decode_chain(pieces)
        return pieces


_ALL_SPACES = (1 << 31) - 1


def of_sentencepiece(*, has_bytes: bool, adds_prefix: bool, removes_spaces: bool) -> Sequence:
    """Returns the decoder of sentencepiece's models.

    Args:
      has_bytes: whether byte tokens stand for bytes.
      adds_prefix: whether normalization puts a "▁" in front, which then goes.
      removes_spaces: whether it removes extra spaces: then all of those in front of the text go.
    """
    steps: list[Decoder] = [Replace("▁", " "), *([ByteFallback()] if has_bytes else []), Fuse()]
    if adds_prefix or removes_spaces:
        steps.append(Strip(" ", _ALL_SPACES if removes_spaces else 1, 0))
    return Sequence(tuple(steps))
