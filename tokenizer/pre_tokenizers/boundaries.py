# SPDX-License-Identifier: Apache-2.0
"""Derives from automata where pre-tokens begin in ASCII, as rules that `kernels.blocks` applies to 64 bytes at once.

    automata -> all situations that a text can lead to -> windows of four classes of bytes -> rules of `blocks.Rules`

A *window* is the classes of the two bytes before a place, the one behind it, and the one after that. The graph of
`situations` is searched for all texts, so that a window is decided only if every text with these bytes agrees, whatever
is before and after. Other windows are undecided: the block ends there, and the automaton reads one word. Texts that
passed such a place need not be considered for the windows after it.

For text that is not ASCII the same graph gives pairs: the outcome between two characters, by their kinds alone.

`tests/tokenizer/pre_tokenizers/test_boundaries.py` compares the rules with the `regex` package.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.automata import Automata
from tokenmill.tokenizer.kernels.blocks import (
    CLASSES,
    EDGE,
    HIGH,
    LOOKS,
    N_CLASSES,
    N_TABLES,
    RUNS,
    SECOND,
    SHARES,
    STARTS,
    STEPS,
    Rules,
)
from tokenmill.tokenizer.kernels.ideographs import IDEOGRAPHS
from tokenmill.tokenizer.pre_tokenizers.situations import Flags, Search, TooManyError, any_of, closed, search_all
from tokenmill.tokenizer.ragged import distinct, read_only

_N_RULES = 8
"""The most rules of a group."""
_BLANKS, _LINE_ENDS = b"\t\v\f ", b"\n\r"
_GROUPS = (range(ord("a"), ord("z") + 1), range(ord("A"), ord("Z") + 1), range(ord("0"), ord("9") + 1))
"""Bytes of one class whatever a pattern says: otherwise contractions would make every `re` in a word undecided."""


def _classes(of_bytes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Returns the class of each ASCII byte, from 1 on; HIGH for those that are too many to have one."""
    keys = [(int(n), b in _BLANKS, b in _LINE_ENDS) for b, n in enumerate(of_bytes)]
    for group in _GROUPS:
        for b in group:
            keys[b] = (-group.start, False, False)
    numbers: dict[Any, int] = {}
    # The bytes that occur most come first.
    for b in (*b" eE0.\n',\"-()/_:=\t\r", *range(128)):
        numbers.setdefault(keys[b], len(numbers) + 1)
    found = np.array([numbers[key] for key in keys])
    return np.where(found < N_CLASSES - 1, found, HIGH).astype(np.uint8)


