# SPDX-License-Identifier: Apache-2.0
"""`WordLevelTrainer`: word counts -> the most frequent words."""

import dataclasses
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.tokenizer.models.wordlevel import WordLevel
from tokenmill.tokenizer.trainers import base
from tokenmill.tokenizer.trainers.word_counts import distinct_words


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordLevelTrainer(base.Trainer[WordLevel]):
    """Makes a vocabulary of the most frequent words.

    The vocabulary is the special tokens, then the words in this order: higher count; smaller bytes.

    Source: HF tokenizers 0.23 `WordLevelTrainer` (`models/wordlevel/trainer.rs`).
    Known differences: HF lists a word twice that is also a special token, which leaves an id without a token and moves
    the special token; here it keeps its place. A `vocab_size` without room for any word is an error.

    Args:
      vocab_size: the most entries of the vocabulary, at least 1.
      min_frequency: words that occur less often are left out; 0 and 1 are the same.
      special_tokens: first entries of the vocabulary, in this order.
      unk_token: the special token that the model has for unknown words.

    Raises:
      TypeError: if `special_tokens` is a string, or a number no integer.
      ValueError: for a value out of range, a special token that is empty or occurs twice, or an unknown token that is
        no special token.
    """

    vocab_size: int = 30_000
    min_frequency: int = 0
    special_tokens: tuple[str, ...] = ("<unk>",)
    unk_token: str = "<unk>"

    def __post_init__(self) -> None:
        """Checks every field; lists become tuples."""
        base.freeze_strings(self, "special_tokens")
        base.check_integers(self)
        base.check_numbers(self.vocab_size, self.min_frequency)
        base.check_tokens("special_tokens", self.special_tokens)
        base.check_encodable(self.special_tokens)
        base.check_unk_token(self.unk_token, self.special_tokens)

    def train_sizes(
        self, word_counts: pa.Table, sizes: Sequence[int], tell: base.Tell | None = None
    ) -> dict[int, WordLevel]:
        """Returns the model of each size; see `Trainer.train_sizes`. Sorts the words: O(n log n)."""
        words = distinct_words(word_counts)
        base.check_sizes(sizes, len(self.special_tokens) + 1, [f"{len(self.special_tokens)} special tokens", "a word"])
        frequent = words.filter(pc.greater_equal(words["count"], self.min_frequency))
        ordered = frequent.sort_by([("count", "descending"), ("word", "ascending")])
        best = [word.decode() for word in ordered["word"].slice(0, max(sizes)).to_pylist()]
        tokens = list(dict.fromkeys([*self.special_tokens, *best]))
        return {
            size: WordLevel({token: position for position, token in enumerate(tokens[:size])}, unk_token=self.unk_token)
            for size in sizes
        }
