# SPDX-License-Identifier: Apache-2.0
"""DeepSeek's three patterns as one scanner."""

from tokenizer.compiling.kernel import kernel_part
from tokenizer.kernels.scanners_parts import (
    BLANK,
    BLOCK,
    LETTER,
    LOWER,
    MARK,
    NEWLINE,
    NUMBER,
    RETURN,
    SIGN,
    SPACE,
    UPPER,
    ascii_word,
    character,
    letters_end,
    newlines_end,
    numbers_end,
    run_end,
    spaces_end,
)


@kernel_part
def _is_ascii_sign(b):
    return 0x21 <= b <= 0x2F or 0x3A <= b <= 0x40 or 0x5B <= b <= 0x60 or 0x7B <= b <= 0x7E


@kernel_part
def _unmatched_end(data, i, after, end, classes, kind, words):
    """Returns where the run of characters of exactly `kind` at i ends, without its last one if a word follows."""
    last = i
    while after < end:
        next_kind, beyond = character(data, after, classes)
        if next_kind != kind:
            return last if next_kind & words else after
        last = after
        after = beyond
    return after


@kernel_part
def _block_end(data, after, end, classes, kind):
    """Returns where the pre-token ends whose first character, of `kind` and ending at `after`, is in DeepSeek's block.

    The third pattern cuts what the second isolated. UPPER are letters and marks of the block, LOWER signs; the few
    others match nothing unless a word follows.
    """
    if kind & (UPPER | LOWER):
        return run_end(data, after, end, classes, kind & (UPPER | LOWER))
    if after < end:
        next_kind, next_after = character(data, after, classes)
        if next_kind & UPPER:
            return run_end(data, next_after, end, classes, UPPER)
    return _unmatched_end(data, after - 3, after, end, classes, BLOCK, UPPER)


@kernel_part
def next_deepseek(data, i, end, classes):
    r"""DeepSeek-V3 and R1, whose three `Split`s in a row are one scanner here.

    First `\p{N}{1,3}`, then `[一-龥぀-ゟ゠-ヿ]+` are isolated; these and the text between them are separate texts to
    `[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|
    \s*[\r\n]+|\s+(?!\S)|\s+` (and the grave accent among the first); what that does not match is a pre-token too.
    """
    wall = NUMBER | BLOCK
    stop = ascii_word(data, i, end)
    if stop > i:
        return stop
    first = data[i]
    kind, after = character(data, i, classes)
    if kind & (LETTER | MARK):
        return letters_end(data, after, end, classes, LETTER | MARK)
    if kind & BLOCK:
        return _block_end(data, after, end, classes, kind)
    if kind & NUMBER:
        return numbers_end(data, after, end, classes, 2)
    if after < end:
        if kind & SIGN:
            if _is_ascii_sign(first):
                stop = after
                while stop < end and (0x41 <= data[stop] <= 0x5A or 0x61 <= data[stop] <= 0x7A):
                    stop += 1
                if stop > after:
                    return stop
        else:
            next_kind, next_after = character(data, after, classes)
            if next_kind & (LETTER | MARK) and first != NEWLINE and first != RETURN:
                return letters_end(data, next_after, end, classes, LETTER | MARK)
            if first == BLANK and next_kind & SIGN:
                kind = next_kind
                after = next_after
    if kind & SIGN:
        stop = run_end(data, after, end, classes, SIGN)
        return newlines_end(data, stop, end, False)
    if kind & SPACE:
        return spaces_end(data, i, end, classes, True, False, wall)
    # Neither letter, number, sign nor space: nothing matches it, unless a word follows, which includes one of them.
    return _unmatched_end(data, i, after, end, classes, 0, LETTER | MARK)
