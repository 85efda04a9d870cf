# SPDX-License-Identifier: Apache-2.0
"""Repairs text that was decoded with the wrong encoding, and other damage, with ftfy.

ftfy works line by line, and slowly. It changes nothing in a line of printing ASCII without `&`: mojibake, quotes,
widths, ligatures and normal forms begin beyond ASCII, where it handles only references, line ends and control
characters. So it is not called for such a line.
"""

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.normalizers import tables
from tokenmill.tokenizer.normalizers.base import Edit, TextStep
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.text.base import CharacterSet

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
