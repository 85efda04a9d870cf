# SPDX-License-Identifier: Apache-2.0
"""What every engine can do, and what it says of its tables."""

import dataclasses
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tokenizer.aligned import AlignedText
from tokenizer.counting import Tally
from tokenizer.ragged import Ragged


@dataclasses.dataclass(frozen=True)
class AlignedToken:
    """One token of one text, and where it came from."""

    id: int
    span: tuple[int, int]
    """Range of characters of the original text."""
    word: int
    """Number of its pre-token in the text."""
    matched: str = ""
    """Of an added token that was found in the text, what it took: white space beside it too."""


class Engine(Protocol):
    """Turns rows of text into ids. Rows may be segments of documents, cut at added tokens."""

    @property
    def unk_id(self) -> int:
        """The unknown token, -1 where there is none."""

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows.

        Args:
          rows: valid UTF-8, normalized already if `normalize` says that this is a step of its own.
          added: int32[n_rows], the id of rows that are an added token, -1 for text; or int32[0] where none is.
          is_first: bool[n_rows], whether the row is at the start of its document.
          tally: counts words, and those with an unknown token.
        """

    def align(self, text: AlignedText, is_first: bool, first_word: int) -> tuple[list[AlignedToken], int]:
        """Encodes one row with where each token came from; returns the number of the next word as well."""

    def new_tally(self) -> Tally:
        """Returns an empty tally."""

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the name of the kernel, the components fused into it, and the stages beside it."""


@dataclasses.dataclass(frozen=True)
class CacheInfo:
    """What the word caches of a tokenizer hold, and what they were good for since it was made.

    A word that is cut, as those of scripts without spaces are, is met once, but each of its parts may miss; so a hit is
    a word that is met and no miss.
    """

    words: int
    """Words, and parts of words, that are held."""
    bytes: int
    """Bytes that they take: of slots, and of what is in the pools. Tables have their full size all the time, of which
    the system gives memory to what has been touched."""
    bound: int
    """Bytes of all tables that there are now, one for each thread that encoded at a time."""
    hits: int
    misses: int

    @property
    def hit_rate(self) -> float:
        """Hits by all that was asked, 0 where nothing was."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0
