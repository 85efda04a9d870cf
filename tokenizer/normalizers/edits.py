# SPDX-License-Identifier: Apache-2.0
"""Normalizers that edit strings: `Strip`, `Replace`, `Prepend`."""

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.normalizers import tables
from tokenmill.tokenizer.normalizers.base import Applied, Edges, Edit, Normalizer, TextStep, check_content
from tokenmill.tokenizer.normalizers.characters import lowered_bytes, map_bytes
from tokenmill.tokenizer.normalizers.edit_lists import (
    EditingStep,
    apply_edits,
    found_edits,
    in_characters,
    lowered_texts,
    prepend,
    put_at_last,
)
from tokenmill.tokenizer.normalizers.kernels import matches, whitespace
from tokenmill.tokenizer.pre_tokenizers.patterns import compiled, find_segments
from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.traced import Traced
from tokenmill.tokenizer.unicode import tables as unicode_tables


@dataclasses.dataclass(frozen=True)
class Strip(EditingStep):
    """Removes white space at the ends."""

    name = "Strip"

    left: bool = True
    right: bool = True

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        ends = Edges.of(rows.n_rows, self.left, self.right)
        options = _white_space(), False, whitespace.AS_SPACE, True
        return found_edits(whitespace.find_whitespace, rows, *ends, *options), ("",)

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
