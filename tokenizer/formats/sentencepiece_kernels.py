# SPDX-License-Identifier: Apache-2.0
"""Reads the pieces in a SentencePiece model's file.

Its reference implementation is `tokenmill.tokenizer.formats.sentencepiece._read_piece`;
`tests/tokenizer/formats/test_sentencepiece_file.py` compares them.
"""

from tokenmill.tokenizer.compiling.kernel import kernel

# The tags on the wire: field 1 of the file, a piece; its fields 1, 2 and 3, text, score and type.
_PIECE, _TEXT, _SCORE, _TYPE = 0x0A, 0x0A, 0x15, 0x18


@kernel
def read_pieces(data, text, offsets, scores, types):
    """Reads pieces as long as they are written the usual way: text, score, perhaps a type, nothing else.

    Args:
      data: uint8[n_bytes], the file.
      text: uint8 with room for the file, filled with the texts.
      offsets: int64[n + 1], zeros, room for as many pieces as the file may have; filled.
      scores: uint8[n, 4], the bytes of their scores; types: int64[n], 1 if a piece has none; filled.

    Returns:
      The number of pieces read, and where the first unusual one begins.
    """
    at, n, o = 0, 0, 0
    while at + 4 < data.size and n < types.size and data[at] == _PIECE and data[at + 2] == _TEXT:
        # Lengths below 128 are one byte; a score takes 5 bytes, a type 2.
        stop, w = at + 2 + data[at + 1], data[at + 3]
        extra = stop - (at + 4 + w)
        if data[at + 1] >= 128 or w >= 128 or stop > data.size or (extra != 5 and extra != 7):
            break
        q = at + 4 + w
        if data[q] != _SCORE or (extra == 7 and (data[q + 5] != _TYPE or data[q + 6] >= 128)):
            break
        if w == 0:
            break
        for k in range(w):
            text[o + k] = data[at + 4 + k]
        for k in range(4):
            scores[n, k] = data[q + 1 + k]
        types[n] = data[q + 6] if extra == 7 else 1
        o += w
        n += 1
        offsets[n] = o
        at = stop
    return n, at
