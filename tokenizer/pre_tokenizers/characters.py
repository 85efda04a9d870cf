# SPDX-License-Identifier: Apache-2.0
"""Pre-tokenizers that look at one character at a time: white space, punctuation, digits, scripts, counts."""

import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.pre_tokenizers import tables
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Alternation, Characters, Node, Repetition, literal
from tokenmill.tokenizer.pre_tokenizers.pieces import Pieces, PreTokenizer
from tokenmill.tokenizer.pre_tokenizers.split import Behavior, PatternSplit, check_behavior
from tokenmill.tokenizer.pre_tokenizers.tables import CodePoints
from tokenmill.tokenizer.ragged import gathered
from tokenmill.tokenizer.unicode import data as unicode_data
from tokenmill.tokenizer.unicode import tables as unicode_tables

Rule = tuple[Node, Behavior, bool]


@functools.cache
def _one_of(runs: str) -> Characters:
    return Characters(CodePoints.of(unicode_data.runs(runs)))


def _run_of(members: CodePoints) -> Node:
    return Repetition(Characters(members), 1, None, greedy=True)


def _words(*kinds: CodePoints, run: bool = True) -> Rule:
    """Keeps runs, or single characters, of a set, and runs of what is not in it, without white space."""
    others = functools.reduce(lambda a, b: a & ~b, kinds, ~_one_of("bert/spaces").members)
    own = (_run_of(kind) if run else Characters(kind) for kind in kinds)
    return Alternation((*own, _run_of(others))), "removed", True


@dataclasses.dataclass(frozen=True)
class BertPreTokenizer(PatternSplit):
    """Splits at white space, which is dropped, and around punctuation: each such character is a pre-token.

    Source: HF tokenizers `pre_tokenizers/bert.rs`.
    """

    unicode: str = dataclasses.field(default="8", repr=False)
    """The version of Unicode that says what punctuation is; see `unicode.tables.BERT_UNICODE`."""

    def __post_init__(self) -> None:
        unicode_tables.check_bert_unicode(self.unicode)

    @property
    def rule(self) -> Rule:
        signs = np.flatnonzero(unicode_tables.punctuation(self.unicode)).tolist()
        return _words(CodePoints.of((c, c) for c in signs), run=False)


@dataclasses.dataclass(frozen=True)
class Whitespace(PatternSplit):
    r"""Splits into runs of word characters and runs of others, and drops white space: `\w+|[^\w\s]+`.

    Source: HF tokenizers `pre_tokenizers/whitespace.rs`.
    """

    @property
    def rule(self) -> Rule:
        return _words(_one_of("patterns/whitespace_words").members)


@dataclasses.dataclass(frozen=True)
class WhitespaceSplit(PatternSplit):
    """Splits at white space, which is dropped.

    Source: HF tokenizers `pre_tokenizers/whitespace.rs`.
    """

    @property
    def rule(self) -> Rule:
        return _run_of(~_one_of("bert/spaces").members), "removed", True


@dataclasses.dataclass(frozen=True)
class Digits(PatternSplit):
    """Splits numbers from other text; nothing is dropped.

    Source: HF tokenizers `pre_tokenizers/digits.rs`.
    """

    individual_digits: bool = False
    """Whether every number character is a pre-token of its own."""

    @property
    def rule(self) -> Rule:
        digit = _one_of("patterns/numeric")
        return digit if self.individual_digits else _run_of(digit.members), "isolated", False


@dataclasses.dataclass(frozen=True)
class Punctuation(PatternSplit):
    """Splits at punctuation: P*, and every other printable ASCII symbol.

    Source: HF tokenizers `pre_tokenizers/punctuation.rs`.
    """

    behavior: Behavior = "isolated"

    def __post_init__(self) -> None:
        check_behavior(self.behavior)

    @property
    def rule(self) -> Rule:
        sign = _one_of("bert/punctuation")
        return (
            (_run_of(sign.members), "isolated", False)
            if self.behavior == "contiguous"
            else (sign, self.behavior, False)
        )


@dataclasses.dataclass(frozen=True)
class CharDelimiterSplit(PatternSplit):
    """Splits at one character, which is dropped.

    Source: HF tokenizers `pre_tokenizers/delimiter.rs`.
    """

    delimiter: str

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1:
            raise ValueError(f"delimiter must be one character, got {self.delimiter!r}")

    @property
    def rule(self) -> Rule:
        return literal(self.delimiter), "removed", False


@dataclasses.dataclass(frozen=True)
class FixedLength(PreTokenizer):
    """Splits after every `length` characters.

    Source: HF tokenizers `pre_tokenizers/fixed_length.rs`.
    """

    length: int = 5

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"length must be at least 1, got {self.length!r}")

    def split_pieces(self, pieces: Pieces) -> Pieces:
        heads, owners = _characters(pieces)
        within = np.arange(heads.size) - np.searchsorted(owners, np.arange(pieces.words.n_words))[owners]
        begins = within % self.length == 0
        return _cut_before(pieces, heads[begins], owners[begins])


@dataclasses.dataclass(frozen=True)
class UnicodeScripts(PreTokenizer):
    """Splits where the script changes. Spaces and inherited characters have the script before them; Kana count as Han.

    Source: HF tokenizers `pre_tokenizers/unicode_scripts`, which drops text before the first character with a script.
    """

    def split_pieces(self, pieces: Pieces) -> Pieces:
        heads, owners = _characters(pieces)
        scripts = tables.script_numbers()[_code_points(pieces)]
        heads, owners, scripts = heads[scripts > 0], owners[scripts > 0], scripts[scripts > 0]
        begins = np.ones(heads.size, np.bool_)
        begins[1:] = (scripts[1:] != scripts[:-1]) | (owners[1:] != owners[:-1])
        return _cut_before(pieces, heads[begins], owners[begins])


def _gathered(pieces: Pieces) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Returns the bytes of the words of a column behind each other, and where each word begins."""
    words = pieces.words
    values, offsets = gathered(words.values, words.starts, words.stops)
    return values[: offsets[-1]], offsets


def _characters(pieces: Pieces) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns where each character begins in the bytes of a column, and the number of its word; int64[n_characters]."""
    values, offsets = _gathered(pieces)
    places = np.flatnonzero(values & 0xC0 != 0x80)
    owners = np.searchsorted(offsets, places, "right") - 1
    return places + (pieces.words.starts - offsets[:-1])[owners], owners


def _code_points(pieces: Pieces) -> npt.NDArray[np.uint32]:
    return np.frombuffer(_gathered(pieces)[0].tobytes().decode().encode("utf-32-le"), np.uint32)


def _cut_before(pieces: Pieces, starts: npt.NDArray[np.int64], owners: npt.NDArray[np.int64]) -> Pieces:
    """Cuts words before some characters; what a word has in front of the first of them is dropped."""
    stops = pieces.words.stops[owners]
    inner = owners[1:] == owners[:-1]
    stops[:-1][inner] = starts[1:][inner]
    counts = np.zeros(pieces.words.n_words + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=pieces.words.n_words), out=counts[1:])
    return pieces.cut(starts, stops, counts)
