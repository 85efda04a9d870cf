# SPDX-License-Identifier: Apache-2.0
"""BLOOM's pattern."""

import numpy as np

from tokenizer.compiling.kernel import kernel_part
from tokenizer.kernels.ascii_blocks import BLANKS, HIGH, SPACES, STOPS, classify, known_bits
from tokenizer.kernels.scanners_parts import BLANK, SIGN, SPACE, character, run_until

_ONE = np.uint64(1)


@kernel_part
def _begins_bloom_word(data, i, end, classes):
    """Returns where the first character of the word at i ends, after a blank if there is one; i if there is no word."""
    kind, after = character(data, i, classes)
    if data[i] == BLANK and after < end:
        kind, after = character(data, after, classes)
    return i if kind & (SPACE | SIGN) else after


@kernel_part
def next_bloom(data, i, end, classes):
    r"""` ?[^(\s|[.,!?…。，、।۔،])]+` isolated, so that what it does not match is a pre-token too; BLOOM.

    In its table SIGN is set for the two parentheses, the bar and the characters in the inner brackets.
    """
    after = _begins_bloom_word(data, i, end, classes)
    if after > i:
        return run_until(data, after, end, classes, SPACE | SIGN)
    _, i = character(data, i, classes)
    while i < end and _begins_bloom_word(data, i, end, classes) == i:
        _, i = character(data, i, classes)
    return i


@kernel_part
def bloom_starts(data, i):
    """See `ascii_blocks`, for `next_bloom`."""
    masks = classify(data, i)
    words = ~(masks[SPACES] | masks[STOPS] | masks[HIGH])
    first_in_run = words & ~(words << _ONE)
    taken = masks[BLANKS] & first_in_run >> _ONE
    others = (masks[SPACES] | masks[STOPS]) & ~taken
    starts = first_in_run & ~(taken << _ONE) | taken | others & ~(others << _ONE)
    return starts & known_bits(masks[HIGH]) | _ONE
