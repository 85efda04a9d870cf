# SPDX-License-Identifier: Apache-2.0
"""`PreTokenizer`, the interface; `Pieces`, the words between its steps; and how a step cuts them further."""

import abc
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.pre_tokenizers import segment_kernels as kernels
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Node
from tokenmill.tokenizer.ragged import Int64s, Ragged, characters_before, gathered, read_only, stretches
from tokenmill.tokenizer.words import Words, whole_rows

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Pieces(NamedTuple):
    """Pre-tokens between two steps of a `Sequence`."""

    words: Words
    is_first: npt.NDArray[np.bool_]
    """bool[n_words]: whether the word begins where its document begins."""
    origins: Int64s | None = None
    """int64[n_characters of `words.values`]: which character of the rows each came from; None if nobody asked."""

    @classmethod
    def of_rows(cls, rows: Ragged, is_first: npt.NDArray[np.bool_]) -> "Pieces":
        """Makes each row that is not empty one word."""
        return cls(whole_rows(rows), np.asarray(is_first, np.bool_)[np.diff(rows.offsets) > 0])

    @property
    def n_bytes(self) -> int:
        """The number of bytes in all words together."""
        return int((self.words.stops - self.words.starts).sum())

    def cut(self, starts: Positions, stops: Positions, counts: Positions) -> "Pieces":
        """Replaces these words by shorter ones; counts: int64[n_words + 1], how many come before each of these."""
        is_first = np.zeros(starts.size, np.bool_)
        kept = self.is_first & (counts[:-1] < counts[1:])
        heads = counts[:-1][kept]
        is_first[heads] = starts[heads] == self.words.starts[kept]
        words = Words(self.words.values, starts, stops, counts[self.words.row_offsets])
        return Pieces(words, is_first, self.origins)

    def copied(self, words: Words, prefixed: Flags | None = None) -> "Pieces":
        """Returns copies of these words, one after the other; `prefixed`, bool[n_words], got a character in front."""
        return Pieces(words, self.is_first, self._copied_origins(prefixed))

    def _copied_origins(self, prefixed: Flags | None) -> Int64s | None:
        if self.origins is None:
            return None
        values, starts, stops, _ = self.words
        firsts, lasts = characters_before(values, np.stack((starts, stops), 1).ravel()).reshape(-1, 2).T
        if prefixed is None:
            return self.origins[stretches(firsts, lasts)]
        copies = stretches(firsts - prefixed, lasts)
        # What is put in front has the place of the first character.
        heads = np.cumsum(lasts - firsts + prefixed) - (lasts - firsts + prefixed)
        copies[heads[prefixed]] += 1
        return self.origins[copies]


def prefixed_by(pieces: Pieces, insert: bytes, prefixed: Flags) -> Pieces:
    """Puts `insert` in front of the `prefixed` words, bool[n_words]."""
    if not prefixed.any():
        return pieces
    words = pieces.words
    values, offsets = gathered(words.values, words.starts, words.stops)
    # In turns what is put in front, empty or not, and a word; both are at these places behind each other.
    starts, stops = np.zeros((2, words.n_words, 2), np.int64)
    stops[:, 0] = len(insert) * prefixed
    starts[:, 1], stops[:, 1] = offsets[:-1] + len(insert), offsets[1:] + len(insert)
    values, offsets = gathered(np.append(np.frombuffer(insert, np.uint8), values), starts.ravel(), stops.ravel())
    return pieces.copied(Words(values, offsets[:-1:2].copy(), offsets[2::2].copy(), words.row_offsets), prefixed)


def spaces_replaced(pieces: Pieces, insert: str, prefixed: Flags, *, cuts: bool) -> Pieces:
    """Puts `insert`, one character, in place of spaces and in front of the `prefixed` words, bool[n_words].

    cuts: whether to cut the words before every `insert`.
    """
    words = pieces.words
    starts, stops = read_only(words.starts), read_only(words.stops)
    inserted = np.frombuffer(insert.encode() + bytes(8), np.uint8)
    n_blanks = int(kernels.count_blanks(words.values, starts, stops))
    if not (cuts or n_blanks or prefixed.any()):
        return pieces
    n_added = n_blanks * (inserted.size - 9) + int(prefixed.sum()) * (inserted.size - 8)
    out = recycled.empty(pieces.n_bytes + n_added + 8, np.uint8)
    # Memory pages that no word reaches are never touched.
    out_starts, out_stops = recycled.empty(out.size + 1, np.int64), recycled.empty(out.size + 1, np.int64)
    counts = np.empty(words.n_words + 1, np.int64)
    kernels.split_at_blanks(words.values, starts, stops, prefixed, inserted, out, out_starts, out_stops, counts)
    copied = pieces.copied(
        Words(read_only(out), out_starts[counts[:-1]], out_stops[counts[1:] - 1], words.row_offsets), prefixed
    )
    if not cuts:
        return copied
    n = int(counts[-1])
    is_first = np.zeros(n, np.bool_)
    is_first[counts[:-1]] = pieces.is_first
    words = Words(copied.words.values, out_starts[:n], out_stops[:n], counts[words.row_offsets])
    return Pieces(words, is_first, copied.origins)


class PreTokenizer(abc.ABC):
    """Cuts columns of text into pre-tokens."""

    @property
    def is_fast(self) -> bool:
        """Whether it runs in compiled code; if not, Python cuts each distinct word of a column."""
        return True

    @property
    def isolated(self) -> Node | None:
        """The pattern whose matches, and the stretches between them, are its pre-tokens; None if there is none."""
        return None

    @property
    def kept(self) -> tuple[Node, bool] | None:
        """If it drops some of a text: the pattern, and whether its matches are dropped or what is between them."""
        return None

    @abc.abstractmethod
    def split_pieces(self, pieces: Pieces) -> Pieces:
        """Cuts every word of a column further."""

    def split_rows(self, rows: Ragged, is_first: npt.NDArray[np.bool_]) -> Words:
        """Cuts rows of UTF-8 into pre-tokens.

        Args:
          rows: uint8 values, valid UTF-8.
          is_first: bool[n_rows], whether the row begins at the start of its document.
        """
        return self.split_pieces(Pieces.of_rows(rows, is_first)).words

    def trace_rows(self, rows: Ragged, is_first: npt.NDArray[np.bool_]) -> Pieces:
        """Cuts rows, whose offsets begin at 0, like `split_rows`, and traces their characters."""
        pieces = Pieces.of_rows(rows, is_first)
        n_characters = int(characters_before(rows.values, rows.offsets[-1:])[0])
        return self.split_pieces(pieces._replace(origins=np.arange(n_characters)))
