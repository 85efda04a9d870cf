# SPDX-License-Identifier: Apache-2.0
"""Patterns that text steps and spans look for, as the automata of pre-tokenizers find them in columns.

None of these patterns can take longer than its text: wherever one begins, it matches or fails within a few characters,
or on text in which none begins.
"""

import abc
import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.normalizers.base import Edges
from tokenmill.tokenizer.normalizers.edits import EditingStep
from tokenmill.tokenizer.pre_tokenizers.pattern_automata import Segments, build, segments_of
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Characters, Node, Repetition
from tokenmill.tokenizer.pre_tokenizers.tables import CodePoints
from tokenmill.tokenizer.ragged import Ragged, distinct, gathered, string_array
from tokenmill.tokenizer.text import tables
from tokenmill.tokenizer.words import whole_rows


def one_of(members: npt.NDArray[np.bool_]) -> Characters:
    """Returns the pattern of one character of a set, bool[0x110000]."""
    return Characters(CodePoints(np.flatnonzero(np.diff(members, prepend=False)).astype(np.int32).tobytes()))


def times(node: Node, least: int, most: int | None = None) -> Repetition:
    """Returns the pattern of as many repetitions as there are, from `least` to `most`."""
    return Repetition(node, least, most, greedy=True)


_automaton = functools.lru_cache(maxsize=16)(lambda node: build((node,), 1))


def cut_by(rows: Ragged, node: Node) -> Segments:
    """Returns the matches of a pattern in rows of valid UTF-8, and what is between them."""
    return segments_of(whole_rows(rows), _automaton(node), "the pattern of a text step")


def find_pattern(rows: Ragged, node: Node) -> npt.NDArray[np.int64]:
    """Returns the matches of a pattern in rows of valid UTF-8, int64[n, 3]: where each starts and stops, and 0."""
    segments = cut_by(rows, node)
    found = np.flatnonzero(segments.is_match[: segments.counts[-1]])
    return np.column_stack((segments.starts[found], segments.stops[found], np.zeros_like(found)))


class PatternStep(EditingStep):
    """A step that replaces the matches of a pattern, each by what a function makes of its text."""

    @property
    @abc.abstractmethod
    def node(self) -> Node:
        """The pattern."""

    @abc.abstractmethod
    def new(self, match: str) -> str:
        """Returns the text that replaces a match; it is called once for each distinct one of a column."""

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        edits = find_pattern(rows, self.node)
        if not len(edits):
            return edits, ()
        distinct = string_array(*gathered(rows.values, edits[:, 0], edits[:, 1])).dictionary_encode()
        edits[:, 2] = distinct.indices.to_numpy()
        matches = distinct.dictionary.to_pylist()
        texts = [self.new(match) for match in matches]
        changes = np.array([new != match for new, match in zip(texts, matches, strict=True)], np.bool_)
        return edits[changes[edits[:, 2]]], texts


def spaces_at(places: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
    """Returns the edits that put a space at each place, int64[n], as `EditingStep.find_edits` does."""
    return np.column_stack((places, places, np.zeros_like(places))), (" ",)


def isolate(rows: Ragged, node: Node) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
    """Returns the edits that put spaces around the matches of a pattern, except at ends of rows and next to a space."""
    places = distinct(find_pattern(rows, node)[:, :2].ravel())
    places = places[~np.isin(places, rows.offsets)]
    touches = np.zeros(places.size, np.bool_)
    for space in tables.SPACES:
        encoded = np.frombuffer(space.encode(), np.uint8)
        for firsts in (places, places - encoded.size):
            # UTF-8 shows where a character begins, so bytes of a row beside this one are no match.
            around = np.clip(firsts[:, None] + np.arange(encoded.size), 0, rows.values.size - 1)
            touches |= (rows.values[around] == encoded).all(axis=1)
    return spaces_at(places[~touches])
