# SPDX-License-Identifier: Apache-2.0
"""Characters of three bytes that are parts by themselves, from a table by code point: most of Chinese, for most models.

Where no token reaches across the right end of a character (see `bpe_crossings`), it is a part of its own wherever a
part begins with it. Its ids, at most three, then take one look instead of a search for the end of the part, a hash and
a search in the word cache.

A row of the table `characters`, int32[n, 4], holds how many ids there are, with `MAY_CROSS` added where some token
reaches across the right end, and the ids; it is zeros until the character has been seen. Where a model ends words with
a suffix, a character at the end of a word has other ids, and another row, `END_ROWS` further on.
"""

import numpy as np

from tokenizer.kernels.bpe_crossings import character_value, may_cross, may_cross_after
from tokenizer.kernels.compiling import kernel_part
from tokenizer.kernels.utf8 import character_bytes

MAY_CROSS = 4
END_ROWS = 1 << 16
_N_MASK = 3
_FIRST, _LAST = np.uint8(0xE1), np.uint8(0xEF)
"""First bytes; 0xE0 is that of the scripts of India, whose words have spaces and come back whole."""


@kernel_part
def _code_point(data, at):
    return np.int64(data[at] & 0x0F) << 12 | np.int64(data[at + 1] & 0x3F) << 6 | np.int64(data[at + 2] & 0x3F)


@kernel_part
def _crosses(data, at, model):
    """Whether a token may reach across the right end of the character of three bytes at `at`, given the next one.

    `model` has `crossings` and `partial`, see bpe_crossings.
    """
    if at + 3 + 8 > data.size or data[at + 3] < 0x80:
        return True
    n = character_bytes(data[at + 3])
    return may_cross(model, character_value(data, at, 3), 3, character_value(data, at + 3, n), n)


@kernel_part
def emit_characters(data, at, stop, model, end_rows, characters, out, o):
    """Appends the ids of the characters that `data[at:stop]`, a word or what is left of it, begins with.

    Goes on as long as they are known to be parts of their own. What is left must not be an entry that only a whole word
    becomes. `end_rows` is END_ROWS for models with a suffix, else 0. `out` has room for two more. Returns where it
    stopped, and the new o.
    """
    while at + 3 <= stop and _FIRST <= data[at] <= _LAST:
        left = stop - at - 3
        row = _code_point(data, at)
        if left == 0:
            row += end_rows
        n = np.int64(characters[row, 0])
        if n == 0 or (left > 0 and (left <= model.longest_whole or (n >= MAY_CROSS and _crosses(data, at, model)))):
            break
        out[o] = characters[row, 1]
        out[o + 1] = characters[row, 2]
        out[o + 2] = characters[row, 3]
        o += n & _N_MASK
        at += 3
    return at, o


@kernel_part
def remember_character(data, at, w, model, rows, characters, out, before, o):
    """Keeps the ids `out[before:o]` of the part `data[at:at + w]` if it is a character for the table.

    The part is no entry that only a whole word becomes; `data` goes on for eight bytes after `at`. `model` has no
    suffix; `rows` is END_ROWS for what the suffix was behind, else 0.
    """
    if w != 3 or not _FIRST <= data[at] <= _LAST or not model.plain_bytes or model.suffix.size > 0:
        return
    row = _code_point(data, at) + rows
    n = o - before
    for q in range(n):
        characters[row, 1 + q] = out[before + q]
    characters[row, 0] = n | (MAY_CROSS if may_cross_after(model, data, at) else 0)
