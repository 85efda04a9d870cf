# SPDX-License-Identifier: Apache-2.0
"""Added tokens: entries besides the model's own vocabulary, found in text before any other step runs."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import added_token_kernels
from tokenmill.tokenizer.added_token_kernels import Places, Wanted
from tokenmill.tokenizer.models.double_array import trie_of
from tokenmill.tokenizer.models.vocabulary import MAX_ID, padded_bytes
from tokenmill.tokenizer.normalizers import Normalizer, SentencePieceNormalizer
from tokenmill.tokenizer.ragged import Int64s, Ragged, gathered
from tokenmill.tokenizer.unicode import tables as unicode_tables

SpecialPolicy = Literal["plain", "split", "error"]
"""What becomes of a special token's text in a document: it stays text, it becomes the token, or it is an error."""


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that belongs to the tokenizer rather than to its model.

    Special tokens mark places (`[CLS]`, `[PAD]`). When their text occurs in a document, it stays text by default, so
    that a document cannot smuggle in a control token. HF calls this `encode_special_tokens=True`.

    Source: HF tokenizers `tokenizer/added_vocabulary.rs`, same fields.
    """

    id: int
    content: str
    single_word: bool = False
    """Matches only where no word character is right before or after it."""
    lstrip: bool = False
    """Takes the white space before it with it."""
    rstrip: bool = False
    """Takes the white space after it with it."""
    normalized: bool = False
    """Its normalized content is looked for in normalized text, instead of its content in the raw text."""
    special: bool = True

    def __post_init__(self) -> None:
        if not self.content:
            raise ValueError(f"added token {self.id} has no content")
        try:
            self.content.encode()
        except UnicodeEncodeError:
            raise ValueError(f"added token {self.content!r} holds half a surrogate pair, which is in no text") from None
        if not 0 <= self.id <= MAX_ID:
            raise ValueError(f"added token {self.content!r} has id {self.id}; ids must be in 0..{MAX_ID}")


def normalized_content(normalizer: Normalizer | None, content: str) -> str:
    """Returns what an added token looks like in normalized text."""
    if normalizer is None or isinstance(normalizer, SentencePieceNormalizer):
        # It leaves its user-defined symbols alone in a text; normalized alone, each would get a "▁" in front.
        return content
    return normalizer.normalize_str(content)


class Segments(NamedTuple):
    """Rows cut at the added tokens in them."""

    rows: Ragged
    tokens: npt.NDArray[np.int32]
    """int32[n_segments]: id of segments that are an added token, -1 for text."""
    row_segments: npt.NDArray[np.int64]
    """int64[n_rows + 1]: row r is the segments `row_segments[r]:row_segments[r + 1]`."""


def cut_at(
    rows: Ragged, places: Places
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Cuts rows, uint8[n_bytes], at places in them.

    Returns:
      int64[n_segments] twice, where segments begin and end; int32[n_segments], the number of each, -1 for text; and
      int64[n_rows + 1], the segments of each row, at least one.
    """
    room = rows.n_rows + 2 * places.starts.size
    begins, ends, kinds = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)
    row_segments = np.empty(rows.n_rows + 1, np.int64)
    n = added_token_kernels.cut_segments(rows.offsets, places, begins, ends, kinds, row_segments)
    return begins[:n], ends[:n], kinds[:n], row_segments


_MOST_STEPS = 64
"""Where a token has more bytes, the trie is not searched from each place on: tokens and text may all begin alike."""
_NONE = np.empty(0, np.int32)


