# SPDX-License-Identifier: Apache-2.0
"""Handles the spans that the encode loop's table does not have: runs the model, and puts the ids into the table."""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part, load_u64, store_u64
from tokenmill.tokenizer.compiling.references import values_of
from tokenmill.tokenizer.kernels.encode_loop import AT, KEY_0, KEY_1, SLOT, STOP
from tokenmill.tokenizer.kernels.span_table import FLAG, MISSES, find_span, remember_span
from tokenmill.tokenizer.kernels.word_counters import add_count
from tokenmill.tokenizer.kernels.word_table import word_key_anywhere


@kernel_part
def copy_span(data, at, w, word):
    """Copies a span of w bytes to the beginning of `word`, which has room for eight bytes more."""
    q = 0
    if at + w + 8 <= data.size:
        while q < w:
            store_u64(word, q, load_u64(data, at + q))
            q += 8
    for r in range(q, w):
        word[r] = data[at + r]


@kernel_part
def miss_by(tokenize, arguments, k, o):
    """Appends the ids of span k of a batch and puts them in the table.

    Args:
      tokenize: runs the model: `tokenize(word, w, is_flagged, model, model_scratch, out, o, ends) -> (o, has_unknown)`.
      arguments: a reference to the text, the model, its scratch and the Work.
    """
    data, model, model_scratch, work = values_of(arguments)
    table, batch, out = work.table, work.batch, work.out
    flag = batch[AT + k] & FLAG
    at = np.int64(batch[AT + k] ^ flag)
    w = np.int64(batch[STOP + k]) - at
    k0, k1 = batch[KEY_0 + k], batch[KEY_1 + k]
    before = o
    o, found, has_unknown, j = find_span(table, data, at, w, k0, k1, batch[SLOT + k], out, o)
    if not found:
        copy_span(data, at, w, work.word)
        o, has_unknown = tokenize(work.word, w, flag != np.uint64(0), model, model_scratch, out, before, work.ends)
        table.state[MISSES] += 1
        if o == before or out[before] >= 0:  # else a character is unknown, and the whole call fails
            remember_span(table, data, at, w, k0, k1, j, out, before, o, has_unknown)
    if has_unknown and work.tallying:
        h0, h1 = word_key_anywhere(data, at, w)
        add_count(work.tally, data, at, w, h0, h1, 1)
    return o
