# SPDX-License-Identifier: Apache-2.0
"""Normalizers that edit strings: `Strip`, `Replace`, `Prepend`."""

import dataclasses
import functools
import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer import edit_kernels, recycled
from tokenizer.aligned import AlignedText
from tokenizer.normalizers import tables
from tokenizer.normalizers.base import (
    FREE_BYTES,
    MAX_GROWTH,
    Normalizer,
    check_content,
    check_growth,
    grown,
    rows_of,
    unless_same,
)
from tokenizer.pre_tokenizers.patterns import compiled, find_segments
from tokenizer.ragged import Ragged, read_only
from tokenizer.unicode import tables as unicode_tables


@dataclasses.dataclass(frozen=True)
class Strip(Normalizer):
    """Removes white space at the ends."""

    left: bool = True
    right: bool = True

    def normalize_rows(self, rows: Ragged) -> Ragged:
        """Normalizes a column of valid UTF-8; see `Normalizer`."""
        spaces = read_only(unicode_tables.property_table("spaces"))
        starts, stops = np.empty(rows.n_rows, np.int64), np.empty(rows.n_rows, np.int64)
        n_kept = edit_kernels.strip(rows.values, rows.offsets, spaces, self.left, self.right, starts, stops)
        if n_kept == rows.n_values:
            return rows
        out, offsets = recycled.empty(n_kept, np.uint8), np.empty(rows.n_rows + 1, np.int64)
        edit_kernels.gather(rows.values, starts, stops, out, offsets)
        return rows_of(out, offsets)

    def normalize_aligned(self, text: AlignedText) -> AlignedText:
        """Normalizes one text, with alignments; see `Normalizer`."""
        spaces = unicode_tables.property_table("spaces")
        start, stop = 0, len(text)
        while self.left and start < stop and spaces[ord(text.text[start])]:
            start += 1
        while self.right and start < stop and spaces[ord(text.text[stop - 1])]:
            stop -= 1
        return text[start:stop]


@dataclasses.dataclass(frozen=True)
class Replace(Normalizer):
    r"""Replaces every match of a pattern; `content` is taken literally.

    A kernel replaces a literal, and runs of a character or of white space, as CLIP and T5 do: `\s+`, ` {2,}`. For any
    other regular expression Python runs once for every row.

    Raises:
      ValueError: if the pattern is a regular expression that does not compile, or has no equivalent here.
    """

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
        return _run(self.pattern) is not None if self.is_regex else self.pattern != ""

    def _matches(self, text: str) -> list[tuple[int, int]]:
        """Finds matches, as ranges of characters. In an empty text HF finds none, whatever the pattern."""
        expression = self.pattern if self.is_regex else re.escape(self.pattern)
        return [(start, stop) for start, stop, is_match in find_segments(expression, text) if is_match] if text else []

    def normalize_rows(self, rows: Ragged) -> Ragged:
        """Normalizes a column of valid UTF-8; see `Normalizer`."""
        if not self.is_fast:
            return self._normalize_by_row(rows)
        if self.is_regex:
            is_short = len(self.content) <= MAX_GROWTH  # so that the result cannot be large before it is checked
            return self._replace_runs(rows) if is_short else self._normalize_by_row(rows)
        pattern, content = _bytes(self.pattern), _bytes(self.content, spare=tables.SPARE_BYTES)
        offsets = np.empty(rows.n_rows + 1, np.int64)
        n_content = content.size - tables.SPARE_BYTES
        if pattern.size == 1:
            n_found = edit_kernels.count_byte(rows.values, rows.offsets[0], rows.offsets[-1], pattern[0])
        else:
            n_found = edit_kernels.replace(
                rows.values, rows.offsets, pattern, content, False, np.empty(0, np.uint8), offsets
            )
        if n_found == 0 or self.pattern == self.content:
            return rows
        n_after = rows.n_values + n_found * (n_content - pattern.size)
        _check_room(rows, n_after)
        out = recycled.empty(n_after + tables.SPARE_BYTES, np.uint8)
        if pattern.size == 1 and n_content <= 8:
            edit_kernels.replace_byte(rows.values, rows.offsets, pattern[0], content, out, offsets)
        else:
            edit_kernels.replace(rows.values, rows.offsets, pattern, content, True, out, offsets)
        return grown(rows, rows_of(out, offsets))

    def _replace_runs(self, rows: Ragged) -> Ragged:
        run = _run(self.pattern)
        assert run is not None
        content = _bytes(self.content, spare=tables.SPARE_BYTES)
        n_content = content.size - tables.SPARE_BYTES
        n_most = rows.n_values // run.least * max(n_content, run.least) + run.least
        if n_content > _SMALL_CONTENT:
            first, last = int(rows.offsets[0]), int(rows.offsets[-1])
            n_begun = int(np.count_nonzero(run.begins[rows.values[first:last]]))
            n_most = rows.n_values + n_begun // run.least * n_content
        out, offsets = recycled.empty(n_most + tables.SPARE_BYTES, np.uint8), np.empty(rows.n_rows + 1, np.int64)
        usual = run.usual if run.least > 1 or self.content == chr(run.usual) else 0
        found = edit_kernels.replace_runs(
            rows.values,
            rows.offsets,
            run.begins,
            run.members,
            run.least,
            usual,
            run.ranges,
            run.others,
            content,
            out,
            offsets,
        )
        return grown(rows, rows_of(out, offsets)) if found else rows

    def _normalize_by_row(self, rows: Ragged) -> Ragged:
        texts = []
        for first, last in zip(rows.offsets[:-1].tolist(), rows.offsets[1:].tolist(), strict=True):
            text = rows.values[first:last].tobytes().decode()
            pieces: list[str] = []
            at = 0
            for start, stop in self._matches(text):
                pieces += text[at:start], self.content
                at = stop
            texts.append("".join([*pieces, text[at:]]).encode())
            check_growth(last - first, len(texts[-1]))
        offsets = np.zeros(rows.n_rows + 1, np.int64)
        np.cumsum([len(t) for t in texts], out=offsets[1:])
        return unless_same(rows, rows_of(np.frombuffer(bytearray().join(texts), np.uint8), offsets))

    def normalize_aligned(self, text: AlignedText) -> AlignedText:
        """Normalizes one text, with alignments; see `Normalizer`."""
        characters: list[str] = []
        starts: list[int] = []
        stops: list[int] = []
        at = 0
        n = len(self.content)
        for start, stop in self._matches(text.text):
            characters += text.text[at:start], self.content
            # The content's origin is the last character that it replaces, or, if it replaces none, the one before.
            starts += text.starts[at:start] + n * [text.starts[max(0, stop - 1)]]
            stops += text.stops[at:start] + n * [text.stops[stop - 1] if stop else text.starts[0]]
            at = stop
        replaced = "".join([*characters, text.text[at:]])
        check_growth(len(text.text.encode()), len(replaced.encode()))
        return AlignedText(replaced, starts + text.starts[at:], stops + text.stops[at:])


