# SPDX-License-Identifier: Apache-2.0
"""`BPETrainer`: word counts -> byte pair encoding, on characters or on bytes."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tokenmill.tokenizer.models.bpe import BPE
from tokenmill.tokenizer.trainers import alphabet, base
from tokenmill.tokenizer.trainers.merging import Merged, merge_pairs
from tokenmill.tokenizer.trainers.word_counts import CountedWords, words_as_bytes, words_as_code_points


@dataclasses.dataclass(frozen=True, kw_only=True)
class BPETrainer(base.Trainer[BPE]):
    """Learns the merges of byte pair encoding from word counts. The defaults are those of HF's `BpeTrainer`.

    The vocabulary begins with the special tokens, then the user-defined symbols, then the byte tokens of
    `byte_fallback`, then the alphabet, then the characters with the prefix, with the suffix and with both, as far as
    they occur; the last four groups in the order of code points as written. Every word starts as its characters; then
    one pair of neighbours after the other is merged wherever it occurs, left to right, which adds an entry to the
    vocabulary, until the vocabulary is full or no pair is frequent enough. Ids are positions in this order.

    The next pair is the first one in this total order, so the model depends only on the words and counts:

    1. higher count(ab), how often a and b are neighbours in the words as divided so far;
    2. smaller id of a; 3. smaller id of b.

    With `byte_level` words are bytes, UTF-8 or not. The alphabet is all 256 bytes, written in GPT-2's printable
    characters, so that its order, by code point, is that of GPT-2's vocabulary: `!` to `~`, `¡` to `¬`, `®` to `ÿ`,
    then the others as U+0100 to U+0143.

    Source: HF tokenizers 0.23 `BpeTrainer` (`models/bpe/trainer.rs`): same ids, same merges, as long as there is no
    prefix or suffix. HF numbers characters with these in the order of a hash table; given the order of one of its runs,
    results are equal too (tests/parity/test_bpe_trainer.py).
    Known differences: a `vocab_size` too small for the alphabet and repeated special tokens are errors; of characters
    that are equally frequent at the limit of `limit_alphabet` those with smaller code points are kept; counts have 64
    bits, not 32; a pair that occurs again after it was merged, as is possible in words that contain the prefix or the
    suffix itself, is counted from zero, where HF goes on from its old count, and is listed once.

    Args:
      vocab_size: the most entries of the vocabulary, at least 1.
      min_frequency: pairs that occur less often are not merged; 0 and 1 are the same.
      special_tokens: first entries of the vocabulary, in this order. A character that is a special token is kept.
      user_defined_symbols: entries that come next, in this order. Each is one token wherever it occurs, like an added
        token: words are cut there, the text on either side of it becomes a separate word, and no merge can make it.
      limit_alphabet: the most characters to keep, the most frequent first, then by code point; None keeps all. A
        character that is left out is skipped wherever it occurs: its neighbours become neighbours of each other. Not
        with `byte_level`.
      initial_alphabet: characters that are in the alphabet whether they occur or not; kept before all others. Not with
        `byte_level`.
      continuing_subword_prefix, end_of_word_suffix: put before characters that continue a word, and after those that
        end one; None or empty for none.
      max_token_length: tokens with this many characters or more (bytes with `byte_level`) are not made, except that
        those of two always are, as in HF; markers do not count. None for no limit.
      byte_level: whether words are bytes.
      byte_fallback: whether the vocabulary has the 256 tokens `<0x00>` to `<0xFF>`, which no merge can make, and the
        model uses them for unknown characters. Not with `byte_level`.
      unk_token: the special token that the model has for unknown characters; None drops them.

    Raises:
      TypeError: if a list of strings is a string, or a number no integer.
      ValueError: for a value out of range, a special token or user-defined symbol that is empty, occurs twice or is a
        byte token, an unknown token that is no special token, an initial character that is not a single one, more
        initial characters than `limit_alphabet`, or options that contradict each other.
    """

    vocab_size: int = 30_000
    min_frequency: int = 0
    special_tokens: tuple[str, ...] = ()
    user_defined_symbols: tuple[str, ...] = ()
    limit_alphabet: int | None = None
    initial_alphabet: tuple[str, ...] = ()
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None
    max_token_length: int | None = None
    byte_level: bool = False
    byte_fallback: bool = False
    unk_token: str | None = None

    def __post_init__(self) -> None:
        """Checks every field; lists become tuples."""
        base.freeze_strings(self, "initial_alphabet", "special_tokens", "user_defined_symbols")
        base.check_integers(self)
        base.check_numbers(self.vocab_size, self.min_frequency)
        base.check_tokens("special_tokens", self.special_tokens)
        base.check_tokens("special tokens, user-defined symbols and byte tokens", self._before)
        alphabet.check_alphabet(self.initial_alphabet, self.limit_alphabet)
        base.check_encodable((*self.initial_alphabet, *self._before, self._prefix, self._suffix))
        if self.unk_token is not None:
            base.check_unk_token(self.unk_token, self.special_tokens)
        if self.max_token_length is not None and self.max_token_length < 1:
            raise ValueError(f"max_token_length must be at least 1 or None, got {self.max_token_length!r}")
        if self.byte_level:
            for name in ("limit_alphabet", "initial_alphabet", "byte_fallback"):
                if getattr(self, name):
                    raise ValueError(f"byte_level has every byte in its alphabet, so {name} must not be set with it")

    @property
    def _before(self) -> tuple[str, ...]:
        """The entries of the vocabulary before the alphabet."""
        return (*self.special_tokens, *self.user_defined_symbols, *(base.BYTE_TOKENS if self.byte_fallback else ()))

    @property
    def _prefix(self) -> str:
        return self.continuing_subword_prefix or ""

    @property
    def _suffix(self) -> str:
        return self.end_of_word_suffix or ""

    def train_sizes(self, word_counts: pa.Table, sizes: Sequence[int], tell: base.Tell | None = None) -> dict[int, BPE]:
        """Returns the model of each size, from one training; see `Trainer.train_sizes`.

        A smaller vocabulary consists of the first entries and the first merges of a larger one.

        Cost: O(characters of the distinct words * log(pairs)), however long a word is. Memory: 36 bytes per
        character, 68 to 136 per distinct pair ever met; see docs/explanation/algorithms.md.
        """
        read = words_as_bytes if self.byte_level else words_as_code_points
        words = read(word_counts, cut_at=self.user_defined_symbols)
        first = self._first_tokens(words)
        marks = [mark for mark in (self._prefix, self._suffix) if mark]
        parts = [f"{len(self.special_tokens)} special tokens"]
        if self.user_defined_symbols:
            parts.append(f"{len(self.user_defined_symbols)} user-defined symbols")
        if self.byte_fallback:
            parts.append(f"{len(base.BYTE_TOKENS)} byte tokens")
        remedy = "" if self.byte_level else alphabet.fewer(self.limit_alphabet)
        base.check_sizes(sizes, len(first.tokens), [*parts, *first.parts(marks)], remedy)
        limits = {} if self.max_token_length is None else {"max_length": max(2, self.max_token_length - 1)}
        merged = merge_pairs(
            "frequency",
            words,
            first.ids,
            first.tokens,
            prefix=self._prefix,
            n_tokens=max(sizes),
            min_count=max(1, self.min_frequency),
            tell=tell,
            reserved=range(len(self.special_tokens), len(self._before)),
            **limits,
        )
        return self._models(merged, len(first.tokens), sizes)

    def _first_tokens(self, words: CountedWords) -> alphabet.FirstTokens:
        characters = alphabet.count_characters(words)
        if self.byte_level:
            kept = np.arange(256)
        else:
            kept = alphabet.choose_alphabet(characters, self.initial_alphabet, self.limit_alphabet)
        return alphabet.first_tokens(
            self._before,
            kept,
            characters,
            prefix=self._prefix,
            suffix=self._suffix,
            may_be_characters=self.special_tokens,
        )

    def _models(self, merged: Merged, n_first: int, sizes: Sequence[int]) -> dict[int, BPE]:
        tokens = [token.decode() for token in merged.tokens]
        pairs = [(tokens[left], tokens[right]) for left, right, *_ in merged.merges.tolist()]
        models = {}
        for size in sizes:
            # A pair that occurred again was merged again; the model needs each pair only once.
            merges = list(dict.fromkeys(pairs[: merged.n_merges_for(size, n_first)]))
            models[size] = BPE(
                {token: position for position, token in enumerate(tokens[:size])},
                merges,
                unk_token=self.unk_token,
                continuing_subword_prefix=self.continuing_subword_prefix,
                end_of_word_suffix=self.end_of_word_suffix,
                byte_fallback=self.byte_fallback,
                byte_level=self.byte_level,
            )
        return models