class _Windows:
    """Which windows are decided, and how."""

    def __init__(
        self,
        search: Search,
        classes: npt.NDArray[np.uint8],
        of_bytes: npt.NDArray[np.int64],
        white: Flags,
        ends: Flags,
    ) -> None:
        """Searches all texts of blocks.

        white, ends: bool[N_CLASSES]: a run of `white` classes, except its first byte if none of `ends` is before it, is
          known to be followed by another class than these.
        """
        n, self.n = int(classes.max()) + 1, len(search.edges)
        self.symbols_of = [distinct(of_bytes[classes == c]) for c in range(n)]
        self.is_joined, self.is_single = search.dropped is None, len(search.levels) == 1
        steps, alive = search.steps(), search.alive()
        self.steps = np.zeros((n, 4, self.n, self.n), np.float32)
        for c in range(1, n):
            self.steps[c] = steps[self.symbols_of[c]].any(axis=0)
        n_ascii = int(of_bytes.max()) + 1
        high = (steps[[*range(n_ascii, len(steps)), *self.symbols_of[HIGH]]].any(axis=(0, 1)) & alive).any(axis=1)
        # Within a run that is known to be followed by something else.
        can = [high, *((self.steps[c].any(axis=0) & alive).any(axis=1) for c in range(1, n))]
        ordinary = np.any([can[c] for c in range(1, n) if not white[c] and not ends[c]], axis=0)
        inner = any_of(self.steps[np.flatnonzero(white[:n])], 0, 1)
        in_run = closed(ordinary, inner)
        self.white, self.ends = white[:n], ends[:n]
        self.can_read = np.stack(can)
        self.can_read_in_run = np.zeros_like(self.can_read)
        for c in range(1, n):
            if white[c]:
                self.can_read_in_run[c] = (self.steps[c].any(axis=0) & in_run).any(axis=1)
            elif not ends[c]:
                self.can_read_in_run[c] = can[c]
        self.alive = alive
        self.outcomes = self._decide()

    def _decide(self) -> Flags:
        """Returns bool[n + 1, n + 1, n, n, 4]: the outcomes of each window; classes before may be the last, EDGE."""
        n = len(self.steps)
        self.undecided = np.zeros((n + 1, n + 1, n, n), np.bool_)
        while True:
            outcomes, more = self._walk()
            if not more.any():
                return outcomes
            self.undecided |= more

    def _walk(self) -> tuple[Flags, Flags]:
        """Follows all texts from where a pre-token begins, up to undecided windows or the first more of these."""
        n = len(self.steps)
        there = np.zeros((n + 1, n + 1, n, self.n), np.float32)
        there[n, n, 1:, 0] = 1
        if not self.is_single:
            # What the other patterns have read before the block is not known.
            there[n, n, 1:] = self.alive
        while True:
            after, outcomes = self._step(there)
            more = (outcomes.sum(axis=4) > 1) & ~self.undecided
            if self.is_joined:
                more[:, n] = False
            after[self.undecided] = False
            grown = there.copy()
            grown[:, 1:n, 1:] = np.maximum(there[:, 1:n, 1:], any_of(after, 0)[:, 1:, 1:])
            if more.any() or (grown == there).all():
                return outcomes, more
            there = grown

    def _step(self, there: npt.NDArray[np.float32]) -> tuple[Flags, Flags]:
        """Returns the situations after each window, and the outcomes at its place."""
        n = len(self.steps)
        after = np.zeros((n + 1, n + 1, n, n, self.n), np.bool_)
        outcomes = np.zeros((n + 1, n + 1, n, n, 4), np.bool_)
        for c in range(1, n):
            p, q = any_of(there[:, :, c], 2).nonzero()
            before = np.append(self.white, False)[q]
            # In a run of white space, except at its first byte, it is known that no line end follows.
            if self.white[c]:
                in_run = np.append(self.white | self.ends, False)[q, None, None]
                reads = np.where(in_run, self.can_read_in_run, self.can_read)
            else:
                reads = np.where((before & self.ends[c])[:, None, None], False, self.can_read)
            for outcome in range(4):
                then = there[p, q, c] @ self.steps[c, outcome] > 0
                if self.is_joined and not outcome & STARTS:
                    then[q == n] = False
                both = then[:, None] & reads
                after[p, q, c] |= both
                outcomes[p, q, c, :, outcome] = both.any(axis=2)
        return after, outcomes


