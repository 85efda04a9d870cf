# SPDX-License-Identifier: Apache-2.0
"""Builds the tables of patterns as one automaton; see `kernels.automata_composed`."""

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.automata_composed import (
    ANY_CASE,
    LOWER_CASE,
    MAX_COLUMNS,
    MAX_PATTERNS,
    MAX_PLACES,
    OPEN_BYTES,
    SLOT_BITS,
    Composed,
    build,
)
from tokenmill.tokenizer.ragged import distinct, read_only

_MAX_COMBINATIONS = 1 << 20
"""Known patterns have some thousand, of which a hundred are there."""

_LOWER, _UPPER = range(ord("a"), ord("z") + 1), range(ord("A"), ord("Z") + 1)
LETTER_LOOPS = ([*_LOWER], LOWER_CASE), ([*_UPPER, *_LOWER], ANY_CASE)
"""Letters that may leave a state unchanged, and the flag for it; if both do, the second one is set."""


def compose(
    classes: npt.NDArray[np.uint8], byte_classes: npt.NDArray[np.uint8],
    states: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], transitions: npt.NDArray[np.int32],
    starts: npt.NDArray[np.int32], looks_behind: npt.NDArray[np.bool_], spelled: npt.NDArray[np.bool_],
) -> Composed:  # fmt: skip
    """Returns patterns as one automaton; it has no entries if they cannot be one.

    Args:
      classes, byte_classes: the kinds of code points and of spelled bytes.
      states: the next states by kind, of patterns that read characters, and of patterns that read spelled bytes.
      transitions, starts, looks_behind, spelled: see `kernels.automata.Automata`.
    """
    if spelled.size > MAX_PATTERNS or spelled[0] or looks_behind.any():
        return _NONE
    # Characters, and spelled bytes, are distinguished only if a pattern that reads them does so.
    kinds, groups = _told_apart(states[0])
    byte_kinds, byte_groups = _told_apart(states[1])
    of_bytes = byte_groups[byte_classes] + 1
    leads, others = of_bytes[0xC0:0xF5], of_bytes[0x80:0xC0]
    n = byte_kinds.size + 1
    if kinds.size * n**4 > _MAX_COMBINATIONS or np.ptp(leads[0x30:]) > 0:
        return _NONE
    # A column is a combination of a character's group and the groups of its bytes, 0 for bytes that it does not have.
    combined = groups[classes[:0x10000]]
    one, two, three = combined[:0x80], combined[0x80:0x800].reshape(-1, 64), combined[0x800:].reshape(-1, 64)
    one[:] = (one * n + of_bytes[:0x80]) * n**3
    two[:] = ((two * n + leads[2:0x20, None]) * n + others) * n**2
    # The first 32 combinations of lead and second byte are not characters of three bytes.
    first, second = np.repeat(leads[0x20:0x30], 64)[32:, None], np.tile(others, 16)[32:, None]
    three[:] = (((three * n + first) * n + second) * n + others) * n
    is_there = np.zeros((kinds.size, n, n, n, n), np.bool_)
    is_there.ravel()[combined] = True
    is_there[np.ix_(np.arange(kinds.size), leads[0x30:0x31], *[distinct(others)] * 3)] = True
    numbers = np.cumsum(is_there.ravel()) - 1
    width = int(numbers[-1]) + 2
    if width > MAX_COLUMNS:
        return _NONE
    columns = numbers.astype(np.uint8)[combined]
    long_columns = numbers.astype(np.uint8).reshape(is_there.shape)[groups, leads[0x30]]
    of_columns, *bytes_of_columns = np.nonzero(is_there)
    bytes_there = np.column_stack(bytes_of_columns) - 1
    most = min(MAX_PLACES // width, 1 << SLOT_BITS - 1)
    entries = np.zeros((most, width), np.uint32)
    n_states = build(
        2 * kinds[of_columns], np.where(bytes_there < 0, -1, 2 * byte_kinds[bytes_there]), read_only(transitions),
        read_only(starts), read_only(spelled), np.zeros((most, OPEN_BYTES + spelled.size), np.int64),
        np.zeros(1 << SLOT_BITS, np.int32), np.zeros((4, 16), np.int64), entries.ravel(),
    )  # fmt: skip
    if n_states == 0:
        return _NONE
    entries = entries[:n_states].copy()
    loops = np.zeros(n_states, np.uint8)
    own = width * np.arange(n_states)[:, None] << 16
    for letters, loop in LETTER_LOOPS:
        loops[(entries[:, columns[letters]] == own).all(axis=1)] = loop
    return Composed(
        read_only(columns), read_only(of_bytes.astype(np.uint8)), read_only(long_columns), read_only(entries.ravel()),
        read_only(loops), np.int64(width),
    )  # fmt: skip


def _told_apart(states: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns the groups of kinds that no state distinguishes: one kind of each group, and the group of each kind."""
    _, kinds, groups = np.unique(states[:, :-1], axis=1, return_index=True, return_inverse=True)
    return kinds, groups.ravel()


_NO_BYTES = read_only(np.empty(0, np.uint8))
_NONE = Composed(
    _NO_BYTES, _NO_BYTES, read_only(np.empty((0, 0, 0, 0), np.uint8)), read_only(np.empty(0, np.uint32)), _NO_BYTES,
    np.int64(0),
)  # fmt: skip
