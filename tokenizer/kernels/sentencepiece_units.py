# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's text in parts that can be normalized and encoded one by one, straight from the raw bytes.

A row is cut into *units*, before runs of spaces, where no piece and no key of the character map reaches across. Units
are cut into *parts*: between two characters that become one character each, whatever their neighbours, and whose
results are neighbours in no piece. The ids of a part then depend only on its bytes and its `front`, so the table of the
loop can be asked for the raw bytes, before anything is normalized.

One code point is described by an int64, its *entry* (`KnownTables.characters`):

    63 .. 44  what a part of only that character becomes: an id, or one of the negative numbers below
    43, 42    IS_CONTROL, IS_SEPARATOR: the kind of an ASCII byte, see below
    41        IS_DEPENDENT: what it becomes depends on its neighbours, or is nothing, or several characters
    40        IS_ALONE: it becomes one character that no piece has next to another one: always a part of its own
    39 .. 20  for the character that it becomes: its half, as the first of a pair, of the place in a set of bits
              (`KnownTables.joins`) that says whether some piece has the pair
    19 .. 0   its half as the second of a pair

Its reference implementation is
`tokenmill.tokenizer.normalizers.sentencepiece.SentencePieceNormalizer.trace`;
`tests/tokenizer/engines/test_sentencepiece_rows.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64, trailing_zeros
from tokenmill.tokenizer.kernels.sentencepiece import (
    ends_in_mark,
    label_of,
    link_children,
    normalize_text,
    offset_of,
    put_space,
)
from tokenmill.tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS, LOW_BITS, decode_utf8

# The kinds of ASCII bytes (`KnownTables.kinds`): part of a word, a space, or a control character that is always alone.
WORD, SEPARATOR, ALONE = 0, 1, 2

# Instead of the id of a character: its neighbours may matter; it becomes the unknown token; it becomes byte pieces.
DEPENDS, BECOMES_UNKNOWN, BECOMES_BYTES = -1, -2, -3

JOIN_BITS = 20
_JOIN_MASK = np.uint64((1 << JOIN_BITS) - 1)
_LEFT_SHIFT = np.uint64(JOIN_BITS)
_FLAG_BITS = range(2 * JOIN_BITS, 2 * JOIN_BITS + 4)
IS_ALONE, IS_DEPENDENT, IS_SEPARATOR, IS_CONTROL = (1 << bit for bit in _FLAG_BITS)
_ALONE_SHIFT, _DEPENDENT_SHIFT = np.uint64(_FLAG_BITS[0]), np.uint64(_FLAG_BITS[1])
ID_SHIFT = 2 * JOIN_BITS + 4
MAX_ID = (1 << (63 - ID_SHIFT)) - 1
UNKNOWN_MASK = -1 << ID_SHIFT | IS_ALONE
UNKNOWN = BECOMES_UNKNOWN << ID_SHIFT | IS_ALONE

# The *front* of a part, what precedes it: other text; a "▁" that is not among its bytes; or the start of the row, if
# the normalizer removes spaces and puts no "▁" in front of rows.
INSIDE, FRONT, START = 0, 1, 2

SPACE_MARK = 0x2581
"""Code point of "▁"."""
_MIX_LEFT = np.uint64(0x9E3779B97F4A7C15)
_MIX_RIGHT = np.uint64(0xC2B2AE3D27D4EB4F)
_ONE = np.uint64(1)


# Making the tables.


@kernel
def describe_charsmap(units, results, links, stack, key, characters, dependent, begins, firsts):
    """Finds what a character map does to single code points; the map has passed `sentencepiece.check_charsmap`.

    Args:
      units, results, links, stack: as there. key: uint8 with room for the longest key, for work.
      characters: int32[0x110000], one more than the code point itself, changed: for keys of one character, set to one
        more than the result if that is one character, else to 0.
      dependent: bool[0x110000], False, changed: set for characters that come after another one in a key.
      begins: bool[0x110000], False, changed: set for those that begin a key of several characters.
      firsts: int32[n, 2], filled for the first n such keys with the first character of the key, and that of the
        result; 0 if there is none, or it is a space.

    Returns:
      The number of such keys, which may be more than n; -1 if a key is not UTF-8: no text can match it, but the search
      ends there.
    """
    n_firsts = 0
    link_children(units, links)
    depth = 1
    stack[0, 0] = offset_of(np.int64(units[0]))
    stack[0, 1] = 0
    while depth > 0:
        depth -= 1
        base = stack[depth, 0]
        length = stack[depth, 1]
        if length > 0:
            key[length - 1] = stack[depth, 2]
        place = np.int64(links[0, base]) if base < links.shape[1] else np.int64(-1)
        while place >= 0:
            unit = np.int64(units[place])
            byte = label_of(unit)
            child_base = place ^ offset_of(unit)
            key[length] = byte
            if (unit >> 8) & 1:
                first, after = _checked_character(key, 0, length + 1)
                if first < 0:
                    return -1
                start = np.int64(units[child_base]) & 0x7FFFFFFF
                if after == length + 1:
                    characters[first] = _single_result(results, start)
                else:
                    begins[first] = True
                    if n_firsts < len(firsts):
                        firsts[n_firsts, 0] = first
                        firsts[n_firsts, 1] = _first_of_result(results, start)
                    n_firsts += 1
                while after <= length:
                    code_point, after = _checked_character(key, after, length + 1)
                    if code_point < 0:
                        return -1
                    dependent[code_point] = True
            stack[depth, 0] = child_base
            stack[depth, 1] = length + 1
            stack[depth, 2] = byte
            depth += 1
            place = np.int64(links[1, place])
    return n_firsts


@kernel_part
def _checked_character(key, i, stop):
    """Returns the code point at `i` and where it ends; -1 if the bytes are not UTF-8."""
    lead = key[i]
    if lead < 0x80:
        return np.int64(lead), i + 1
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if lead < 0xC2 or lead > 0xF4 or i + size > stop:
        return np.int64(-1), stop
    for q in range(i + 1, i + size):
        if key[q] & 0xC0 != 0x80:
            return np.int64(-1), stop
    code_point, after = decode_utf8(key, i)
    return (code_point if code_point < 0x110000 else np.int64(-1)), after


@kernel_part
def _first_of_result(results, start):
    """Returns the first character of a result; 0 if there is none, or it is a space."""
    lead = np.int64(results[start])
    if lead < 0x80:
        return np.int64(0) if lead == 0x20 else lead
    return decode_utf8(results, start)[0]


@kernel_part
def _single_result(results, start):
    """Returns one more than the only character of a result; 0 if it has none or several, or if it is a space."""
    lead = results[start]
    if lead == 0 or lead == 0x20:
        return np.int64(0)
    code_point = np.int64(lead)
    after = start + 1
    if lead >= 0x80:
        code_point, after = decode_utf8(results, start)
    return code_point + 1 if results[after] == 0 and code_point != SPACE_MARK else np.int64(0)


@kernel_part
def character_hashes(image):
    """Returns the low 40 bits of the entry of a character that becomes the character `image`.

    Each pair of ASCII characters and "▁" has a place of its own. The upper half is for pairs whose first character is
    neither, of which Chinese has most; the other pairs share a quarter.
    """
    if image < 128 or image == SPACE_MARK:
        exact = np.uint64(image if image < 128 else 0)
        return (exact << np.uint64(7) << _LEFT_SHIFT) | exact
    left = (_ONE << np.uint64(JOIN_BITS - 1)) | (np.uint64(image) * _MIX_LEFT) >> np.uint64(65 - JOIN_BITS)
    right = (_ONE << np.uint64(JOIN_BITS - 2)) | (np.uint64(image) * _MIX_RIGHT) >> np.uint64(66 - JOIN_BITS)
    return (left << _LEFT_SHIFT) | right


@kernel_part
def joined(before, here, joins):
    """Returns 1 if some piece has the results of two characters next to each other, else 0.

    Only for ASCII and "▁" 1 is certain. before, here: their entries, uint64. Meaningless if one is alone or dependent.
    """
    bit = ((before >> _LEFT_SHIFT) ^ here) & _JOIN_MASK
    return (joins[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & _ONE


@kernel
def set_joins(code_points, offsets, joins, has_neighbours):
    """Notes which characters are neighbours in a piece.

    Args:
      code_points: int32[n], offsets: int64[n_pieces + 1], the characters of pieces.
      joins: uint64[2**JOIN_BITS / 64], zeros at first, filled.
      has_neighbours: bool[0x110000], False at first, changed: set for characters of pieces of more than one.

    Returns:
      False, and stops there, if a piece has "▁" after another character.
    """
    for t in range(offsets.size - 1):
        for q in range(offsets[t], offsets[t + 1] - 1):
            left, right = np.int64(code_points[q]), np.int64(code_points[q + 1])
            if right == SPACE_MARK and left != SPACE_MARK:
                return False
            bit = ((character_hashes(left) >> _LEFT_SHIFT) ^ character_hashes(right)) & _JOIN_MASK
            joins[bit >> np.uint64(6)] |= _ONE << (bit & np.uint64(63))
            has_neighbours[left] = True
            has_neighbours[right] = True
    return True


@kernel
def set_characters(images, begins, has_neighbours, ids, unk_id, spells, kinds, characters, unchanged):
    """Fills the entries of all code points.

    Args:
      images: int32[0x110000], one more than the character that each becomes whatever its neighbours, 0 for none.
      begins: bool[0x110000], the characters that begin longer keys of the character map.
      has_neighbours: bool[0x110000], the characters in pieces of more than one character.
      ids: int32[0x110000], the pieces of one character, -1 for none.
      unk_id: the unknown token, which is no piece of text; -1 for none.
      spells: whether characters that are no pieces become bytes.
      kinds: uint8[256], changed: control characters that are always alone become ALONE.
      characters: int64[0x110000], filled.
      unchanged: bool[0x110000], filled: the characters that stay themselves whatever follows.
    """
    for c in range(characters.size):
        image = np.int64(images[c])
        unchanged[c] = image == c + 1 and not begins[c]
        if image == 0:
            characters[c] = DEPENDS << ID_SHIFT | IS_DEPENDENT
        else:
            becomes = np.int64(ids[image - 1])
            if becomes < 0 or becomes == unk_id:
                becomes = BECOMES_BYTES if spells else BECOMES_UNKNOWN
            # Byte pieces must be those of the character itself.
            if (becomes == BECOMES_BYTES and image != c + 1) or (c < 128 and kinds[c] != WORD):
                becomes = DEPENDS
            # It is always alone if no longer key begins with it, and its result is in no longer piece.
            is_alone = becomes != DEPENDS and not begins[c] and not has_neighbours[image - 1]
            if is_alone and 0 < c < 33:
                kinds[c] = ALONE
            characters[c] = becomes << ID_SHIFT | is_alone * IS_ALONE | np.int64(character_hashes(image - 1))
        if c < 128:
            characters[c] |= (kinds[c] == SEPARATOR) * IS_SEPARATOR | (kinds[c] == ALONE) * IS_CONTROL


# Finding units and parts.


@kernel_part
def is_unknown(entry):
    """Whether a character, given its entry, int64, is always a part of its own and unknown."""
    return entry & UNKNOWN_MASK == UNKNOWN


@kernel_part
def is_apart(before, here, joins):
    """Returns 1 if a part may end between two characters, given their entries, uint64, else 0; without a branch."""
    either = before | here
    return (~joined(before, here, joins) | (either >> _ALONE_SHIFT)) & ~(either >> _DEPENDENT_SHIFT) & _ONE


@kernel_part
def past_graphic(data, i):
    """Skips up to eight bytes of 0x21 or more, and returns where it stopped; `i` itself if `data` ends soon."""
    if i + 8 > data.size:
        return i
    eight = load_u64(data, i)
    # The high bit of every byte of 0x21 or more.
    others = ((eight & LOW_BITS) + np.uint64(0x5F) * EACH_BYTE) | eight
    return i + (trailing_zeros(~others & HIGH_BITS) >> 3)


@kernel
def set_apart(kinds, characters, joins, apart):
    """Finds whether a part ends between two ASCII characters, at `before << 7 | here`.

    One always ends before a separator that follows another character.

    Args:
      kinds: uint8[256], characters: int64[0x110000], joins: uint64[2**JOIN_BITS / 64]: see `KnownTables`.
      apart: bool[128 * 128], filled.
    """
    for before in range(128):
        for here in range(128):
            ends = is_apart(np.uint64(characters[before]), np.uint64(characters[here]), joins) != 0
            apart[before << 7 | here] = ends or (kinds[here] == SEPARATOR and kinds[before] != SEPARATOR)


@kernel_part
def part_stop(data, i, stop, code_point, tables):
    """Returns where the part whose first character, `code_point`, ends at `i` ends; `stop` is the end of the row."""
    known = tables.known
    characters, joins = known.characters, known.joins
    before = code_point
    before_entry = np.uint64(characters[np.uint64(before)])
    while i < stop:
        here = np.int64(data[np.uint64(i)])
        after = i + 1
        if here < 128:
            if before < 128:
                if known.apart[before << 7 | here]:
                    break
            elif known.kinds[here] == SEPARATOR:
                break
        else:
            here, after = decode_utf8(data, i)
        entry = np.uint64(characters[np.uint64(here)])
        if (before >= 128 or here >= 128) and is_apart(before_entry, entry, joins) != 0:
            break
        before, before_entry = here, entry
        i = after
    return i


@kernel_part
def normalize_part(data, at, stop, front, tables, out):
    """Normalizes `data[at:stop]`, a part.

    Args:
      data: uint8, valid UTF-8; at, stop: the part; front: INSIDE, FRONT or START.
      tables: engines.sentencepiece_tables.RawTables; out: uint8 with room for the result, as for a row.

    Returns:
      `(bytes of the result, whether it is regular)`. It is not if it ends in a "▁" that may belong to the next unit.
    """
    # Whether the part ends its unit does not matter: only such a part may end in spaces or in a "▁".
    shrink = tables.steps.shrink
    first = np.int64(0)
    if front == FRONT:
        first = put_space(True, out, first)
    after_space = shrink and front != INSIDE
    o, n_spaces = normalize_text(data, at, stop, after_space, tables.steps, tables.unchanged, out, first)
    if shrink:
        o -= 3 * n_spaces
        if o == first:
            return np.int64(0), True
        n_spaces = 0
    if o > 0 and tables.known.kinds[data[stop - 1]] != SEPARATOR:
        return o, n_spaces == 0 and not ends_in_mark(out, o)
    return o, True


@kernel_part
def has_unknown(out, first, last, unk_id):
    """Whether the unknown token is among `out[first:last]`."""
    q = first
    while q < last and out[q] != unk_id:
        q += 1
    return q < last
