# SPDX-License-Identifier: Apache-2.0
"""`PatternSplit`, pre-tokenizers that are a pattern, and `Split`, which is any literal or pattern."""

import abc
import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.automata import Automata
from tokenmill.tokenizer.pre_tokenizers import patterns, segment_kernels
from tokenmill.tokenizer.pre_tokenizers.pattern_automata import Segments, build, segments_of
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Node, NotRegularError, Sequence, literal, parse
from tokenmill.tokenizer.pre_tokenizers.pieces import Pieces, PreTokenizer
from tokenmill.tokenizer.ragged import gathered, string_array
from tokenmill.tokenizer.unicode.tables import check_bert_unicode
from tokenmill.tokenizer.words import Words

Behavior = Literal["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]

BEHAVIORS: dict[str, int] = {
    "removed": segment_kernels.REMOVED,
    "isolated": segment_kernels.ISOLATED,
    "merged_with_previous": segment_kernels.MERGED_WITH_PREVIOUS,
    "merged_with_next": segment_kernels.MERGED_WITH_NEXT,
    "contiguous": segment_kernels.CONTIGUOUS,
}
_MAX_LITERAL = 500
"""The most characters of a literal that an automaton finds: it reads every byte so often at worst."""


def check_behavior(behavior: str) -> None:
    """Raises ValueError if it is not in `BEHAVIORS`."""
    if behavior not in BEHAVIORS:
        raise ValueError(f"behavior must be one of {', '.join(BEHAVIORS)}, got {behavior!r}")


class PatternSplit(PreTokenizer):
    """Splits where a pattern matches."""

    @property
    @abc.abstractmethod
    def rule(self) -> tuple[Node | None, Behavior, bool]:
        """The pattern, None if no automaton finds it; the behavior; whether delimiters are between the matches."""

    @property
    def isolated(self) -> Node | None:
        node, behavior, _ = self.rule
        return node if behavior == "isolated" else None

    @property
    def kept(self) -> tuple[Node, bool] | None:
        node, behavior, invert = self.rule
        return (node, not invert) if behavior == "removed" and node is not None else None

    def split_pieces(self, pieces: Pieces) -> Pieces:
        node, behavior, invert = self.rule
        assert node is not None
        return run_node(pieces, node, behavior, invert=invert)


@dataclasses.dataclass(frozen=True)
class Split(PatternSplit):
    """Splits where a literal or a regular expression matches.

    Source: HF tokenizers `pre_tokenizers/split.rs`.
    """

    pattern: str
    behavior: Behavior
    invert: bool = False
    """Whether the delimiters are the stretches between matches, instead of the matches."""
    is_regex: bool = False
    """Whether `pattern` is a regular expression, in the dialect of Oniguruma, or a literal."""
    unicode: str = dataclasses.field(default="8", repr=False)
    """The version of Unicode that says what letters, marks and numbers are; see `unicode.tables.BERT_UNICODE`."""

    def __post_init__(self) -> None:
        check_bert_unicode(self.unicode)
        check_behavior(self.behavior)
        if not self.is_fast:
            patterns.compiled(self._expression)
            if self.is_regex and self.unicode != "8":
                raise ValueError(
                    f"pattern {self.pattern!r:.200} has no meaning in Unicode {self.unicode} here: HF tokenizers 1.0 "
                    r"does not take it, or has other sets for its \w or scripts; leave out unicode, or take '8'"
                )

    @property
    def _found(self) -> tuple[Node, Automata] | None:
        return _automaton_of(self.pattern, self.is_regex, self.unicode)

    @property
    def _expression(self) -> str:
        return self.pattern if self.is_regex else re.escape(self.pattern)

    @property
    def rule(self) -> tuple[Node | None, Behavior, bool]:
        return self._found[0] if self._found else None, self.behavior, self.invert

    @property
    def is_fast(self) -> bool:
        return self._found is not None

    def split_pieces(self, pieces: Pieces) -> Pieces:
        if self._found is None:
            find = functools.partial(patterns.find_segments, self._expression)
            return run_python(pieces, find, self.behavior, invert=self.invert)
        segments = segments_of(pieces.words, self._found[1], f"pattern {self.pattern!r}", inverted=self.invert)
        return merged(pieces, self.behavior, segments)


@functools.lru_cache(maxsize=64)
def _automaton_of(pattern: str, is_regex: bool, unicode: str) -> tuple[Node, Automata] | None:
    try:
        if not is_regex and len(pattern) > _MAX_LITERAL:
            return None
        node = parse(pattern, unicode) if is_regex else Sequence(tuple(map(literal, pattern)))
        return node, build((node,), 1)
    except NotRegularError:
        return None


def run_node(pieces: Pieces, node: Node, behavior: Behavior = "isolated", *, invert: bool = False) -> Pieces:
    """Cuts every word with the automaton of a pattern that has one."""
    return merged(pieces, behavior, segments_of(pieces.words, build((node,), 1), "a pattern", inverted=invert))


def merged(pieces: Pieces, behavior: Behavior, segments: Segments) -> Pieces:
    """Applies a behaviour to segments of pieces, which are overwritten."""
    segment_kernels.merge_segments(BEHAVIORS[behavior], *segments)
    n = int(segments.counts[-1])
    return pieces.cut(segments.starts[:n], segments.stops[:n], segments.counts)


def run_python(
    pieces: Pieces, find: Callable[[str], list[tuple[int, int, bool]]], behavior: Behavior, *, invert: bool = False
) -> Pieces:
    """Cuts every word by a function like `patterns.find_segments`; it is asked once for each distinct word."""
    words = pieces.words
    found, which = _distinct(words)
    bounds = [np.empty((0, 2), np.int64)]
    matches = [np.empty(0, np.bool_)]
    offsets = np.zeros(len(found) + 1, np.int64)
    for k, text in enumerate(found):
        segments = find(text)
        data = text.encode()
        first_bytes = np.append(np.flatnonzero(np.frombuffer(data, np.uint8) & 0xC0 != 0x80), len(data))
        bounds.append(first_bytes[np.array([segment[:2] for segment in segments], np.int64).reshape(-1, 2)])
        matches.append(np.array([segment[2] for segment in segments], np.bool_) ^ invert)
        offsets[k + 1] = offsets[k] + len(segments)
    n_segments = np.diff(offsets)[which]
    counts = np.zeros(words.n_words + 1, np.int64)
    np.cumsum(n_segments, out=counts[1:])
    # Each word gets the segments of its distinct word, moved to its own place.
    chosen = np.repeat(offsets[:-1][which] - counts[:-1], n_segments) + np.arange(counts[-1])
    places = np.concatenate(bounds)[chosen] + np.repeat(words.starts, n_segments)[:, None]
    is_match = np.concatenate(matches)[chosen]
    return merged(pieces, behavior, Segments(places[:, 0].copy(), places[:, 1].copy(), is_match, counts))


def _distinct(words: Words) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Returns the distinct words, and the number of the distinct word of each word."""
    column = string_array(*gathered(words.values, words.starts, words.stops)).dictionary_encode()
    return column.dictionary.to_pylist(), column.indices.to_numpy().astype(np.int64)
