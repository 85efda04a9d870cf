# SPDX-License-Identifier: Apache-2.0
"""The patterns of byte-level models as hand-written scanners: where does the pre-token that begins at byte i end?

Every scanner is `next_<name>(data, i, end, classes) -> stop`: `data[i:end]` is valid UTF-8 and not empty, and the
pre-token is `data[i:stop]`, `i < stop <= end`. `classes` is uint8[0x110000], bits that say what each code point is;
which table belongs to which scanner is told in `pre_tokenizers/scanner_patterns.py`. No scanner looks at what stands
before `i`, so pre-tokens may be found from any boundary on, and none looks at the same byte more than a few times,
however long the text.

Bytes after `end` may be read, never beyond the array, and never decide anything.
"""

import numpy as np

from tokenizer.kernels.compiling import kernel_part
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
    SIGN,
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
    run_end,
    run_until,
    spaces_end,
)  # fmt: skip

_START_OF_TEXT = tuple(b"<|startoftext|>")
_END_OF_TEXT = tuple(b"<|endoftext|>")


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
    return spaces_end(data, i, end, classes, False, False, 0)


@kernel_part
def next_gpt2_digits(data, i, end, classes):
    """`Digits(individual_digits=True)`, then `next_gpt2` on what lies between the digits; StarCoder, Command R."""
    stop = ascii_word(data, i, end)
    if stop > i:
        return stop
    stop = contraction_end(data, i, end, False, False)
    if stop > i:
        return stop
    kind, after = character(data, i, classes)
    if kind & NUMBER:
        return after
    if data[i] == BLANK and after < end:
        next_kind, next_after = character(data, after, classes)
        if next_kind & (NUMBER | SPACE) == 0:
            kind = next_kind
            after = next_after
    if kind & LETTER:
        return letters_end(data, after, end, classes, LETTER)
    if kind & SPACE == 0:
        return run_until(data, after, end, classes, LETTER | NUMBER | SPACE)
    return spaces_end(data, i, end, classes, False, False, NUMBER)


@kernel_part
def next_like_cl100k(data, i, end, classes, letters, n_numbers, final_whole, long_s):
    """As `next_cl100k`, with other bits for letters, up to so many digits in a pre-token, and more of a difference.

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
    return spaces_end(data, i, end, classes, True, final_whole, 0)


@kernel_part
def next_cl100k(data, i, end, classes):
    r"""cl100k as HF has it, and Llama 3.

    `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
    ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`.
    """
    return next_like_cl100k(data, i, end, classes, LETTER, 3, False, True)


@kernel_part
def next_cl100k_ascii(data, i, end, classes):
    r"""As `next_cl100k`, with `(?:'[sS]|'[tT]|'[rR][eE]|...)` in place of `(?i:'s|'t|'re|...)`: no U+017F."""
    return next_like_cl100k(data, i, end, classes, LETTER, 3, False, False)


@kernel_part
def next_cl100k_tiktoken(data, i, end, classes):
    r"""cl100k as tiktoken has it: white space at the end of the text is one pre-token, whatever newlines it holds.

    `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|
    ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`.
    """
    return next_like_cl100k(data, i, end, classes, LETTER, 3, True, True)


@kernel_part
def next_cl100k_ruby(data, i, end, classes):
    r"""What Oniguruma in HF makes of tiktoken's cl100k pattern, where `{1,3}+` is no possessive but `{1,}`."""
    return next_like_cl100k(data, i, end, classes, LETTER, 1 << 62, True, True)


@kernel_part
def next_qwen2(data, i, end, classes):
    r"""As `next_cl100k`, with `\p{N}` in place of `\p{N}{1,3}`; Qwen2, Qwen2.5, Qwen3."""
    return next_like_cl100k(data, i, end, classes, LETTER, 1, False, True)


@kernel_part
def next_qwen2_ascii(data, i, end, classes):
    r"""As `next_qwen2`, with `(?:'[sS]|...)` in place of `(?i:'s|...)`."""
    return next_like_cl100k(data, i, end, classes, LETTER, 1, False, False)


