# SPDX-License-Identifier: Apache-2.0
"""CLIP's pattern, as HF's files have it."""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.ascii_blocks import (
    APOSTROPHES,
    DIGITS,
    HIGH,
    LETTERS,
    SPACES,
    classify,
    known_bits,
    run_stops,
    up_to,
)
from tokenmill.tokenizer.kernels.scanners_parts import (
    LETTER,
    NUMBER,
    SPACE,
    character,
    contraction_end,
    letters_end,
    run_until,
)

_ONE = np.uint64(1)


@kernel_part
def next_clip(data, i, end, classes):
    r"""CLIP as in HF's files; there is no white space at i, see `skip_spaces`.

    `'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+`, matches kept, the rest dropped.
    """
    stop = contraction_end(data, i, end, False, False)
    if stop > i:
        return stop
    kind, after = character(data, i, classes)
    if kind & LETTER:
        return letters_end(data, i, end, classes, LETTER)
    if kind & NUMBER:
        return after
    return run_until(data, after, end, classes, LETTER | NUMBER | SPACE)


@kernel_part
def clip_starts(data, i):
    """See `ascii_blocks`, for `next_clip`."""
    masks = classify(data, i)
    letters, digits, spaces = masks[LETTERS], masks[DIGITS], masks[SPACES]
    others = ~(letters | digits | spaces | masks[HIGH])
    first_others = others & ~(others << _ONE)
    starts = letters & ~(letters << _ONE) | digits | first_others
    # Possible contractions are left to the scanner.
    contractions = first_others & masks[APOSTROPHES] & letters >> _ONE
    return starts & known_bits(masks[HIGH]) & up_to(contractions) | _ONE


@kernel_part
def clip_stops(data, i):
    """See `ascii_blocks`, for `next_clip`."""
    masks = classify(data, i)
    letters, digits, spaces = masks[LETTERS], masks[DIGITS], masks[SPACES]
    others = ~(letters | digits | spaces | masks[HIGH])
    return run_stops((letters, others), digits)
