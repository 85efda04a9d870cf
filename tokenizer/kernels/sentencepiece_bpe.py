# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's byte pair encoding over whole rows.

What happens in one part of a row never depends on the others, as no merge reaches across (see `sentencepiece_units`).
"""

import numpy as np

from tokenizer.kernels import sentencepiece_rows
from tokenizer.kernels.bpe import bpe_word, called_bpe_word
from tokenizer.kernels.bpe_pairs import is_sparse, set_rank
from tokenizer.kernels.compiling import kernel, kernel_of_short_loops, kernel_part
from tokenizer.kernels.sentencepiece_rows import ALWAYS


@kernel
def build_ranked_pairs(lefts, rights, ranks, slots, bits):
    """Fills a pair table as `bpe_pairs.build_pairs` does, with given ranks, int32[n]."""
    for t in range(lefts.size):
        if not set_rank(slots, bits, lefts[t], rights[t], ranks[t]):
            return False
    return is_sparse(slots, bits)


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
