# SPDX-License-Identifier: Apache-2.0
"""Unicode's four normal forms.

A character is inert if it is a starter, stays as it is, and combines with nothing before it. Text is cut into pieces
before inert characters. Pieces of only inert characters, and combining ones that are in order, are copied. The others
are decomposed, put in canonical order and, for NFC and NFKC, composed, one at a time.

Its reference implementation is `tokenmill.tokenizer.normalizers.forms.NormalForm.edits`;
`tests/tokenizer/normalizers/test_columns.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.text_parts import character_before
from tokenmill.tokenizer.kernels.utf8 import copy_bytes, next_active, next_character, past_ascii, write_utf8

INERT, ORDERED, OTHER = 0, 1, 2
"""Kinds of characters: see above; a combining character that stays as it is if it is in order; any other."""

PAIR_SLOTS = 4096
"""Slots of the hash table of compositions: a power of two, a quarter full."""
SHORT_RUN = 24
"""The most combining characters in a row to sort by insertion; longer runs are sorted by counting, in linear time."""

_S, _L, _V, _T = 0xAC00, 0x1100, 0x1161, 0x11A7
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@kernel_part
def pair_slot(pair):
    """Returns where the search for a pair, uint64, begins."""
    return np.int64((pair * _MULTIPLIER) >> np.uint64(52))


@kernel
def measure(data, start, stop, tables):
    """Finds whether text may change, and by how many bytes it may grow.

    Args:
      data: uint8[n], valid UTF-8; only `data[start:stop]` is read.
      tables: normalizers.tables.NormalForm.

    Returns:
      (False if nothing changes, bytes added by full decomposition). Composing never lengthens decomposed text.
    """
    changes = False
    added = 0
    last_class = 0
    i = start
    while i < stop:
        at = next_active(data, past_ascii(data, i, stop), stop, tables.skips)
        if at > i:
            last_class = 0
        if at == stop:
            break
        code_point, i = next_character(data, at)
        added += np.int64(tables.growth[code_point])
        kind = tables.kinds[code_point]
        # That of an inert character is 0.
        combining = np.int64(tables.combining[code_point])
        changes |= kind == OTHER or (kind == ORDERED and combining < last_class)
        last_class = combining
    return changes, added


@kernel_part
def _decompose(code_point, tables, scratch, n):
    """Adds the full decomposition of a character to the piece."""
    syllable = code_point - _S
    if 0 <= syllable < 11172:
        scratch.characters[n] = _L + syllable // 588
        scratch.characters[n + 1] = _V + syllable % 588 // 28
        scratch.classes[n] = 0
        scratch.classes[n + 1] = 0
        if syllable % 28 == 0:
            return n + 2
        scratch.characters[n + 2] = _T + syllable % 28
        scratch.classes[n + 2] = 0
        return n + 3
    decomposition = tables.decompositions[code_point]
    if decomposition == 0:
        scratch.characters[n] = code_point
        scratch.classes[n] = tables.combining[code_point]
        return n + 1
    first = decomposition >> 5
    for q in range(first, first + (decomposition & 31)):
        scratch.characters[n] = tables.parts[q]
        scratch.classes[n] = tables.combining[tables.parts[q]]
        n += 1
    return n


@kernel_part
def _sort_run(scratch, start, stop):
    """Sorts combining characters by class, stably."""
    if stop - start <= SHORT_RUN:
        for r in range(start + 1, stop):
            character = scratch.characters[r]
            combining = scratch.classes[r]
            w = r
            while w > start and scratch.classes[w - 1] > combining:
                scratch.characters[w] = scratch.characters[w - 1]
                scratch.classes[w] = scratch.classes[w - 1]
                w -= 1
            scratch.characters[w] = character
            scratch.classes[w] = combining
        return
    for combining in range(256):
        scratch.counts[combining] = 0
    for r in range(start, stop):
        scratch.counts[scratch.classes[r]] += 1
    place = start
    for combining in range(256):
        count = scratch.counts[combining]
        scratch.counts[combining] = place
        place += count
    for r in range(start, stop):
        w = scratch.counts[scratch.classes[r]]
        scratch.counts[scratch.classes[r]] = w + 1
        scratch.sorted[w] = scratch.characters[r]
    for r in range(start, stop):
        scratch.characters[r] = scratch.sorted[r]
    # After sorting, `counts[k]` is where class k ends.
    r = start
    for combining in range(256):
        while r < scratch.counts[combining]:
            scratch.classes[r] = combining
            r += 1


@kernel_part
def _order(scratch, n):
    """Puts a piece in canonical order."""
    r = 0
    while r < n:
        if scratch.classes[r] == 0:
            r += 1
            continue
        start = r
        in_order = True
        r += 1
        while r < n and scratch.classes[r] != 0:
            in_order = in_order and scratch.classes[r - 1] <= scratch.classes[r]
            r += 1
        if not in_order:
            _sort_run(scratch, start, r)


@kernel_part
def _composed(first, second, tables):
    """Returns the character that two characters compose into, 0 if they do not."""
    if _V <= second < _V + 21 and _L <= first < _L + 19:
        return _S + (first - _L) * 588 + (second - _V) * 28
    if _T < second < _T + 28 and _S <= first < _S + 11172 and (first - _S) % 28 == 0:
        return first + (second - _T)
    if not tables.is_second[second]:
        return 0
    pair = (np.uint64(first) << np.uint64(21)) | np.uint64(second)
    slot = pair_slot(pair)
    while tables.pairs[slot] != np.uint64(0):
        if tables.pairs[slot] >> np.uint64(21) == pair:
            return np.int64(tables.pairs[slot] & np.uint64(0x1FFFFF))
        slot = (slot + 1) & (PAIR_SLOTS - 1)
    return 0


@kernel_part
def _compose(scratch, n, tables):
    """Composes a piece that is in canonical order; returns how many characters are left."""
    starter = -1
    last_class = -1  # the class of the character before, if that is between the starter and this one
    w = 0
    for r in range(n):
        character = np.int64(scratch.characters[r])
        combining = np.int64(scratch.classes[r])
        if starter >= 0 and last_class < combining:
            composite = _composed(np.int64(scratch.characters[starter]), character, tables)
            if composite != 0:
                scratch.characters[starter] = composite
                continue
        if combining == 0:
            starter = w
            last_class = -1
        else:
            last_class = combining
        scratch.characters[w] = character
        w += 1
    return w


@kernel_part
def _differ(data, start, stop, out, first, past):
    """Whether `data[start:stop]` and `out[first:past]` are different."""
    if stop - start != past - first:
        return True
    while start < stop and data[start] == out[first]:
        start += 1
        first += 1
    return start < stop


@kernel
def normalize(data, offsets, tables, scratch, out, out_offsets):
    """Normalizes rows; returns how many characters are in the pieces that changed.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      tables: normalizers.tables.NormalForm.
      scratch: normalizers.tables.PieceScratch with room for the full decomposition of any row.
      out: uint8 with room for the rows and what `measure` adds; out_offsets: int64[n_rows + 1], filled.
    """
    o = 0
    changed = 0
    out_offsets[0] = 0
    for row in range(offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
        copied = i  # the text before this is in `out` already
        cut = i  # where the piece that contains `i` begins
        last_class = 0
        while i < end:
            here = next_active(data, i, end, tables.skips)
            if here > i:
                cut = character_before(data, here)
                last_class = 0
            if here == end:
                break
            code_point, i = next_character(data, here)
            kind = tables.kinds[code_point]
            if kind == INERT:
                cut = here
                last_class = 0
                continue
            combining = np.int64(tables.combining[code_point])
            if kind == ORDERED and combining >= last_class:
                last_class = combining
                continue
            o = copy_bytes(data, copied, cut, out, o)
            n = 0
            n_characters = 0
            i = cut
            while i < end:
                here = i
                code_point, i = next_character(data, i)
                if here > cut and tables.kinds[code_point] == INERT:
                    i = here
                    break
                n_characters += 1
                n = _decompose(code_point, tables, scratch, n)
            _order(scratch, n)
            if tables.composes:
                n = _compose(scratch, n, tables)
            first = o
            for r in range(n):
                o = write_utf8(np.int64(scratch.characters[r]), out, o)
            if _differ(data, cut, i, out, first, o):
                changed += n_characters
            copied = i
            cut = i
            last_class = 0
        o = copy_bytes(data, copied, end, out, o)
        out_offsets[row + 1] = o
    return changed
