# SPDX-License-Identifier: Apache-2.0
"""`Traced`: rows of text that know which characters of the original text theirs came from.

A step that changes rows returns them with the places of their characters, by one of two functions: `repeated`, if each
new character has the place of one old one, or `replaced`, for rows that plain Python changed.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.ragged import Int64s, Ragged, characters_before, encoded_rows, gathered, put_rows, stretches


class PlacedText(NamedTuple):
    """One text, and the range of original characters that each of its characters came from."""

    text: str
    starts: Sequence[int]
    stops: Sequence[int]

    @property
    def span(self) -> tuple[int, int]:
        """The range of original characters, from the first character's start to the last one's stop."""
        return (self.starts[0], self.stops[-1]) if self.text else (0, 0)


class Traced(NamedTuple):
    """Rows of text, and the range of original characters that each of their characters came from.

    Source: HF tokenizers `tokenizer/normalizer.rs`, `NormalizedString`, whose alignments these are, in characters.
    """

    rows: Ragged
    """uint8, valid UTF-8; its offsets begin at 0."""
    starts: Int64s
    stops: Int64s
    """int64[n_characters], of all rows, one after the other."""

    @classmethod
    def original(cls, rows: Ragged) -> "Traced":
        """Returns rows that nobody changed: places count in each row."""
        rows = Ragged(rows.values[rows.offsets[0] : rows.offsets[-1]], rows.offsets - rows.offsets[0])
        bounds = characters_before(*rows)
        starts = np.arange(bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds))
        return cls(rows, starts, starts + 1)

    @classmethod
    def of_texts(cls, texts: Sequence[PlacedText]) -> "Traced":
        """Returns texts as rows."""
        places = (np.fromiter((i for text in texts for i in text[k]), np.int64) for k in (1, 2))
        return cls(encoded_rows([text.text.encode() for text in texts]), *places)

    @property
    def bounds(self) -> Int64s:
        """int64[n_rows + 1]: the characters before each row, and all."""
        return characters_before(*self.rows)

    def code_points(self) -> npt.NDArray[np.uint32]:
        """Returns the characters of all rows, uint32[n_characters]."""
        text = self.rows.values.tobytes().decode()
        return np.frombuffer(text.encode("utf-32-le"), np.uint32)

    def texts(self) -> Iterator[PlacedText]:
        """Yields the rows as texts."""
        at, bounds = self.rows.offsets.tolist(), self.bounds.tolist()
        starts, stops = self.starts.tolist(), self.stops.tolist()
        for row in range(self.rows.n_rows):
            first, last = bounds[row], bounds[row + 1]
            text = self.rows.values[at[row] : at[row + 1]].tobytes().decode()
            yield PlacedText(text, starts[first:last], stops[first:last])

    def repeated(self, rows: Ragged, n_new: npt.NDArray[np.integer[Any]]) -> "Traced":
        """Returns `rows`, made of these; n_new: int[n_characters], how many characters there are of each old one."""
        return Traced(rows, np.repeat(self.starts, n_new), np.repeat(self.stops, n_new))

    def moved(self, by: Int64s) -> "Traced":
        """Returns the same rows, with the places of each moved; by: int64[n_rows]."""
        each = np.repeat(by, np.diff(self.bounds))
        return Traced(self.rows, self.starts + each, self.stops + each)

    def replaced(self, numbers: Sequence[int], texts: Sequence[PlacedText]) -> "Traced":
        """Returns these rows with those of some numbers, ascending, replaced."""
        if not numbers:
            return self
        new, bounds = Traced.of_texts(texts), self.bounds.tolist()
        ends = new.bounds.tolist()
        pieces: tuple[list[Int64s], list[Int64s]] = ([], [])
        at = 0
        for k, row in enumerate(numbers):
            for piece, old, put in zip(pieces, self[1:], new[1:], strict=True):
                piece += old[at : bounds[row]], put[ends[k] : ends[k + 1]]
            at = bounds[row + 1]
        starts, stops = (np.concatenate([*piece, old[at:]]) for piece, old in zip(pieces, self[1:], strict=True))
        return Traced(put_rows(self.rows, (list(numbers), new.rows)), starts, stops)

    def cut(self, begins: Int64s, ends: Int64s) -> "Traced":
        """Returns copies of stretches of bytes, from one character to another, as rows; int64[n] each."""
        first, last = self.characters_at(begins), self.characters_at(ends)
        kept = stretches(first, last)
        return Traced(gathered(self.rows.values, begins, ends), self.starts[kept], self.stops[kept])

    def characters_at(self, at: Int64s) -> Int64s:
        """Returns how many characters begin before each place in the bytes, in any order, int64[n]."""
        order = np.argsort(at, kind="stable")
        before = np.empty_like(at)
        before[order] = characters_before(self.rows.values, at[order])
        return before
