# SPDX-License-Identifier: Apache-2.0
"""Bytes spelled as characters of GPT-2's alphabet: what models that are not byte-level read after a `ByteLevel`.

Its reference implementation is in `tests/tokenizer/pre_tokenizers/test_spelled_bytes.py`, a line with Python's strings.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part


class Reading(NamedTuple):
    """How a model reads words that are bytes of a text."""

    letters: npt.NDArray[np.uint8]
    """uint8[256, 2], the spelling of each byte: one byte of UTF-8 and 0, or two; or uint8[0, 2] to leave words alone.
    """
    spelled: npt.NDArray[np.uint8]
    """uint8, changed: if there are letters, two bytes for each of the longest word, and 16 more."""
    scratch: Any
    """The model's own scratch."""


@kernel_part
def spell_word(data, start, stop, letters, out, o):
    """Writes `data[start:stop]` to `out[o:]`, which has room for one byte more; returns the index after it."""
    for i in range(start, stop):
        first, second = letters[data[i], 0], letters[data[i], 1]
        out[o] = first
        out[o + 1] = second
        o += 1 + np.int64(second != 0)
    return o


@kernel_part
def read_word(tokenize, word, w, model, reading, out, o, ends):
    """Tokenizes a word, spelled as the model reads it.

    tokenize: the model's function, called with `(text, n_bytes, model, reading.scratch, out, o, ends)`.
    """
    text, n = word, w
    if reading.letters.size > 0:
        text, n = reading.spelled, spell_word(word, 0, w, reading.letters, reading.spelled, 0)
    before = o
    o, has_unknown = tokenize(text, n, model, reading.scratch, out, o, ends)
    if reading.letters.size > 0:
        # Ends in the spelled text become ends in the word.
        i = 0
        at = 0
        for t in range(o - before):
            while at < ends[t]:
                at += 1 + np.int64(reading.letters[word[i], 1] != 0)
                i += 1
            ends[t] = i
    return o, has_unknown


@kernel
def spell(values, starts, stops, letters, out, out_starts, out_stops):
    """Spells words, one after the other.

    Args:
      values: uint8[n_bytes]; starts, stops: int64[n_words] into it.
      letters: uint8[256, 2], see `Reading`.
      out: uint8 with room for two bytes for each byte of the words and one more, filled.
      out_starts, out_stops: int64[n_words], filled.

    Returns:
      The number of bytes written to `out`.
    """
    o = 0
    for k in range(starts.size):
        out_starts[k] = o
        o = spell_word(values, starts[k], stops[k], letters, out, o)
        out_stops[k] = o
    return o
