# SPDX-License-Identifier: Apache-2.0
"""Patterns, each cutting the pieces of the one before, as one automaton: one step for a character, never back.

Alone, each pattern (see `automata`) reads again from where a match has ended, and all read the pieces within pieces.
Here a state says how far each pattern is: the state of its automaton, the place up to which all is decided, and the
bytes after that place, at most `OPEN_BYTES`. A pattern reads what the one before it has decided. If more bytes than
that are open, the state is `GIVEN_UP`.

Its reference implementation is `tokenmill.tokenizer.pre_tokenizers.patterns.find_segments`;
`tests/tokenizer/pre_tokenizers/test_automata.py` compares them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64
from tokenmill.tokenizer.kernels.scanners_parts import leading_letters, leading_lower

OPEN_BYTES = 4
GIVEN_UP = 0
ANY_CASE, LOWER_CASE = 1, 2
"""The ASCII letters of which any number leave a state unchanged."""
MAX_PATTERNS, MAX_COLUMNS = 14, 255
"""The most patterns of a state, and the most columns."""
MAX_PLACES = 1 << 15
"""States times columns; known patterns have 15,000. Twice as many would fit into an entry."""
SLOT_BITS = 12
_NO_LEVEL = 15
_MOST_READ = 56
"""The most bytes to read at once; their bits, one more character's, and that of the end of the text fit into 64."""
_THREE_BYTES = np.uint64(0xE1)
_ONE, _TWO, _THREE, _FOUR = (np.uint64(n) for n in range(1, 5))
_LOW_SIX = np.uint64(0x3F)
_GIVEN_UP = np.uint64(GIVEN_UP)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_BITS_MASK = np.uint32(0xFF)


class Composed(NamedTuple):
    """Patterns as one automaton, with `w` columns: kinds of characters and, last, the end of the text."""

    columns: npt.NDArray[np.uint8]
    """uint8[0x10000]: the column of a code point."""
    byte_groups: npt.NDArray[np.uint8]
    long_columns: npt.NDArray[np.uint8]
    """uint8[256] and uint8[n_kinds, n, n, n]: the column of a character of four bytes, by its kind and the groups of
    its second to fourth byte."""
    entries: npt.NDArray[np.uint32]
    """uint32[n_states, w], flattened, empty if there is no automaton: the place of the next state << 16; bits << 8
    where words start that the first pattern has cut; bits where words start, the lowest for OPEN_BYTES before the
    character. The first state is GIVEN_UP, the second that of the beginning of a text."""
    loops: npt.NDArray[np.uint8]
    """uint8[n_states]: the ASCII letters that leave a state unchanged, 0 for none."""
    width: np.int64
    """`w`, which is also the place of the second state."""


@kernel_part
def _is_over(entry, transitions, last_column):
    """Whether a match ends here, whatever comes next."""
    n = 0
    for kind in range(0, last_column + 1, 2):
        n += transitions[entry + kind] & 1
    return 2 * n > last_column


@kernel_part
def _step(at, is_spelled, widths):
    return np.int64(1) if is_spelled else widths[at]


@kernel_part
def _unpack_bytes(row, kinds, widths, spellings, levels):
    """Unpacks the open bytes of a state; returns their number."""
    n = 0
    while n < OPEN_BYTES and row[n] != 0:
        kinds[n] = row[n] & 0xFF
        spellings[n] = row[n] >> 8 & 0xFF
        widths[n] = row[n] >> 16 & 7
        levels[n] = row[n] >> 20 & 15
        n += 1
    return n