@kernel_part
def next_qwen35(data, i, end, classes):
    r"""As `next_qwen2`, with `[\p{L}\p{M}]` in place of `\p{L}` except in `[^\r\n\p{L}\p{N}]?`; Qwen3.5."""
    return next_like_cl100k(data, i, end, classes, LETTER | MARK, 1, False, True)


@kernel_part
def _cased_word_end(data, i, end, classes):
    """Returns where the word of `next_o200k`'s first two alternatives ends, without contraction; i where there is none.

    A word is upper-case, then lower-case characters, and marks, modifiers and letters without case are both. The
    pattern wants one of the lower-case kind if it can: where none follows the upper-case ones, it backtracks to the
    last that is both, and only where there is no such one may the word be all upper-case.
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
        # It could have been what may stand before a word, but then no word would end in the lower-case kind.
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
    r"""As `next_o200k` behind `[\p{Han}]+|`, no Han in its other words, no slashes behind signs; Kimi K2.

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
def _is_ascii_sign(b):
    return 0x21 <= b <= 0x2F or 0x3A <= b <= 0x40 or 0x5B <= b <= 0x60 or 0x7B <= b <= 0x7E


@kernel_part
def _unmatched_end(data, i, after, end, classes, kind, words):
    """Returns where the run of characters of just `kind` at i ends, without the last of them if a word follows."""
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
    """Returns where the pre-token ends whose first character, of `kind` and before `after`, is of DeepSeek's block.

    The third pattern cuts what the second isolated: UPPER are letters and marks of the block, LOWER signs, and the few
    others are matched by nothing unless a word follows.
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

    First `\p{N}{1,3}`, then `[一-龥぀-ゟ゠-ヿ]+` are isolated; these and what lies between are texts of their own to
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
    # Neither letter, number, sign nor space: matched by nothing, unless a word follows and takes one of them along.
    return _unmatched_end(data, i, after, end, classes, 0, LETTER | MARK)


@kernel_part
def _begins_bloom_word(data, i, end, classes):
    """Returns where the first character of the word at i ends, behind a blank if there is one; i where none begins."""
    kind, after = character(data, i, classes)
    if data[i] == BLANK and after < end:
        kind, after = character(data, after, classes)
    return i if kind & (SPACE | SIGN) else after


@kernel_part
def next_bloom(data, i, end, classes):
    r"""` ?[^(\s|[.,!?…。，、।۔،])]+` isolated, so that what it does not match is a pre-token too; BLOOM.

    In its table SIGN are the two parentheses, the bar and what is in the inner brackets.
    """
    after = _begins_bloom_word(data, i, end, classes)
    if after > i:
        return run_until(data, after, end, classes, SPACE | SIGN)
    _, i = character(data, i, classes)
    while i < end and _begins_bloom_word(data, i, end, classes) == i:
        _, i = character(data, i, classes)
    return i


@kernel_part
def _literal_end(data, i, end, literal):
    """Returns where `literal`, ASCII in lower case, ends if it stands at i in any case (U+017F is an `s`), else i."""
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
def next_digits(data, i, end, classes):
    """`Digits`: a run of numbers, or of what is none."""
    kind, after = character(data, i, classes)
    if kind & NUMBER:
        return run_end(data, after, end, classes, NUMBER)
    return run_until(data, after, end, classes, NUMBER)


@kernel_part
def next_digit(data, i, end, classes):
    """`Digits(individual_digits=True)`: one number, or a run of what is none."""
    kind, after = character(data, i, classes)
    if kind & NUMBER:
        return after
    return run_until(data, after, end, classes, NUMBER)


@kernel_part
def next_bert(data, i, end, classes):
    """`BertPreTokenizer`: one punctuation character (SIGN), or a run of others.

    There is no white space at i, see `skip_spaces`.
    """
    kind, after = character(data, i, classes)
    if kind & SIGN:
        return after
    return run_until(data, after, end, classes, SPACE | SIGN)
