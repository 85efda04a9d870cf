# SPDX-License-Identifier: Apache-2.0
"""Pre-tokenizers that look at one character at a time: white space, punctuation, digits, scripts, counts."""

import dataclasses
import functools
import itertools

import numpy as np

from tokenmill.tokenizer.pre_tokenizers import tables
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Alternation, Characters, Node, Repetition, literal
from tokenmill.tokenizer.pre_tokenizers.pieces import Pieces, PreTokenizer
from tokenmill.tokenizer.pre_tokenizers.split import Behavior, PatternSplit, check_behavior, run_python
from tokenmill.tokenizer.pre_tokenizers.tables import CodePoints
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

    @property
    def is_fast(self) -> bool:
        return False

    def split_pieces(self, pieces: Pieces) -> Pieces:
        def find(text: str) -> list[tuple[int, int, bool]]:
            starts = range(0, len(text), self.length)
            return [(start, min(start + self.length, len(text)), True) for start in starts]

        return run_python(pieces, find, "isolated")


@dataclasses.dataclass(frozen=True)
class UnicodeScripts(PreTokenizer):
    """Splits where the script changes. Spaces and inherited characters have the script before them; Kana count as Han.

    Source: HF tokenizers `pre_tokenizers/unicode_scripts`, which drops text before the first character with a script.
    """

    @property
    def is_fast(self) -> bool:
        return False

    def split_pieces(self, pieces: Pieces) -> Pieces:
        return run_python(pieces, _scripts, "removed", invert=True)


def _scripts(text: str) -> list[tuple[int, int, bool]]:
    """Returns what `UnicodeScripts` keeps of a text, as matches, and what is in front of it."""
    scripts = tables.script_numbers()[np.frombuffer(text.encode("utf-32-le"), np.uint32)]
    known = np.flatnonzero(scripts)
    bounds = [*known[np.diff(scripts[known], prepend=0) != 0].tolist(), len(text)]
    return [(0, bounds[0], False), *((start, stop, True) for start, stop in itertools.pairwise(bounds))]