@kernel_part
def _run(k, limit, total, at_end, row, transitions, start, is_spelled, last_column, kinds, widths, spellings, levels):
    """Lets pattern k read up to `limit`; returns the place up to which it has decided.

    `levels` has, for each byte, the first pattern that cuts before it; the cuts of this pattern are added. `total` is
    the number of bytes, and `at_end` whether no more will come.
    """
    state = row[OPEN_BYTES + k]
    entry, read, decided = state & 0xFFFFFFFF, state >> 32 & 15, state >> 36 & 15
    has_match, in_gap = state >> 40 & 1, state >> 41 & 1
    while read < limit or at_end:
        is_begun = read > decided or has_match != 0 or in_gap != 0 or entry != start
        is_last = read == total or (levels[read] < k and is_begun)
        step = np.int64(0)
        if is_last:
            after = np.int64(transitions[entry + last_column])
        else:
            step = _step(read, is_spelled, widths)
            after = np.int64(transitions[entry + (spellings[read] if is_spelled else kinds[read])])
        ended = -1
        if after & 1 and (read > decided or has_match):
            ended = read
        goes_on = not is_last and after > 1
        if goes_on and _is_over(after, transitions, last_column):
            ended = read + step
        if ended >= 0:
            if in_gap:
                levels[decided] = min(levels[decided], k)
            in_gap, has_match, decided = np.int64(0), np.int64(1), np.int64(ended)
        if goes_on:
            entry = after
            read += step
            continue
        entry = start
        if is_last and decided == read:
            has_match = in_gap = np.int64(0)
            if read == total:
                break
            continue
        # Go on where the match has ended, or with the next character.
        if has_match:
            levels[decided] = min(levels[decided], k)
            has_match = np.int64(0)
        else:
            in_gap = np.int64(1)
            decided += _step(decided, is_spelled, widths)
        read = decided
    row[OPEN_BYTES + k] = entry | read << 32 | decided << 36 | has_match << 40 | in_gap << 41
    return decided


@kernel_part
def _follow(row, column, column_kinds, column_bytes, transitions, starts, spelled, scratch):
    """Reads a character, or, for the last column, the end of the text; changes `row`.

    Returns:
      Where words start, as in `Composed.entries`; -1 to give up.
    """
    kinds, widths, spellings, levels = scratch
    last_column = starts.shape[1] - 1
    at_end = column == column_kinds.size
    n_before = _unpack_bytes(row, kinds, widths, spellings, levels)
    total = n_before
    if not at_end:
        for q in range(4):
            if column_bytes[column, q] >= 0:
                kinds[total] = column_kinds[column]
                widths[total] = 0
                spellings[total] = column_bytes[column, q]
                levels[total] = _NO_LEVEL
                total += 1
        widths[n_before] = total - n_before
    levels[total] = _NO_LEVEL
    limit = np.int64(total)
    for k in range(spelled.size):
        limit = _run(
            k, limit, total, at_end, row, transitions, np.int64(starts[k, 0]), spelled[k], last_column, kinds, widths,
            spellings, levels,
        )  # fmt: skip
    if total - limit > OPEN_BYTES:
        return -1
    found = 1 << OPEN_BYTES if at_end else 0
    for q in range(limit):
        bit = 1 << (OPEN_BYTES - n_before + q)
        if levels[q] != _NO_LEVEL:
            found |= bit
        if levels[q] == 0:
            found |= bit << 8
    for q in range(OPEN_BYTES):
        p = limit + q
        row[q] = 0
        if p < total:
            row[q] = kinds[p] | spellings[p] << 8 | widths[p] << 16 | levels[p] << 20 | 1 << 24
    for k in range(spelled.size):
        row[OPEN_BYTES + k] -= limit << 32 | limit << 36
    return found


@kernel_part
def _is_same(row, other):
    n = 0
    for q in range(row.size):
        n += row[q] == other[q]
    return n == row.size


@kernel_part
def _copy(row, to):
    for q in range(row.size):
        to[q] = row[q]


@kernel_part
def _number(row, rows, n, slots):
    """Returns the number of a state, and the number of states; a new one gets the number n and is added."""
    mixed = np.uint64(0)
    for q in range(row.size):
        mixed = (mixed ^ np.uint64(row[q])) * _MIX
        mixed ^= mixed >> np.uint64(29)
    slot = mixed >> np.uint64(64 - SLOT_BITS)
    while slots[slot] != GIVEN_UP:
        if _is_same(row, rows[slots[slot]]):
            return np.int64(slots[slot]), n
        slot = (slot + np.uint64(1)) & np.uint64((1 << SLOT_BITS) - 1)
    if n < rows.shape[0]:
        _copy(row, rows[n])
        slots[slot] = n
    return n, n + 1