def _pairs(automata: Automata, search: Search) -> npt.NDArray[np.uint8]:
    """Returns `Rules.pairs`, empty if a pattern reads spelled bytes: they say more than the kind of a character."""
    if automata.spelled.any():
        return np.zeros((0, 0), np.uint8)
    n_kinds = automata.starts.shape[1] // 2
    pairs = np.zeros((n_kinds, n_kinds), np.uint8)
    numbers = {symbol[0]: n for n, symbol in enumerate(search.symbols)}
    alive, is_joined = search.alive(), search.dropped is None
    steps = search.steps()[[*numbers.values()]].astype(np.float32)
    kinds = np.array([*numbers])
    # As for windows: what other patterns have read before is not known.
    begins = alive if len(search.levels) > 1 else np.arange(alive.size) == 0
    outcomes = [STARTS, STARTS | SECOND] if is_joined else [*range(4)]
    there = any_of(begins.astype(np.float32) @ steps[:, outcomes] > 0, 1)
    run = np.flatnonzero(np.isin(kinds, automata.classes[IDEOGRAPHS] // 2))
    in_run = steps[run[0]].any(axis=0)
    reached = there[run[0]]
    while (more := reached | (reached.astype(np.float32) @ in_run > 0)).sum() > reached.sum():
        reached = more
    for q, kind in enumerate(kinds):
        before = there.copy()
        can_read = (steps[q].any(axis=0) & alive).any(axis=1)
        leads = closed(can_read, in_run)
        before[run] = reached & leads
        after = (before.astype(np.float32) @ steps[q] > 0) & alive
        has = after.any(axis=2)
        cuts_run = ((before[run].astype(np.float32) @ steps[run[0], 1:] > 0) & leads).any()
        has[:, run] |= cuts_run or run.size > 1
        outcome = np.where(has.sum(axis=0) == 1, has.argmax(axis=0), 0)
        if is_joined:
            # What begins anew is in the only situation that the rest of the text can come from.
            anew = ~(any_of(after, 0) & ~steps[q].any(axis=0)[0]).any(axis=1)
            outcome = np.where(outcome & STARTS, outcome | SECOND * anew, 0)
        pairs[kinds, kind] = outcome
    return pairs


def _cover(wanted: Flags, refused: Flags, *, most: int | None = None) -> list[tuple[Flags, ...]]:
    """Covers the windows that are wanted by products of sets of classes that have none of those that are refused.

    most: the most products; with it, the last one may have windows that are refused.
    """
    products: list[tuple[Flags, ...]] = []
    wanted = wanted.copy()
    while wanted.any():
        if len(products) + 1 == most:
            return [*products, tuple(any_of(wanted, *_others(axis)) for axis in range(4))]
        seed = np.unravel_index(int(wanted.argmax()), wanted.shape)
        best: tuple[Flags, ...] = ()
        n_best = 0
        for order in _ORDERS:
            sets = [np.arange(size) == place for size, place in zip(wanted.shape, seed, strict=True)]
            for axis in order:
                sets[axis] = np.ones(wanted.shape[axis], np.bool_)
                sets[axis] = ~refused[np.ix_(*sets)].any(axis=_others(axis))
            n_new = int(wanted[np.ix_(*sets)].sum())
            if n_new > n_best:
                best, n_best = tuple(sets), n_new
        products.append(best)
        wanted[np.ix_(*best)] = False
    return products


_ORDERS = [[(first + k * by) % 4 for k in range(4)] for first in range(4) for by in (1, 3)]


def _others(axis: int) -> tuple[int, ...]:
    return tuple(other for other in range(4) if other != axis)


def _looks(products: list[tuple[Flags, ...]]) -> npt.NDArray[np.uint8]:
    """Returns uint8[4, 16]: for each place of a window, by class, a bit for each product that has it there."""
    looks = np.zeros((4, 16), np.uint8)
    for bit, sets in enumerate(products):
        for axis, members in enumerate(sets):
            classes = np.flatnonzero(members)
            # Before a block is the last class of a window.
            looks[axis, np.where(classes == members.size - 1, EDGE, classes) if axis < 2 else classes] |= 1 << bit
    return looks


def derive(automata: Automata, dropped: bool | None) -> Rules:
    """Derives the rules of automata.

    Args:
      automata: see `kernels.automata`.
      dropped: None if all segments are pre-tokens; else whether those are dropped that are matches, or those that are
        not. There is one pattern then.

    Raises:
      TooManyError: as `search_all`, and if there are too many rules.
    """
    search, of_bytes = search_all(automata, dropped)
    classes = _classes(of_bytes)
    white, ends = np.zeros((2, N_CLASSES), np.bool_)
    windows = _Windows(search, classes, of_bytes, white, ends)
    ends[classes[[*_LINE_ENDS]]], of_blanks = True, distinct(classes[[*_BLANKS]])
    ends[HIGH] = False
    if windows.undecided[:, :, of_blanks].any():
        white[of_blanks] = of_blanks != HIGH
        of_runs = _Windows(search, classes, of_bytes, white, ends)
        if (windows.undecided & of_runs.outcomes.any(axis=4)).sum() > of_runs.undecided.sum():
            windows = of_runs
        else:
            white[:] = False
    is_decided = (windows.outcomes.sum(axis=4) == 1) & ~windows.undecided
    outcomes = np.arange(4)
    starts, second = (
        _cover(is_decided & has, is_decided & ~has)
        for has in (windows.outcomes[..., outcomes & bit > 0].any(axis=4) for bit in (STARTS, SECOND))
    )
    if dropped is None and len(search.levels) == 1:
        second = []
    starts, more = starts[:_N_RULES], starts[_N_RULES:]
    n_left = _N_RULES - len(more) - len(second)
    if n_left < 1:
        raise TooManyError
    unknown = _cover(windows.undecided, is_decided, most=n_left)
    tables = np.zeros((N_TABLES, 16), np.uint8)
    tables[LOOKS:SHARES] = np.concatenate([_looks(starts), _looks([*more, *second, *unknown])])
    kinds = np.repeat([0, 1, 2], [len(more), len(second), len(unknown)])
    for kind in range(3):
        tables[SHARES + kind] = (1 << np.flatnonzero(kinds == kind)).sum()
    tables[CLASSES:STEPS] = classes.reshape(8, 16)
    tables[STEPS] = tables[CLASSES]
    tables[STEPS + 1 : LOOKS] = tables[CLASSES + 1 : STEPS] ^ tables[CLASSES : STEPS - 1]
    tables[RUNS, :N_CLASSES] = 0x80 * white
    tables[RUNS + 1, :N_CLASSES] = 0x80 * ends
    return Rules(read_only(tables), read_only(_pairs(automata, search)))