@dataclasses.dataclass(frozen=True)
class Prepend(Normalizer):
    """Puts a text before every row that is not empty."""

    prepend: str

    def __post_init__(self) -> None:
        check_content("prepend", self.prepend)

    def normalize_rows(self, rows: Ragged) -> Ragged:
        """Normalizes a column of valid UTF-8; see `Normalizer`."""
        prefix = _bytes(self.prepend, spare=tables.SPARE_BYTES)
        n_prefix = prefix.size - tables.SPARE_BYTES
        n_filled = int(np.count_nonzero(np.diff(rows.offsets)))
        if n_filled == 0 or n_prefix == 0:
            return rows
        out = recycled.empty(rows.n_values + n_filled * n_prefix + tables.SPARE_BYTES, np.uint8)
        offsets = np.empty(rows.n_rows + 1, np.int64)
        edit_kernels.prepend(rows.values, rows.offsets, prefix, out, offsets)
        return rows_of(out, offsets)

    def normalize_aligned(self, text: AlignedText) -> AlignedText:
        """Normalizes one text, with alignments; see `Normalizer`."""
        if not text.text:
            return text
        n = len(self.prepend)
        first = text[:1]
        return AlignedText(self.prepend, n * first.starts, n * first.stops) + text


def _check_room(rows: Ragged, n_bytes: int) -> None:
    """Raises TextGrowthError if a result has so many bytes that one of the rows must have become too long."""
    check_growth(int(rows.n_values) + (rows.n_rows - 1) * FREE_BYTES // MAX_GROWTH, n_bytes)


class _Run(NamedTuple):
    """A pattern that matches runs of characters of a set, as `edit_kernels.replace_runs` takes it."""

    begins: npt.NDArray[np.bool_]
    """bool[256]: bytes that one of them begins with."""
    members: npt.NDArray[np.bool_]
    """bool[0x110000]."""
    usual: int
    """The one member that is printable ASCII, 0 if none is."""
    ranges: tables.ByteRanges
    """Ranges of bytes that begin no other member."""
    others: bool
    """Whether there are members besides `usual`."""
    least: int
    """The least length of a run, in characters."""


_SMALL_CONTENT = 8
"""For replacements of at most this many bytes, room is made for as many as there can be, without counting them."""
_RUN = re.compile(r"(\\s|[^\\^$.|?*+()\[\]{}])(?:\+|\{([1-9][0-9]{0,5}),\})")


@functools.lru_cache(maxsize=64)
def _run(pattern: str) -> _Run | None:
    """Returns the run that a pattern matches, if it matches the longest runs of one character, or of white space."""
    found = _RUN.fullmatch(pattern)
    if found is None:
        return None
    members = unicode_tables.property_table("spaces")
    if found[1] != r"\s":
        members = np.zeros(members.size, np.bool_)
        members[ord(found[1])] = True
    begins = np.zeros(256, np.bool_)
    begins[[chr(c).encode()[0] for c in np.flatnonzero(members).tolist()]] = True
    usual = " " if found[1] == r"\s" else found[1]
    return _Run(
        read_only(begins),
        read_only(members),
        ord(usual) if " " <= usual <= "~" else 0,
        tables.byte_ranges(np.arange(128) >= ord(" "), tables.first_byte_steps(~members)),
        found[1] == r"\s",
        int(found[2] or 1),
    )


@functools.lru_cache(maxsize=64)
def _bytes(text: str, spare: int = 0) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode() + bytes(spare), np.uint8)
