# SPDX-License-Identifier: Apache-2.0
"""One pattern over ASCII, two characters a step and without a branch: where words start, as bits.

An automaton (see `automata`) knows that a match has ended when it has read on, a character or more behind it. Here it
never goes back: a state holds what was read and is not decided yet, and whether a word starts at a character is said
`DELAY` characters later. Where more than that is open there is no state but `GIVEN_UP`, which says nothing more.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer.kernels.compiling import kernel, kernel_part, load_u64
from tokenizer.kernels.utf8 import HIGH_BITS

DELAY = 3
GIVEN_UP = 0
MAX_COLUMNS, MAX_ENTRIES = 1 << 6, 1 << 20
"""What fits into a key."""
SLOT_BITS = 14
_FIRST_READ = 36
_MIX = np.uint64(0x9E3779B97F4A7C15)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
_BYTE = np.uint64(0xFF)
_GIVEN_UP = np.uint64(GIVEN_UP)


class Blocks(NamedTuple):
    """An automaton that answers late; its columns are the kinds of ASCII characters."""

    pairs: npt.NDArray[np.int32]
    """int32[n_states, n_columns, n_columns] in one row, empty if there is none: by two characters, the place of the
    next state, times four, and two bits of whether words start `DELAY` characters before each. The first state is
    `GIVEN_UP`."""
    first: npt.NDArray[np.uint16]
    second: npt.NDArray[np.uint16]
    """uint16[128]: what a character adds to the place of a state, as the first and the second of two."""
    starts: npt.NDArray[np.int32]
    """int32[2 * w + 1]: the place of the state where a word starts, by twice the kind of the character before."""


@kernel_part
def _key(entry, before, has_match, in_gap, marks, read, n):
    """Packs a state.

    Args:
      entry: where the automaton is, less than MAX_ENTRIES.
      before: twice the kind of the character before the `n` ones in `read`, which are read again should it fail.
      has_match: whether a match ends there; else a match may begin there.
      in_gap: whether the word has begun before the place where a match is looked for.
      marks: starts of words that are known and not said, a bit for each of the last DELAY characters.
    """
    key = np.int64(entry) | np.int64(before) >> 1 << 20 | np.int64(has_match) << 28 | np.int64(in_gap) << 29
    key |= np.int64(marks) << 30 | np.int64(n) << 33
    for q in range(n):
        key |= np.int64(read[q]) << (_FIRST_READ + 6 * q)
    return key


@kernel_part
def is_over(entry, transitions, last_column):
    """Whether a match ends here, whatever comes next."""
    n = 0
    for kind in range(0, last_column + 1, 2):
        n += transitions[entry + kind] & 1
    return 2 * n > last_column


@kernel_part
def _follow(key, column, kinds, transitions, starts, looks_behind, read, again):
    """Reads a character; returns the key after it, -1 for giving up, and whether a word starts DELAY before it.

    read, again: int64[16], changed. The rest as for `build`.
    """
    last_column = starts.size - 1
    entry = key & (MAX_ENTRIES - 1)
    before = (key >> 20 & 0xFF) << 1
    has_match, in_gap = key >> 28 & 1, key >> 29 & 1
    marks, n = (key >> 30 & 7) << 1, key >> 33 & 7
    for q in range(n):
        read[q] = key >> (_FIRST_READ + 6 * q) & (MAX_COLUMNS - 1)
    again[0] = column
    n_again = 1
    k = 0
    while k < n_again:
        left = n_again - 1 - k
        read[n] = again[k]
        n += 1
        kind = np.int64(kinds[again[k]])
        after = np.int64(transitions[entry + kind])
        if after & 1 and (has_match or n > 1):
            # A match ends before this character.
            if in_gap and not has_match:
                marks |= 1 << (left + n - 1)
                in_gap = np.int64(0)
            has_match = np.int64(1)
            if n > 1:
                before = np.int64(kinds[read[n - 2]])
            read[0] = read[n - 1]
            n = np.int64(1)
        if after > 1:
            entry = after
            if is_over(entry, transitions, last_column):
                if in_gap and not has_match:
                    marks |= 1 << (left + n - 1)
                    in_gap = np.int64(0)
                has_match = np.int64(1)
                before = kind
                n = np.int64(0)
            k += 1
            if n > DELAY + 1:
                return np.int64(-1), False
            continue
        # From where the match has ended, or from the next character.
        first = 0
        if has_match:
            marks |= 1 << (left + n - 1)
            in_gap = np.int64(0)
        else:
            in_gap = np.int64(1)
            before = np.int64(kinds[read[0]])
            first = 1
        has_match = np.int64(0)
        entry = np.int64(starts[before if looks_behind else 0])
        for q in range(left):
            read[n + q] = again[k + 1 + q]
        n_again = n - first + left
        for q in range(n_again):
            again[q] = read[first + q]
        n = np.int64(0)
        k = 0
    if n > DELAY + 1 - (has_match | in_gap):
        return np.int64(-1), False
    if not looks_behind:
        before = np.int64(0)
    is_start = marks >> DELAY & 1 != 0
    return _key(entry, before, has_match, in_gap, marks & ((1 << DELAY) - 1), read, n), is_start


@kernel_part
def _state_of(key, keys, n, slots):
    """Returns the state that has a key, n where it is a new one, and how many there are then, at most keys.size."""
    if key < 0:
        return GIVEN_UP, n
    slot = np.uint64(key) * _MIX >> np.uint64(64 - SLOT_BITS)
    while slots[slot] != GIVEN_UP:
        if keys[slots[slot]] == key:
            return np.int64(slots[slot]), n
        slot = (slot + np.uint64(1)) & np.uint64((1 << SLOT_BITS) - 1)
    if n == keys.size:
        return GIVEN_UP, n + 1
    keys[n] = key
    slots[slot] = n
    return n, n + 1


@kernel
def build(transitions, starts, looks_behind, kinds, first_states, keys, nexts, is_start, slots, scratch):
    """Finds all states.

    Args:
      transitions, starts, looks_behind: of one automaton, see `automata.Automata`; fewer than MAX_ENTRIES transitions.
      kinds: uint8[n_columns], twice the kind of each column, at most MAX_COLUMNS.
      first_states: int32[starts.size], filled: where a word starts, by twice the kind of the character before.
      keys: int64[most], filled; `most` is at most half of 2**SLOT_BITS.
      nexts: int32[most, n_columns], is_start: bool[most, n_columns], filled: by state and column.
      slots: int32[2**SLOT_BITS], zeros. scratch: int64[2, 16].

    Returns:
      How many states there are, state GIVEN_UP being the first; 0 if there are more than `most`.
    """
    read, again = scratch
    nexts[GIVEN_UP] = GIVEN_UP
    is_start[GIVEN_UP] = False
    n = np.int64(1)
    for before in range(starts.size):
        here = before if looks_behind else 0
        first_states[before], n = _state_of(_key(starts[here], here, 0, 0, 0, read, 0), keys, n, slots)
    done = 1
    while done < n <= keys.size:
        for column in range(kinds.size):
            key, found = _follow(keys[done], column, kinds, transitions, starts, looks_behind, read, again)
            nexts[done, column], n = _state_of(key, keys, n, slots)
            is_start[done, column] = found
            if n > keys.size:
                break
        done += 1
    return n if n <= keys.size else 0


@kernel_part
def block_starts(data, i, end, before, blocks):
    """Returns where words start behind i, as far as that is known: bits, bit 0 being i, which is not set.

    A word starts at i, behind a character of twice the kind `before`.
    """
    pairs, first, second = blocks.pairs, blocks.first, blocks.second
    state = np.uint64(blocks.starts[before])
    most = min(end - i, 64)
    bits = np.uint64(0)
    n = 0
    while n + 8 <= most:
        eight = load_u64(data, i + n)
        if eight & HIGH_BITS != np.uint64(0):
            break
        found = np.uint64(0)
        for q in range(4):
            two = eight >> np.uint64(16 * q)
            columns = np.uint64(first[two & _BYTE]) + np.uint64(second[two >> np.uint64(8) & _BYTE])
            entry = np.uint64(pairs[state + columns])
            state = entry >> _TWO
            found |= (entry & _THREE) << np.uint64(2 * q)
        bits |= found << np.uint64(n)
        n += 8
        if state == _GIVEN_UP:
            break
    while n + 2 <= most and (data[i + n] | data[i + n + 1]) < 0x80:
        columns = np.uint64(first[data[i + n]]) + np.uint64(second[data[i + n + 1]])
        entry = np.uint64(pairs[state + columns])
        state = entry >> _TWO
        bits |= (entry & _THREE) << np.uint64(n)
        n += 2
    return bits >> np.uint64(DELAY)
