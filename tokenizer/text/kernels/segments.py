# SPDX-License-Identifier: Apache-2.0
"""Finds where units begin in scripts that are written without spaces.

Its slow twin is `tokenizer.text.segments.Segment.edits`; `tests/tokenizer/text/test_steps.py` compares them.
"""

import numpy as np

from tokenizer.compiling.kernel import kernel
from tokenizer.kernels.utf8 import decode_utf8, past_ascii
from tokenizer.text.kernels.edit_lists import add_edit

OTHER, HIRAGANA, KATAKANA, HAN, THAI = range(5)
"""Kinds of characters. Runs of one kind of kana stay together; characters of the last two kinds are separated."""

SPACE = 1
"""Number of the text that edits put in."""


@kernel
def find_segments(data, offsets, kinds, joins, leads, is_space, edits):
    """Finds where spaces must be inserted to separate units.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      kinds: uint8[0x110000]; ASCII is OTHER.
      joins: bool[0x110000], characters that belong to the one before them.
      leads: bool[0x110000], characters that belong to the one after them.
      is_space: bool[0x110000], next to which no space is needed.
      edits: int64[room, 3], filled with the first `room` edits.

    Returns:
      The number of edits, which may be more than `room`.
    """
    n = 0
    for row in range(offsets.size - 1):
        start = offsets[row]
        end = offsets[row + 1]
        i = start
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
