# SPDX-License-Identifier: Apache-2.0
"""`Split`: at a literal or a pattern, with any behaviour."""

import dataclasses
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer.kernels.automata import Automata
from tokenmill.tokenizer.pre_tokenizers import patterns, segment_kernels
from tokenmill.tokenizer.pre_tokenizers.code_point_sets import CodePoints
from tokenmill.tokenizer.pre_tokenizers.pattern_automata import build, check_finished, find_automaton, new_automata
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Characters, Node, Sequence, parse
from tokenmill.tokenizer.pre_tokenizers.pieces import Pieces, PreTokenizer, merged, run_delimiter
from tokenmill.tokenizer.ragged import gathered, read_only
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


@dataclasses.dataclass(frozen=True)
class Split(PreTokenizer):
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
        if self.behavior not in BEHAVIORS:
            raise ValueError(f"behavior must be one of {', '.join(BEHAVIORS)}, got {self.behavior!r}")
        if self.is_regex and self.automaton is None:
            patterns.compiled(self.pattern)
            if self.unicode != "8":
                raise ValueError(
                    f"pattern {self.pattern!r:.200} has no meaning in Unicode {self.unicode} here: HF tokenizers 1.0 "
                    r"does not take it, or has other sets for its \w or scripts; leave out unicode, or take '8'"
                )

    @property
    def automaton(self) -> Automata | None:
        """The automaton that finds the same matches as the regular expression, None if there is none."""
        return find_automaton(self.pattern, self.unicode) if self.is_regex else None

    @property
    def isolated(self) -> Node | None:
        """See `PreTokenizer`."""
        return self._node if self.behavior == "isolated" else None

    @property
    def kept(self) -> tuple[Node, bool] | None:
        """See `PreTokenizer`."""
        node = self._node if self.behavior == "removed" else None
        return None if node is None else (node, not self.invert)

    @property
    def _node(self) -> Node | None:
        if self.is_regex:
            return parse(self.pattern, self.unicode) if self.automaton is not None else None
        characters = [Characters(CodePoints.of([(ord(c), ord(c))])) for c in self.pattern]
        return Sequence(tuple(characters)) if characters else None

    @property
    def is_fast(self) -> bool:
        """See `PreTokenizer`."""
        if self.is_regex:
            return self.automaton is not None
        return self.pattern != ""

    def split_pieces(self, pieces: Pieces) -> Pieces:
        """See `PreTokenizer`."""
        if self.automaton is not None:
            return run_automaton(pieces, self.automaton, self.behavior, invert=self.invert, name=self.pattern)
        if self.is_regex or self.pattern == "":
            return _run_pattern(pieces, self.pattern, BEHAVIORS[self.behavior], self.invert)
        return run_literal(pieces, self.pattern, self.behavior, invert=self.invert)


def run_literal(pieces: Pieces, literal: str, behavior: str, *, invert: bool) -> Pieces:
    """Cuts every word at a literal, which is not empty."""
    encoded = np.frombuffer(literal.encode(), np.uint8)
    arguments = read_only(encoded), read_only(_failures(encoded)), invert
    return run_delimiter(pieces, BEHAVIORS[behavior], segment_kernels.segments_of_literal, *arguments)


def _failures(literal: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Returns, for every prefix of a literal, the length of its longest proper prefix that is also its suffix."""
    text = literal.tolist()
    failures = [0] * len(text)
    matched = 0
    for i in range(1, len(text)):
        while matched and text[i] != text[matched]:
            matched = failures[matched - 1]
        matched += text[i] == text[matched]
        failures[i] = matched
    return np.array(failures, np.int64)


def run_automaton(pieces: Pieces, built: Automata, behavior: str, *, invert: bool = False, name: str = "") -> Pieces:
    """Cuts every word with the automaton of a pattern, which is named in the message if it gives up."""
    automata = new_automata(built)
    cut = run_delimiter(pieces, BEHAVIORS[behavior], segment_kernels.segments_of_automaton, automata, invert)
    check_finished(automata, f"pattern {name!r}")
    return cut


def run_node(pieces: Pieces, node: Node, behavior: str = "isolated", *, invert: bool = False) -> Pieces:
    """Cuts every word with the automaton of a pattern that has one."""
    return run_automaton(pieces, build((node,), 1), behavior, invert=invert)


def _run_pattern(pieces: Pieces, pattern: str, behavior: int, invert: bool) -> Pieces:
    """Cuts every word at a regular expression; each distinct word is matched once, since most recur."""
    words = pieces.words
    found, which = _distinct(words)
    bounds = [np.empty((0, 2), np.int64)]
    matches = [np.empty(0, np.bool_)]
    offsets = np.zeros(len(found) + 1, np.int64)
    for k, data in enumerate(found):
        segments = patterns.find_segments(pattern, data.decode())
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
    return merged(pieces, behavior, places[:, 0].copy(), places[:, 1].copy(), np.concatenate(matches)[chosen], counts)


def _distinct(words: Words) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    """Returns the distinct words, and the number of the distinct word of each word."""
    values, offsets = gathered(words.values, words.starts, words.stops)
    column = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), words.n_words, [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    )
    encoded = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
