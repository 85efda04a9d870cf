# SPDX-License-Identifier: Apache-2.0
"""`WordPieceTrainer`: word counts -> WordPiece vocabulary, by merging adjacent pairs of symbols."""

import dataclasses
import reprlib
from typing import get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenizer.kernels import pair_merging
from tokenizer.trainers.merging import Rule, merge_pairs

MAX_TOTAL = 2**63 - 1
"""What the counts, each times its word's characters, may add up to; keeps every sum of the training an int64."""

MAX_CHARACTERS = 2**29
"""What the distinct words may have in characters, all together: up to three pairs each, numbered in 31 bits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordPieceTrainer:
    """Learns a WordPiece vocabulary from word counts. The defaults are those of HF's `BertWordPieceTokenizer.train`.

    The vocabulary begins with the special tokens, then the alphabet by code point, then, by code point too, the
    characters that continue a word, with the prefix. Ids are positions in this list. Every word starts as its
    characters, the first one bare, the others with the prefix; then one pair of neighbours after the other is joined
    wherever it occurs, left to right, which adds an entry to the vocabulary, until the vocabulary is full or no pair
    is frequent enough.

    The next pair is the first one in this total order, so the vocabulary is a function of the words and counts alone:

    1. `frequency`: higher count(ab); `likelihood`: higher count(ab) / (count(a) * count(b)), compared exactly;
    2. smaller id of a; 3. smaller id of b.

    Here count(ab) is how often a and b are neighbours in the words as they are divided now, count(a) how often a
    occurs.

    Source: `frequency` is HF tokenizers 0.23 `WordPieceTrainer` (`models/bpe/trainer.rs`), which leaves the ids of the
    prefixed characters, and by that the ties, to chance; with the same ids the vocabularies are equal
    (tests/parity/test_wordpiece_trainer.py). `likelihood` is the rule commonly attributed to WordPiece.
    Known differences: a `vocab_size` too small for the alphabet and repeated special tokens are errors; characters
    equally frequent at the edge of `limit_alphabet` are kept by code point; counts are 64 bits wide, not 32; a pair
    that comes back after it was merged, which takes words that hold the prefix itself, is counted from zero, where HF
    goes on from the count it had.

    Args:
      vocab_size: entries of the vocabulary at most, at least 1.
      min_frequency: pairs that occur less often are not merged; 0 and 1 are the same.
      rule: `frequency` or `likelihood`.
      limit_alphabet: characters to keep at most, the most frequent first, then by code point; None keeps all. A
        character that is left out is skipped wherever it occurs: its neighbours become neighbours of each other.
      initial_alphabet: characters to have in the alphabet whether they occur or not; kept before all others.
      special_tokens: first entries of the vocabulary, in this order. A character that is a special token is kept.
      continuing_subword_prefix: marks entries that do not begin a word.

    Raises:
      ValueError: for a value out of range, a special token that is empty or there twice, an initial character that is
        not a single one, more initial characters than `limit_alphabet`.
    """

    vocab_size: int = 30_000
    min_frequency: int = 2
    rule: Rule = "frequency"
    limit_alphabet: int | None = 1000
    initial_alphabet: tuple[str, ...] = ()
    special_tokens: tuple[str, ...] = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    continuing_subword_prefix: str = "##"

    def __post_init__(self) -> None:
        """Checks every field; lists become tuples."""
        for name in ("initial_alphabet", "special_tokens"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise TypeError(f"{name} must be a list of strings, got the string {reprlib.repr(value)}")
            object.__setattr__(self, name, tuple(value))
        if self.vocab_size < 1:
            raise ValueError(f"vocab_size must be at least 1, got {self.vocab_size!r}")
        if self.min_frequency < 0:
            raise ValueError(f"min_frequency must not be negative, got {self.min_frequency!r}")
        if self.rule not in get_args(Rule):
            raise ValueError(f"rule must be one of {', '.join(get_args(Rule))}, got {self.rule!r}")
        if self.limit_alphabet is not None and self.limit_alphabet < 1:
            raise ValueError(f"limit_alphabet must be positive or None, got {self.limit_alphabet!r}")
        for character in self.initial_alphabet:
            if len(character) != 1:
                raise ValueError(f"initial_alphabet must hold single characters, got {character!r}")
        if self.limit_alphabet is not None and len(set(self.initial_alphabet)) > self.limit_alphabet:
            raise ValueError(
                f"initial_alphabet has {len(set(self.initial_alphabet))} characters, more than "
                f"limit_alphabet={self.limit_alphabet!r} lets in; raise limit_alphabet or shorten initial_alphabet"
            )
        for token in self.special_tokens:
            if not token or self.special_tokens.count(token) > 1:
                raise ValueError(f"special_tokens must not be empty and be there once, got {token!r}")
        for text in (*self.initial_alphabet, *self.special_tokens, self.continuing_subword_prefix):
            if not _is_encodable(text):
                raise ValueError(f"a vocabulary is UTF-8, which cannot hold the lone surrogate in {text!r}")

    def train(self, word_counts: pa.Table) -> list[str]:
        """Returns the vocabulary; the id of an entry is its position.

        Args:
          word_counts: columns `word` (large_binary, UTF-8) and `count` (int64), no nulls, rows in any order. A word
            that is there twice counts twice; an empty word or one that occurs 0 times is as if it were not there.

        Raises:
          TypeError: if a column is missing or of another type.
          ValueError: if there is no word; a count is negative or null; a word is null or not UTF-8; the counts times
            the words' lengths add up to more than `MAX_TOTAL`; the words have more than `MAX_CHARACTERS` characters;
            or `vocab_size` is too small for the special tokens and the alphabet.

        Cost: O(characters of the distinct words * log(pairs)) for `frequency`; for `likelihood` each merge also walks
        the pairs that end in one of the two merged symbols. About 50 bytes per character and 70 per distinct pair.
        """
        code_points, offsets, counts = _flatten(word_counts)
        occurrences = np.zeros(pair_merging.N_CODE_POINTS, np.int64)
        continues = np.zeros(pair_merging.N_CODE_POINTS, np.bool_)
        pair_merging.count_characters(code_points, offsets, counts, occurrences, continues)
        tokens, initial_ids, continuing_ids = self._first_tokens(occurrences, continues)
        positions = np.full((code_points.size, 7), -1, np.int32)
        n_positions = pair_merging.lay_out_words(code_points, offsets, initial_ids, continuing_ids, positions)
        vocabulary = merge_pairs(
            self.rule,
            positions[:n_positions],
            counts,
            [token.encode() for token in tokens],
            self.continuing_subword_prefix.encode(),
            n_tokens=self.vocab_size,
            min_count=max(1, self.min_frequency),
        )
        return [token.decode() for token in vocabulary]

    def _first_tokens(
        self, occurrences: npt.NDArray[np.int64], continues: npt.NDArray[np.bool_]
    ) -> tuple[list[str], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Returns the vocabulary before any merge, and the two tables of `lay_out_words`."""
        alphabet = self._choose_alphabet(occurrences)
        single_specials = [ord(token) for token in self.special_tokens if len(token) == 1 and occurrences[ord(token)]]
        known = np.union1d(alphabet, np.array(single_specials, np.int64))
        continuing = known[continues[known]]
        characters = [chr(code_point) for code_point in alphabet]
        prefixed = [self.continuing_subword_prefix + chr(code_point) for code_point in continuing]
        tokens = list(dict.fromkeys([*self.special_tokens, *characters, *prefixed]))
        if len(tokens) > self.vocab_size:
            raise ValueError(
                f"vocab_size={self.vocab_size!r} is smaller than the alphabet plus special tokens, {len(tokens)} "
                f"entries: {len(self.special_tokens)} special tokens, {len(characters)} characters, {len(prefixed)} of "
                f"them again with {self.continuing_subword_prefix!r}; raise vocab_size to at least {len(tokens)}, or "
                f"keep fewer characters with limit_alphabet (now {self.limit_alphabet!r})"
            )
        ids = {token: position for position, token in enumerate(tokens)}
        initial_ids = np.full(pair_merging.N_CODE_POINTS, -1, np.int32)
        initial_ids[known] = [ids[chr(code_point)] for code_point in known]
        continuing_ids = np.full(pair_merging.N_CODE_POINTS, -1, np.int32)
        continuing_ids[continuing] = [ids[token] for token in prefixed]
        return tokens, initial_ids, continuing_ids

    def _choose_alphabet(self, occurrences: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns the code points to keep, ascending."""
        wanted = np.unique(np.array([ord(character) for character in self.initial_alphabet], np.int64))
        found = np.setdiff1d(np.flatnonzero(occurrences), wanted)
        if self.limit_alphabet is not None:
            by_frequency = np.argsort(-occurrences[found], kind="stable")  # stable: ties stay in order of code points
            found = found[by_frequency[: self.limit_alphabet - len(wanted)]]
        return np.union1d(wanted, found)


def _flatten(
    word_counts: pa.Table,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns the checked words as code points int32[n_characters], offsets int64[n_words + 1], counts int64[n_words].

    The words stay in the order of the table: no result below depends on it, only on the order inside words.
    """
    for name, expected in (("word", pa.large_binary()), ("count", pa.int64())):
        found = word_counts.schema.field(name).type if name in word_counts.schema.names else "missing"
        if found != expected:
            raise TypeError(f"word_counts must have columns word: large_binary and count: int64, but {name} is {found}")
        if nulls := word_counts[name].null_count:
            raise ValueError(f"word_counts must not hold nulls, got {nulls} in column {name!r}")
    lowest = pc.min(word_counts["count"]).as_py()
    if lowest is not None and lowest < 0:
        raise ValueError(f"word_counts: counts must not be negative, got {lowest!r}")
    word_counts = word_counts.filter(
        pc.and_(pc.greater(word_counts["count"], 0), pc.greater(pc.binary_length(word_counts["word"]), 0))
    )
    if not word_counts.num_rows:
        raise ValueError("word_counts holds no words to learn from; is the input empty?")
    words = word_counts["word"].combine_chunks()
    counts = word_counts["count"].combine_chunks().to_numpy()
    byte_offsets = np.frombuffer(words.buffers()[1], np.int64)[words.offset : words.offset + len(words) + 1]
    data = np.frombuffer(words.buffers()[2], np.uint8)[byte_offsets[0] : byte_offsets[-1]]
    byte_offsets = byte_offsets - byte_offsets[0]

    begins_character = (data & 0xC0) != 0x80
    is_whole = begins_character[byte_offsets[:-1]]  # a word that begins inside a character hides in a valid whole
    if not is_whole.all():
        raise ValueError(_not_utf8(data, byte_offsets, int(np.argmin(is_whole))))
    try:
        text = data.tobytes().decode()
    except UnicodeDecodeError as error:
        row = int(np.searchsorted(byte_offsets, error.start, side="right")) - 1
        raise ValueError(_not_utf8(data, byte_offsets, row)) from error
    code_points = np.frombuffer(text.encode("utf-32-le"), np.int32)
    if code_points.size > MAX_CHARACTERS:
        raise ValueError(f"word_counts: the words have {code_points.size} characters, more than {MAX_CHARACTERS}")
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(begins_character, dtype=np.int64)])[byte_offsets]
    _check_total(np.diff(offsets), counts)
    return code_points, offsets, counts


def _check_total(lengths: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> None:
    # The float is exact to many digits, so only sums close to the limit need Python's integers.
    if np.dot(lengths.astype(np.float64), counts.astype(np.float64)) > MAX_TOTAL / 2:
        total = sum(length * count for length, count in zip(lengths.tolist(), counts.tolist(), strict=True))
        if total > MAX_TOTAL:
            raise ValueError(
                f"word_counts: the counts add up to {total} characters, more than 2**63 - 1; scale them down"
            )


def _not_utf8(data: npt.NDArray[np.uint8], byte_offsets: npt.NDArray[np.int64], row: int) -> str:
    word = data[byte_offsets[row] : byte_offsets[row + 1]].tobytes()
    return f"word_counts: words must be UTF-8, got {reprlib.repr(word)}"


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