@kernel
def build(column_kinds, column_bytes, transitions, starts, spelled, rows, slots, scratch, entries):
    """Finds all states.

    Args:
      column_kinds: int64[w - 1], twice the kind of the characters of each column but the last.
      column_bytes: int64[w - 1, 4], twice the kinds of their bytes as they are spelled, -1 where there are no more.
      transitions: int32[n]; starts: int32[n_patterns, 2 * n_kinds + 1]; spelled: bool[n_patterns]: see
        `automata.Automata`; no pattern looks behind, at most MAX_PATTERNS.
      rows: int64[most, OPEN_BYTES + n_patterns], zeros, filled; `most` is at most half of 2**SLOT_BITS.
      slots: int32[2**SLOT_BITS], zeros; scratch: int64[4, 16]; for work.
      entries: uint32[most * w], zeros, filled.

    Returns:
      The number of states; 0 if there are more than `most`.
    """
    width = column_kinds.size + 1
    row = rows[GIVEN_UP]  # free for use, since nothing goes on from this state
    for k in range(spelled.size):
        row[OPEN_BYTES + k] = starts[k, 0]
    _, n = _number(row, rows, np.int64(1), slots)
    done = 1
    while done < n <= rows.shape[0]:
        for column in range(width):
            _copy(rows[done], row)
            found = _follow(row, column, column_kinds, column_bytes, transitions, starts, spelled, scratch)
            if found < 0:
                continue
            state = np.int64(1)
            if column < width - 1:
                state, n = _number(row, rows, n, slots)
                if n > rows.shape[0]:
                    break
            entries[done * width + column] = (state * width) << 16 | found
        done += 1
    return n if n <= rows.shape[0] else 0


@kernel_part
def read_on(data, at, end, place, composed, classes):
    """Reads some fifty bytes from `at` on, of a text that ends at `end`, beginning in the state at `place`.

    classes: see `automata.Automata`.

    Returns:
      Three masks, bit OPEN_BYTES for `at`: where words start, where words start that the first pattern has cut, where
      characters of three bytes or more begin. Then how far it has read, and the place of the state there, GIVEN_UP if
      the character there is not read.
    """
    columns, entries = composed.columns, composed.entries
    bits = roots = longs = np.uint64(0)
    place = np.uint64(place)
    n = np.uint64(0)
    first = np.uint64(at)
    most = np.uint64(min(end - at, _MOST_READ))
    while n < most:
        b = np.uint64(data[first + n])
        width = _ONE
        if b < np.uint64(0x80):
            column = columns[b]
        else:
            second = np.uint64(data[first + n + _ONE])
            if b < np.uint64(0xE0):
                width = _TWO
                column = columns[(b & np.uint64(0x1F)) << np.uint64(6) | second & _LOW_SIX]
            else:
                longs |= np.uint64(b >= _THREE_BYTES) << n
                third = np.uint64(data[first + n + _TWO])
                code_point = (b & np.uint64(0x0F)) << np.uint64(12) | (second & _LOW_SIX) << np.uint64(6)
                code_point |= third & _LOW_SIX
                if b < np.uint64(0xF0):
                    width = _THREE
                    column = columns[code_point]
                else:
                    width = _FOUR
                    fourth = np.uint64(data[first + n + _THREE])
                    kind = classes[code_point << np.uint64(6) | fourth & _LOW_SIX] >> 1
                    groups = composed.byte_groups
                    column = composed.long_columns[kind, groups[second], groups[third], groups[fourth]]
        entry = entries[place + np.uint64(column)]
        bits |= np.uint64(entry & _BITS_MASK) << n
        roots |= np.uint64(entry >> np.uint32(8) & _BITS_MASK) << n
        place = np.uint64(entry >> np.uint32(16))
        if place == _GIVEN_UP:
            break
        n += width
    if place != _GIVEN_UP and np.int64(n) == end - at:
        entry = entries[place + np.uint64(composed.width - 1)]
        bits |= np.uint64(entry & _BITS_MASK) << n
    return bits, roots, longs << np.uint64(OPEN_BYTES), at + np.int64(n), np.int64(place)


@kernel_part
def pass_letters(data, at, end, place, composed):
    """Skips letters that leave the state at `place` unchanged, eight at a time; returns where it stopped."""
    loop = composed.loops[place // composed.width]
    while loop != 0 and at + 8 <= end:
        eight = load_u64(data, at)
        if (leading_letters(eight) if loop == ANY_CASE else leading_lower(eight)) < 8:
            break
        at += 8
    return at
