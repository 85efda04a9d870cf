# SPDX-License-Identifier: Apache-2.0
"""CLIP's pattern, as HF has it and in OpenAI's code."""

import numpy as np

from tokenizer.compiling.kernel import kernel_part
from tokenizer.kernels.ascii_blocks import (
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
from tokenizer.kernels.scanners_parts import (
    LETTER,
    NUMBER,
    SPACE,
    character,
    contraction_end,
    letters_end,
    run_until,
)

_START_OF_TEXT = tuple(b"<|startoftext|>")
_END_OF_TEXT = tuple(b"<|endoftext|>")

_ONE = np.uint64(1)


@kernel_part
def _literal_end(data, i, end, literal):
    """Returns where `literal`, lower-case ASCII, ends if it is at i in any case (U+017F counts as `s`), else i."""
    j = i
    for q in range(len(literal)):
        if j >= end:
            return i
        wanted = literal[q]
        b = np.int64(data[j])
        if b == wanted or (0x61 <= wanted <= 0x7A and b | 0x20 == wanted):
            j += 1
        elif wanted == 0x73 and b == 0xC5 and j + 1 < end and data[j + 1] == 0xBF:
            j += 2
        else:
            return i
    return j


@kernel_part
def _next_clip(data, i, end, classes, any_case):
    stop = contraction_end(data, i, end, any_case, any_case)
    if stop > i:
        return stop
    kind, after = character(data, i, classes)
    if kind & LETTER:
        return letters_end(data, i, end, classes, LETTER)
    if kind & NUMBER:
        return after
    return run_until(data, after, end, classes, LETTER | NUMBER | SPACE)


@kernel_part
def next_clip(data, i, end, classes):
    r"""CLIP as in HF's files; there is no white space at i, see `skip_spaces`.

    `'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+`, matches kept, the rest dropped.
    """
    return _next_clip(data, i, end, classes, False)


@kernel_part
def next_clip_openai(data, i, end, classes):
    r"""CLIP as in OpenAI's code, whose pattern ignores case and has the two special tokens first."""
    if data[i] == 0x3C:
        stop = _literal_end(data, i, end, _START_OF_TEXT)
        if stop == i:
            stop = _literal_end(data, i, end, _END_OF_TEXT)
        if stop > i:
            return stop
    return _next_clip(data, i, end, classes, True)


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
