# SPDX-License-Identifier: Apache-2.0
"""GPT-2's alphabet: the character that represents each byte in byte-level vocabularies."""

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels import spelled_bytes
from tokenmill.tokenizer.models.vocabulary import WORD_PADDING, Tokens
from tokenmill.tokenizer.ragged import read_only

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [b for b in range(256) if b not in _PRINTABLE]
BYTE_ALPHABET = "".join(chr(b if b in _PRINTABLE else 0x100 + _OTHERS.index(b)) for b in range(256))
"""The character of each byte: the same one if it is printable, otherwise one from U+0100 on."""

LETTERS = read_only(np.array([list(c.encode().ljust(2, b"\0")) for c in BYTE_ALPHABET], np.uint8))
"""uint8[256, 2]: the UTF-8 of each byte's character: one byte and 0, or two."""


def spelled_tokens(values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Tokens:
    """Returns tokens of bytes as they are written in byte-level vocabularies.

    values, offsets: uint8 and int64[n + 1], offsets from 0 on.
    """
    out = np.zeros(2 * int(offsets[-1]) + WORD_PADDING, np.uint8)
    starts, stops = np.empty((2, offsets.size - 1), np.int64)
    n = spelled_bytes.spell(
        read_only(values), read_only(offsets[:-1]), read_only(offsets[1:]), LETTERS, out, starts, stops
    )
    return Tokens(out[: n + WORD_PADDING].copy(), np.append(starts, n))
