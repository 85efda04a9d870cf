# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's character map, applied as HF tokenizers does it: grapheme by grapheme.

The map is a double-array trie from UTF-8 to places in a pool of texts that end with NUL. A grapheme of less than six
bytes becomes, as a whole, the text of its *shortest* prefix in the trie. If no prefix is there, and in longer
graphemes, the same is done for each character by itself.

Its reference implementation is in `tests/reference/precompiled.py`; `tests/tokenizer/normalizers/test_precompiled.py`
compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64, trailing_zeros
from tokenmill.tokenizer.kernels.utf8 import HIGH_BITS, next_character, unskipped, write_utf8
from tokenmill.tokenizer.normalizers.kernels.edit_lists import add_edit, finder

ANY, CR, LF, CONTROL, EXTEND, ZWJ, SPACING_MARK, PREPEND = 0, 1, 2, 3, 4, 5, 6, 7
PICTOGRAPH, CONSONANT, HANGUL_L, HANGUL_V, HANGUL_T, HANGUL_LV, HANGUL_LVT = 8, 9, 10, 11, 12, 13, 14
"""The categories of characters in grapheme clusters (Unicode, UAX 29). Regional indicators are ANY: each has four
bytes, so it makes no difference whether two of them are one grapheme or two."""
CATEGORY = 15
LINKER, CONJUNCT_EXTEND = 16, 32
"""Bits in addition to the category."""

SHORT_GRAPHEME = 6
"""Graphemes of this many bytes or more are mapped character by character."""


@kernel_part
def _shortest_prefix(units, texts, data, start, stop):
    """Returns where in the pool the text of the shortest prefix of `data[start:stop]` begins, -1 if there is none."""
    unit = np.int64(units[0])
    node = (unit >> 10) << ((unit & 512) >> 6)
    for i in range(start, stop):
        byte = np.int64(data[i])
        if byte == 0:
            return -1
        node ^= byte
        if node >= units.size:
            return -1
        unit = np.int64(units[node])
        if unit & 0x800000FF != byte:
            return -1
        node ^= (unit >> 10) << ((unit & 512) >> 6)
        if unit & 256:
            if node >= units.size:
                return -1
            value = np.int64(units[node]) & 0x7FFFFFFF
            # Any other place means a broken map, which must not break the text too.
            return value if value < texts.starts.size and texts.pool[value] & 0xC0 != 0x80 else -1
    return -1


@kernel
def texts_of_characters(units, texts, encoded, places):
    """Looks up every character.

    Args:
      units: uint32[n], the trie; texts: edit_lists.Texts, one for each place in their pool.
      encoded: uint8[4], for work.
      places: int32[0x110000], filled: one more than where the text of each character begins in the pool; 0 for none.
    """
    for code_point in range(1, places.size):
        if code_point < 0xD800 or code_point > 0xDFFF:
            places[code_point] = 1 + _shortest_prefix(units, texts, encoded, 0, write_utf8(code_point, encoded, 0))


@kernel_part
def _is_joined(before, after, conjunct, pictograph):
    """Whether two neighbours are in one grapheme; see `find_mapped` for the last two."""
    a = before & CATEGORY
    b = after & CATEGORY
    if a == CR and b == LF:
        return True
    if (CR <= a <= CONTROL) or (CR <= b <= CONTROL):
        return False
    if EXTEND <= b <= SPACING_MARK or a == PREPEND:
        return True
    if b == CONSONANT:
        return conjunct == 2
    if b == PICTOGRAPH:
        return pictograph == 2
    if b < HANGUL_L:
        return False
    if a == HANGUL_L:
        return b != HANGUL_T
    if a in (HANGUL_LV, HANGUL_V):
        return b in (HANGUL_V, HANGUL_T)
    return a in (HANGUL_LVT, HANGUL_T) and b == HANGUL_T


@kernel_part
def _conjunct_after(state, graphemes):
    """Returns the next state. 0: no consonant; 1: one, then only parts of a conjunct; 2: with a linker among these."""
    if graphemes & CATEGORY == CONSONANT:
        return 1
    if graphemes & LINKER:
        return 2 if state > 0 else 0
    return state if graphemes & CONJUNCT_EXTEND else 0


@kernel_part
def _pictograph_after(state, graphemes):
    """Returns the next state. 0: no pictograph; 1: a pictograph, then only EXTEND; 2: then a ZWJ, and nothing since."""
    category = graphemes & CATEGORY
    if category == PICTOGRAPH:
        return 1
    if category == ZWJ:
        return 2 if state == 1 else 0
    return 1 if state == 1 and category == EXTEND else 0


@finder
def find_mapped(data, i, end, row, tables, edits, n):
    """Finds graphemes and characters that the map changes, with their places in the pool.

    Args:
      tables: normalizers.tables.CharsMap.
    """
    (mapping,) = tables
    while i < end:
        # A grapheme begins at `i`.
        if i + 8 <= end:
            eight = load_u64(data, i)
            # Up to the first byte that is not plain ASCII; the last byte may begin a longer grapheme.
            n_plain = (trailing_zeros((unskipped(eight, mapping.skips) | eight) & HIGH_BITS) >> 3) - 1
            if n_plain > 0:
                i += n_plain
                continue
            step = np.int64(mapping.skips.steps[data[i]])
            # The next character joins nothing if it is such a character too, or ASCII.
            if step > 0 and (data[i + step] < 128 or mapping.skips.steps[data[i + step]] > 0):
                i += step
                continue
        start = i
        first, i = next_character(data, i)
        after_first = i
        here = mapping.graphemes[first]
        conjunct = _conjunct_after(0, here)
        pictograph = _pictograph_after(0, here)
        while i < end:
            code_point, following = next_character(data, i)
            graphemes = mapping.graphemes[code_point]
            if not _is_joined(here, graphemes, conjunct, pictograph):
                break
            here = graphemes
            conjunct = _conjunct_after(conjunct, graphemes)
            pictograph = _pictograph_after(pictograph, graphemes)
            i = following
        stop = i
        if after_first < stop and stop - start < SHORT_GRAPHEME:
            place = _shortest_prefix(mapping.units, mapping.texts, data, start, stop)
            if place >= 0:
                n = add_edit(edits, n, start, stop, place)
                continue
        i = start
        while i < stop:
            start = i
            code_point, i = next_character(data, i)
            place = np.int64(mapping.places[code_point]) - 1
            if place >= 0:
                n = add_edit(edits, n, start, i, place)
    return n
