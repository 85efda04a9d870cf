# SPDX-License-Identifier: Apache-2.0
"""`Sequence` of decoders, which knows whether all together still work token by token."""

import collections.abc
import dataclasses
import functools
import re
from typing import NamedTuple

from tokenmill.tokenizer.decoders.base import Decoder, TokenDecoder, TokenTexts
from tokenmill.tokenizer.decoders.byte_tokens import ByteFallback, ByteLevel
from tokenmill.tokenizer.decoders.edits import Fuse, Replace, Strip
from tokenmill.tokenizer.decoders.words import WordPiece
from tokenmill.tokenizer.normalizers.base import FREE_BYTES, check_growth

_HALF = re.compile("[\udc80-\udcff]")
"""Between steps, a byte that is no character by itself is written as with Python's `surrogateescape`."""


class _Steps(NamedTuple):
    """A sequence that works token by token: each token is edited, read as bytes, and then the row loses its start."""

    edits: list[TokenDecoder]
    reader: ByteFallback | ByteLevel | None
    stripped: bytes
    """The text that is removed from the start of a row, once; empty for none."""


@dataclasses.dataclass(frozen=True)
class Sequence(Decoder):
    """Runs decoders in sequence, each on the result of the one before.

    It works token by token if it has, in this order, edits of single tokens (Replace, Strip, Metaspace, WordPiece), at
    most one of ByteFallback and ByteLevel, Fuse, and a Strip of one character from the start of the row, as Llama 2's.

    Source: HF tokenizers `decoders/sequence.rs`.
    """

    decoders: tuple[Decoder, ...]

    def flat(self) -> list[Decoder]:
        """Returns the decoders in order, with nested sequences flattened."""
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
                    return None  # several tokens together may spell the character
            else:
                return None
        return _Steps(edits, reader, stripped)

    @property
    def is_per_token(self) -> bool:  # type: ignore[override]
        return self._steps is not None

    def _unstripped(self, steps: _Steps, token: str, *, first: bool) -> bytes:
        n_before = len(token)
        for edit in steps.edits:
            token = edit.text(token, first=first)
            check_growth(n_before, len(token))
        return steps.reader.token_text(token, first=first) if steps.reader else token.encode()

    def token_text(self, token: str, *, first: bool) -> bytes:
        if self._steps is None:
            return super().token_text(token, first=first)
        text = self._unstripped(self._steps, token, first=first)
        return text.removeprefix(self._steps.stripped) if first else text

    def token_texts(self, tokens: collections.abc.Sequence[str]) -> TokenTexts | None:
        """Returns the texts of tokens; see `Decoder`.

        None also if a token is empty and that matters: it separates bytes, or makes the next token the first of the
          row.
        """
        steps = self._steps
        if steps and (steps.stripped or isinstance(steps.reader, ByteFallback)):
            unstripped = (self._unstripped(steps, t, first=first) for t in tokens for first in (True, False))
            if not all(unstripped):
                return None
        return super().token_texts(tokens)

    def decode_chain(self, tokens: collections.abc.Sequence[str]) -> list[str]:
        pieces = list(tokens)
        n_before = sum(map(len, pieces))
        for decoder in self.flat():
            pieces = decoder.decode_chain(pieces)
            check_growth(n_before + FREE_BYTES * len(tokens), sum(map(len, pieces)))
        return pieces


_ALL_SPACES = (1 << 31) - 1


def of_sentencepiece(*, has_bytes: bool, adds_prefix: bool, removes_spaces: bool) -> Sequence:
    """Returns the decoder of sentencepiece's models.

    Args:
      has_bytes: whether byte tokens become bytes.
      adds_prefix: whether normalization puts a "▁" in front, which is then removed.
      removes_spaces: whether normalization removes extra spaces; then all spaces in front of the text are removed.
    """
    steps: list[Decoder] = [Replace("▁", " "), *([ByteFallback()] if has_bytes else []), Fuse()]
    if adds_prefix or removes_spaces:
        steps.append(Strip(" ", _ALL_SPACES if removes_spaces else 1, 0))
    return Sequence(tuple(steps))


def token_pieces(decoder: Decoder, tokens: collections.abc.Sequence[str]) -> list[bytes]:
    """Returns the bytes that each token of a row adds to its text.

    Joined they are the result of `decode`, except that bytes which form no character stay as they are. There are two
    differences: after a step that joins tokens, an edit other than `Strip` is applied to each token separately; and
    with `CTC`, which drops tokens, each token is read separately.
    """
    pieces, is_joined = list(tokens), False
    for step in decoder.flat() if isinstance(decoder, Sequence) else [decoder]:
        if isinstance(step, Strip) and is_joined:
            pieces = _strip(pieces, step.content, step.start)
            pieces = [piece[::-1] for piece in _strip([p[::-1] for p in reversed(pieces)], step.content, step.stop)]
            pieces.reverse()
        elif step.is_per_token:
            pieces = [_read(step, piece, first=i == 0) for i, piece in enumerate(pieces)]
            is_joined = is_joined or isinstance(step, Fuse | ByteLevel)
        else:
            chain = step.decode_chain(pieces)
            if len(chain) != len(pieces):
                return [decoder.decode([token]).encode() for token in tokens]
            pieces = chain
    return [piece.encode("utf-8", "surrogateescape") for piece in pieces]


def _read(step: Decoder, piece: str, *, first: bool) -> str:
    if not _HALF.search(piece):
        return step.token_text(piece, first=first).decode("utf-8", "surrogateescape")
    return step.text(piece, first=first) if isinstance(step, TokenDecoder) else piece


def _strip(pieces: list[str], content: str, n: int) -> list[str]:
    """Removes `content` up to `n` times from the start of a row, which may be spread over several pieces."""
    left = []
    for piece in pieces:
        n_here = min(n, len(piece) - len(piece.lstrip(content)))
        left.append(piece[n_here:])
        n = n - n_here if n_here == len(piece) else 0
    return left
