# SPDX-License-Identifier: Apache-2.0
"""What pre-tokenizers see that come after a `ByteLevel`: every byte spelled as a character of GPT-2's alphabet.

Some of those characters are digits or letters of other meaning than the text has: the last byte of "ò" is spelled "²".
"""

from collections.abc import Callable

import numpy as np

from tokenizer.aligned import AlignedText
from tokenizer.models.bpe import BYTE_ALPHABET
from tokenizer.pre_tokenizers.pieces import Pieces
from tokenizer.ragged import read_only
from tokenizer.words import Words

_POINTS = np.array([ord(c) for c in BYTE_ALPHABET], np.int64)
_WIDTHS = np.where(_POINTS < 0x80, 1, 2)
_FIRST = np.where(_POINTS < 0x80, _POINTS, 0xC0 | _POINTS >> 6).astype(np.uint8)
_SECOND = (0x80 | (_POINTS & 0x3F)).astype(np.uint8)


def split_spelled(pieces: Pieces, split: Callable[[Pieces], Pieces]) -> Pieces:
    """Cuts words as `split` cuts their bytes spelled; the words that come back are bytes of the text again."""
    words = pieces.words
    lengths = words.stops - words.starts
    begins = np.zeros(words.n_words + 1, np.int64)
    np.cumsum(lengths, out=begins[1:])
    places = np.repeat(words.starts - begins[:-1], lengths) + np.arange(begins[-1])
    raw = words.values[places]
    at = np.zeros(raw.size + 1, np.int64)
    np.cumsum(_WIDTHS[raw], out=at[1:])
    values = np.empty(int(at[-1]), np.uint8)
    values[at[:-1]] = _FIRST[raw]
    wide = _WIDTHS[raw] == 2
    values[at[:-1][wide] + 1] = _SECOND[raw[wide]]
    spelled = Words(read_only(values), at[begins[:-1]], at[begins[1:]], words.row_offsets)
    cut = split(Pieces(spelled, pieces.is_first))
    if cut.words.values is not spelled.values and not np.shares_memory(cut.words.values, values):
        raise ValueError("a pre-tokenizer that changes text cannot come after ByteLevel")
    starts, stops = (np.searchsorted(at, bounds) for bounds in (cut.words.starts, cut.words.stops))
    return Pieces(Words(read_only(raw), starts, stops, cut.words.row_offsets), cut.is_first)


def spell(text: AlignedText) -> AlignedText:
    """Returns a text with its bytes spelled, each with where its character came from."""
    widths = [len(c.encode()) for c in text.text]
    spelled = "".join(BYTE_ALPHABET[b] for b in text.text.encode())
    starts, stops = (
        [place for place, width in zip(places, widths, strict=True) for _ in range(width)]
        for places in (text.starts, text.stops)
    )
    return AlignedText(spelled, starts, stops)


def unspell(text: str) -> bytes:
    """Returns the bytes that a text spells."""
    return bytes(map(BYTE_ALPHABET.index, text))
