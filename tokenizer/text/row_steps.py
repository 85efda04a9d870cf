# SPDX-License-Identifier: Apache-2.0
"""HTML entities, and regular expressions, which run in Python."""

import dataclasses
import functools
import html
import re
from collections.abc import Iterator

import regex

from tokenmill.tokenizer.normalizers.base import Edit, TextStep
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Node, parse
from tokenmill.tokenizer.text.base import check_encodable
from tokenmill.tokenizer.text.patterns import PatternStep

_REFERENCE = r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[^\t\n\f <&#;]{1,32};?)"
_MOST_DIGITS = 7
"""The most digits of a code point; HTML reads larger numbers as U+FFFD."""


_reference = functools.cache(lambda: parse(_REFERENCE))


def _unescaped(reference: str) -> str:
    """Returns the text of a reference like `html.unescape`, which itself fails on numbers of thousands of digits."""
    if reference[1] == "#" and reference[2] not in "xX":
        digits = reference[2:].rstrip(";").lstrip("0")
        if len(digits) > _MOST_DIGITS:
            return "\ufffd"
        reference = f"&#{digits or 0};"
    return html.unescape(reference)


@dataclasses.dataclass(frozen=True)
class HtmlEntities(PatternStep):
    """Replaces the character references of HTML: `&eacute;`, `&#233;`, `&#xE9;`, and by HTML's rules `&eacute` too.

    Source: `html.unescape`, the same on every text that it can read.
    """

    name = "html_entities"

    @property
    def node(self) -> Node:
        return _reference()

    def new(self, match: str) -> str:
        return _unescaped(match)


MAX_PATTERN_CHARS = 10_000
MAX_PATTERN_ELEMENTS = 100_000
"""The most elements of a pattern, its repetitions written out as in the memory of `regex`: 100 to 500 bytes each."""

_ELEMENT = re.compile(r"\\.|\{([0-9]{1,9})(?:,[0-9]*)?\}|.", re.DOTALL)


def n_elements(pattern: str) -> int:
    """Returns approximately how many elements a pattern has if every `x{n}` and `x{n,m}` is written as n times x."""
    groups, last, sets = [0], 0, 0
    for element in _ELEMENT.finditer(pattern):
        text = element[0]
        sets += (text == "[") - (text == "]" and sets > 0)
        if sets > 0:
            continue
        if text == "(":
            groups.append(0)
        elif element[1] is not None:
            n = max(1, int(element[1]))
            groups[-1] += last * (n - 1)
            last *= n
        else:
            last = groups.pop() + 1 if text == ")" and len(groups) > 1 else 1
            groups[-1] += last
    return sum(groups)


@functools.lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> "regex.Pattern[str]":
    r"""Compiles a regular expression of the package `regex`, version 1 (Unicode, `\p{...}`, sets).

    Raises:
      ValueError: if it is invalid, longer than `MAX_PATTERN_CHARS`, or nests or repeats more than can be compiled.
    """
    if not pattern or len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"a pattern must have from 1 to {MAX_PATTERN_CHARS} characters, this has {len(pattern)}")
    if n_elements(pattern) > MAX_PATTERN_ELEMENTS:
        raise ValueError(
            f"pattern {pattern[:80]!r} repeats its parts to {n_elements(pattern)} elements, allowed are "
            f"{MAX_PATTERN_ELEMENTS}; lower the numbers in braces"
        )
    try:
        return regex.compile(pattern, regex.V1)
    except regex.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from None
    except (RecursionError, MemoryError):
        raise ValueError(f"pattern {pattern[:80]!r}... nests too deeply, or repeats something too often") from None


def find_matches(pattern: str, text: str, seconds: float) -> Iterator["regex.Match[str]"]:
    """Yields the matches of a pattern from left to right, except empty ones.

    Raises:
      TimeoutError: after `seconds` of processor time for each started megabyte of text.
    """
    limit = seconds * (1 + len(text) // 1_000_000)
    for match in compile_pattern(pattern).finditer(text, concurrent=True, timeout=limit):
        if match.end() > match.start():
            yield match


_ESCAPE = re.compile(r"(\\(?:([1-9][0-9]?)|g<(\w+)>|.?))", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Regex(TextStep):
    r"""Removes or replaces the matches of a regular expression.

    A document on which the expression takes too long is rejected: it is null in the result, and counted.
    """

    name = "regex"

    pattern: str = ""
    """An expression of the package `regex`, version 1. Empty matches are skipped."""
    replace: str = ""
    r"""The replacement of a match; `\1` and `\g<name>` are groups, `\\` is a backslash."""
    seconds: float = 5.0
    """The processor time allowed for each started megabyte of a document."""

    def __post_init__(self) -> None:
        compiled = compile_pattern(self.pattern)
        check_encodable(f"replace of pattern {self.pattern!r}", self.replace)
        if not 0 < self.seconds <= 3600:
            raise ValueError(f"seconds must be more than 0 and at most 3600, got {self.seconds!r}")
        for escape, number, name in _ESCAPE.findall(self.replace):
            known = int(number) <= compiled.groups if number else name in compiled.groupindex or escape == r"\\"
            if not known:
                raise ValueError(f"replace {self.replace!r}: {escape!r} is no group of pattern {self.pattern!r}")

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        """Returns the edits of one text; see `TextStep`.

        Raises:
          TimeoutError: if the expression takes too long.
        """
        is_template = "\\" in self.replace
        edits = []
        for match in find_matches(self.pattern, text, self.seconds):
            new = match.expand(self.replace) if is_template else self.replace
            if new != match[0]:
                edits.append(Edit(match.start(), match.end(), new))
        return edits
