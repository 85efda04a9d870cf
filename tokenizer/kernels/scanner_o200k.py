# SPDX-License-Identifier: Apache-2.0
"""o200k's pattern, which distinguishes case: GPT-4o, Llama 4."""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.ascii_blocks import below, word_starts
from tokenmill.tokenizer.kernels.scanners_parts import (
    BLANK,
    LETTER,
    LOWER,
    MARK,
    NEWLINE,
    NUMBER,
    RETURN,
    SPACE,
    UPPER,
    ascii_cased_word,
    character,
    contraction_end,
    lower_end,
    newlines_end,
    numbers_end,
    run_until,
    spaces_end,
)

_ONE = np.uint64(1)


@kernel_part
def _cased_word_end(data, i, end, classes):
    """Returns where the word of `next_o200k`'s first two alternatives ends, without contraction; i if there is none.

    A word is upper-case, then lower-case characters; marks, modifiers and letters without case count as both. The first
    alternative needs a lower-case character: if none follows the upper-case ones, it backtracks to the last that is
    both, and only if there is none, the word may be all upper-case.
    """
    kind, after = character(data, i, classes)
    start = i
    if kind & LETTER == 0:
        if kind & NUMBER or data[i] == NEWLINE or data[i] == RETURN:
            return i
        start = after
    stop = start
    last_of_both = start
    while stop < end:
        next_kind, next_after = character(data, stop, classes)
        if next_kind & UPPER == 0:
            if next_kind & LOWER:
                return lower_end(data, next_after, end, classes)
            break
        stop = next_after
        if next_kind & LOWER:
            last_of_both = stop
    if last_of_both > start:
        return last_of_both
    if kind & MARK:
        # It could be the character that may precede a word, but then no word would end in a lower-case character.
        return after
    return stop if stop > start else i


@kernel_part
def next_o200k(data, i, end, classes):
    r"""GPT-4o, gpt-oss, Llama 4.

    `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?`,
    `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?`,
    `\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`.
    """
    stop = ascii_cased_word(data, i, end)
    if stop == i:
        stop = _cased_word_end(data, i, end, classes)
    if stop > i:
        return contraction_end(data, stop, end, True, True)
    kind, after = character(data, i, classes)
    if kind & NUMBER:
        return numbers_end(data, after, end, classes, 2)
    if data[i] == BLANK and after < end:
        next_kind, next_after = character(data, after, classes)
        if next_kind & (LETTER | NUMBER | SPACE) == 0:
            kind = next_kind
            after = next_after
    if kind & SPACE == 0:
        stop = run_until(data, after, end, classes, LETTER | NUMBER | SPACE)
        return newlines_end(data, stop, end, True)
    return spaces_end(data, i, end, classes, True, False)


@kernel_part
def o200k_starts(data, i):
    """See `ascii_blocks`, for `next_o200k`."""
    starts, _, letters, apostrophes = word_starts(data, i, 3, True)
    # A contraction belongs to the word before it.
    return starts & below(apostrophes & letters << _ONE & letters >> _ONE) | _ONE
