# SPDX-License-Identifier: Apache-2.0
"""WordLevel: a word is an entry of the vocabulary, or unknown."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.errors import UnknownCharacterError
from tokenmill.tokenizer.models.vocabulary import Vocabulary, check_ids, word_table


class WordLevelTables(NamedTuple):
    """A WordLevel vocabulary as the kernels read it."""

    slots: npt.NDArray[np.int64]
    pool: npt.NDArray[np.uint8]
    """int64[n_slots, 4] and uint8[n_pool]: the word table of the entries, see kernels.word_table; VALUE is the id."""
    unk_id: int
    """`NO_ENTRY` if it is none."""


@dataclasses.dataclass(frozen=True, eq=False)
class WordLevel:
    """A vocabulary of whole words; if the unknown token is no entry, a text with an unknown word cannot be encoded.

    Raises:
      ValueError: if an id is not in 0..2^24-1 or occurs twice.

    Source: HF tokenizers `models/wordlevel/mod.rs`.
    """

    vocab: Mapping[str, int]
    unk_token: str = "<unk>"

    def __post_init__(self) -> None:
        check_ids(self.vocab)
        object.__setattr__(self, "vocab", Vocabulary.of(self.vocab))

    def __repr__(self) -> str:
        return f"WordLevel({len(self.vocab)} entries, unk_token={self.unk_token!r})"

    @functools.cached_property
    def tables(self) -> WordLevelTables:
        """The vocabulary lowered to a word table."""
        vocab = Vocabulary.of(self.vocab)
        slots, pool, _ = word_table(*vocab.words)
        return WordLevelTables(slots, pool, vocab.unknown_id(self.unk_token))

    def tokenize(self, word: str) -> list[tuple[int, int]]:
        """Tokenizes one word in plain Python; returns the id of its only token, and its end in characters.

        Raises:
          UnknownCharacterError: if neither the word nor the unknown token is an entry.
        """
        found = self.vocab.get(word, self.vocab.get(self.unk_token))
        if found is None:
            raise UnknownCharacterError
        return [(found, len(word))]