def _trie(tokens: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Returns the trie of tokens with their numbers, of equal ones that of the last; see `kernels.double_array`."""
    return trie_of({token: number for number, token in enumerate(tokens) if token}).units


class _Backwards(NamedTuple):
    """An automaton of the tokens spelled backwards; see `added_token_kernels.link_suffixes`."""

    units: npt.NDArray[np.int64]
    suffixes: npt.NDArray[np.int32]
    longest: npt.NDArray[np.int32]

    @classmethod
    def of(cls, tokens: Sequence[bytes]) -> Self:
        """Makes the automaton."""
        backwards = [token[::-1] for token in tokens]
        units = _trie(backwards)
        suffixes, longest = np.empty(units.size, np.int32), np.empty(units.size, np.int32)
        roots = np.empty(len(tokens), np.int64)
        added_token_kernels.link_suffixes(*padded_bytes(backwards), roots, units, suffixes, longest)
        return cls(units, suffixes, longest)

    def find(self, rows: Ragged) -> npt.NDArray[np.int32]:
        """Returns the longest token that begins at each byte of rows, -1 for none."""
        found = np.empty(rows.n_values, np.int32)
        added_token_kernels.find_longest(rows.values, rows.offsets, *self, found)
        return found


class AddedTokenMatcher:
    """Finds added tokens in text columns."""

    def __init__(self, tokens: Sequence[AddedToken], contents: Sequence[str], special: SpecialPolicy) -> None:
        """Prepares to find `contents`, the texts of `tokens` as they occur (normalized, if the text will be)."""
        self._tokens = tokens
        self._special = special
        encoded = [content.encode() for content in contents]
        lengths = np.array(list(map(len, encoded)), np.int64)
        self._backwards = _Backwards.of(encoded) if lengths.max(initial=0) > _MOST_STEPS else None
        self._ids = np.array([t.id for t in tokens], np.int32)
        kinds = np.array(
            [
                t.single_word * added_token_kernels.IS_SINGLE_WORD
                | t.lstrip * added_token_kernels.STRIPS_LEFT
                | t.rstrip * added_token_kernels.STRIPS_RIGHT
                | (t.special and special != "split") * added_token_kernels.IS_TEXT
                for t in tokens
            ],
            np.uint8,
        )
        starters = np.zeros(256, np.bool_)
        starters[[e[0] for e in encoded if e]] = True
        only_starter = int(np.argmax(starters)) if starters.sum() == 1 else -1
        tables = (unicode_tables.property_table(name) for name in ("word_characters", "spaces"))
        self._wanted = Wanted(_trie(encoded), kinds, lengths, starters, only_starter, *tables)
        self.only_counts = special == "plain" and all(t.special for t in tokens)
        """Whether all matches stay text, so that looking for them only serves to count them."""

    def find(
        self, rows: Ragged, hits: Counter[str] | None = None, *, tokens: npt.NDArray[np.int32] | None = None
    ) -> tuple[Int64s, Int64s, npt.NDArray[np.int32], Int64s] | None:
        """Cuts rows at added tokens, leftmost, longest first; returns None if there is nothing to cut.

        A token in white space that the one before it took is found all the same, and what follows is what follows it,
        as in HF. If tabs are tokens, and "<x>" takes what is on its right, "<x>", space, tab, space, tab are four
        parts: "<x>" with all that, a tab, a space as text, and a tab.

        Args:
          rows: valid UTF-8.
          hits: gets added how often the text of each token occurs.
          tokens: int32[n_rows], id of rows that are a token already, and stay whole, -1 for text; None for text alone.

        Returns:
          int64[n_segments] twice, where segments begin and end, at least one for each row; int32[n_segments], the id
          of those that are an added token, -1 for text; and int64[n_rows + 1], the segments of each row.

        Raises:
          ValueError: if special tokens are an error and one occurs; the message names it.

        Source: HF tokenizers `tokenizer/added_vocabulary.rs`, `find_matches`. HF crashes where a token in white space
        that is taken takes the white space on its left itself; then it is not found.
        """
        if self.only_counts and hits is None:
            return None
        found = np.zeros(len(self._tokens), np.int64)
        longest = _NONE if self._backwards is None else self._backwards.find(rows)
        room = 0
        whole = np.zeros(rows.n_rows, np.bool_) if tokens is None else tokens >= 0
        while True:
            places = Places._make(np.empty(room, dtype) for dtype in (np.int64, np.int64, np.int32, np.int32))
            n = added_token_kernels.find_added(*rows, self._wanted, found, places, longest, whole)
            if n <= room:
                break
            room = n
            found[:] = 0
        if hits is not None:
            hits.update({self._tokens[i].content: int(found[i]) for i in np.flatnonzero(found).tolist()})
        if self._special == "error":
            for number in np.flatnonzero(found).tolist():
                if self._tokens[number].special:
                    raise ValueError(
                        f"special token {self._tokens[number].content!r} occurs in a text; pass special='plain' to "
                        "keep it text, or special='split' to make it the token"
                    )
        if n == 0:
            return None
        begins, ends, kinds, row_segments = cut_at(rows, Places._make(each[:n] for each in places))
        ids = np.where(kinds >= 0, self._ids[kinds], np.int32(-1))
        if tokens is not None:
            ids[row_segments[:-1][whole]] = tokens[whole]
        return begins, ends, ids, row_segments

    def cut(
        self, rows: Ragged, hits: Counter[str] | None = None, *, tokens: npt.NDArray[np.int32] | None = None
    ) -> Segments | None:
        """Returns what `find` finds as rows. Where tokens overlap, they have no text: it may be the same for many."""
        found = self.find(rows, hits, tokens=tokens)
        if found is None:
            return None
        begins, ends, ids, row_segments = found
        if (begins[1:] < ends[:-1]).any():
            return Segments(gathered(rows.values, begins, np.where(ids < 0, ends, begins)), ids, row_segments)
        offsets = np.maximum.accumulate(np.append(begins[:1], ends))
        return Segments(Ragged(rows.values, offsets), ids, row_segments)


@functools.cache
def no_tokens() -> npt.NDArray[np.int32]:
    """Returns an empty array, which means that no row is an added token."""
    return np.empty(0, np.int32)
