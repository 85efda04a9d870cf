# SPDX-License-Identifier: Apache-2.0
"""Characters of three bytes that are parts by themselves, from a table by code point: most of Chinese, for most models.

Where no token reaches across the right end of a character (see `bpe_crossings`), it is a part of its own wherever a
part begins with it. Its ids, at most three, then take one look instead of a search for the end of the part, a hash and
a search in the word cache.

A row of the table `characters`, int32[65536, 4], holds how many ids there are, with `MAY_CROSS` added where some token
reaches across the right end, and the ids; it is zeros until the character has been seen.
"""

import numpy as np

from tokenizer.kernels.bpe_crossings import may_cross_after
from tokenizer.kernels.compiling import kernel_part

MAY_CROSS = 4
_N_MASK = 3
_FIRST, _LAST = np.uint8(0xE1), np.uint8(0xEF)
"""First bytes; 0xE0 is that of the scripts of India, whose words have spaces and come back whole."""


@kernel_part
def _code_point(data, at):
    return np.int64(data[at] & 0x0F) << 12 | np.int64(data[at + 1] & 0x3F) << 6 | np.int64(data[at + 2] & 0x3F)


@kernel_part
def emit_characters(data, at, stop, longest_whole, characters, out, o):
    """Appends the ids of the characters that `data[at:stop]`, a word or what is left of it, begins with.

    Goes on as long as they are known to be parts of their own. What is left must not be an entry that only a whole word
    becomes, of at most `longest_whole` bytes. `out` has room for two more. Returns where it stopped, and the new o.
    """
    while at + 3 <= stop and _FIRST <= data[at] <= _LAST:
        left = stop - at - 3
        row = _code_point(data, at)
        n = np.int64(characters[row, 0])
        if n == 0 or (left > 0 and (n >= MAY_CROSS or left <= longest_whole)):
            break
        out[o] = characters[row, 1]
        out[o + 1] = characters[row, 2]
        out[o + 2] = characters[row, 3]
        o += n & _N_MASK
        at += 3
    return at, o


@kernel_part
def remember_character(data, at, w, model, characters, out, before, o):
    """Keeps the ids `out[before:o]` of the part `data[at:at + w]` if it is a character for the table.

    The part is no entry that only a whole word becomes; `data` goes on for eight bytes after `at`.
    """
    if w != 3 or not _FIRST <= data[at] <= _LAST or not model.plain_bytes or model.suffix.size > 0:
        return
    row = _code_point(data, at)
    n = o - before
    for q in range(n):
        characters[row, 1 + q] = out[before + q]
    characters[row, 0] = n | (MAY_CROSS if may_cross_after(model, data, at) else 0)
