# SPDX-License-Identifier: Apache-2.0
"""`EditingStep`, whose kernel finds edits, lists of edits applied to rows; `Strip`, `Replace`, `Prepend`."""

import abc
import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.normalizers import tables
from tokenmill.tokenizer.normalizers.base import (
    Applied,
    Edges,
    Edit,
    Normalizer,
    TextStep,
    check_content,
    check_room,
    grown,
    rows_of,
)
from tokenmill.tokenizer.normalizers.characters import lowered_bytes, map_bytes
from tokenmill.tokenizer.normalizers.kernels import edit_lists, matches
from tokenmill.tokenizer.normalizers.kernels.edit_lists import Texts
from tokenmill.tokenizer.normalizers.tables import SPARE_BYTES
from tokenmill.tokenizer.pre_tokenizers.patterns import compiled, find_segments
from tokenmill.tokenizer.ragged import Int64s, Ragged, characters_before, read_only, stretches, text_rows
from tokenmill.tokenizer.traced import Traced
from tokenmill.tokenizer.unicode import tables as unicode_tables

_ROOM, _BYTES_PER_EDIT = 1 << 12, 4
"""The first call has room for this many edits, or for one in so many bytes."""


def found_edits(find: Any, rows: Ragged, *tables: Any) -> npt.NDArray[np.int64]:
    """Calls a kernel that `edit_lists.finder` made, again with more room if needed; returns its edits, int64[n, 3].

    Memory: 24 bytes for each edit.
    """
    n = max(_ROOM, rows.n_values // _BYTES_PER_EDIT)
    room = 0
    while n > room:
        room = n
        edits = recycled.empty(3 * room, np.int64).reshape(room, 3)
        n = find(rows.values, rows.offsets, tables, edits)
    return edits[:n]


def lowered_texts(texts: Sequence[str]) -> Texts:
    """Returns texts as `apply_edits` takes them."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    pool = np.frombuffer(bytearray().join([*encoded, bytes(SPARE_BYTES)]), np.uint8)
    return Texts(read_only(pool), read_only(offsets[:-1]), read_only(offsets[1:]))


def apply_edits(rows: Ragged, edits: npt.NDArray[np.int64], texts: Texts) -> Applied:
    """Applies edits, int64[n, 3]; their new texts are given by numbers.

    Raises:
      TextGrowthError: if a row becomes too long.
    """
    if not len(edits):
        return Applied(rows, 0)
    edits = read_only(edits)
    n_bytes = rows.n_values + edit_lists.edited_bytes(edits, texts)
    check_room(rows, n_bytes)
    out, offsets = recycled.empty(n_bytes + SPARE_BYTES, np.uint8), np.empty(rows.n_rows + 1, np.int64)
    n_changed = edit_lists.apply_edits(rows.values, rows.offsets, edits, texts, out, offsets)
    return Applied(grown(rows, rows_of(out, offsets)), int(n_changed))


def prepend(rows: Ragged, where: npt.NDArray[np.bool_], text: str) -> Applied:
    """Puts a text in front of rows; where: bool[n_rows], which must not be empty."""
    starts = rows.offsets[:-1][where]
    return apply_edits(rows, np.column_stack((starts, starts, np.zeros_like(starts))), lowered_texts([text]))


def places_in_text(text: str, places: npt.NDArray[np.int64]) -> list[list[int]]:
    """Returns places in the UTF-8 of a text, int64[n, k], as places in the text."""
    begins = np.frombuffer(text.encode(), np.uint8) & 0xC0 != 0x80
    found: list[list[int]] = np.concatenate(([0], np.cumsum(begins)))[places].tolist()
    return found


def in_characters(rows: Ragged, edits: Int64s) -> tuple[Int64s, Int64s]:
    """Returns where edits, int64[n, 3], start and stop, in characters of rows whose offsets begin at 0."""
    starts, stops = characters_before(rows.values, edits[:, :2].ravel()).reshape(-1, 2).T
    return starts, stops


def put_at_last(n_characters: int, starts: Int64s, stops: Int64s, n_put: Int64s) -> Int64s:
    """Returns how many characters become of each, int64[n_characters], if stretches are replaced.

    starts, stops: int64[n], none of which is empty; n_put: how many new characters have the place of each's last one.
    """
    n_new = np.ones(n_characters, np.int64)
    n_new[stretches(starts, stops)] = 0
    n_new[stops - 1] = n_put
    return n_new


class EditingStep(TextStep):
    """A step whose kernel finds edits."""

    @abc.abstractmethod
    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        """Returns the edits of rows, int64[n, 3]: start, stop, number of the new text; and the new texts."""

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        edits, texts = self.find_edits(text_rows([text]), Edges.of(1, begins, ends))
        places = places_in_text(text, edits[:, :2])
        return [Edit(start, stop, texts[k]) for (start, stop), k in zip(places, edits[:, 2].tolist(), strict=True)]

    def apply_rows(self, rows: Ragged, edges: Edges) -> Applied:
        edits, texts = self.find_edits(rows, edges)
        return apply_edits(rows, edits, lowered_texts(texts))


@dataclasses.dataclass(frozen=True)
class Strip(EditingStep):
    """Removes white space at the ends."""

    name = "Strip"

    left: bool = True
    right: bool = True

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        ends = Edges.of(rows.n_rows, self.left, self.right)
        options = _white_space(), False, matches.AS_SPACE, True
        return found_edits(matches.find_whitespace, rows, *ends, *options), ("",)

    def trace(self, text: Traced, edges: Edges | None = None) -> Traced:
        edits, _ = self.find_edits(text.rows, edges or Edges.of(text.rows.n_rows))
        return _traced(text, edits, "")


@dataclasses.dataclass(frozen=True)
class Replace(EditingStep):
    r"""Replaces every match of a pattern; `content` is taken literally.

    A kernel replaces a literal, and runs of a character or of white space, as CLIP and T5 do: `\s+`, ` {2,}`. For any
    other regular expression Python runs once for every row.

    Raises:
      ValueError: if the pattern is a regular expression that does not compile, or has no equivalent here.
    """

    name = "Replace"

    pattern: str
    content: str
    is_regex: bool = False
    """Whether `pattern` is a regular expression, in the dialect of Oniguruma, or a literal."""

    def __post_init__(self) -> None:
        check_content("content", self.content)
        if self.is_regex and not self.is_fast:
            compiled(self.pattern)  # raises errors now, not at the first text

    @property
    def is_fast(self) -> bool:
        """Whether there is a kernel. An empty literal, which matches everywhere, has none."""
        return _kernel(self.pattern, self.content, self.is_regex) is not None

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        edits = self._matches(rows)
        return edits if self.is_regex or self.pattern != self.content else edits[:0], (self.content,)

    def _matches(self, rows: Ragged) -> npt.NDArray[np.int64]:
        find, *options = _kernel(self.pattern, self.content, self.is_regex) or ()
        return found_edits(find, rows, *options)

    def trace(self, text: Traced, edges: Edges | None = None) -> Traced:
        """Traces rows; see `TextStep`. The content has the place of the last character that it replaces."""
        # Also that of a literal which is replaced by itself.
        return _traced(text, self._matches(text.rows), self.content) if self.is_fast else super().trace(text, edges)

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        """Returns the edits of one text; see `TextStep`. In an empty text HF finds nothing, whatever the pattern."""
        expression = self.pattern if self.is_regex else re.escape(self.pattern)
        edits: list[Edit] = []
        for start, stop, is_match in find_segments(expression, text) if text else ():
            if is_match:
                # The origin of the content is the last character that it replaces.
                last = max(start, stop - 1)
                edits += [Edit(start, last, "")] if start < last else []
                edits.append(Edit(last, stop, self.content))
        return edits

    def apply_rows(self, rows: Ragged, edges: Edges) -> Applied:
        if not self.is_fast:
            return TextStep.apply_rows(self, rows, edges)
        pattern, content = self.pattern.encode(), self.content.encode()
        if self.is_regex or len(pattern) > 1 or len(content) > tables.SPARE_BYTES or pattern == content:
            return super().apply_rows(rows, edges)
        # Most texts have so many spaces that a list of them would cost more than the rest. The content is so short
        # that no text grows too much.
        found = int(np.count_nonzero(rows.values[rows.offsets[0] : rows.offsets[-1]] == pattern[0]))
        if not found:
            return Applied(rows, 0)
        n_bytes = rows.n_values + found * (len(content) - 1)
        return Applied(map_bytes(rows, _one_byte(pattern[0], content), n_bytes), found)


@dataclasses.dataclass(frozen=True)
class Prepend(Normalizer):
    """Puts a text before every row that is not empty."""

    prepend: str

    def __post_init__(self) -> None:
        check_content("prepend", self.prepend)

    def normalize_rows(self, rows: Ragged) -> Ragged:
        return prepend(rows, np.diff(rows.offsets) > 0, self.prepend).rows if self.prepend else rows

    def trace(self, text: Traced) -> Traced:
        n_new, bounds = np.ones(text.starts.size, np.int64), text.bounds
        n_new[bounds[:-1][np.diff(bounds) > 0]] += len(self.prepend)
        return text.repeated(self.normalize_rows(text.rows), n_new)


def _traced(text: Traced, edits: npt.NDArray[np.int64], content: str) -> Traced:
    """Applies edits that put `content` at the place of the last character that they replace."""
    if not len(edits):
        return text
    n_new = put_at_last(text.starts.size, *in_characters(text.rows, edits), np.full(len(edits), len(content)))
    return text.repeated(apply_edits(text.rows, edits, lowered_texts([content])).rows, n_new)


_RUN = re.compile(r"(\\s|[^\\^$.|?*+()\[\]{}])(?:\+|\{([1-9][0-9]{0,5}),\})")


@functools.lru_cache(maxsize=64)
def _kernel(pattern: str, content: str, is_regex: bool) -> tuple[Any, ...] | None:
    """Returns the kernel that finds a pattern, and its tables; None if there is none.

    Of regular expressions, those that match the longest runs of one character, or of white space, have one. A match
    that is the content already need not be found.
    """
    if not is_regex:
        return (matches.find_literal, np.frombuffer(pattern.encode(), np.uint8)) if pattern else None
    run = _RUN.fullmatch(pattern)
    if run is None:
        return None
    if run[1] == r"\s":
        usual, members = " ", unicode_tables.property_table("spaces")
    else:
        usual, members = run[1], np.zeros(0x110000, np.bool_)
        members[ord(usual)] = True
    return matches.find_runs, tables.Runs.of(members, usual, int(run[2] or 1), content == usual)


@functools.lru_cache(maxsize=64)
def _one_byte(replaced: int, content: bytes) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
    return lowered_bytes([content if byte == replaced else bytes([byte]) for byte in range(256)])


@functools.cache
def _white_space() -> tables.Runs:
    return tables.Runs.of(unicode_tables.property_table("spaces"), " ")
