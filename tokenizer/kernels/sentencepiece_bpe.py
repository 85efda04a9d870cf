# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's byte pair encoding over whole rows.

The ids of one part of a row never depend on the others, as no merge reaches across (see `sentencepiece_units`).

Its reference implementation is `tokenmill.tokenizer.models.bpe.BPE.tokenize`;
`tests/tokenizer/engines/test_sentencepiece_rows.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_of_short_loops, kernel_part
from tokenmill.tokenizer.compiling.references import refer
from tokenmill.tokenizer.kernels.bpe import bpe_word
from tokenmill.tokenizer.kernels.encode_loop import FLAGGED, emit_all, encode_rows
from tokenmill.tokenizer.kernels.sentencepiece_spans import (
    PartsArguments,
    end_row,
    has_room,
    miss_part,
    part_spans,
    unknown_or_miss,
)


@kernel_part
def _tokenize(word, n, model, scratch, out, o, ends):
    o, _ = bpe_word(word, 0, n, model, scratch, out, o, ends)
    return o, np.int64(0)


@kernel_part
def _from_sum(word, n, total, model, scratch, out, o):
    return o, total


@kernel_part
def _add(total, token, model):
    return total


@kernel
def _miss_part(arguments, k, o):
    return miss_part(False, _tokenize, _from_sum, _add, arguments, k, o)


@kernel
def _miss(arguments, k, o):
    return unknown_or_miss(_add, _miss_part, arguments, k, o)


@kernel_of_short_loops
def encode(tables, model, rows, added, scratch, state, work):
    """As `sentencepiece_unigram.encode`; model: models.bpe.BPETables, scratch: BPEScratch."""
    data, offsets = rows
    arguments = refer(PartsArguments(data, offsets, tables, model, scratch, state, work))
    return encode_rows(
        part_spans, FLAGGED, has_room, emit_all, _miss, end_row, arguments,
        data, offsets, added, tables, model, work,
    )  # fmt: skip
