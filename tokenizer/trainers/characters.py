# SPDX-License-Identifier: Apache-2.0
"""`CharacterTrainer`: word counts -> the most frequent characters, each a token of its own."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tokenmill.tokenizer.models.bpe import BPE
from tokenmill.tokenizer.trainers import alphabet, base
from tokenmill.tokenizer.trainers.word_counts import words_as_code_points


@dataclasses.dataclass(frozen=True, kw_only=True)
class CharacterTrainer(base.Trainer[BPE]):
    """Makes a vocabulary of the most frequent characters; the model is byte pair encoding without merges.

    The vocabulary is the special tokens, then the byte tokens of `byte_fallback`, then the characters in this order:
    higher count; smaller code point.

    Source: sentencepiece 0.2 with `model_type=char` and its `character_coverage`.
    Known difference: coverage is compared in double precision, not in single.

    Args:
      vocab_size: the most entries of the vocabulary, at least 1.
      min_frequency: characters that occur less often are left out; 0 and 1 are the same.
      character_coverage: once the characters taken make up this part of the text, no more are taken; more than 0 and at
        most 1.
      special_tokens: first entries of the vocabulary, in this order.
      byte_fallback: whether the vocabulary has the 256 tokens `<0x00>` to `<0xFF>`, which the model uses for unknown
        characters.
      unk_token: the special token that the model has for unknown characters; None drops them.

    Raises:
      TypeError: if `special_tokens` is a string, or a number no integer.
      ValueError: for a value out of range, a special token that is empty, occurs twice or is a byte token, or an
        unknown token that is no special token.
    """

    vocab_size: int = 30_000
    min_frequency: int = 0
    character_coverage: float = 1.0
    special_tokens: tuple[str, ...] = ("<unk>",)
    byte_fallback: bool = False
    unk_token: str | None = "<unk>"

    def __post_init__(self) -> None:
        """Checks every field; lists become tuples."""
        base.freeze_strings(self, "special_tokens")
        base.check_integers(self)
        base.check_numbers(self.vocab_size, self.min_frequency)
        if not 0 < self.character_coverage <= 1:
            raise ValueError(f"character_coverage must be more than 0 and at most 1, got {self.character_coverage!r}")
        base.check_tokens("special tokens and byte tokens", self._before)
        base.check_encodable(self.special_tokens)
        if self.unk_token is not None:
            base.check_unk_token(self.unk_token, self.special_tokens)

    @property
    def _before(self) -> tuple[str, ...]:
        return (*self.special_tokens, *(base.BYTE_TOKENS if self.byte_fallback else ()))

    def train_sizes(self, word_counts: pa.Table, sizes: Sequence[int], tell: base.Tell | None = None) -> dict[int, BPE]:
        """Returns the model of each size; see `Trainer.train_sizes`. Time and memory grow with the words' characters.

        A size smaller than the characters found keeps the most frequent ones.
        """
        words = words_as_code_points(word_counts)
        base.check_sizes(sizes, len(self._before) + 1, [f"{len(self._before)} special and byte tokens", "a character"])
        occurrences = alphabet.count_characters(words).occurrences
        found = np.flatnonzero(occurrences)
        found = found[np.argsort(-occurrences[found], kind="stable")]  # ties stay in order of code points
        counts = occurrences[found]
        covered_before = np.cumsum(counts) - counts
        n_kept = int(np.searchsorted(covered_before / counts.sum(), self.character_coverage))
        kept = found[:n_kept][counts[:n_kept] >= self.min_frequency]
        tokens = list(dict.fromkeys([*self._before, *map(chr, kept.tolist())]))
        return {
            size: BPE(
                {token: position for position, token in enumerate(tokens[:size])},
                [],
                unk_token=self.unk_token,
                byte_fallback=self.byte_fallback,
            )
            for size in sizes
        }
