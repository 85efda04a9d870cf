# SPDX-License-Identifier: Apache-2.0
"""What a code point is to a scanner. Here, among the kernels, because their values are compiled in."""

N_CODE_POINTS = 0x110000

WORD, SPACE, ISOLATED, DROPPED, REORDERED = 0, 1, 2, 3, 4
"""Part of a word; a separator; a word of its own; nothing at all; part of a word whose place among its neighbours
canonical ordering decides."""

TAIL = 255
"""In `BertTables.combining`: a character that decomposes into a base of four bytes and a tail of class `TAIL_CLASS`."""
TAIL_CLASS = 216
