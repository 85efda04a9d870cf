# SPDX-License-Identifier: Apache-2.0
"""tiktoken's ranks: each line has a token in base64 and its rank."""

import base64
import binascii
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import decoders, pre_tokenizers
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats.base64_rank_kernels import read_lines
from tokenmill.tokenizer.models import BPE
from tokenmill.tokenizer.models.bpe_tables import padded_bytes
from tokenmill.tokenizer.models.vocabulary import WORD_PADDING
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.pre_tokenizers.scanner_patterns import TIKTOKEN_PATTERNS


class Ranks(NamedTuple):
    """Tokens, in the order of the file."""

    values: npt.NDArray[np.uint8]
    """uint8[n_bytes + 16]: the bytes of the tokens, padded."""
    offsets: npt.NDArray[np.int64]
    """int64[n + 1]."""
    ids: Sequence[int] | npt.NDArray[np.int64]


def read(text: str, source: str, pattern: str | None) -> Parts:
    """Returns the parts of a tokenizer.

    Args:
      text: the content of the file.
      source: its name in messages.
      pattern: one of the names of `TIKTOKEN_PATTERNS`; the file does not say.

    Raises:
      TokenizerFileError: if there is no pattern, a line is something else, or the ranks are no vocabulary.
    """
    if pattern not in TIKTOKEN_PATTERNS:
        raise TokenizerFileError(
            f"{source}: tiktoken's ranks do not say how text is split; pass pattern=, one of "
            f"{', '.join(TIKTOKEN_PATTERNS)}, got {pattern!r}"
        )
    ranks = read_plain_lines(text) or read_any_lines(text, source)
    try:
        model = BPE.from_ranked_tokens(*ranks)
    except ValueError as error:
        raise TokenizerFileError(f"{source}: {error}") from error
    split = pre_tokenizers.Split(TIKTOKEN_PATTERNS[pattern], "isolated", is_regex=True)
    words = pre_tokenizers.Sequence((split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)))
    return Parts(model=model, pre_tokenizer=words, decoder=decoders.ByteLevel())


def read_plain_lines(text: str) -> Ranks | None:
    """Reads lines as tiktoken writes them; returns None if one is anything else, or there are none."""
    data = np.frombuffer(text.encode(), np.uint8)
    n_lines = text.count("\n") + 1
    values = np.empty(data.size // 4 * 3 + WORD_PADDING, np.uint8)
    offsets, ids = np.empty(n_lines + 1, np.int64), np.empty(n_lines, np.int64)
    n = read_lines(data, values, offsets, ids)
    if n <= 0:
        return None
    return Ranks(values[: int(offsets[n]) + WORD_PADDING], offsets[: n + 1], ids[:n].copy())


def read_any_lines(text: str, source: str) -> Ranks:
    """Reads lines one by one: with any line ends, empty ones, and numbers as Python reads them.

    An empty token, which Whisper's file has, is left out, and its rank stays free.

    Raises:
      TokenizerFileError: if a line is something else; the message says which.
    """
    tokens, ids = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line:
            continue
        encoded, _, rank = line.partition(" ")
        try:
            if encoded == "=":  # in Whisper's file; an empty token, which no text becomes
                int(rank)
                continue
            tokens.append(base64.b64decode(encoded, validate=True))
            ids.append(int(rank))
        except (binascii.Error, ValueError) as error:
            raise TokenizerFileError(
                f"{source}, line {number}: expected base64 and a rank, got {line[:80]!r}"
            ) from error
    return Ranks(*padded_bytes(tokens), ids)
