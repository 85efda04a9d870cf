# SPDX-License-Identifier: Apache-2.0
"""Chooses the characters that a Unigram vocabulary covers, and the pieces that its training begins with.

The words are one text of numbered characters, whose sorted suffixes have the substrings that may be pieces.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.classes import N_CODE_POINTS
from tokenmill.tokenizer.pre_tokenizers.tables import script_numbers
from tokenmill.tokenizer.trainers.alphabet import count_characters
from tokenmill.tokenizer.trainers.kernels import unigram_suffixes as kernels
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

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


class Text(NamedTuple):
    """Runs of known characters, see trainers.kernels.unigram_suffixes."""

    values: Int32s
    """int32[n]: numbers of characters from 1, 0 after each run."""
    starts: Int64s
    """int64[n_runs + 1]."""
    counts: Int64s
    """int64[n_runs]."""
    run_of: Int32s
    """int32[n]: the run of each place."""
    alphabet: Int32s
    """int32[n_numbers]: code points in ascending order, that of number k at k - 1."""

    @property
    def longest_run(self) -> int:
        """The number of characters in the longest run, 0 if there is none."""
        return int(np.diff(self.starts).max(initial=1)) - 1


def lay_out(words: CountedWords, alphabet: Int32s) -> Text:
    """Cuts words at the characters that are not in `alphabet`, int32[n] of code points in ascending order."""
    numbers = np.zeros(N_CODE_POINTS, np.int32)
    numbers[alphabet] = np.arange(1, alphabet.size + 1)
    room = words.values.size + words.counts.size
    values, run_of = np.empty(room, np.int32), np.empty(room, np.int32)
    starts, counts = np.empty(words.values.size + 1, np.int64), np.empty(words.values.size + 1, np.int64)
    n_runs, n = kernels.lay_out_runs(words.values, words.offsets, words.counts, numbers, values, starts, counts, run_of)
    return Text(values[:n], starts[: n_runs + 1], counts[:n_runs], run_of[:n], alphabet)


def sort_suffixes(text: Text, depth: int) -> tuple[Int32s, Int32s]:
    """Sorts the places of a text by the next `depth` characters, or fewer at the end of a run.

    Returns:
      The places, int32[n_suffixes], and the number of characters that each has in common with the one before, up to
      `depth`, int32[n_suffixes + 1]: 0 at both ends.

    Each round sorts by several ranks of the round before at once, so there are about log(depth * bits of a character)
    rounds of a radix sort: O(n log(depth)) in time, 40 bytes per character in memory.
    """
    n = int(np.count_nonzero(text.values))
    arrays: list[npt.NDArray[Any]] = [
        np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int32),
    ]  # fmt: skip
    histogram = np.empty(1 << kernels.DIGIT_BITS, np.int64)
    ranks, known, highest = text.values.copy(), 1, text.alphabet.size
    while True:
        n_bits = int(highest).bit_length()
        n_packed = max(1, min(63 // n_bits, -(-depth // known)))
        kernels.pack_ranks(text.values, ranks, n_bits, n_packed, known, arrays[0], arrays[1])
        if kernels.sort_by_keys(*arrays, histogram, n_bits * n_packed):
            arrays = [*arrays[2:], *arrays[:2]]
        known *= n_packed
        if known >= depth:
            break
        highest = kernels.rank(arrays[0], arrays[1], ranks)
        if highest == n:
            break
    suffixes = arrays[1]
    common = np.empty(n + 1, np.int32)
    kernels.measure_common(text.values, suffixes, depth, common)
    return suffixes, common


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
        text, suffixes, common, depth, classes, rules, LEAST_AT_ENDS, sums, np.empty((depth + 2, 2), np.int64), rows
    )
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
