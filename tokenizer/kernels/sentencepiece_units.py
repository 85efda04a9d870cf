# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's text in parts that can be normalized and encoded one by one, straight from the raw bytes.

A row is cut into *units*, in front of runs of spaces, where no piece and no key of the character map reaches across,
and those into *parts*: between two characters that turn into one character each whatever stands around them, and whose
results are neighbours in no piece. What a part becomes then depends on nothing but its bytes and its `front`, so that a
word cache can be asked for the raw bytes, before anything is normalized.

One code point is described by an int64 (`RawTables.characters`). Its low half, read by `described_by`:

    0    what becomes of it depends on its neighbours, or it turns into a space, nothing, or several characters
    > 0  the one character that it turns into, plus one
    < 0  likewise, and no piece has that character beside another one: it is always a part of its own; `UNKNOWN` if
         that becomes the unknown token

Its high half, read by `alone_id`, is what a part of that one character becomes: an id, or one of the numbers below.
"""

import numpy as np

from tokenizer.kernels.compiling import kernel, kernel_part, load_u64, trailing_zeros
from tokenizer.kernels.sentencepiece import label_of, longest_kept, longest_rule, offset_of
from tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS, LOW_BITS, decode_utf8

# What an ASCII byte is (`RawTables.kinds`): part of a word, a space, or a control character that is always alone.
WORD, SEPARATOR, ALONE = 0, 1, 2

UNKNOWN = -2
"""What describes a character that is always an unknown token."""

# What stands for the id of a character whose neighbours may matter, that becomes unknown, or byte pieces.
DEPENDS, BECOMES_UNKNOWN, BECOMES_BYTES = -1, -2, -3

# What stands in front of a part: something else, a "▁" that is not among its bytes, or, where the normalizer removes
# spaces and puts no "▁" in front of the row, the start of the row.
INSIDE, FRONT, START = 0, 1, 2

JOIN_BITS = 19
_JOIN_SHIFT = np.uint64(64 - JOIN_BITS)

SPACE_MARK = 0x2581
"""Code point of "▁"."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


# Making the tables.


@kernel
def describe_charsmap(units, results, stack, key, characters, dependent, begins):
    """Fills what a character map says of single code points; the map has passed `sentencepiece.check_charsmap`.

    Args:
      units, results, stack: as there. key: uint8 with room for the longest key.
      characters: int32[0x110000], one more than the code point itself; set to 0, or to one more than the result of a
        key of one character whose result is one.
      dependent: bool[0x110000], False; set for characters that stand in a key after another one.
      begins: bool[0x110000], False; set for those that begin a key of several characters.

    Returns:
      False where a key is not UTF-8, which no text can match but which is not looked into any further.
    """
    depth = 1
    stack[0, 0] = offset_of(np.int64(units[0]))
    stack[0, 1] = 0
    while depth > 0:
        depth -= 1
        base = stack[depth, 0]
        length = stack[depth, 1]
        if length > 0:
            key[length - 1] = stack[depth, 2]
        for byte in range(1, 256):
            place = base ^ byte
            if place >= units.size:
                continue
            unit = np.int64(units[place])
            if label_of(unit) != byte:
                continue
            child_base = place ^ offset_of(unit)
            key[length] = byte
            if (unit >> 8) & 1:
                first, after = _checked_character(key, 0, length + 1)
                if first < 0:
                    return False
                if after == length + 1:
                    start = np.int64(units[child_base]) & 0x7FFFFFFF
                    characters[first] = _single_result(results, start)
                else:
                    begins[first] = True
                while after <= length:
                    code_point, after = _checked_character(key, after, length + 1)
                    if code_point < 0:
                        return False
                    dependent[code_point] = True
            stack[depth, 0] = child_base
            stack[depth, 1] = length + 1
            stack[depth, 2] = byte
            depth += 1
    return True


@kernel_part
def _checked_character(key, i, stop):
    """Returns the code point at `i` and where it ends; -1 where the bytes are not UTF-8."""
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
def _single_result(results, start):
    """Returns one more than the only character of a result; 0 where there are none or several, or it is a space."""
    lead = results[start]
    if lead == 0 or lead == 0x20:
        return np.int64(0)
    code_point = np.int64(lead)
    after = start + 1
    if lead >= 0x80:
        code_point, after = decode_utf8(results, start)
    return code_point + 1 if results[after] == 0 and code_point != SPACE_MARK else np.int64(0)


@kernel_part
def _join_bit(left, right):
    return (((np.uint64(left) << np.uint64(32)) | np.uint64(right)) * _MIX) >> _JOIN_SHIFT


