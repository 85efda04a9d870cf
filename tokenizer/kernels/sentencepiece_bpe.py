# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's byte pair encoding over whole rows.

What happens in one part of a row never depends on the others, as no merge reaches across (see `sentencepiece_units`).
"""

import numpy as np

from tokenizer.kernels import sentencepiece_rows
from tokenizer.kernels.bpe import bpe_word, called_bpe_word
from tokenizer.kernels.compiling import kernel_of_short_loops, kernel_part
from tokenizer.kernels.sentencepiece_rows import ALWAYS


@kernel_part
def _encode_part(text, w, is_unsafe, sums, model, scratch, out, o):
    """See `sentencepiece_rows`."""
    o, _ = bpe_word(text, 0, w, model, scratch.bpe, out, o, scratch.ends)
    return o, sums, np.int64(ALWAYS), np.int64(0)


@kernel_part
def _follow(total, out, first, last, model):
    return total


@kernel_part
def _encode_row(text, w, model, scratch, out, o):
    """See `sentencepiece_rows`."""
    o, _ = called_bpe_word(text, 0, w, model, scratch.bpe, out, o, scratch.ends)
    return o


@kernel_of_short_loops
def encode_raw_rows(rows, added, tables, model, scratch, work, tallying):
    """See `sentencepiece_rows.encode_raw_rows`; model: models.bpe.BPETables."""
    return sentencepiece_rows.encode_raw_rows(
        _encode_part, _follow, _encode_row, rows, added, tables, model, scratch, work, tallying
    )
