# SPDX-License-Identifier: Apache-2.0
"""The building blocks of scanners: runs of characters of one class, contractions, white space.

`data[i:end]` is valid UTF-8; `classes`, uint8[0x110000], has the bits of each code point. Bytes after `end` may be
read, never beyond the array, but do not affect the result.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part, load_u64, trailing_zeros
from tokenmill.tokenizer.kernels.ideographs import ideographs_end, is_ideograph
from tokenmill.tokenizer.kernels.utf8 import HIGH_BITS, LOW_BITS, decode_utf8

LETTER, NUMBER, SPACE, UPPER, LOWER, MARK, SIGN = 1, 2, 4, 8, 16, 32, 64
r"""`\p{L}`; `\p{N}`; `\s`; `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`; `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`; `\p{M}`; `[\p{P}\p{S}]`.
For `next_unicode_words` LETTER is `\w`."""

NEWLINE, RETURN, BLANK, APOSTROPHE, SLASH = 0x0A, 0x0D, 0x20, 0x27, 0x2F
_IDEOGRAPH = 0x5000
WHITE_LEADS = np.zeros(256, np.bool_)
WHITE_LEADS[[*range(0x80), 0xC2, 0xE1, 0xE2, 0xE3]] = True
"""The bytes that white space of any table may begin with."""
_CASE_BITS = np.uint64(0x2020202020202020)
_EIGHT_BLANKS = _CASE_BITS
# Summands that carry into the high bit of every byte that is at least `a`, past `z`.
_FROM_A = np.uint64(0x80 - ord("a")) * np.uint64(0x0101010101010101)
_PAST_Z = np.uint64(0x80 - ord("{")) * np.uint64(0x0101010101010101)


@kernel_part
def not_lower(eight):
    """Returns the high bit of every byte of eight that is not `a` to `z`, other bits 0."""
    low = eight & LOW_BITS
    return ~((low + _FROM_A) & ~(low + _PAST_Z) & ~eight) & HIGH_BITS


@kernel_part
def not_letters(eight):
    """Returns the high bit of every byte of eight that is no ASCII letter, other bits 0."""
    return not_lower(eight | _CASE_BITS)


@kernel_part
def leading_lower(eight):
    """Returns how many leading bytes of eight are `a` to `z`."""
    return trailing_zeros(not_lower(eight)) >> 3


@kernel_part
def leading_letters(eight):
    """Returns how many leading bytes of eight are ASCII letters."""
    return trailing_zeros(not_letters(eight)) >> 3


@kernel_part
def character(data, i, classes):
    """Returns the class of the character at byte i, and where the next one begins."""
    b = np.int64(data[i])
    if b < 128:
        return np.int64(classes[b]), i + 1
    code_point, after = decode_utf8(data, i)
    return np.int64(classes[code_point]), after


@kernel_part
def run_end(data, i, end, classes, mask):
    """Returns where the run of characters with a bit of `mask` ends."""
    has_ideographs = classes[_IDEOGRAPH] & mask != 0
    while i < end:
        if has_ideographs and data[i] >= 128:
            i = ideographs_end(data, i, end)
            if i == end:
                break
        kind, after = character(data, i, classes)
        if kind & mask == 0:
            break
        i = after
    return i


@kernel_part
def run_until(data, i, end, classes, mask):
    """Returns where the first character with a bit of `mask` begins, `end` if there is none."""
    while i < end:
        kind, after = character(data, i, classes)
        if kind & mask != 0:
            break
        i = after
    return i


@kernel_part
def letters_end(data, i, end, classes, mask):
    """Does `run_end` for a mask that has every ASCII letter and no other ASCII character."""
    has_ideographs = classes[_IDEOGRAPH] & mask != 0
    while i < end:
        b = data[i]
        if b < 128 and i + 8 <= data.size:
            n = leading_letters(load_u64(data, i))
            i += n
            if i >= end:
                return end
            if n < 8 and data[i] < 128:
                return i
        elif has_ideographs and b >= 128 and is_ideograph(data, i):
            i += 3
        else:
            kind, after = character(data, i, classes)
            if kind & mask == 0:
                return i
            i = after
    return i


@kernel_part
def lower_end(data, i, end, classes):
    """Does `run_end` with LOWER."""
    while i < end:
        if data[i] < 128 and i + 8 <= data.size:
            n = leading_lower(load_u64(data, i))
            i += n
            if i >= end:
                return end
            if n < 8 and data[i] < 128:
                return i
        else:
            kind, after = character(data, i, classes)
            if kind & LOWER == 0:
                return i
            i = after
    return i


@kernel_part
def numbers_end(data, i, end, classes, n_most):
    """Returns where the run of at most `n_most` numbers ends."""
    n = 0
    while i < end and n < n_most:
        kind, after = character(data, i, classes)
        if kind & NUMBER == 0:
            break
        i = after
        n += 1
    return i


@kernel_part
def newlines_end(data, i, end, or_slash):
    """Returns where the run of line ends, and of slashes if `or_slash`, ends."""
    while i < end and (data[i] == NEWLINE or data[i] == RETURN or (or_slash and data[i] == SLASH)):
        i += 1
    return i


@kernel_part
def contraction_end(data, i, end, any_case, long_s):
    """Returns where the `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll` or `'d` at i ends, i if there is none.

    With `long_s`, U+017F counts as an `s`, as when Unicode ignores case.
    """
    if i + 1 >= end or data[i] != APOSTROPHE:
        return i
    # Setting this bit maps a letter in both cases, and nothing else, to that letter.
    fold = 0x20 if any_case else 0
    first = np.int64(data[i + 1]) | fold
    if first == 0x73 or first == 0x74 or first == 0x6D or first == 0x64:
        return i + 2
    if i + 2 >= end:
        return i
    second = np.int64(data[i + 2]) | fold
    if (first == 0x72 or first == 0x76) and second == 0x65:
        return i + 3
    if first == 0x6C and second == 0x6C:
        return i + 3
    if long_s and data[i + 1] == 0xC5 and data[i + 2] == 0xBF:
        return i + 3
    return i


@kernel_part
def spaces_end(data, i, end, classes, newlines, final_whole):
    r"""Returns where the white space at i ends: `\s*[\r\n]+` if `newlines`, `\s+(?!\S)`, `\s+`, the first that matches.

    With `final_whole`, `\s+$` comes before all of them. Instead of backtracking,
    the run is read once, and its last character and its last newline are noted.
    """
    last = i
    newline_end = i
    j = i
    while j < end:
        if data[j] == BLANK and j + 8 <= data.size:
            n = trailing_zeros(load_u64(data, j) ^ _EIGHT_BLANKS) >> 3
            j = min(j + n, end)
            last = j - 1
            continue
        kind, after = character(data, j, classes)
        if kind & SPACE == 0:
            break
        if data[j] == NEWLINE or data[j] == RETURN:
            newline_end = after
        last = j
        j = after
    if final_whole and j == end:
        return j
    if newlines and newline_end > i:
        return newline_end
    if j == end or last == i:
        return j
    return last


@kernel_part
def ascii_word(data, i, end):
    """Returns where an optional space and a run of ASCII letters end, if the 16 bytes from i on can tell; else i.

    One load is enough for most words, without a branch on the first byte. A word that would end beyond `end` ends
    there, even if only the space is left of it.
    """
    if i + 16 > data.size:
        return i
    eight = load_u64(data, i)
    blank = np.uint64(eight & np.uint64(0xFF) == np.uint64(BLANK))
    others = not_letters(eight) & ~(blank << np.uint64(7))
    n = trailing_zeros(others) >> 3
    if n <= np.int64(blank):
        return i
    if n == 8:
        eight = load_u64(data, i + 8)
        others = not_letters(eight)
        if others == np.uint64(0):
            return i
        n += trailing_zeros(others) >> 3
    if i + n >= end:
        return end
    # The lowest set bit of `others` is the high bit of the byte after the word.
    return i if eight & others & (~others + np.uint64(1)) else i + n


@kernel_part
def ascii_cased_word(data, i, end):
    """Does `ascii_word` for words of lower-case letters whose first one may be upper-case."""
    if i + 16 > data.size:
        return i
    eight = load_u64(data, i)
    blank = np.uint64(eight & np.uint64(0xFF) == np.uint64(BLANK))
    others = not_lower(eight)
    capital = others & ~not_letters(eight) & (np.uint64(0x80) << (blank << np.uint64(3)))
    others &= ~(capital | (blank << np.uint64(7)))
    n = trailing_zeros(others) >> 3
    if n <= np.int64(blank) + np.int64(capital != np.uint64(0)):
        return i
    if n == 8:
        eight = load_u64(data, i + 8)
        others = not_lower(eight)
        if others == np.uint64(0):
            return i
        n += trailing_zeros(others) >> 3
    if i + n >= end:
        return end
    return i if eight & others & (~others + np.uint64(1)) else i + n


@kernel_part
def skip_spaces(data, i, end, classes):
    """Returns where the white space at i ends; called before each pre-token of scanners that drop white space."""
    while i < end and WHITE_LEADS[data[i]]:
        kind, after = character(data, i, classes)
        if kind & SPACE == 0:
            break
        i = after
    return i
