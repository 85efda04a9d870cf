# SPDX-License-Identifier: Apache-2.0
"""Finds the spans of the encode loop by patterns: words, cut where no token reaches across.

Its reference implementation is `tokenmill.tokenizer.pre_tokenizers.patterns.find_segments`;
`tests/tokenizer/pre_tokenizers/test_automata.py` compares them.
"""

from typing import Any

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part, leading_zeros
from tokenmill.tokenizer.compiling.references import values_of
from tokenmill.tokenizer.kernels.automata import known_word, next_word, start_row
from tokenmill.tokenizer.kernels.blocks import find_boundaries
from tokenmill.tokenizer.kernels.encode_loop import AT, FLAGGED, JOINED, STOP
from tokenmill.tokenizer.kernels.span_table import FLAG
from tokenmill.tokenizer.kernels.spans import add_span, expand, never_cut

_ONE = np.uint64(1)
_MOST_PARTS = 64
"""The most parts of a word that a batch may have beyond its limit."""


def spans_of_patterns(kind: int, are_apart: bool, cut: Any) -> Any:
    """Makes the `next_spans` that adds the words that patterns find, or their parts; `inner` is where a word ends.

    Args:
      kind: JOINED, APART, or FLAGGED: then all parts of a word except the last have the FLAG.
      are_apart: whether some segments are dropped.
      cut: `cut(data, at, stop, model, tallying)` returns where the part of a word that begins at `at` ends; None if
        words are not cut. While words with an unknown token are counted, such words must not be cut: what is counted
        would depend on the cuts.
    """
    cuts = cut is not None
    cut_word = cut or never_cut

    @kernel_part
    def next_spans(data, i, inner, end, patterns, model, work, n, n_readable, o):
        """See `encode_loop.encode_rows`; patterns: a reference, see `automata.next_word`."""
        batch, limit = work.batch, work.limit
        _, found, _ = values_of(patterns)
        n_words = np.int64(0)
        start_row(patterns, i, end)
        while True:
            if cuts and i < inner:
                while i < inner and n < limit + _MOST_PARTS:
                    stop = cut_word(data, i, inner, model, work.tallying)
                    flag = FLAG if kind == FLAGGED and stop < inner else np.uint64(0)
                    add_span(kind, batch, n, i, stop, flag)
                    n += 1
                    i = stop
                if i < inner:
                    break
            if i >= end or n >= limit:
                break
            if i < n_readable and data[i] < 128 and data[i + 1] < 128:
                starts, second = find_boundaries(data, i, end, found.rules, not are_apart)
                if starts & ~_ONE != np.uint64(0):
                    m = expand(starts, i, AT, batch, n) - 1
                    if are_apart:
                        expand(second, i, STOP, batch, n)
                    else:
                        if second != np.uint64(0):
                            found.root[0] = i + 63 - leading_zeros(second)
                        if kind != JOINED:
                            expand(starts & ~_ONE, i, STOP, batch, n)
                    n_words += m - n
                    n = m
                    i += 63 - leading_zeros(starts)
                    continue
            stop, is_kept = known_word(data, i, end, found)
            if stop == i:
                stop, is_kept = next_word(patterns, i, end)
            if are_apart and not is_kept:
                i = stop
                continue
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

    return next_spans
