# SPDX-License-Identifier: Apache-2.0
"""Turns patterns into automata that find the same match as a backtracking engine, reading each character once.

A state is the list of places in the pattern where backtracking would go on, in the order in which it would try them;
once one has matched, those after it are dropped. Whether a lookaround holds is known when the character after it is
read, so a step says whether a match ends before that character. Source of the idea: Rob Pike's simulation, and R. Cox,
"Regular Expression Matching: the Virtual Machine Approach", made deterministic. docs/explanation/algorithms.md has
more.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.kernels import automata as kernels
from tokenmill.tokenizer.kernels.automata import GAVE_UP, STEPS_OF_MEBIBYTE, Automata
from tokenmill.tokenizer.kernels.ideographs import IDEOGRAPHS
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import segment_kernels
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import (
    Alternation,
    Characters,
    Look,
    Node,
    NotRegularError,
    Repetition,
    Sequence,
    can_be_empty,
    parse,
)
from tokenmill.tokenizer.pre_tokenizers.tables import ALL, N_CODE_POINTS, CodePoints
from tokenmill.tokenizer.ragged import distinct, read_only
from tokenmill.tokenizer.words import Words

_MAX_PLACES, _MAX_STATES, _MAX_STEPS, _MAX_SETS, _MAX_CLASSES = 2_000, 2_000, 400_000, 500, 127
"""Limits for one pattern, except the steps; real ones have a few hundred places, dozens of states, sets and kinds."""

_NOTHING_YET = np.empty(0, np.int64)
_LEADS = np.array([*range(0x80), *range(0xC2, 0xF5)])
_FIRST_OF_LEADS = np.array(
    [
        *range(0x80), *range(0x80, 0x800, 0x40), 0x800, *range(0x1000, 0x10000, 0x1000),
        0x10000, *range(0x40000, N_CODE_POINTS, 0x40000),
    ],
    np.int32,
)  # fmt: skip
"""The bytes that characters begin with, and the first code point that begins with each."""

_LOWER, _UPPER = range(ord("a"), ord("z") + 1), range(ord("A"), ord("Z") + 1)
_LOOPS = (
    ([*_LOWER], kernels.LOWER_CASE, kernels.MATCHED_LETTERS),
    ([*_UPPER, *_LOWER], kernels.ANY_CASE, kernels.MATCHED_LETTERS),
    (IDEOGRAPHS, kernels.IDEOGRAPHS, kernels.MATCHED_IDEOGRAPHS),
)
"""Characters that may leave a state unchanged, the flag for it, and that for a match that ends before each of them."""


class _Place(NamedTuple):
    """A place in a pattern: what it requires, and the place after it."""

    kind: str
    """`character`, `behind`, `ahead`, `choice` or `match`."""
    members: int
    """The number of the set of characters."""
    at_edge: bool
    next: int
    other: int
    """For a choice, the place that is tried second."""


class _Places:
    """The places of a pattern, made from its end to its beginning, and all sets of characters that they use."""

    def __init__(self, sets: dict[CodePoints, int]) -> None:
        self.places: list[_Place] = []
        self.sets = sets

    def add(
        self, kind: str, members: CodePoints = ALL, *, at_edge: bool = False, then: int = -1, other: int = -1
    ) -> int:
        if len(self.places) >= _MAX_PLACES:
            raise NotRegularError("too long")
        number = self.sets.setdefault(members, len(self.sets))
        self.places.append(_Place(kind, number, at_edge, then, other))
        return len(self.places) - 1

    def choice(self, first: int, second: int, *, greedy: bool = True) -> int:
        return self.add("choice", then=first if greedy else second, other=second if greedy else first)

    def put(self, node: Node, then: int) -> int:
        """Adds a pattern that goes on at `then`; returns where it begins."""
        match node:
            case Characters():
                return self.add("character", node.members, then=then)
            case Look():
                return self.add("behind" if node.behind else "ahead", node.members, at_edge=node.at_edge, then=then)
            case Sequence():
                for part in reversed(node.parts):
                    then = self.put(part, then)
                return then
            case Alternation():
                first = self.put(node.branches[-1], then)
                for branch in reversed(node.branches[:-1]):
                    first = self.choice(self.put(branch, then), first)
                return first
            case Repetition():
                return self.repetition(node, then)

    def repetition(self, node: Repetition, then: int) -> int:
        start = then
        if node.most is None:
            start = self.choice(then, then)
            again = self.put(node.body, start)
            pair = (again, then) if node.greedy else (then, again)
            self.places[start] = self.places[start]._replace(next=pair[0], other=pair[1])
        else:
            for _ in range(node.most - node.least):
                start = self.choice(self.put(node.body, start), then, greedy=node.greedy)
        for _ in range(node.least):
            start = self.put(node.body, start)
        return start


class _Builder:
    """States of one pattern, numbered as they are found."""

    def __init__(self, places: list[_Place], entry: int, members: list[list[bool]], max_steps: int) -> None:
        self.places = places
        self.members = members
        self.max_steps = max_steps
        self.edge = len(members[0])
        self.looks_behind = any(place.kind == "behind" for place in places)
        self.n_steps = 0
        self.numbers: dict[tuple[tuple[int, ...], int], int] = {((), self.edge): 0}
        before = range(self.edge + 1) if self.looks_behind else [self.edge] * (self.edge + 1)
        self.starts = [self.number((entry,), kind) for kind in before]
        self.rows: list[list[int]] = []
        while len(self.rows) < len(self.numbers):
            threads, last = list(self.numbers)[len(self.rows)]
            self.rows.append([self.step(threads, last, kind) for kind in range(self.edge + 1)])

    def number(self, threads: tuple[int, ...], last: int) -> int:
        """Returns the number of a state: the places to go on from, and the character before if that matters."""
        if len(self.numbers) >= _MAX_STATES:
            raise NotRegularError("too many states")
        key = (threads, last if threads and self.looks_behind else self.edge)
        return self.numbers.setdefault(key, len(self.numbers))

    def step(self, threads: tuple[int, ...], last: int, kind: int) -> int:
        """Returns twice the state after a character of some kind, plus one if a match ends before the character."""
        waiting = list(reversed(threads))
        seen: set[int] = set()
        found: list[int] = []
        matched = 0
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            self.n_steps += 1
            what, members, at_edge, then, other = self.places[place]
            if what == "choice":
                waiting += other, then
            elif what == "match":
                matched = 1
                break
            else:
                asked = last if what == "behind" else kind
                if asked == self.edge:
                    holds = at_edge
                else:
                    holds = self.members[members][asked]
                if holds and what == "character":
                    found.append(then)
                elif holds:
                    waiting.append(then)
        if self.n_steps > self.max_steps:
            raise NotRegularError("too much work")
        return 2 * self.number(tuple(dict.fromkeys(found)), kind) + matched


def new_automata(built: Automata) -> Automata:
    """Returns automata with new arrays for the fields that a call changes; built: see `build`."""
    n = built.spelled.size
    candidates, matches, begins, steps = (np.zeros(size, np.int64) for size in (n, n, n + 1, 2))
    return built._replace(candidates=candidates, matches=matches, ends=np.full(n + 1, -1), begins=begins, steps=steps)


@functools.lru_cache(maxsize=16)
def build(nodes: tuple[Node, ...], n_plain: int) -> Automata:
    """Builds the automata of patterns, without the arrays that a call changes; see `new_automata`.

    Args:
      nodes: the patterns, in the order in which they cut.
      n_plain: how many of them, from the first, read characters; the others read bytes spelled in GPT-2's alphabet.

    Raises:
      NotRegularError: if one may match nothing or has too many states.
    """
    if any(map(can_be_empty, nodes)):
        raise NotRegularError("may match nothing")
    sets: dict[CodePoints, int] = {}
    all_places = []
    for node in nodes:
        places = _Places(sets)
        entry = places.put(node, places.add("match"))
        all_places.append((places.places, entry))
    if len(sets) > _MAX_SETS:
        raise NotRegularError("too many sets of characters")
    classes, members, of_leads = _classes(list(sets))
    n_kinds = len(members[0])
    rows: list[list[int]] = []
    starts, looks_behind = [], []
    steps_left = _MAX_STEPS
    row_starts = []
    for each, entry in all_places:
        row_starts.append(len(rows))
        built = _Builder(each, entry, members, steps_left)
        steps_left -= built.n_steps
        # State 0 of each, where nothing can match any more, is shared: it is the first of all.
        base = len(rows) - 1 if rows else 0
        rows += [[x + 2 * base if x > 1 else x for x in row] for row in built.rows[bool(rows) :]]
        starts.append([base + start for start in built.starts])
        looks_behind.append(built.looks_behind)
    states = np.array(rows)
    begins = states[np.array(starts)].any(axis=1)[:, :-1]
    spelled = np.arange(len(nodes)) >= n_plain
    byte_classes = classes[list(map(ord, BYTE_ALPHABET))]
    of_bytes = np.eye(n_kinds, dtype=np.bool_)[byte_classes]
    firsts = np.stack([(of_bytes if s else of_leads) @ b for s, b in zip(spelled, begins, strict=True)])
    transitions = np.zeros((len(rows), n_kinds + 2, 2), np.int32)
    width = transitions[0].size
    transitions[:, :-1] = (states // 2 * width + states % 2)[:, :, None]
    own = 2 * np.arange(len(rows))[:, None]
    for characters, loop, matched in _LOOPS:
        after = states[:, distinct(classes[characters])]
        for entry_after, flags in ((own, loop), (own + 1, loop | matched)):
            transitions[(after == entry_after).all(axis=1), -1] |= flags
    if n_plain < len(nodes):  # an ideograph is three letters there, which are of several kinds
        transitions[row_starts[n_plain] :, -1] &= ~(kernels.IDEOGRAPHS | kernels.MATCHED_IDEOGRAPHS)
    first_entries = np.repeat(width * np.array(starts, np.int32), 2, axis=1)[:, :-1].copy()
    arrays: list[npt.NDArray[Any]] = [2 * classes, 2 * byte_classes, transitions.ravel(), first_entries]
    arrays += np.array(looks_behind), spelled, firsts
    return Automata(*map(read_only, arrays), *[_NOTHING_YET] * 5)


@functools.lru_cache(maxsize=64)
def find_automaton(pattern: str, unicode: str = "8") -> Automata | None:
    """Returns the automaton of a pattern in a version of `unicode.tables.BERT_UNICODE`, None if there is none."""
    try:
        return build((parse(pattern, unicode),), 1)
    except NotRegularError:
        return None


class Segments(NamedTuple):
    """Words cut into matches and what is between them: the output of `segment_kernels.segments_of_automaton`."""

    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    is_match: npt.NDArray[np.bool_]
    counts: npt.NDArray[np.int64]
    """int64[n_words + 1]: the segments before each word."""


def segments_of(words: Words, built: Automata, name: str, *, inverted: bool = False) -> Segments:
    """Returns the segments of words, and with `inverted` what is between matches as the matches.

    Args:
      words: of valid UTF-8.
      built: the automaton of one pattern; see `build`.
      name: that of the pattern, for the message.

    Raises:
      TimeoutError: if it gives up on a text.
    """
    n_bytes = int((words.stops - words.starts).sum())
    # Each segment has at least one byte. Memory pages that none reaches are never touched.
    starts, stops = recycled.empty(n_bytes, np.int64), recycled.empty(n_bytes, np.int64)
    segments = Segments(starts, stops, recycled.empty(n_bytes, np.bool_), np.zeros(words.n_words + 1, np.int64))
    automata = new_automata(built)
    segment_kernels.segments_of_automaton(
        words.values, read_only(words.starts), read_only(words.stops), automata, inverted, *segments
    )
    if automata.steps[GAVE_UP] != 0:
        raise TimeoutError(
            f"{name} did not finish on a text: {STEPS_OF_MEBIBYTE} looks at a character for each started mebibyte "
            "were in vain, which is the most; it looks at the same ones again and again"
        )
    return segments


def _classes(sets: list[CodePoints]) -> tuple[npt.NDArray[np.uint8], list[list[bool]], npt.NDArray[np.bool_]]:
    """Divides the code points into the kinds that the sets distinguish.

    Returns:
      uint8[0x110000], the kind of each code point; for each set, which kinds it contains; bool[256, n_kinds], the kinds
      of the characters that begin with each byte.
    """
    bounds = distinct(np.concatenate([_FIRST_OF_LEADS, *(each.bounds for each in sets)]))
    has = np.stack([each.has(bounds) for each in sets])
    kinds, of_range = np.unique(has, axis=1, return_inverse=True)
    if kinds.shape[1] > _MAX_CLASSES:
        raise NotRegularError("too many kinds of characters")
    classes = np.repeat(of_range.ravel().astype(np.uint8), np.diff(np.append(bounds, N_CODE_POINTS)))
    of_leads = np.zeros((256, kinds.shape[1]), np.bool_)
    of_leads[_LEADS[np.searchsorted(_FIRST_OF_LEADS, bounds, "right") - 1], of_range.ravel()] = True
    return classes, kinds.tolist(), of_leads
