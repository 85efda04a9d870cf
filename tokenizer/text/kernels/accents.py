# SPDX-License-Identifier: Apache-2.0
"""Finds accents.

Its reference implementation is in `tests/reference/text_steps.py`; `tests/tokenizer/text/test_references.py` compares
them.
"""

from tokenmill.tokenizer.kernels.utf8 import next_active, next_character
from tokenmill.tokenizer.normalizers.kernels.edit_lists import NOTHING, add_edit, finder

MARK, LATIN = 1, 2
"""Kinds of characters: a mark, which is removed if its base loses accents; a base of the Latin script."""


@finder
def find_accents(data, i, end, row, tables, edits, n):
    """Finds characters with accents, and accents.

    Args:
      tables: uint8[0x110000], MARK, LATIN or neither; int32[0x110000], number of the text that replaces a character, 0
        if it stays, and text 0 is empty; normalizers.tables.Skips: ASCII, and characters that stay and are not Latin;
        whether marks stay after bases of other scripts.
    """
    kinds, texts, skips, only_latin = tables
    after_latin = not only_latin
    while i < end:
        start = next_active(data, i, end, skips)
        if start > i:
            after_latin = not only_latin or 0x61 <= data[start - 1] | 0x20 <= 0x7A
        if start == end:
            break
        code_point, i = next_character(data, start)
        if kinds[code_point] == MARK:
            if after_latin:
                n = add_edit(edits, n, start, i, NOTHING)
            continue
        after_latin = not only_latin or kinds[code_point] == LATIN
        if texts[code_point] > 0:
            n = add_edit(edits, n, start, i, texts[code_point])
    return n
