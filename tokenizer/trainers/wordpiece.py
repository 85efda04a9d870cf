# SPDX-License-Identifier: Apache-2.0
"""`WordPieceTrainer`: word counts -> WordPiece vocabulary, by merging adjacent pairs of symbols."""

import dataclasses
from collections.abc import Sequence
from typing import get_args

import pyarrow as pa

from tokenmill.tokenizer.models.wordpiece import WordPiece
from tokenmill.tokenizer.trainers import alphabet, base
from tokenmill.tokenizer.trainers.merging import Rule, merge_pairs
from tokenmill.tokenizer.trainers.word_counts import words_as_code_points


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordPieceTrainer(base.Trainer[WordPiece]):
    """Learns a WordPiece vocabulary from word counts. The defaults are those of HF's `BertWordPieceTokenizer.train`.

    The vocabulary begins with the special tokens, then the alphabet by code point, then, by code point too, the
    characters that continue a word, with the prefix. Ids are positions in this list. Every word starts as its
    characters, the first one bare, the others with the prefix; then one pair of neighbours after the other is merged
    wherever it occurs, left to right, which adds an entry to the vocabulary, until the vocabulary is full or no pair
    is frequent enough.

    The next pair is the first one in this total order, so the vocabulary depends only on the words and counts:

    1. `frequency`: higher count(ab); `likelihood`: higher count(ab) / (count(a) * count(b)), compared exactly;
    2. smaller id of a; 3. smaller id of b.

    Here count(ab) is how often a and b are neighbours in the words as divided so far, count(a) how often a occurs.

    Source: `frequency` is HF tokenizers 0.23 `WordPieceTrainer` (`models/bpe/trainer.rs`), which leaves the ids of the
    prefixed characters, and so the ties, to chance; with the same ids the vocabularies are equal
    (tests/parity/test_wordpiece_trainer.py). `likelihood` is the rule commonly attributed to WordPiece.
    Known differences: a `vocab_size` too small for the alphabet and repeated special tokens are errors; of characters
    that are equally frequent at the limit of `limit_alphabet` those with smaller code points are kept; counts have 64
    bits, not 32; a pair that occurs again after it was merged, as is possible in words that contain the prefix itself,
    is counted from zero, where HF goes on from its old count.

    Args:
      vocab_size: the most entries of the vocabulary, at least 1.
      min_frequency: pairs that occur less often are not merged; 0 and 1 are the same.
      rule: `frequency` or `likelihood`.
      limit_alphabet: the most characters to keep, the most frequent first, then by code point; None keeps all. A
        character that is left out is skipped wherever it occurs: its neighbours become neighbours of each other.
      initial_alphabet: characters that are in the alphabet whether they occur or not; kept before all others.
      special_tokens: first entries of the vocabulary, in this order. A character that is a special token is kept.
      continuing_subword_prefix: marks entries that do not begin a word.
      unk_token: the special token that the model has for unknown words.

    Raises:
      TypeError: if a list of strings is a string, or a number no integer.
      ValueError: for a value out of range, a special token that is empty or occurs twice, an unknown token that is no
        special token, an initial character that is not a single one, more initial characters than `limit_alphabet`.
    """

    vocab_size: int = 30_000
    min_frequency: int = 2
    rule: Rule = "frequency"
    limit_alphabet: int | None = 1000
    initial_alphabet: tuple[str, ...] = ()
    special_tokens: tuple[str, ...] = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    continuing_subword_prefix: str = "##"
    unk_token: str = "[UNK]"

    def __post_init__(self) -> None:
        """Checks every field; lists become tuples."""
        base.freeze_strings(self, "initial_alphabet", "special_tokens")
        base.check_integers(self)
        base.check_numbers(self.vocab_size, self.min_frequency)
        if self.rule not in get_args(Rule):
            raise ValueError(f"rule must be one of {', '.join(get_args(Rule))}, got {self.rule!r}")
        alphabet.check_alphabet(self.initial_alphabet, self.limit_alphabet)
        base.check_tokens("special_tokens", self.special_tokens)
        base.check_encodable((*self.initial_alphabet, *self.special_tokens, self.continuing_subword_prefix))
        base.check_unk_token(self.unk_token, self.special_tokens)

    def train_sizes(
        self, word_counts: pa.Table, sizes: Sequence[int], tell: base.Tell | None = None
    ) -> dict[int, WordPiece]:
        """Returns the model of each size, from one training; see `Trainer.train_sizes`.

        Cost: O(characters of the distinct words * log(pairs)) for `frequency`; for `likelihood` each merge also walks
        the pairs that end in one of the two merged symbols. Memory: 36 bytes per character, 68 to 136 per distinct pair
        ever met; see docs/explanation/algorithms.md.
        """
        words = words_as_code_points(word_counts)
        characters = alphabet.count_characters(words)
        first = alphabet.first_tokens(
            self.special_tokens,
            alphabet.choose_alphabet(characters, self.initial_alphabet, self.limit_alphabet),
            characters,
            prefix=self.continuing_subword_prefix,
            may_be_characters=self.special_tokens,
        )
        parts = [f"{len(self.special_tokens)} special tokens", *first.parts([self.continuing_subword_prefix])]
        base.check_sizes(sizes, len(first.tokens), parts, alphabet.fewer(self.limit_alphabet))
        merged = merge_pairs(
            self.rule,
            words,
            first.ids,
            first.tokens,
            prefix=self.continuing_subword_prefix,
            n_tokens=max(sizes),
            min_count=max(1, self.min_frequency),
            tell=tell,
        )
        tokens = [token.decode() for token in merged.tokens]
        return {
            size: WordPiece(
                {token: position for position, token in enumerate(tokens[:size])},
                unk_token=self.unk_token,
                continuing_subword_prefix=self.continuing_subword_prefix,
            )
            for size in sizes
        }
