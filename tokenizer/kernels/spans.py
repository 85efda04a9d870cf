# SPDX-License-Identifier: Apache-2.0
"""Finds the spans of the encode loop: words that a scanner finds, cut where no token reaches across.

Each `..._spans`, with its first arguments bound, is a `next_spans` of `encode_loop.encode_rows`.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import count_ones, kernel_part, leading_zeros, trailing_zeros
from tokenmill.tokenizer.kernels.encode_loop import AT, FLAGGED, JOINED, STOP
from tokenmill.tokenizer.kernels.span_table import FLAG

_ONE, _TWO = np.uint64(1), np.uint64(2)
_MOST_PARTS = 64
"""The most parts of a word that a batch may have beyond its limit."""


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
def ascii_starts(word_starts, data, i, end):
    """Returns a bit for each word that starts from i on, bit 0 for i, as far as known; 1 if nothing is known.

    word_starts: a function of `ascii_blocks`.
    """
    # Drops the bits beyond the text, and those that depend on bytes there.
    room = min(end - i, 65)
    if room > 2 and data[i] < 128 and data[i + 1] < 128:
        return word_starts(data, i) & ((_TWO << np.uint64(room - 2)) - _ONE)
    return _ONE


@kernel_part
def never_cut(data, at, stop, model, tallying):
    """Does not cut: a `cut` for models whose words are not cut."""
    return stop


@kernel_part
def scanned_spans(
    kind, are_apart, cuts, next_start, find_starts, word_stops, next_stop, cut, data, i, inner, end, classes, model,
    work, n, n_readable, o,
):  # fmt: skip
    """Adds the words that a scanner finds, or their parts; inside a word, `inner` is where it ends.

    Args:
      kind: JOINED, APART, or FLAGGED: then all parts of a word except the last have the FLAG.
      are_apart: whether white space separates words, a constant.
      cuts: whether words are cut at all, a constant.
      next_start: `next_start(data, i, end, classes)` skips what is between words.
      find_starts: `find_starts(data, i, end, classes)` returns a bit for each word that starts in the 64 bytes from i
        on; word_stops: `word_stops(data, i)` a bit for each that stops.
      next_stop: the scanner, see `scanning.SCANNERS`.
      cut: `cut(data, at, stop, model, tallying)` returns where the part of a word that begins at `at` ends. While words
        with an unknown token are counted, such words must not be cut: what is counted would depend on the cuts.
    """
    batch, limit = work.batch, work.limit
    n_words = np.int64(0)
    while True:
        if cuts and i < inner:
            while i < inner and n < limit + _MOST_PARTS:
                stop = cut(data, i, inner, model, work.tallying)
                flag = FLAG if kind == FLAGGED and stop < inner else np.uint64(0)
                add_span(kind, batch, n, i, stop, flag)
                n += 1
                i = stop
            if i < inner:
                break
        i = next_start(data, i, end, classes)
        if i >= end or n >= limit:
            break
        if i < n_readable:
            starts = find_starts(data, i, end, classes) | _ONE
            if starts != _ONE:
                m = expand(starts, i, AT, batch, n) - 1
                if are_apart:
                    expand(word_stops(data, i), i, STOP, batch, n)
                elif kind != JOINED:
                    expand(starts & ~_ONE, i, STOP, batch, n)
                n_words += m - n
                n = m
                i += 63 - leading_zeros(starts)
                continue
        stop = next_stop(data, i, end, classes)
        n_words += 1
        if cuts and stop - i > 3 and (data[i] >= 128 or data[i + 1] >= 128):
            inner = stop
        else:
            add_span(kind, batch, n, i, stop, np.uint64(0))
            n += 1
            i = stop
    if kind == JOINED:
        batch[AT + np.uint64(n)] = np.uint64(i)
    return i, inner, n, n_words, o


@kernel_part
def found_spans(kind, cuts, cut, words, i, inner, end, model, work, n, o):
    """Adds the spans of words that have been found already; i is the number of a word of `words` (words.Words).

    kind: APART or FLAGGED, and `cuts`, `cut`: as in `scanned_spans`. `inner` is where the next part of word i begins, 0
    for its beginning.
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
