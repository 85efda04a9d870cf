# SPDX-License-Identifier: Apache-2.0
"""Finds where spaces are missing: between units of scripts that are written without, and around digits.

Its reference implementation is in `tests/reference/text_steps.py`; `tests/tokenizer/text/test_references.py` compares
them.
"""

import numpy as np

from tokenmill.tokenizer.kernels.text_parts import is_member_before, next_digit
from tokenmill.tokenizer.kernels.utf8 import decode_utf8, next_character, past_ascii
from tokenmill.tokenizer.normalizers.kernels.edit_lists import SPACE, add_edit, finder

OTHER, HIRAGANA, KATAKANA, HAN, THAI = range(5)
"""Kinds of characters. Runs of one kind of kana stay together; characters of the last two kinds are separated."""


@finder
def find_segments(data, i, end, row, tables, edits, n):
    """Finds where spaces must be inserted to separate units.

    Args:
      tables: uint8[0x110000], kinds, and ASCII is OTHER; bool[0x110000] three times: characters that belong to the one
        before them; that belong to the one after them; next to which no space is needed.
    """
    kinds, joins, leads, is_space = tables
    start = i
    before = np.int64(32)
    kind_before = np.int64(OTHER)
    while i < end:
        if data[i] < 128:
            code_point = np.int64(data[i])
            if kind_before == OTHER:
                after = past_ascii(data, i, end)
                if after > i:
                    before = np.int64(data[after - 1])
                    i = after
                    continue
            following = i + 1
        else:
            code_point, following = decode_utf8(data, i)
        kind = np.int64(kinds[code_point])
        if joins[code_point] and i > start and not is_space[before]:
            # It has the kind of the character that it belongs to.
            kind = kind_before
        elif (
            i > start
            and not (is_space[before] or is_space[code_point] or leads[before])
            and (kind != kind_before or kind >= HAN)
        ):
            n = add_edit(edits, n, i, i, SPACE)
        before = code_point
        kind_before = kind
        i = following
    return n


@finder
def find_isolated(data, i, end, row, tables, edits, n):
    """Finds where spaces must be inserted to isolate digits.

    Args:
      tables: bool[0x110000], the digits; bool[0x110000], characters next to which no space is needed;
        normalizers.tables.Skips: other characters; whether digits are separated from one another, too.
    """
    isolated, is_space, skips, each = tables
    first = i
    while True:
        i = next_digit(data, i, end, isolated, skips)
        if i == end:
            break
        if i > first and not is_member_before(data, i, is_space):
            n = add_edit(edits, n, i, i, SPACE)
        _, i = next_character(data, i)
        while i < end:
            code_point, following = next_character(data, i)
            if not isolated[code_point]:
                if not is_space[code_point]:
                    n = add_edit(edits, n, i, i, SPACE)
                break
            if each:
                n = add_edit(edits, n, i, i, SPACE)
            i = following
    return n
