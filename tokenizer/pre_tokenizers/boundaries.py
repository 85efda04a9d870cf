# SPDX-License-Identifier: Apache-2.0
"""Derives from automata where pre-tokens begin in ASCII, as rules that `kernels.blocks` applies to 64 bytes at once.

    automata -> all situations that a text can lead to -> windows of four classes of bytes -> rules of `blocks.Rules`

A *situation* is what decides all later cuts: the state of the match that is being read, and the states of earlier
matches that ended here or before and must not go on. A text has exactly one sequence of situations, so a graph of them
says which cuts some text allows. A *window* is the classes of the two bytes before a place, the one behind it, and the
one after that. The graph is searched for all texts, so that a window is decided only if every text with these bytes
agrees, whatever is before and after. Other windows are undecided: the block ends there, and the automaton reads one
word. Texts that passed such a place need not be considered for the windows after it.

For text that is not ASCII the same graph gives pairs: the outcome between two characters, by their kinds alone.

`tests/tokenizer/pre_tokenizers/test_boundaries.py` compares the rules with the `regex` package.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

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
from tokenmill.tokenizer.pre_tokenizers.code_point_sets import N_CODE_POINTS
from tokenmill.tokenizer.ragged import distinct, read_only

Flags = npt.NDArray[np.bool_]

_MAX_SITUATIONS = 1_500
"""Known patterns have 20 to 400; more would take too long to search."""
_MAX_BEHIND = 6
"""The most earlier matches that are read on at a place. If this is never exceeded, no byte is read more often."""
_N_RULES = 8
"""The most rules of a group."""
_BEGIN, _BETWEEN = -2, -1
"""In place of a state: the text begins here; no match is being read."""
_BLANKS, _LINE_ENDS = b"\t\v\f ", b"\n\r"
_GROUPS = (range(ord("a"), ord("z") + 1), range(ord("A"), ord("Z") + 1), range(ord("0"), ord("9") + 1))
"""Bytes of one class whatever a pattern says: otherwise contractions would make every `re` in a word undecided."""


class _Level(NamedTuple):
    """One pattern: for each state and kind the next state, 0 if no match can come, and whether a match ends before."""

    steps: list[list[tuple[int, int]]]
    start: int
    avoids: list[bool]
    """For each state whether a text can go on from it without a match."""


class TooManyError(ValueError):
    """Automata have no rules: too many situations, or the same bytes are read again without bound."""


Situation = tuple[tuple[int, tuple[int, ...]], ...]
"""For each pattern the state of its match, or one of the numbers above, and those of matches that must not go on."""
Symbol = tuple[int, ...]
"""For each pattern the kind of the next character or byte; -1 if it reads characters, and this is not a new one."""


class _Search:
    """All situations that texts can lead to."""

    def __init__(self, levels: list[_Level], symbols: list[Symbol], dropped: bool | None) -> None:
        """Searches; dropped: see `derive`."""
        self.levels, self.dropped = levels, dropped
        self.numbers: dict[Situation, int] = {tuple((_BEGIN, ()) for _ in levels): 0}
        self.edges: list[list[list[tuple[int, int]]]] = []
        """For each situation and symbol: the outcomes, and the situations after it."""
        for situation in _growing(self.numbers):
            self.edges.append([[*self._edges(situation, symbol)] for symbol in symbols])
        self.ends = np.array([all(self.can_end(*each) for each in zip(levels, s, strict=True)) for s in self.numbers])

    def steps(self) -> Flags:
        """Returns bool[n_symbols, 4, n, n]: which situations each symbol leads to, by outcome."""
        steps = np.zeros((len(self.edges[0]), 4, len(self.edges), len(self.edges)), np.bool_)
        for a, row in enumerate(self.edges):
            for symbol, edges in enumerate(row):
                for outcome, b in edges:
                    steps[symbol, outcome, a, b] = True
        return steps

    def alive(self) -> Flags:
        """Returns the situations from which a text can go on to its end."""
        return _closed(self.ends, _any(self.steps(), 0, 1))

    def _edges(self, situation: Situation, symbol: Symbol) -> Iterator[tuple[int, int]]:
        for outcome, after in self._follow(0, situation, symbol, (), 0):
            number = self.numbers.setdefault(after, len(self.numbers))
            if number >= _MAX_SITUATIONS:
                raise TooManyError
            yield outcome, number

    def _follow(
        self, k: int, situation: Situation, symbol: Symbol, after: Situation, outcome: int
    ) -> Iterator[tuple[int, Situation]]:
        """Yields outcomes and situations after a symbol, from pattern k on; `outcome` is that of those before."""
        if k == len(self.levels):
            yield outcome, after
            return
        level, (state, behind) = self.levels[k], situation[k]
        if outcome and state != _BEGIN:
            # The pattern before has cut: the piece of this one ends.
            if not self.can_end(level, (state, behind)):
                return
            state, behind = _BEGIN, ()
        if symbol[k] < 0:
            yield from self._follow(k + 1, situation, symbol, (*after, (state, behind)), outcome)
            return
        for cut, own in self._read(level, state, behind, symbol[k]):
            one = outcome
            if cut is not None:
                is_match, was_match = cut
                if self.dropped is not None:
                    one = STARTS * (is_match != self.dropped) | SECOND * (was_match not in (self.dropped, None))
                else:
                    one |= STARTS | SECOND * (k == 0)
            yield from self._follow(k + 1, situation, symbol, (*after, own), one)

    def can_end(self, level: _Level, own: tuple[int, tuple[int, ...]]) -> bool:
        """Whether the text, or a piece of it, can end here."""
        state, behind = own
        return (state < 0 or bool(level.steps[state][-1][1])) and not any(level.steps[b][-1][1] for b in behind)

    def _read(self, level: _Level, state: int, behind: tuple[int, ...], kind: int) -> Iterator[Any]:
        """Yields what one pattern can do: where it cuts, whether a match begins and one has ended; what comes after."""
        steps = [level.steps[b][kind] for b in behind]
        if any(matched for _, matched in steps):
            return
        left = [after for after, _ in steps]
        first = level.steps[level.start][kind][0]
        if state >= 0:
            after, matched = level.steps[state][kind]
            if after:
                yield from _if_possible(level, None, after, left)
            if not matched:
                return
            left.append(after)
        if state == _BETWEEN:
            yield from _if_possible(level, None, _BETWEEN, [*left, first])
        else:
            yield from _if_possible(level, (False, None if state == _BEGIN else True), _BETWEEN, [*left, first])
        if first:
            was_match = None if state == _BEGIN else state != _BETWEEN
            yield from _if_possible(level, (True, was_match), first, left)


def _if_possible(level: _Level, cut: tuple[bool, bool | None] | None, state: int, behind: list[int]) -> Iterator[Any]:
    """Yields what one pattern can do, if the matches behind can end without going on."""
    behind = sorted(filter(None, behind))
    if all(level.avoids[each] for each in behind):
        if len(behind) > _MAX_BEHIND:
            raise TooManyError
        yield cut, (state, tuple(behind))


def _growing(numbers: dict[Any, int]) -> Iterator[Any]:
    """Yields the keys of a dictionary to which keys are added."""
    done = 0
    while done < len(numbers):
        for situation in list(itertools.islice(numbers, done, None)):
            yield situation
            done += 1


def _levels(automata: Automata) -> list[_Level]:
    """Returns the patterns with their own states."""
    width = 2 * (automata.starts.shape[1] // 2 + 2)
    table = automata.transitions.reshape(-1, width // 2, 2)[:, :-1, 0]
    steps = [[(int(entry) // width, int(entry) & 1) for entry in row] for row in table]
    avoids = [True] + [not row[-1][1] for row in steps[1:]]
    while True:
        more = [own or any(not m and avoids[after] for after, m in row) for own, row in zip(avoids, steps, strict=True)]
        if more == avoids:
            break
        avoids = more
    return [_Level(steps, int(start) // width, avoids) for start in automata.starts[:, 0]]


def _symbols(automata: Automata) -> tuple[list[Symbol], npt.NDArray[np.int64], list[Symbol]]:
    """Returns the symbols of ASCII, that of each byte, and the symbols of other characters.

    Other characters are any kind with any bytes that are not ASCII: more than there are, but no less.
    """
    spelled = automata.spelled.tolist()
    kinds, byte_kinds = automata.classes // 2, automata.byte_classes // 2
    of_bytes = [tuple(int((byte_kinds if s else kinds)[b]) for s in spelled) for b in range(128)]
    numbers = {symbol: n for n, symbol in enumerate(dict.fromkeys(of_bytes))}
    there = np.bincount(kinds[128:N_CODE_POINTS])
    firsts = [int(k) for k in np.flatnonzero(there)]
    others = set()
    for kind in firsts:
        for byte in set(byte_kinds[0xC2:0xF5].tolist()) if any(spelled) else [0]:
            others.add(tuple(int(byte) if s else kind for s in spelled))
    if any(spelled):
        for byte in set(byte_kinds[0x80:0xC0].tolist()):
            others.add(tuple(int(byte) if s else -1 for s in spelled))
    return list(numbers), np.array([numbers[symbol] for symbol in of_bytes]), sorted(others)


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


def _any(flags: npt.NDArray[Any], *axes: int) -> Flags:
    return np.asarray(flags.any(axis=axes))


def _closed(members: Flags, steps: npt.NDArray[Any]) -> Flags:
    """Returns the situations from which steps, [n, n], lead to members, bool[n]."""
    while True:
        more = members | (steps.astype(np.bool_) & members).any(axis=1)
        if (more == members).all():
            return more
        members = more


class _Windows:
    """Which windows are decided, and how."""

    def __init__(
        self,
        search: _Search,
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
        inner = _any(self.steps[np.flatnonzero(white[:n])], 0, 1)
        in_run = _closed(ordinary, inner)
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
            grown[:, 1:n, 1:] = np.maximum(there[:, 1:n, 1:], _any(after, 0)[:, 1:, 1:])
            if more.any() or (grown == there).all():
                return outcomes, more
            there = grown

    def _step(self, there: npt.NDArray[np.float32]) -> tuple[Flags, Flags]:
        """Returns the situations after each window, and the outcomes at its place."""
        n = len(self.steps)
        after = np.zeros((n + 1, n + 1, n, n, self.n), np.bool_)
        outcomes = np.zeros((n + 1, n + 1, n, n, 4), np.bool_)
        for c in range(1, n):
            p, q = _any(there[:, :, c], 2).nonzero()
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


def _pairs(automata: Automata, search: _Search, symbols: list[Symbol]) -> npt.NDArray[np.uint8]:
    """Returns `Rules.pairs`, empty if a pattern reads spelled bytes: they say more than the kind of a character."""
    if automata.spelled.any():
        return np.zeros((0, 0), np.uint8)
    n_kinds = automata.starts.shape[1] // 2
    pairs = np.zeros((n_kinds, n_kinds), np.uint8)
    numbers = {symbol[0]: n for n, symbol in enumerate(symbols)}
    alive, is_joined = search.alive(), search.dropped is None
    steps = search.steps()[[*numbers.values()]].astype(np.float32)
    kinds = np.array([*numbers])
    # As for windows: what other patterns have read before is not known.
    begins = alive if len(search.levels) > 1 else np.arange(alive.size) == 0
    outcomes = [STARTS, STARTS | SECOND] if is_joined else [*range(4)]
    there = _any(begins.astype(np.float32) @ steps[:, outcomes] > 0, 1)
    run = np.flatnonzero(np.isin(kinds, automata.classes[IDEOGRAPHS] // 2))
    in_run = steps[run[0]].any(axis=0)
    reached = there[run[0]]
    while (more := reached | (reached.astype(np.float32) @ in_run > 0)).sum() > reached.sum():
        reached = more
    for q, kind in enumerate(kinds):
        before = there.copy()
        can_read = (steps[q].any(axis=0) & alive).any(axis=1)
        leads = _closed(can_read, in_run)
        before[run] = reached & leads
        after = (before.astype(np.float32) @ steps[q] > 0) & alive
        has = after.any(axis=2)
        cuts_run = ((before[run].astype(np.float32) @ steps[run[0], 1:] > 0) & leads).any()
        has[:, run] |= cuts_run or run.size > 1
        outcome = np.where(has.sum(axis=0) == 1, has.argmax(axis=0), 0)
        if is_joined:
            # What begins anew is in the only situation that the rest of the text can come from.
            anew = ~(_any(after, 0) & ~steps[q].any(axis=0)[0]).any(axis=1)
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
            return [*products, tuple(_any(wanted, *_others(axis)) for axis in range(4))]
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


def matches_all(automata: Automata) -> bool:
    """Whether matches of a single pattern leave nothing between them, in any text.

    Raises:
      TooManyError: as `derive`.
    """
    if automata.looks_behind.any():
        raise TooManyError
    symbols, _, others = _symbols(automata)
    search = _Search(_levels(automata), symbols + others, None)
    alive = search.alive()
    return not any(alive[n] and situation[0][0] == _BETWEEN for situation, n in search.numbers.items())


def cuts_no_more(automata: Automata, dropped: bool) -> bool:
    """Whether no later pattern cuts what the first one keeps, in any text; dropped: see `derive`.

    Raises:
      TooManyError: as `derive`.
    """
    if automata.looks_behind.any():
        raise TooManyError
    symbols, _, others = _symbols(automata)
    search = _Search(_levels(automata), symbols + others, None)
    alive = search.alive()
    return not any(
        (situation[0][0] >= 0) != dropped and outcome == STARTS and alive[after]
        for situation, row in zip(search.numbers, search.edges, strict=True)
        for edges in row
        for outcome, after in edges
    )


def cut_alike(one: Automata, other: Automata) -> bool:
    """Whether automata of one pattern each cut every text in the same places.

    Raises:
      TooManyError: as `derive`.
    """
    if one.looks_behind.any() or other.looks_behind.any():
        raise TooManyError
    both = np.flatnonzero(np.bincount(one.classes // 2 * np.int64(256) + other.classes // 2)).tolist()
    a, b = (
        _Search(_levels(each), [(kind,) for kind in kinds], None)
        for each, kinds in ((one, [k >> 8 for k in both]), (other, [k & 255 for k in both]))
    )
    numbers, before, differ = {(0, 0): 0}, [(0, 0)], []
    for pair in _growing(numbers):
        for row, other_row in zip(a.edges[pair[0]], b.edges[pair[1]], strict=True):
            for (outcome, after), (other_outcome, other_after) in itertools.product(row, other_row):
                number = numbers.setdefault((after, other_after), len(numbers))
                before.append((numbers[pair], number))
                if outcome != other_outcome:
                    differ.append(number)
    leads = np.zeros((len(numbers), len(numbers)), np.bool_)
    leads[tuple(np.array(before).T)] = True
    # Of the pairs of situations those count from which one text goes on to its end in both.
    alive = _closed(np.array([a.ends[s] and b.ends[t] for s, t in numbers]), leads)
    return not alive[differ].any()


def derive(automata: Automata, dropped: bool | None) -> Rules:
    """Derives the rules of automata.

    Args:
      automata: see `kernels.automata`.
      dropped: None if all segments are pre-tokens; else whether those are dropped that are matches, or those that are
        not. There is one pattern then.

    Raises:
      TooManyError: if one looks behind, there are too many situations or rules, or bytes may be read again and again.
    """
    if automata.looks_behind.any():
        raise TooManyError
    symbols, of_bytes, others = _symbols(automata)
    search = _Search(_levels(automata), symbols + others, dropped)
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
    return Rules(read_only(tables), read_only(_pairs(automata, search, symbols + others)))
