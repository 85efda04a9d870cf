# SPDX-License-Identifier: Apache-2.0
"""Spans of the encode loop: written into a batch, or found before; see `pattern_spans` for those that patterns find.

Each `..._spans`, with its first arguments bound, is a `next_spans` of `encode_loop.encode_rows`.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import count_ones, kernel_part, trailing_zeros
from tokenmill.tokenizer.kernels.encode_loop import AT, FLAGGED, JOINED, STOP
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
def add_span(kind, batch, n, at, stop, flag):
    """Adds a span to a batch that has n spans; the caller adds one to n."""
    k = np.uint64(n)
    batch[AT + k] = np.uint64(at) | flag
    if kind != JOINED:
        batch[STOP + k] = np.uint64(stop)


@kernel_part
def never_cut(data, at, stop, model, tallying):
    """Does not cut: a `cut` for models whose words are not cut."""
    return stop


@kernel_part
def found_spans(kind, cuts, cut, words, i, inner, end, model, work, n, o):
    """Adds the spans of words that have been found already; i is the number of a word of `words` (words.Words).

    kind: APART or FLAGGED; cuts: whether words are cut, by `cut` as in `pattern_spans`. `inner` is where the next part
    of word i begins, 0 for its beginning.
    """
    values, starts, stops, _ = words
    batch, limit = work.batch, work.limit
    n_words = np.int64(0)
    while i < end and n < limit:
        at, last = starts[i], stops[i]
        n_words += inner == 0
        if inner > 0:
            at = inner
        stop = cut(values, at, last, model, work.tallying) if cuts else last
        add_span(kind, batch, n, at, stop, FLAG if kind == FLAGGED and stop < last else np.uint64(0))
        n += 1
        inner = stop if stop < last else np.int64(0)
        i += stop == last
    return i, inner, n, n_words, o
