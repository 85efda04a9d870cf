# SPDX-License-Identifier: Apache-2.0
"""Spans of the encode loop: written into a batch, or found before; see `pattern_spans` for those that patterns find.

Its reference implementation is in `tests/reference/counting.py`; `tests/tokenizer/test_counting.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import count_ones, kernel_part, trailing_zeros
from tokenmill.tokenizer.kernels.bpe_crossings import next_cut
from tokenmill.tokenizer.kernels.by_address import fields_of
from tokenmill.tokenizer.kernels.encode_loop import AT, FLAGGED, STOP
from tokenmill.tokenizer.kernels.span_table import FLAG

_ONE = np.uint64(1)


@kernel_part
def expand(mask, base, column, batch, n):
    """Writes the places of a mask's bits into a column of the batch from row n on; returns the row after the last.

    They are written eight at a time, so the column has room for eight more.
    """
    m = n + count_ones(mask)
    p = column + np.uint64(n)
    last = column + np.uint64(m)
    while True:
        for q in range(8):
            batch[p + np.uint64(q)] = np.uint64(base + trailing_zeros(mask))
            mask &= mask - _ONE
        p += np.uint64(8)
        if p >= last:
            return m


@kernel_part
def add_span(batch, n, at, stop, flag):
    """Adds a span to a batch that has n spans; the caller adds one to n."""
    k = np.uint64(n)
    batch[AT + k] = np.uint64(at) | flag
    batch[STOP + k] = np.uint64(stop)


@kernel_part
def found_spans(own, loop, i, inner, end, n, o):
    """Adds the spans of words that have been found already; i is the number of a word. See `encode_loop.Steps`.

    own: a reference to words.Words and `bpe_crossings.WordCuts`. All parts of a word but the last have the FLAG, if
    the loop is FLAGGED. `inner` is where the next part of word i begins, 0 for its beginning.
    """
    words, cuts = fields_of(own)
    _, _, steps, work = fields_of(loop)
    values, starts, stops, _ = words
    batch, limit = work.batch, work.limit
    flag = FLAG * np.uint64(steps.kind == FLAGGED)
    n_words = np.int64(0)
    while i < end and n < limit:
        at, last = starts[i], stops[i]
        n_words += inner == 0
        if inner > 0:
            at = inner
        stop = next_cut(values, at, last, cuts, work.tallying)
        add_span(batch, n, at, stop, flag if stop < last else np.uint64(0))
        n += 1
        inner = stop if stop < last else np.int64(0)
        i += stop == last
    return i, inner, n, n_words, o
