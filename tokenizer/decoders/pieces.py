# SPDX-License-Identifier: Apache-2.0
"""Finds the text that each token of a row adds, for any decoder: for showing tokens, not for decoding."""

import collections.abc
import re

from tokenmill.tokenizer.decoders.base import Decoder, TokenDecoder
from tokenmill.tokenizer.decoders.byte_tokens import ByteLevel
from tokenmill.tokenizer.decoders.edits import Fuse, Strip
from tokenmill.tokenizer.decoders.sequence import Sequence

_HALF = re.compile("[\udc80-\udcff]")
"""Between steps, a byte that is no character by itself is written as with Python's `surrogateescape`."""


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
