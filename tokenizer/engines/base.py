# SPDX-License-Identifier: Apache-2.0
"""`Engine`: the interface of all engines; and `CacheInfo`, the state of their word caches."""

import dataclasses
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.ragged import Ragged


class Engine(Protocol):
    """Turns rows of text into ids. Rows may be segments of documents, cut at added tokens."""

    few: Any
    """A `few.FewTexts`, for texts without added tokens; None if there is none."""
    stages: Any
    """The pre-tokenizer and the `models.ModelRunner`, which do the same in two steps with normalized text; or None."""

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows.

        Args:
          rows: valid UTF-8, raw or normalized, as `choose` said when it returned the engine.
          added: int32[n_rows], the id of rows that are an added token, -1 for text; or int32[0] if none is.
          is_first: bool[n_rows], whether the row is at the start of its document.
          tally: counts words, and those with an unknown token.
        """

    def new_tally(self) -> Tally:
        """Returns an empty tally."""

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the name of the kernel, the components fused into it, and the stages that run before it."""


@dataclasses.dataclass(frozen=True)
class CacheInfo:
    """The size of a tokenizer's word caches, and their hits and misses since it was made.

    Hits are the words met, less the misses. Words of scripts without spaces are cut: such a word is met once, but each
    of its parts may miss.
    """

    words: int
    """The words, and parts of words, that are cached."""
    bytes: int
    """The bytes that they take, in slots and in pools. A table has its full size from the start, but the system gives
    it memory only as it is touched."""
    bound: int
    """The bytes of all tables that exist, one for each thread that encoded at the same time."""
    hits: int
    misses: int

    @property
    def hit_rate(self) -> float:
        """Share of lookups that were hits, 0 if there were none."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0
