# SPDX-License-Identifier: Apache-2.0
"""GPT-2's pattern, and CLIP's, as HF's files have it."""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.ascii_blocks import (
    APOSTROPHES,
    BLANKS,
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
    BLANK,
    LETTER,
    NUMBER,
    SPACE,
    ascii_word,
    character,
    contraction_end,
    letters_end,
    run_end,
    run_until,
    spaces_end,
)

_ONE = np.uint64(1)


@kernel_part
def next_gpt2(data, i, end, classes):
    r"""`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`."""
    stop = ascii_word(data, i, end)
    if stop > i:
        return stop
    stop = contraction_end(data, i, end, False, False)
    if stop > i:
        return stop
    start = i + 1 if data[i] == BLANK else i
    if start < end:
        kind, after = character(data, start, classes)
        if kind & LETTER:
            return letters_end(data, after, end, classes, LETTER)
        if kind & NUMBER:
            return run_end(data, after, end, classes, NUMBER)
        if kind & SPACE == 0:
            return run_until(data, after, end, classes, LETTER | NUMBER | SPACE)
    return spaces_end(data, i, end, classes, False, False)


@kernel_part
def gpt2_starts(data, i):
    """See `ascii_blocks`, for `next_gpt2`."""
    masks = classify(data, i)
    letters, digits, spaces, blanks = masks[LETTERS], masks[DIGITS], masks[SPACES], masks[BLANKS]
    others = ~(letters | digits | spaces | masks[HIGH])
    first_others = others & ~(others << _ONE)
    first_in_run = letters & ~(letters << _ONE) | digits & ~(digits << _ONE) | first_others
    after_blank = blanks << _ONE
    # A run includes one blank before it. Of longer white space the last character is a pre-token, and the rest another.
    starts = first_in_run & ~after_blank | spaces & ~(spaces << _ONE & spaces >> _ONE)
    # Possible contractions are left to the scanner.
    contractions = first_others & ~after_blank & masks[APOSTROPHES] & letters >> _ONE
    return starts & known_bits(masks[HIGH]) & up_to(contractions) | _ONE


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
