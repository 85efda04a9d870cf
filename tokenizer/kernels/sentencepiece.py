# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's normalizer in one pass: character map, user-defined pieces left alone, white space, "▁".

Its reference implementation is
`tokenmill.tokenizer.normalizers.sentencepiece.SentencePieceNormalizer.trace`;
`tests/tokenizer/formats/test_sentencepiece_file.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.double_array import BASE_SHIFT, PIECE_MASK, PIECE_SHIFT
from tokenmill.tokenizer.kernels.utf8 import character_bytes, decode_utf8

_LABEL = 0x800000FF
_SPACE = 32


@kernel_part
def label_of(unit):
    """Returns the byte that leads to a unit; more than 255 if the unit holds a result."""
    return unit & _LABEL


@kernel_part
def offset_of(unit):
    """Returns where the children of a unit of a darts-clone double array are, relative to it."""
    return (unit >> 10) << ((unit & 0x200) >> 6)


@kernel_part
def link_children(units, links):
    """Lists the children of every base, so that not all of their 255 possible places must be tried.

    Args:
      units: uint32[n]. links: int32[2, m], m the next multiple of 256, filled with the first child of each base, and
        the next one after each child; -1 for none. A base of m or more has none.
    """
    links[:] = -1
    for place in range(units.size - 1, -1, -1):
        label = label_of(np.int64(units[place]))
        if 0 < label < 256:
            base = place ^ label
            links[1, place] = links[0, base]
            links[0, base] = place


@kernel
def check_charsmap(units, results, links, stack, simple):
    """Checks every key of a character map; kernels only take maps that have passed.

    Args:
      units: uint32[n], the double array; results: uint8[m].
      links: int32[2, n up to a multiple of 256], for work.
      stack: int64[n_work, 3], for work; a map that is too deep for it, or has a longer key, is refused.
      simple: bool[256], True, changed: set False for every byte that is a key, or that begins one with an ASCII byte
        after it.

    Returns:
      `(problem, most bytes of result per byte of key)`. Problem 0 is none, 1 endless keys, 2 a unit outside the array,
      3 a result outside the results, 4 a result that is not UTF-8. A space counts as three bytes.
    """
    link_children(units, links)
    n = units.size
    ratio = 1.0
    n_visits = 0
    depth = 1
    stack[0, 0] = offset_of(np.int64(units[0]))
    stack[0, 1] = 0
    stack[0, 2] = 0
    while depth > 0:
        depth -= 1
        base = stack[depth, 0]
        length = stack[depth, 1]
        first = stack[depth, 2]
        place = np.int64(links[0, base]) if base < links.shape[1] else np.int64(-1)
        while place >= 0:
            unit = np.int64(units[place])
            byte = label_of(unit)
            # Keys may share their ends, so a unit may be visited more than once; a cycle would never end.
            n_visits += 1
            if n_visits > 64 * n or depth == stack.shape[0] or length == stack.shape[0]:
                return 1, ratio
            child_base = place ^ offset_of(unit)
            if length == 1 and byte < 128:
                simple[first] = False
            if (unit >> 8) & 1:
                if child_base >= n:
                    return 2, ratio
                if length == 0:
                    simple[byte] = False
                start = np.int64(units[child_base]) & 0x7FFFFFFF
                size = 0
                i = start
                while True:
                    if i >= results.size:
                        return 3, ratio
                    b = np.int64(results[i])
                    if b == 0:
                        break
                    width = (
                        1 if b < 0x80 else 0 if b < 0xC2 else 2 if b < 0xE0 else 3 if b < 0xF0 else 4 if b < 0xF5 else 0
                    )
                    if width == 0:
                        return 4, ratio
                    if i + width >= results.size:
                        return 3, ratio
                    for q in range(1, width):
                        if (results[i + q] & 0xC0) != 0x80:
                            return 4, ratio
                    second = np.int64(results[i + 1])
                    if (
                        (b == 0xE0 and second < 0xA0)
                        or (b == 0xED and second > 0x9F)
                        or (b == 0xF0 and second < 0x90)
                        or (b == 0xF4 and second > 0x8F)
                    ):
                        return 4, ratio
                    size += 3 if b == _SPACE else width
                    i += width
                ratio = max(ratio, size / (length + 1))
            stack[depth, 0] = child_base
            stack[depth, 1] = length + 1
            stack[depth, 2] = first if length > 0 else byte
            depth += 1
            place = np.int64(links[1, place])
    return 0, ratio


@kernel_part
def longest_rule(data, i, end, units):
    """Returns `(bytes of the longest key at i, where its result begins)`; 0 bytes for none."""
    place = offset_of(np.int64(units[0]))
    size = 0
    result = np.int64(0)
    j = i
    while j < end:
        byte = np.int64(data[j])
        place ^= byte
        if byte == 0 or place >= units.size:
            break  # keys hold no zero bytes; what a unit has for one has not been checked
        unit = np.int64(units[place])
        if label_of(unit) != byte:
            break
        j += 1
        place ^= offset_of(unit)
        if (unit >> 8) & 1:
            size = j - i
            result = np.int64(units[place]) & 0x7FFFFFFF
    return size, result


@kernel_part
def longest_kept(data, i, end, tables):
    """Returns the number of bytes of the longest user-defined piece at `i`, 0 for none."""
    base = np.int64(tables.kept_root)
    size = 0
    j = i
    while j < end:
        byte = np.int64(data[j])
        unit = tables.kept[base ^ byte]
        if (unit & 511) != byte:
            break
        j += 1
        if (unit >> PIECE_SHIFT) & PIECE_MASK:
            size = j - i
        base = unit >> BASE_SHIFT
    return size


@kernel_part
def _next_rule(data, i, end, steps):
    """Finds what is normalized next: the longest user-defined piece or key of the character map, or else a character.

    Returns:
      `(bytes that it takes, whether its result is one of the map, where that begins, where it ends)`; a result that is
      none of the map is the text itself.
    """
    size = np.int64(0)
    if steps.begins_kept[data[i]]:
        size = longest_kept(data, i, end, steps)
    if size == 0 and steps.units.size > 0:
        size, first = longest_rule(data, i, end, steps.units)
        if size > 0:
            last = first
            while steps.results[last] != 0:
                last += 1
            return size, True, first, last
    if size == 0:
        size = character_bytes(data[i])
    return size, False, np.int64(i), i + size


@kernel_part
def put_space(escape, out, o):
    """Writes a space, or a "▁" if spaces are escaped; returns the new o."""
    if not escape:
        out[o] = _SPACE
        return o + 1
    out[o] = 0xE2
    out[o + 1] = 0x96
    out[o + 2] = 0x81
    return o + 3


@kernel_part
def ends_in_mark(out, o):
    """Whether the text before `o`, which is not empty, ends in a "▁"."""
    return out[o - 1] == 0x81 and out[o - 2] == 0x96 and out[o - 3] == 0xE2


@kernel_part
def normalize_text(data, i, end, after_space, steps, unchanged, out, o):
    """Normalizes `data[i:end]`, without what is put in front or removed at the end.

    Args:
      data: uint8, valid UTF-8; after_space: whether spaces at the beginning are removed.
      steps: normalizers' SentencePieceTables.
      unchanged: bool[0x110000], characters that stay themselves whatever follows; or bool[0].
      out: uint8 with room for the result.

    Returns:
      `(new o, number of spaces at the end of the result)`.
    """
    results, simple, escape = steps.results, steps.simple, steps.escape
    n_spaces = 0
    while i < end:
        begin = i
        # ASCII that stays as it is, unless a key may begin with it and the next character.
        while i < end and simple[data[np.uint64(i)]]:
            out[np.uint64(o)] = data[np.uint64(i)]
            o += 1
            i += 1
        if i > begin and i < end and data[np.uint64(i)] >= 128:
            o -= 1
            i -= 1
        if i > begin:
            after_space = False
            n_spaces = 0
            continue
        lead = data[np.uint64(i)]
        if unchanged.size > 0 and lead >= 128 and not steps.begins_kept[lead]:
            code_point, after = decode_utf8(data, i)
            if unchanged[np.uint64(code_point)]:
                while i < after:
                    out[np.uint64(o)] = data[np.uint64(i)]
                    o += 1
                    i += 1
                after_space = False
                n_spaces = 0
                continue
        size, mapped, q, stop = _next_rule(data, i, end, steps)
        i += size
        while after_space and q < stop and (results[q] if mapped else data[q]) == _SPACE:
            q += 1
        if q == stop:
            continue
        while q < stop:
            byte = results[q] if mapped else data[q]
            if byte == _SPACE:
                o = put_space(escape, out, o)
                n_spaces += 1
            else:
                out[o] = byte
                o += 1
                n_spaces = 0
            q += 1
        after_space = steps.shrink and n_spaces > 0
    return o, n_spaces


@kernel
def normalize(data, offsets, tables, unchanged, out, out_offsets):
    """Normalizes rows.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      tables: normalizers' SentencePieceTables; unchanged: see `normalize_text`.
      out: uint8 with room for `tables.ratio` bytes for every byte of the rows and 6 for every row, filled.
      out_offsets: int64[n_rows + 1], filled.
    """
    shrink, escape = tables.shrink, tables.escape
    o = 0
    out_offsets[0] = 0
    for row in range(offsets.size - 1):
        i, end = offsets[row], offsets[row + 1]
        begin = o
        while shrink and i < end:
            size, mapped, first, stop = _next_rule(data, i, end, tables)
            if stop - first != 1 or (tables.results[first] if mapped else data[first]) != _SPACE:
                break
            i += size
        if i < end:
            if tables.prefix and not tables.at_end:
                o = put_space(escape, out, o)
            o, _ = normalize_text(data, i, end, shrink, tables, unchanged, out, o)
            if shrink and escape:
                while o - begin >= 3 and ends_in_mark(out, o):
                    o -= 3
            elif shrink:
                while o > begin and out[o - 1] == _SPACE:
                    o -= 1
            if tables.prefix and tables.at_end:
                o = put_space(escape, out, o)
        out_offsets[row + 1] = o
