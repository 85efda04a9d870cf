# SPDX-License-Identifier: Apache-2.0
"""Finds the spans of the encode loop by patterns: words, cut where no token reaches across.

Its reference implementation is `tokenmill.tokenizer.pre_tokenizers.patterns.find_segments`;
`tests/tokenizer/pre_tokenizers/test_automata.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part, leading_zeros
from tokenmill.tokenizer.kernels.automata import known_word, next_word, start_row
from tokenmill.tokenizer.kernels.blocks import AT_SEGMENT, AT_START, INSIDE, STRIDE, find_boundaries, put_places
from tokenmill.tokenizer.kernels.bpe_crossings import NEVER, next_cut
from tokenmill.tokenizer.kernels.by_address import fields_of
from tokenmill.tokenizer.kernels.encode_loop import AT, FLAGGED, JOINED, READS, STOP
from tokenmill.tokenizer.kernels.span_table import FLAG
from tokenmill.tokenizer.kernels.spans import add_span

_ONE = np.uint64(1)
_STRIDDEN = np.uint64((1 << STRIDE) - 1)
"""The places of a block that are not in the next one, too."""
_MOST_PARTS = 64
"""The most parts of a word that a batch may have beyond its limit."""


@kernel_part
def _joined_spans(data, i, end, patterns, work, n, n_readable):
    """Adds the words of ASCII from i on, where one is known to begin, as far as blocks find them.

    Returns where the next one begins, and the new n; the batch has room for the words of two blocks beyond its limit.
    """
    rules, batch, root = patterns.rules, work.batch, patterns.root
    starts, second, known = find_boundaries(data, i, end, rules, AT_START)
    while (known >> np.uint64(STRIDE)) & _ONE != np.uint64(0) and n < work.limit and i + STRIDE < n_readable:
        if second & _STRIDDEN != np.uint64(0):
            root[0] = i + 63 - leading_zeros(second & _STRIDDEN)
        n = put_places(starts & _STRIDDEN, i, AT, batch, n)
        i += STRIDE
        starts, second, known = find_boundaries(data, i, end, rules, INSIDE)
    if second != np.uint64(0):
        root[0] = i + 63 - leading_zeros(second)
    if starts == np.uint64(0):
        return np.int64(batch[AT + np.uint64(n - 1)]), n - 1
    return i + 63 - leading_zeros(starts), put_places(starts, i, AT, batch, n) - 1


@kernel_part
def _pattern_spans(is_joined, own, loop, i, inner, end, n, o):
    """Adds the words that patterns find, or their parts; see `encode_loop.Steps`. `inner` is where a word ends.

    own: a reference to automata.Cuts and `bpe_crossings.WordCuts`. If the loop is FLAGGED, all parts of a word but the
    last have the FLAG.
    """
    patterns, cuts = fields_of(own)
    data, _, steps, work = fields_of(loop)
    are_apart = not patterns.keeps_all
    inner_flag = FLAG * np.uint64(steps.kind == FLAGGED)
    batch, limit, n_readable = work.batch, work.limit, data.size - READS
    n_words = np.int64(0)
    start_row(own, loop, i, end)
    while True:
        while i < inner and n < limit + _MOST_PARTS:
            stop = next_cut(data, i, inner, cuts, work.tallying)
            add_span(batch, n, i, stop, inner_flag if stop < inner else np.uint64(0))
            n += 1
            i = stop
        if i < inner or i >= end or n >= limit:
            break
        if i < n_readable and data[i] < 128 and data[i + 1] < 128:
            if is_joined:
                after, m = _joined_spans(data, i, end, patterns, work, n, n_readable)
            else:
                after, m, what = i, n, AT_SEGMENT if are_apart else AT_START
                starts, second, _ = find_boundaries(data, i, end, patterns.rules, what)
                if starts & ~_ONE != np.uint64(0):
                    m = put_places(starts, i, AT, batch, n) - 1
                    put_places(second if are_apart else starts & ~_ONE, i, STOP, batch, n)
                    if second != np.uint64(0) and not are_apart:
                        patterns.root[0] = i + 63 - leading_zeros(second)
                    after = i + 63 - leading_zeros(starts)
            if after > i:
                n_words += m - n
                n, i = m, after
                continue
        stop, is_kept = known_word(data, i, end, patterns)
        if stop == i:
            stop, is_kept = next_word(own, loop, i, end)
        if are_apart and not is_kept:
            i = stop
            continue
        n_words += 1
        if cuts.by != NEVER and stop - i > 3 and (data[i] >= 128 or data[i + 1] >= 128):
            inner = stop
        else:
            add_span(batch, n, i, stop, np.uint64(0))
            n += 1
            i = stop
    batch[AT + np.uint64(n)] = np.uint64(i)  # where the last of JOINED spans stops
    return i, inner, n, n_words, o


@kernel_part
def pattern_spans(own, loop, i, inner, end, n, o):
    """See `_pattern_spans`."""
    _, _, steps, _ = fields_of(loop)
    if steps.kind == JOINED:
        return _pattern_spans(True, own, loop, i, inner, end, n, o)
    return _pattern_spans(False, own, loop, i, inner, end, n, o)
