# SPDX-License-Identifier: Apache-2.0
"""Finds emoji as whole grapheme clusters: families, flags, skin tones, keycaps.

Its reference implementation is in `tests/reference/text_steps.py`; `tests/tokenizer/text/test_references.py` compares
them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.text_parts import is_member_before
from tokenmill.tokenizer.kernels.utf8 import decode_utf8, next_active, next_character
from tokenmill.tokenizer.normalizers.kernels.edit_lists import NOTHING, SPACE, add_edit, finder

PICTOGRAPH, PRESENTED, FLAG, EXTEND, JOINER, EMOJI_STYLE, TEXT_STYLE, MODIFIER = 1, 2, 4, 8, 16, 32, 64, 128
"""Bits for the roles of a character: an extended pictograph; an emoji by itself; a regional indicator; joined to the
character before it; U+200D; U+FE0F; U+FE0E; a skin tone."""

UNITS, ISOLATE = 0, 1
"""The result of `find_emoji`: the units themselves, or the places where a space must be inserted."""
_KEYCAP = 0x20E3


@kernel_part
def _is_keycap_base(byte):
    return 0x30 <= byte <= 0x39 or byte == 0x23 or byte == 0x2A


@kernel_part
def _past_extenders(data, i, end, classes, joins):
    """Returns where the characters joined to the one before end; with `joins`, also pictographs after U+200D."""
    after_joiner = False
    while i < end and data[i] >= 128:
        code_point, following = decode_utf8(data, i)
        kind = classes[code_point]
        if kind & (EXTEND | JOINER) == 0 and not (joins and after_joiner and kind & PICTOGRAPH):
            break
        after_joiner = kind & JOINER != 0
        i = following
    return i


@kernel_part
def unit_end(data, i, end, classes):
    """Returns where the emoji that begins with the character at `i` ends, -1 if none begins there."""
    if data[i] < 128:
        if not _is_keycap_base(data[i]) or i + 1 >= end or data[i + 1] < 128:
            return -1
        code_point, following = decode_utf8(data, i + 1)
        if classes[code_point] & EMOJI_STYLE and following < end and data[following] >= 128:
            code_point, following = decode_utf8(data, following)
        return _past_extenders(data, following, end, classes, False) if code_point == _KEYCAP else -1
    code_point, following = decode_utf8(data, i)
    kind = classes[code_point]
    after = 0
    second = following
    if following < end and data[following] >= 128:
        code_point, second = decode_utf8(data, following)
        after = classes[code_point]
    if kind & FLAG:
        return _past_extenders(data, second if after & FLAG else following, end, classes, False)
    if (kind & PRESENTED and after & TEXT_STYLE == 0) or (kind & PICTOGRAPH and after & (EMOJI_STYLE | MODIFIER)):
        return _past_extenders(data, following, end, classes, True)
    return -1


@finder
def find_emoji(data, i, end, row, tables, edits, n):
    """Finds emoji.

    Args:
      tables: uint8[0x110000], the bits above; bool[0x110000], characters next to which no space is needed;
        normalizers.tables.Skips: characters that neither begin nor end an emoji, and ASCII; UNITS or ISOLATE.
    """
    classes, is_space, skips, mode = tables
    first = i
    last = first  # where the last unit ended
    inserted = np.int64(-1)
    while True:
        i = next_active(data, i, end, skips)
        if i == end:
            break
        start = i
        # A keycap is recognized by the characters after its digit.
        stop = np.int64(-1)
        if i > last and _is_keycap_base(data[i - 1]):
            stop = unit_end(data, i - 1, end, classes)
            start = i - 1
        if stop < 0:
            start = i
            stop = unit_end(data, i, end, classes)
        if stop < 0:
            _, i = decode_utf8(data, i)
            continue
        if mode == UNITS:
            n = add_edit(edits, n, start, stop, NOTHING)
        else:
            if start > first and start != inserted and not is_member_before(data, start, is_space):
                n = add_edit(edits, n, start, start, SPACE)
            if stop < end:
                code_point, _ = next_character(data, stop)
                if not is_space[code_point]:
                    n = add_edit(edits, n, stop, stop, SPACE)
                    inserted = stop
        last = stop
        i = stop
    return n
