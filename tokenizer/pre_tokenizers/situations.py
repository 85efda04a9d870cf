# SPDX-License-Identifier: Apache-2.0
"""All situations that texts can bring patterns into, and what follows for all texts: searched exhaustively.

A *situation* is what decides all later cuts: the state of the match that is being read, and the states of earlier
matches that ended here or before and must not go on. A text has exactly one sequence of situations, so a graph of them
says which cuts some text allows.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.automata import Automata
from tokenmill.tokenizer.kernels.blocks import SECOND, STARTS
from tokenmill.tokenizer.pre_tokenizers.tables import N_CODE_POINTS

Flags = npt.NDArray[np.bool_]

_MAX_SITUATIONS = 1_500
"""Known patterns have 20 to 400; more would take too long to search."""
_MAX_BEHIND = 6
"""The most earlier matches that are read on at a place. If this is never exceeded, no byte is read more often."""
_BEGIN, _BETWEEN = -2, -1
"""In place of a state: the text begins here; no match is being read."""


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


class Search:
    """All situations that texts can lead to."""

    def __init__(self, levels: list[_Level], symbols: list[Symbol], dropped: bool | None = None) -> None:
        """Searches; dropped: see `boundaries.derive`.

        Raises:
          TooManyError: if there are more situations than can be searched.
        """
        self.levels, self.symbols, self.dropped = levels, symbols, dropped
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
        return closed(self.ends, any_of(self.steps(), 0, 1))

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


def search_all(automata: Automata, dropped: bool | None = None) -> tuple[Search, npt.NDArray[np.int64]]:
    """Searches all texts; returns this, and the number of the symbol of each ASCII byte; others come after these.

    Raises:
      TooManyError: if one looks behind, there are too many situations, or bytes may be read again and again.
    """
    levels = _levels(automata)
    symbols, of_bytes, others = _symbols(automata)
    return Search(levels, symbols + others, dropped), of_bytes


def _levels(automata: Automata) -> list[_Level]:
    """Returns the patterns with their own states."""
    if automata.looks_behind.any():
        raise TooManyError
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


def any_of(flags: npt.NDArray[Any], *axes: int) -> Flags:
    """Returns where any is true along some axes."""
    return np.asarray(flags.any(axis=axes))


def closed(members: Flags, steps: npt.NDArray[Any]) -> Flags:
    """Returns the situations from which steps, [n, n], lead to members, bool[n]."""
    while True:
        more = members | (steps.astype(np.bool_) & members).any(axis=1)
        if (more == members).all():
            return more
        members = more


def matches_all(automata: Automata) -> bool:
    """Whether matches of a single pattern leave nothing between them, in any text.

    Raises:
      TooManyError: as `search_all`.
    """
    search, _ = search_all(automata)
    alive = search.alive()
    return not any(alive[n] and situation[0][0] == _BETWEEN for situation, n in search.numbers.items())


def cuts_no_more(automata: Automata, dropped: bool) -> bool:
    """Whether no later pattern cuts what the first one keeps, in any text; dropped: see `boundaries.derive`.

    Raises:
      TooManyError: as `search_all`.
    """
    search, _ = search_all(automata)
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
      TooManyError: as `search_all`.
    """
    both = np.flatnonzero(np.bincount(one.classes // 2 * np.int64(256) + other.classes // 2)).tolist()
    a, b = (
        Search(_levels(each), [(kind,) for kind in kinds])
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
    alive = closed(np.array([a.ends[s] and b.ends[t] for s, t in numbers]), leads)
    return not alive[differ].any()
