# SPDX-License-Identifier: Apache-2.0
"""cl100k's pattern and its relatives: GPT-4, Llama 3, Qwen; and o200k's, which distinguishes case: GPT-4o, Llama 4."""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.ascii_blocks import below, up_to, word_starts
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
    ascii_word,
    character,
    contraction_end,
    letters_end,
    lower_end,
    newlines_end,
    numbers_end,
    run_until,
    spaces_end,
)

_ONE = np.uint64(1)


@kernel_part
def _next_like_cl100k(data, i, end, classes, letters, n_numbers, final_whole, long_s):
    """Scans like `next_cl100k`, for its variants: `letters` are the bits of a letter, `n_numbers` the most digits.

    Args:
      final_whole: whether white space at the end of the text is one pre-token.
      long_s: whether U+017F is an `s` of a contraction.
    """
    stop = ascii_word(data, i, end)
    if stop > i:
        return stop
    kind, after = character(data, i, classes)
    if kind & letters:
        return letters_end(data, after, end, classes, letters)
    if kind & NUMBER:
        return numbers_end(data, after, end, classes, n_numbers - 1)
    stop = contraction_end(data, i, end, True, long_s)
    if stop > i:
        return stop
    first = data[i]
    if after < end and first != NEWLINE and first != RETURN:
        next_kind, next_after = character(data, after, classes)
        if next_kind & letters:
            return letters_end(data, next_after, end, classes, letters)
        if first == BLANK and next_kind & (NUMBER | SPACE) == 0:
            stop = run_until(data, next_after, end, classes, letters | NUMBER | SPACE)
            return newlines_end(data, stop, end, False)
    if kind & SPACE == 0:
        stop = run_until(data, after, end, classes, letters | NUMBER | SPACE)
        return newlines_end(data, stop, end, False)
    return spaces_end(data, i, end, classes, True, final_whole)


@kernel_part
def next_cl100k(data, i, end, classes):
    r"""cl100k as HF has it, and Llama 3.

    `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
    ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`.
    """
    return _next_like_cl100k(data, i, end, classes, LETTER, 3, False, True)


@kernel_part
def next_cl100k_ascii(data, i, end, classes):
    r"""As `next_cl100k`, with `(?:'[sS]|'[tT]|'[rR][eE]|...)` in place of `(?i:'s|'t|'re|...)`: no U+017F."""
    return _next_like_cl100k(data, i, end, classes, LETTER, 3, False, False)


@kernel_part
def next_cl100k_tiktoken(data, i, end, classes):
    r"""cl100k as tiktoken has it: white space at the end of the text is one pre-token, whatever newlines it holds.

    `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|
    ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`.
    """
    return _next_like_cl100k(data, i, end, classes, LETTER, 3, True, True)


@kernel_part
def next_cl100k_ruby(data, i, end, classes):
    r"""What Oniguruma in HF makes of tiktoken's cl100k pattern, where `{1,3}+` is no possessive but `{1,}`."""
    return _next_like_cl100k(data, i, end, classes, LETTER, 1 << 62, True, True)


@kernel_part
def next_qwen2(data, i, end, classes):
    r"""As `next_cl100k`, with `\p{N}` in place of `\p{N}{1,3}`; Qwen2, Qwen2.5, Qwen3."""
    return _next_like_cl100k(data, i, end, classes, LETTER, 1, False, True)


@kernel_part
def next_qwen2_ascii(data, i, end, classes):
    r"""As `next_qwen2`, with `(?:'[sS]|...)` in place of `(?i:'s|...)`."""
    return _next_like_cl100k(data, i, end, classes, LETTER, 1, False, False)


@kernel_part
def next_qwen35(data, i, end, classes):
    r"""As `next_qwen2`, with `[\p{L}\p{M}]` in place of `\p{L}` except in `[^\r\n\p{L}\p{N}]?`; Qwen3.5."""
    return _next_like_cl100k(data, i, end, classes, LETTER | MARK, 1, False, True)


@kernel_part
def _like_cl100k_starts(data, i, n_numbers):
    """See `ascii_blocks`, for `_next_like_cl100k` with 1 or 3 digits in a pre-token at most; 0: with any number."""
    starts, first_apostrophes, letters, _ = word_starts(data, i, n_numbers, False)
    return starts & up_to(first_apostrophes & letters >> _ONE) | _ONE


@kernel_part
def cl100k_starts(data, i):
    """See `ascii_blocks`, for `next_cl100k`, `next_cl100k_ascii` and `next_cl100k_tiktoken`."""
    return _like_cl100k_starts(data, i, 3)


@kernel_part
def cl100k_ruby_starts(data, i):
    """See `ascii_blocks`, for `next_cl100k_ruby`."""
    return _like_cl100k_starts(data, i, 0)


@kernel_part
def qwen2_starts(data, i):
    """See `ascii_blocks`, for `next_qwen2`, `next_qwen2_ascii` and `next_qwen35`."""
    return _like_cl100k_starts(data, i, 1)


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
