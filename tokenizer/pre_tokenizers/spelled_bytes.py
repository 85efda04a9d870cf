# SPDX-License-Identifier: Apache-2.0
"""The text that pre-tokenizers after a `ByteLevel` read: every byte spelled as a character of GPT-2's alphabet.

Some of these characters belong to other classes than those of the text: the last byte of "ò" is spelled "²", a digit.
"""

from collections.abc import Callable

import numpy as np

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.kernels import spelled_bytes as kernels
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET, LETTERS
from tokenmill.tokenizer.pre_tokenizers.pieces import Pieces
from tokenmill.tokenizer.ragged import characters_before, read_only, stretches
from tokenmill.tokenizer.words import Words

LETTER_WIDTHS = 1 + (LETTERS[:, 1] > 0).astype(np.int64)
"""int64[256]: the bytes of the letter that spells each byte."""


def spelled_words(words: Words) -> Words:
    """Returns words with their bytes spelled, in UTF-8, as a model that reads text gets them after a `ByteLevel`."""
    starts, stops = read_only(words.starts), read_only(words.stops)
    out = recycled.empty(2 * int((stops - starts).sum()) + 1, np.uint8)
    out_starts, out_stops = recycled.empty(starts.size, np.int64), recycled.empty(starts.size, np.int64)
    n = kernels.spell(read_only(words.values), starts, stops, LETTERS, out, out_starts, out_stops)
    return Words(read_only(out[:n]), out_starts, out_stops, words.row_offsets)


def spelled(pieces: Pieces) -> Pieces:
    """Returns pieces with their bytes spelled; each letter has the place of its character."""
    words = pieces.words
    origins = pieces.origins
    if origins is not None:
        origins = origins[characters_before(words.values, stretches(words.starts, words.stops) + 1) - 1]
    return Pieces(spelled_words(words), pieces.is_first, origins)


def split_spelled(pieces: Pieces, split: Callable[[Pieces], Pieces]) -> Pieces:
    """Cuts words where `split` cuts their spelled bytes; the words returned are bytes of the text again."""
    words = pieces.words
    lengths = words.stops - words.starts
    begins = np.zeros(words.n_words + 1, np.int64)
    np.cumsum(lengths, out=begins[1:])
    raw = words.values[stretches(words.starts, words.stops)]
    at = np.zeros(raw.size + 1, np.int64)
    np.cumsum(LETTER_WIDTHS[raw], out=at[1:])
    letters = spelled_words(words)
    cut = split(Pieces(letters, pieces.is_first))
    assert cut.words.values is letters.values or np.shares_memory(cut.words.values, letters.values)
    starts, stops = (np.searchsorted(at, bounds) for bounds in (cut.words.starts, cut.words.stops))
    copied = pieces.copied(Words(read_only(raw), starts, stops, cut.words.row_offsets))
    return copied._replace(is_first=cut.is_first)


def unspell(text: str) -> bytes:
    """Returns the bytes that a text spells."""
    return bytes(map(BYTE_ALPHABET.index, text))
