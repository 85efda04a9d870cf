# SPDX-License-Identifier: Apache-2.0
r"""Plain words: between white space, `\w+|[^\w\s]+`, and BERT's."""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.ascii_blocks import (
    DIGITS,
    HIGH,
    LETTERS,
    SIGNS,
    SPACES,
    UNDERSCORES,
    classify,
    known_bits,
    run_stops,
)
from tokenmill.tokenizer.kernels.scanners_parts import LETTER, SIGN, SPACE, character, run_end, run_until

_ONE = np.uint64(1)


@kernel_part
def next_nonspace(data, i, end, classes):
    """`WhitespaceSplit`: everything up to the next white space; there is none at i, see `skip_spaces`."""
    return run_until(data, i, end, classes, SPACE)


@kernel_part
def next_unicode_words(data, i, end, classes):
    r"""`Whitespace`, `\w+|[^\w\s]+`; there is no white space at i, see `skip_spaces`."""
    kind, after = character(data, i, classes)
    if kind & LETTER:
        return run_end(data, after, end, classes, LETTER)
    return run_until(data, after, end, classes, LETTER | SPACE)


@kernel_part
def next_bert(data, i, end, classes):
    """`BertPreTokenizer`: one punctuation character (SIGN), or a run of others.

    There is no white space at i, see `skip_spaces`.
    """
    kind, after = character(data, i, classes)
    if kind & SIGN:
        return after
    return run_until(data, after, end, classes, SPACE | SIGN)


@kernel_part
def nonspace_starts(data, i):
    """See `ascii_blocks`, for `next_nonspace`."""
    masks = classify(data, i)
    words = ~(masks[SPACES] | masks[HIGH])
    return words & ~(words << _ONE) & known_bits(masks[HIGH]) | _ONE


@kernel_part
def nonspace_stops(data, i):
    """See `ascii_blocks`, for `next_nonspace`."""
    masks = classify(data, i)
    return run_stops((~(masks[SPACES] | masks[HIGH]),), np.uint64(0))


@kernel_part
def unicode_words_starts(data, i):
    """See `ascii_blocks`, for `next_unicode_words`."""
    masks = classify(data, i)
    words = masks[LETTERS] | masks[DIGITS] | masks[UNDERSCORES]
    others = ~(words | masks[SPACES] | masks[HIGH])
    starts = words & ~(words << _ONE) | others & ~(others << _ONE)
    return starts & known_bits(masks[HIGH]) | _ONE


@kernel_part
def unicode_words_stops(data, i):
    """See `ascii_blocks`, for `next_unicode_words`."""
    masks = classify(data, i)
    words = masks[LETTERS] | masks[DIGITS] | masks[UNDERSCORES]
    return run_stops((words, ~(words | masks[SPACES] | masks[HIGH])), np.uint64(0))


@kernel_part
def bert_starts(data, i):
    """See `ascii_blocks`, for `next_bert`."""
    masks = classify(data, i)
    signs = masks[SIGNS]
    words = ~(signs | masks[SPACES] | masks[HIGH])
    return (words & ~(words << _ONE) | signs) & known_bits(masks[HIGH]) | _ONE


@kernel_part
def bert_stops(data, i):
    """See `ascii_blocks`, for `next_bert`."""
    masks = classify(data, i)
    signs = masks[SIGNS]
    return run_stops((~(signs | masks[SPACES] | masks[HIGH]),), signs)
