# SPDX-License-Identifier: Apache-2.0
"""Repairs text that was decoded with the wrong encoding, and other damage, with ftfy.

ftfy works line by line. Most lines it cannot change, and that can be told exactly without calling it:

- of single characters, it changes only those in `_touched_alone`;
- normalization (NFC) changes nothing if every character is inert;
- its search for mojibake begins with an expression, `ftfy.badness.BADNESS_RE`, each of whose alternatives needs a
  character of `_suspicious`, and goes no further without a match.

A line without any of these is left as it is. The lists are made from ftfy's own tables; the test compares with ftfy.
That holds for ftfy 6.1 to 6.3; another version is called for every line.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.normalizers import tables
from tokenmill.tokenizer.normalizers.base import Edit, TextStep
from tokenmill.tokenizer.normalizers.forms import NormalForm
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.text.base import CharacterSet

_MAX_SEGMENT = 1_000_000
"""The most characters that ftfy handles at once, its `max_decode_length`."""
_LONG_SEGMENT = 10_000
"""A line of at most this many characters cannot take long, whatever they are."""
_MOST_MARKS = 1000
_KNOWN = ("6.1.", "6.2.", "6.3.")
"""The versions of ftfy whose code was read for this module."""


def _touched_alone() -> set[int]:
    """Returns the characters that ftfy handles one by one: references, line ends, control characters, ..."""
    from ftfy import chardata

    touched = {ord("&"), ord("\r"), 0x1B, *range(0x80, 0xA0), 0x2028, 0x2029, 0x2BC, *range(0x2018, 0x2020)}
    return touched | chardata.LIGATURES.keys() | chardata.WIDTH_MAP.keys() | chardata.CONTROL_CHARS.keys()


def _suspicious() -> set[int]:
    """Returns characters of which all mojibake has at least one.

    Greek and Cyrillic letters are part of some mojibake, but never without one of the others; U+0402 covers the
    alternatives that consist only of Cyrillic letters.
    """
    from ftfy import badness

    def expand(category: str) -> set[int]:
        ranged = re.findall("(.)-(.)", badness.MOJIBAKE_CATEGORIES[category], re.DOTALL)
        runs = (range(ord(first), ord(last) + 1) for first, last in ranged)
        return {c for run in runs for c in run} | set(map(ord, badness.MOJIBAKE_CATEGORIES[category]))

    found = set().union(*map(expand, badness.MOJIBAKE_CATEGORIES)) | set(map(ord, badness.BADNESS_RE.pattern))
    harmless = expand("lower_common") | expand("upper_common")
    return {c for c in found - harmless | {0x402} if c >= 0x80}


@functools.cache
def active_characters(fixes_all: bool) -> npt.NDArray[np.bool_]:
    """Returns characters, bool[0x110000], such that ftfy changes no line without one of them.

    Args:
      fixes_all: True for `fix_text`, False for `fix_encoding`.
    """
    if not metadata.version("ftfy").startswith(_KNOWN):
        return read_only(np.ones(0x110000, np.bool_))
    active = np.zeros(0x110000, np.bool_)
    active[list(_suspicious())] = True
    if fixes_all:
        active[list(_touched_alone())] = True
        active |= NormalForm("NFC").active()
    return read_only(active)


@functools.cache
def _active_set(fixes_all: bool) -> CharacterSet:
    return CharacterSet.of(active_characters(fixes_all))


@functools.cache
def _is_active(fixes_all: bool) -> Callable[[str], object]:
    runs: list[list[int]] = []
    for c in np.flatnonzero(active_characters(fixes_all)).tolist():
        if 0xD800 <= c < 0xE000:
            continue
        if runs and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    return re.compile("[" + "".join(rf"\U{a:08x}-\U{b:08x}" for a, b in runs) + "]").search


class _FtfyStep(TextStep):
    def candidates(self, rows: Ragged) -> Iterable[int]:
        """Returns the rows that ftfy may change."""
        fixes_all = isinstance(self, Ftfy)
        return np.flatnonzero(_active_set(fixes_all).rows_with(rows)).tolist()


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

        is_active = _is_active(True)
        config = ftfy.TextFixerConfig(explain=False)
        edits: list[Edit] = []
        for at, segment in _segments(text):
            if config.unescape_html and "<" in segment:
                # From the first `<` on, ftfy takes a text for HTML, in which entities are right.
                config = config._replace(unescape_html=False)
            if is_active(segment):
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

        is_active = _is_active(False)
        edits: list[Edit] = []
        at = 0
        for line in text.splitlines(keepends=True):
            if is_active(line):
                fixed = ftfy.fix_encoding(line)
                edits += [_trimmed(at, line, fixed)] if fixed != line else []
            at += len(line)
        return edits