@kernel_part
def may_join(joins, left, right):
    """Whether some piece has two characters, each plus one, beside each other; False is certain, True is not."""
    bit = _join_bit(left, right)
    return (joins[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1) != 0


@kernel
def set_joins(code_points, lengths, joins, joined):
    """Notes which characters are neighbours in a piece.

    Args:
      code_points: int32[n], the characters of all pieces; lengths: int64[n_pieces].
      joins: uint64[2**JOIN_BITS / 64], zeros, filled.
      joined: bool[0x110000], False; set for characters of pieces of more than one.
    """
    i = 0
    for length in lengths:
        for q in range(i, i + length - 1):
            left, right = np.int64(code_points[q]), np.int64(code_points[q + 1])
            bit = _join_bit(left + 1, right + 1)
            joins[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
            joined[left] = True
            joined[right] = True
        i += length


# Finding units and parts.


@kernel_part
def described_by(entry):
    """Returns the low half of an entry of `RawTables.characters`."""
    return np.int64(np.int32(entry))


@kernel_part
def alone_id(entry):
    """Returns its high half."""
    return entry >> 32


@kernel_part
def past_graphic(data, i):
    """Returns where bytes from 0x21 on end, or up to eight bytes before that; `i` itself where `data` ends soon."""
    if i + 8 > data.size:
        return i
    eight = load_u64(data, i)
    # The high bit of every byte from 0x21 on.
    others = ((eight & LOW_BITS) + np.uint64(0x5F) * EACH_BYTE) | eight
    return i + (trailing_zeros(~others & HIGH_BITS) >> 3)


@kernel_part
def character(data, i):
    """Returns the code point at `i` and where it ends."""
    if data[i] < 0x80:
        return np.int64(data[i]), i + 1
    return decode_utf8(data, i)


@kernel_part
def _is_apart(before, here, joins):
    """Whether a part may end between two neighbours, by what describes them."""
    if before < 0:
        return here != 0
    return before > 0 and (here < 0 or (here > 0 and not may_join(joins, before, here)))


@kernel_part
def _is_letter(byte):
    return ord("a") <= byte | 0x20 <= ord("z")


@kernel
def set_apart(kinds, characters, joins, apart):
    """Fills bool[128 * 128]: whether a part ends between two ASCII characters, `before << 7 | here`.

    It does in front of separators that follow anything else, and never between letters, though in some places it might:
    so that most places need not be looked at.

    Args:
      kinds, joins, apart: as in RawTables; characters: int32[128], what describes them.
    """
    for before in range(128):
        for here in range(128):
            ends = _is_apart(np.int64(characters[before]), np.int64(characters[here]), joins)
            ends = ends and not (_is_letter(before) and _is_letter(here))
            apart[before << 7 | here] = ends or (kinds[here] == SEPARATOR and kinds[before] != SEPARATOR)


@kernel_part
def part_stop(data, i, stop, code_point, tables):
    """Returns where the part ends whose first character, `code_point`, ends at `i`; `stop` is where the row ends.

    Returns:
      `(its end, the code point that follows, where that ends)`; the last two only where something follows.
    """
    before = code_point
    here = code_point
    after = i
    while i < stop:
        if before < 128 and data[i] < 128:
            here = np.int64(data[i])
            after = i + 1
            if tables.apart[before << 7 | here]:
                break
        else:
            here, after = character(data, i)
            if here < 128 and tables.kinds[here] == SEPARATOR:
                break
            described = described_by(tables.characters[before])
            if _is_apart(described, described_by(tables.characters[here]), tables.joins):
                break
        before = here
        i = after
    return i, here, after


@kernel_part
def _put_space(out, o):
    out[o] = 0xE2
    out[o + 1] = 0x96
    out[o + 2] = 0x81
    return o + 3


@kernel_part
def normalize_part(data, at, stop, front, ends_unit, tables, out):
    """Normalizes `data[at:stop]`, a part.

    Args:
      front: what stands in front of it; ends_unit: whether a separator or the end of the row follows.
      out: uint8 with room for the result, as for a row.

    Returns:
      `(bytes of the result, whether it is regular)`. It is not where it ends in a "▁" that may belong to the next unit.
    """
    steps = tables.steps
    results, simple = steps.results, steps.simple
    has_map = steps.units.size > 0
    o = np.int64(0)
    if front == FRONT:
        o = _put_space(out, o)
    first = o
    after_space = steps.shrink and front != INSIDE
    n_spaces = 0  # those that the result ends in
    i = at
    while i < stop:
        if simple[data[i]] and (i + 1 == stop or data[i + 1] < 128):
            out[o] = data[i]
            o += 1
            i += 1
            after_space = False
            n_spaces = 0
            continue
        size = np.int64(0)
        result = np.int64(0)
        mapped = False
        if steps.begins_kept[data[i]]:
            size = longest_kept(data, i, stop, steps)
        if size == 0 and has_map:
            size, result = longest_rule(data, i, stop, steps.units)
            mapped = size > 0
        if size == 0:
            lead = data[i]
            size = np.int64(1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4)
        q = result if mapped else i
        end = q
        if mapped:
            while results[end] != 0:
                end += 1
        else:
            end = i + size
        i += size
        while after_space and q < end and (results[q] if mapped else data[q]) == 0x20:
            q += 1
        if q == end:
            continue
        while q < end:
            byte = results[q] if mapped else data[q]
            if byte == 0x20:
                o = _put_space(out, o)
                n_spaces += 1
            else:
                out[o] = byte
                o += 1
                n_spaces = 0
            q += 1
        after_space = steps.shrink and n_spaces > 0
    if ends_unit and steps.shrink:
        o -= 3 * n_spaces
        if o == first:
            return np.int64(0), True
        n_spaces = 0
    regular = True
    if ends_unit and o > first and tables.kinds[data[stop - 1]] != SEPARATOR:
        regular = n_spaces == 0 and not (out[o - 1] == 0x81 and out[o - 2] == 0x96 and out[o - 3] == 0xE2)
    if steps.shrink and o == first:
        return np.int64(0), regular
    return o, regular
