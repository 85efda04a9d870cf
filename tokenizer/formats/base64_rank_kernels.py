# SPDX-License-Identifier: Apache-2.0
"""Reads lines of a base64 token and a number, as tiktoken writes ranks.

Its reference implementation is `tokenmill.tokenizer.formats.tiktoken_ranks.read_any_lines`;
`tests/tokenizer/formats/test_bpe_files.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_NONE = 64
_VALUES = np.full(256, _NONE, np.uint8)
_VALUES[list(_ALPHABET)] = range(64)
_PAD, _SPACE, _LINE_FEED, _ZERO = ord("="), ord(" "), ord("\n"), ord("0")
MAX_DIGITS = 8
"""The most digits of a rank: more than an id has."""


@kernel
def read_lines(text, values, offsets, ranks):
    """Reads lines of a token in base64, one space, a decimal number and a line feed, which the last one may lack.

    Args:
      text: uint8[n_bytes].
      values: uint8 with room for three bytes in four of the text and 16 more, which become zeros; filled.
      offsets, ranks: int64[n + 1] and int64[n], room for as many lines as there are; filled.

    Returns:
      The number of tokens, none of them empty; -1 if a line is anything else.
    """
    n, o, q = 0, 0, 0
    offsets[0] = 0
    while q < text.size:
        while q < text.size and text[q] != _SPACE:
            n_bytes = _put_three(text, q, values, o)
            if n_bytes == 0 or (n_bytes < 3 and (q + 4 >= text.size or text[q + 4] != _SPACE)):
                return -1
            o += n_bytes
            q += 4
        if o == offsets[n]:
            return -1
        q += 1
        rank, first = np.int64(0), q
        while q < text.size and _ZERO <= text[q] < _ZERO + 10 and q < first + MAX_DIGITS:
            rank = 10 * rank + text[q] - _ZERO
            q += 1
        if q == first or (q < text.size and text[q] != _LINE_FEED):
            return -1
        q += 1
        ranks[n] = rank
        n += 1
        offsets[n] = o
    values[o : o + 16] = 0
    return n


@kernel_part
def _put_three(text, q, values, o):
    """Decodes four characters to one to three bytes; returns how many, 0 if they are not base64."""
    if q + 4 > text.size:
        return 0
    n_pads = 0 if text[q + 3] != _PAD else 1 if text[q + 2] != _PAD else 2
    bits, known = np.uint32(0), True
    for k in range(4 - n_pads):
        value = _VALUES[text[q + k]]
        known &= value != _NONE
        bits |= np.uint32(value) << np.uint32(18 - 6 * k)
    if not known:
        return 0
    for k in range(3 - n_pads):
        values[o + k] = np.uint8(bits >> np.uint32(16 - 8 * k))
    return 3 - n_pads
