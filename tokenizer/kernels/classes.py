# SPDX-License-Identifier: Apache-2.0
"""The classes of code points in BERT's tables. They are among the kernels because their values are compiled in."""

N_CODE_POINTS = 0x110000

WORD, SPACE, ISOLATED, DROPPED, REORDERED = 0, 1, 2, 3, 4
"""Part of a word; a separator; a word of its own; removed; part of a word that canonical ordering may move among its
neighbours."""

TAIL = 255
"""In `BertTables.combining`: a character that decomposes into a base of four bytes and a tail of class `TAIL_CLASS`."""
TAIL_CLASS = 216
