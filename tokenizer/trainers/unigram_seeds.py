# SPDX-License-Identifier: Apache-2.0
"""Chooses the characters that a Unigram vocabulary covers, and the pieces that its training begins with."""

import functools
from typing import NamedTuple

import numpy as np

from tokenmill.tokenizer.pre_tokenizers.tables import script_numbers
from tokenmill.tokenizer.trainers.alphabet import count_characters
from tokenmill.tokenizer.trainers.kernels import unigram_suffixes as kernels
from tokenmill.tokenizer.trainers.unigram_text import Int32s, Int64s, Text
from tokenmill.tokenizer.trainers.word_counts import CountedWords

SPACE = 0x2581
"""U+2581, which SentencePiece writes for a space."""

NEVER_IN_PIECES = (0x0000, 0x2585)
"""The characters that sentencepiece reserves: the end of a string, and its mark for unknown characters."""

LEAST_AT_ENDS = 5
"""The occurrences that a substring needs to be a seed if it occurs only at the ends of words.

In sentencepiece such a substring is a seed if it also ends a sentence, as frequent ones mostly do; word counts cannot
tell. If 2 occurrences were enough, held-out text would take up to 2 % more tokens, because rare words of the training
text would become pieces; if none were seeds, up to 4 % more, because frequent words that are always followed by a space
would not.
"""

_DIGITS = [*range(0x30, 0x3A), *range(0xFF10, 0xFF1A)]
_COMBINING_GRAVE, _FULL_STOP = 0x300, 0x2E


class Alphabet(NamedTuple):
    """Code points and how often they occur."""

    code_points: Int32s
    """int32[n], ascending."""
    counts: Int64s
    """int64[n]: how often each occurs."""


def choose_alphabet(words: CountedWords, coverage: float, required: str) -> Alphabet:
    """Returns the characters that a vocabulary must have: the required ones, then the most frequent ones.

    Characters are taken in the order of their counts, then of their code points, until those taken are at least
    `coverage` of all there are, in single precision.
    """
    occurrences = count_characters(words).occurrences
    occurrences[list(NEVER_IN_PIECES)] = 0
    wanted = np.array(sorted({ord(character) for character in required} - set(NEVER_IN_PIECES)), np.int64)
    found = np.setdiff1d(np.flatnonzero(occurrences), wanted)
    found = found[np.argsort(-occurrences[found], kind="stable")]
    ordered = np.concatenate([wanted, found])
    before = np.cumsum(occurrences[ordered]) - occurrences[ordered]
    covered = (before / max(1, int(occurrences.sum()))).astype(np.float32)
    taken = np.sort(np.concatenate([wanted, found[covered[wanted.size :] < np.float32(coverage)]]))
    return Alphabet(taken.astype(np.int32), occurrences[taken])


@functools.cache
def _character_classes() -> Int32s:
    """Returns the script and flags of every code point, int32[0x110000]."""
    numbers = script_numbers().astype(np.int32)
    common, inherited = numbers[_FULL_STOP], numbers[_COMBINING_GRAVE]
    classes = np.where(numbers == 0, common, numbers)
    classes[numbers == inherited] = kernels.IS_INHERITED
    classes[_DIGITS] |= kernels.IS_DIGIT
    classes[SPACE] = kernels.IS_SPACE
    return classes.astype(np.int32)


class Pieces(NamedTuple):
    """Substrings of a text, ordered by their characters."""

    places: Int32s
    """int32[n]: a place in the text where each one occurs."""
    lengths: Int64s
    """int64[n]: the number of characters of each."""

    def spell(self, text: Text) -> tuple[Int32s, Int64s]:
        """Returns the characters of all pieces, as numbered in the text, int32, and offsets int64[n + 1]."""
        offsets = np.zeros(self.lengths.size + 1, np.int64)
        np.cumsum(self.lengths, out=offsets[1:])
        at = np.repeat(self.places - offsets[:-1], self.lengths)
        at += np.arange(at.size)
        return text.values[at], offsets


def find_seeds(
    text: Text, suffixes: Int32s, common: Int32s, *, depth: int, rules: int, n_seeds: int
) -> tuple[Pieces, Int64s]:
    """Returns the pieces to begin with, and their scores, the occurrences times the length.

    These are all characters of the text, and the `n_seeds` substrings of `find_substrings` with the highest scores;
    ties go to those that come first by their characters.
    """
    n = suffixes.size
    classes = np.zeros(text.alphabet.size + 1, np.int32)
    classes[1:] = _character_classes()[text.alphabet]
    rows = np.empty((2 * n, 3), np.int64)
    sums = np.empty(n + 1, np.int64)
    n_rows = kernels.find_substrings(
        text.values, suffixes, common, text.starts, text.run_of, text.counts, depth, classes, rules, LEAST_AT_ENDS,
        sums, np.empty((depth + 2, 2), np.int64), rows,
    )  # fmt: skip
    rows = rows[:n_rows]
    if n_rows > n_seeds:
        lowest = np.partition(rows[:, 2], n_rows - n_seeds)[n_rows - n_seeds]
        above, equal = rows[rows[:, 2] > lowest], rows[rows[:, 2] == lowest]
        equal = equal[np.lexsort((equal[:, 1], equal[:, 0]))]
        rows = np.concatenate([above, equal[: n_seeds - len(above)]])

    # The suffixes are sorted, so those that begin with the same character are together, in the order of the alphabet.
    n_by_number = np.bincount(text.values, minlength=text.alphabet.size + 1)[1:]
    firsts = np.cumsum(n_by_number) - n_by_number
    lasts = firsts + n_by_number
    characters = np.stack([firsts, np.ones_like(firsts), sums[lasts] - sums[firsts]], axis=1)
    rows = np.concatenate([characters[n_by_number > 0], rows])
    rows = rows[np.argsort(rows[:, 0] << 16 | rows[:, 1])]
    return Pieces(suffixes[rows[:, 0]], rows[:, 1].copy()), rows[:, 2].copy()
