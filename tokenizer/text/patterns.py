# SPDX-License-Identifier: Apache-2.0
"""Patterns that text steps and spans look for, as the automata of pre-tokenizers find them in columns.

None of these patterns can take longer than its text: wherever one begins, it matches or fails within a few characters,
or on text in which none begins.
"""

import functools
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.pre_tokenizers import segment_kernels
from tokenmill.tokenizer.pre_tokenizers.code_point_sets import CodePoints
from tokenmill.tokenizer.pre_tokenizers.pattern_automata import build, check_finished, new_automata
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Characters, Node, Repetition
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.words import whole_rows


def one_of(members: npt.NDArray[np.bool_]) -> Characters:
    """Returns the pattern of one character of a set, bool[0x110000]."""
    return Characters(CodePoints(np.flatnonzero(np.diff(members, prepend=False)).astype(np.int32).tobytes()))


def any_number_of(node: Node) -> Repetition:
    """Returns the pattern of as many repetitions as there are, also none."""
    return Repetition(node, 0, None, greedy=True)


def maybe(node: Node) -> Repetition:
    """Returns the pattern of one or none."""
    return Repetition(node, 0, 1, greedy=True)


_automaton = functools.lru_cache(maxsize=16)(lambda node: build((node,), 1))


def find_pattern(rows: Ragged, node: Node) -> npt.NDArray[np.int64]:
    """Returns the matches of a pattern in rows of valid UTF-8, int64[n, 3]: where each starts and stops, and 0."""
    words = whole_rows(rows)
    n_bytes = int((words.stops - words.starts).sum())
    # Each segment has at least one byte. Memory pages that none reaches are never touched.
    starts, stops = recycled.empty(n_bytes, np.int64), recycled.empty(n_bytes, np.int64)
    is_match, counts = recycled.empty(n_bytes, np.bool_), np.zeros(words.n_words + 1, np.int64)
    automata = new_automata(_automaton(node))
    segment_kernels.segments_of_automaton(
        words.values, read_only(words.starts), read_only(words.stops), automata, False, starts, stops, is_match, counts
    )
    check_finished(automata, "the pattern of a text step")
    found = np.flatnonzero(is_match[: counts[-1]])
    return np.column_stack((starts[found], stops[found], np.zeros_like(found)))


def places_to_isolate(rows: Ragged, spans: npt.NDArray[np.int64], spaces: Iterable[str]) -> npt.NDArray[np.int64]:
    """Returns the ends of spans, ascending, that are within a row and have no space on either side, int64[n]."""
    places = np.unique(spans[:, :2])
    places = places[~np.isin(places, rows.offsets)]
    touches = np.zeros(places.size, np.bool_)
    for space in spaces:
        encoded = np.frombuffer(space.encode(), np.uint8)
        for firsts in (places, places - encoded.size):
            # UTF-8 shows where a character begins, so bytes of a row beside this one are no match.
            around = np.clip(firsts[:, None] + np.arange(encoded.size), 0, rows.values.size - 1)
            touches |= (rows.values[around] == encoded).all(axis=1)
    return places[~touches]
