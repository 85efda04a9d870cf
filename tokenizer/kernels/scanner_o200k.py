# SPDX-License-Identifier: Apache-2.0
"""o200k's pattern and its relatives, which distinguish case: GPT-4o, Llama 4, Mistral's Tekken, Kimi K2."""

import numpy as np

from tokenizer.compiling.kernel import kernel_part
from tokenizer.kernels.ascii_blocks import below, word_starts
from tokenizer.kernels.ideographs import ideographs_end
from tokenizer.kernels.scanners_parts import (
    BLANK,
    BLOCK,
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
def _next_o200k(data, i, end, classes, n_numbers, contractions, slashes):
    stop = ascii_cased_word(data, i, end)
    if stop == i:
        stop = _cased_word_end(data, i, end, classes)
    if stop > i:
        return contraction_end(data, stop, end, True, True) if contractions else stop
    kind, after = character(data, i, classes)
    if kind & NUMBER:
        return numbers_end(data, after, end, classes, n_numbers - 1)
    if data[i] == BLANK and after < end:
        next_kind, next_after = character(data, after, classes)
        if next_kind & (LETTER | NUMBER | SPACE) == 0:
            kind = next_kind
            after = next_after
    if kind & SPACE == 0:
        stop = run_until(data, after, end, classes, LETTER | NUMBER | SPACE)
        return newlines_end(data, stop, end, slashes)
    return spaces_end(data, i, end, classes, True, False, 0)


@kernel_part
def next_o200k(data, i, end, classes):
    r"""GPT-4o, gpt-oss, Llama 4.

    `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?`,
    `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?`,
    `\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`.
    """
    return _next_o200k(data, i, end, classes, 3, True, True)


@kernel_part
def next_tekken(data, i, end, classes):
    r"""As `next_o200k`, without contractions, with `\p{N}` in place of `\p{N}{1,3}`; Mistral's Tekken."""
    return _next_o200k(data, i, end, classes, 1, False, True)


@kernel_part
def next_kimi_k2(data, i, end, classes):
    r"""As `next_o200k` after `[\p{Han}]+|`, without Han in other words and slashes after signs; Kimi K2.

    In its table Han is BLOCK, and neither UPPER nor LOWER.
    """
    if data[i] < 128 or character(data, i, classes)[0] & BLOCK == 0:
        return _next_o200k(data, i, end, classes, 3, True, False)
    while i < end and data[i] >= 128:
        i = ideographs_end(data, i, end)
        if i == end:
            break
        kind, after = character(data, i, classes)
        if kind & BLOCK == 0:
            break
        i = after
    return i


@kernel_part
def _o200k_starts(data, i, slashes):
    starts, _, letters, apostrophes = word_starts(data, i, 3, True, slashes)
    # A contraction belongs to the word before it.
    return starts & below(apostrophes & letters << _ONE & letters >> _ONE) | _ONE


@kernel_part
def o200k_starts(data, i):
    """See `ascii_blocks`, for `next_o200k`."""
    return _o200k_starts(data, i, True)


@kernel_part
def kimi_k2_starts(data, i):
    """See `ascii_blocks`, for `next_kimi_k2`."""
    return _o200k_starts(data, i, False)


@kernel_part
def tekken_starts(data, i):
    """See `ascii_blocks`, for `next_tekken`."""
    starts, _, _, _ = word_starts(data, i, 1, True, True)
    return starts | _ONE
