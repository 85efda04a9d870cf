# SPDX-License-Identifier: Apache-2.0
"""The text that pre-tokenizers after a `ByteLevel` read: every byte spelled as a character of GPT-2's alphabet.

Some of these characters belong to other classes than those of the text: the last byte of "ò" is spelled "²", a digit.
"""

from collections.abc import Callable

import numpy as np

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.aligned import AlignedText
from tokenmill.tokenizer.kernels import spelled_bytes as kernels
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET, LETTERS
from tokenmill.tokenizer.pre_tokenizers.pieces import Pieces
from tokenmill.tokenizer.ragged import read_only
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


def split_spelled(pieces: Pieces, split: Callable[[Pieces], Pieces]) -> Pieces:
    """Cuts words where `split` cuts their spelled bytes; the words returned are bytes of the text again."""
    words = pieces.words
    lengths = words.stops - words.starts
    begins = np.zeros(words.n_words + 1, np.int64)
    np.cumsum(lengths, out=begins[1:])
    raw = words.values[np.repeat(words.starts - begins[:-1], lengths) + np.arange(begins[-1])]
    at = np.zeros(raw.size + 1, np.int64)
    np.cumsum(LETTER_WIDTHS[raw], out=at[1:])
    spelled = spelled_words(words)
    cut = split(Pieces(spelled, pieces.is_first))
    assert cut.words.values is spelled.values or np.shares_memory(cut.words.values, spelled.values)
    starts, stops = (np.searchsorted(at, bounds) for bounds in (cut.words.starts, cut.words.stops))
    return Pieces(Words(read_only(raw), starts, stops, cut.words.row_offsets), cut.is_first)


def spell(text: AlignedText) -> AlignedText:
    """Returns a text with its bytes spelled; each byte has the origin of its character."""
    widths = [len(c.encode()) for c in text.text]
    spelled = "".join(BYTE_ALPHABET[b] for b in text.text.encode())
    starts, stops = (
        [place for place, width in zip(places, widths, strict=True) for _ in range(width)]
        for places in (text.starts, text.stops)
    )
    return AlignedText(spelled, starts, stops, text.is_start)


def unspell(text: str) -> bytes:
    """Returns the bytes that a text spells."""
    return bytes(map(BYTE_ALPHABET.index, text))
