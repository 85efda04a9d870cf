# SPDX-License-Identifier: Apache-2.0
"""The words of a Unigram training as one text of numbered characters, and its sorted suffixes."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.classes import N_CODE_POINTS
from tokenmill.tokenizer.trainers.kernels import unigram_suffixes as kernels
from tokenmill.tokenizer.trainers.word_counts import CountedWords

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
