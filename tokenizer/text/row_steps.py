# SPDX-License-Identifier: Apache-2.0
"""HTML entities; regular expressions and ftfy, which run in Python on rows that they may change.

ftfy works line by line, and slowly. It changes nothing in a line of printing ASCII without `&`: mojibake, quotes,
widths, ligatures and normal forms begin beyond ASCII, where it handles only references, line ends and control
characters. So it is not called for such a line.
"""

import dataclasses
import functools
import html
import re
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import regex

from tokenmill.tokenizer.normalizers import tables
from tokenmill.tokenizer.normalizers.base import Edit, TextStep
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Node, parse
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.text.base import CharacterSet, check_encodable
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


_MAX_SEGMENT = 1_000_000
"""The most characters that ftfy handles at once, its `max_decode_length`."""
_LONG_SEGMENT = 10_000
"""A line of at most this many characters cannot take long, whatever they are."""
_MOST_MARKS = 1000


_is_active = re.compile(r"[^\t\n\x20-\x7e]|&").search
"""Whether ftfy may change a line."""


@functools.cache
def _active_set() -> CharacterSet:
    active = np.ones(0x110000, np.bool_)
    active[[ord("\t"), ord("\n"), *range(0x20, 0x7F)]] = False
    active[ord("&")] = True
    return CharacterSet.of(active)


class _FtfyStep(TextStep):
    def candidates(self, rows: Ragged) -> Iterable[int]:
        """Returns the rows that ftfy may change."""
        return np.flatnonzero(_active_set().rows_with(rows)).tolist()


def _segments(text: str) -> Iterator[tuple[int, str]]:
    """Yields the texts that ftfy handles at once, with their places: lines, or parts of lines beyond its limit."""
    at = 0
    for line in text.split("\n"):
        end = min(at + len(line) + 1, len(text))
        while at < end:
            stop = min(end, at + _MAX_SEGMENT)
            yield at, text[at:stop]
            at = stop


@functools.cache
def _begins_with_mark() -> npt.NDArray[np.bool_]:
    """Returns the characters whose canonical decompositions begin with a mark that canonical ordering may move."""
    classes = tables.combining(tables.UNICODE_VERSION)
    marks = classes != 0
    for code_point, decomposed in tables.decompositions(tables.UNICODE_VERSION).items():
        marks[code_point] |= classes[ord(decomposed[0])] != 0
    return read_only(marks)


def _check_marks(text: str) -> None:
    """Checks that `unicodedata.normalize`, which sorts the marks of a character by insertion, will not take too long.

    Raises:
      TimeoutError: if there are more than `_MOST_MARKS` marks in a row.
    """
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    others = np.flatnonzero(~_begins_with_mark()[points])
    if np.diff(others, prepend=-1, append=points.size).max() > _MOST_MARKS + 1:
        raise TimeoutError(f"more than {_MOST_MARKS} combining marks in a row, which ftfy would take too long to sort")


def _trimmed(start: int, old: str, new: str) -> Edit:
    """Returns the edit that makes `new` of `old`, without their common prefix and suffix."""
    n = min(len(old), len(new))
    head = next((i for i in range(n) if old[i] != new[i]), n)
    tail = next((i for i in range(n - head) if old[-1 - i] != new[-1 - i]), n - head)
    return Edit(start + head, start + len(old) - tail, new[head : len(new) - tail])


@dataclasses.dataclass(frozen=True)
class Ftfy(_FtfyStep):
    """Does all that ftfy does: mojibake, HTML entities in text without `<`, quotes, widths, ligatures, NFC, ...

    Source: `ftfy.fix_text` with its defaults; the same on every text. In the report, a changed line counts from its
    first to its last changed character.
    Known difference: a document is rejected (null in the result, and counted) if it has a line of more than
    `_LONG_SEGMENT` characters, more than `_MOST_MARKS` of which are, or become, combining marks in a row. ftfy's time
    grows with the square of their number, to minutes for a megabyte.
    """

    name = "ftfy"

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        """Returns the edits of one text; see `TextStep`.

        Raises:
          TimeoutError: if the text has too many combining marks in a row.
        """
        import ftfy

        config = ftfy.TextFixerConfig(explain=False)
        edits: list[Edit] = []
        for at, segment in _segments(text):
            if config.unescape_html and "<" in segment:
                # From the first `<` on, ftfy takes a text for HTML, in which entities are right.
                config = config._replace(unescape_html=False)
            if _is_active(segment):
                if len(segment) > _LONG_SEGMENT:
                    _check_marks(ftfy.fix_text(segment, config._replace(normalization=None)))
                fixed = ftfy.fix_text(segment, config)
                edits += [_trimmed(at, segment, fixed)] if fixed != segment else []
        return edits


@dataclasses.dataclass(frozen=True)
class Mojibake(_FtfyStep):
    """Repairs only text that was decoded with the wrong encoding, line by line.

    Source: `ftfy.fix_encoding` of every line.
    """

    name = "mojibake"

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        import ftfy

        edits: list[Edit] = []
        at = 0
        for line in text.splitlines(keepends=True):
            if _is_active(line):
                fixed = ftfy.fix_encoding(line)
                edits += [_trimmed(at, line, fixed)] if fixed != line else []
            at += len(line)
        return edits
