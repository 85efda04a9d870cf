# SPDX-License-Identifier: Apache-2.0
"""Expectation maximization over the pieces of a Unigram training, and pruning."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.models.unigram import UNKNOWN_PENALTY
from tokenmill.tokenizer.trainers.kernels import unigram as kernels
from tokenmill.tokenizer.trainers.unigram_seeds import Int32s, Int64s, Pieces, Text

Float64s = npt.NDArray[np.float64]


class Lattice(NamedTuple):
    """All ways to cut the words of a text into pieces, see trainers.kernels.unigram."""

    longest: Int32s
    """int32[n]: the longest piece at each place of the text, -1 if there is none."""
    links: Int64s
    """int64[n_pieces]: the longest prefix of each piece that is a piece."""


def match(text: Text, suffixes: Int32s, common: Int32s, pieces: Int32s, offsets: Int64s) -> Lattice:
    """Finds pieces in the sorted suffixes of a text; pieces: characters as numbered in the text, in order."""
    links = np.empty(offsets.size - 1, np.int64)
    kernels.link_pieces(pieces, offsets, links)
    longest = np.full(text.values.size, -1, np.int32)
    kernels.match_pieces(text.values, suffixes, common, pieces, offsets, links, longest)
    return Lattice(longest, links)


def fixed_point_unit(total: int) -> int:
    """Returns the number of parts of an occurrence in fixed point, for `total` characters, counted by occurrence.

    It is a power of two, at most 2**40, and such that all expected counts add up to less than 2**62 parts.
    """
    return 1 << max(0, min(40, 61 - total.bit_length()))


def expect(text: Text, lattice: Lattice, scores: Float64s, unit: int) -> Int64s:
    """Returns the expected count of each piece over all paths, int64[n_pieces] in parts of 1 / `unit`."""
    probabilities = np.empty_like(scores)
    kernels.exponentiate(scores, probabilities)
    n = text.longest_run + 1  # places in the longest run, its end included
    expected = np.zeros(scores.size, np.int64)
    kernels.expect(
        text.starts, text.counts, lattice.longest, lattice.links, probabilities,
        math.exp(unknown_score(scores)), float(unit), np.empty(n), np.empty(n), np.empty(n, np.int32), expected,
    )  # fmt: skip
    return expected


def unknown_score(scores: Float64s) -> float:
    """Returns the score of a character that is no piece."""
    return float(scores.min()) - UNKNOWN_PENALTY


@dataclasses.dataclass(frozen=True)
class Candidates:
    """The pieces that are left in a training, with their scores; in the order of their characters."""

    text: Text
    lattice: Lattice
    places: Int32s
    scores: Float64s
    unit: int

    @property
    def n(self) -> int:
        """The number of pieces."""
        return self.scores.size

    @property
    def lengths(self) -> Int64s:
        """int64[n]: characters of each piece."""
        return self.lattice.links & kernels.LENGTH_MASK

    def keep(self, is_kept: npt.NDArray[np.bool_]) -> "Candidates":
        """Returns the pieces for which `is_kept`, bool[n], is true."""
        n_kept = int(np.count_nonzero(is_kept))
        if n_kept == self.n:
            return self
        links, new_pieces = np.empty(n_kept, np.int64), np.empty(self.n + 1, np.int32)
        kernels.keep_pieces(self.lattice.links, is_kept, links, new_pieces)
        new_pieces[-1] = -1  # index -1 means that there is no piece
        lattice = Lattice(new_pieces[self.lattice.longest], links)
        return dataclasses.replace(self, lattice=lattice, places=self.places[is_kept], scores=self.scores[is_kept])

    def reestimate(self) -> "Candidates":
        """Runs one step of EM: drops pieces with an expected count below 0.5, and gives the others new scores."""
        expected = expect(self.text, self.lattice, self.scores, self.unit)
        is_kept = 2 * expected >= self.unit
        if not is_kept.any():
            return self
        kept = self.keep(is_kept)
        scores = np.empty(kept.n)
        kernels.maximize(expected[is_kept], float(self.unit), scores)
        return dataclasses.replace(kept, scores=scores)

    def weigh(self) -> Float64s:
        """Returns the likelihood that the text loses without each piece, float64[n]; see kernels.weigh_pieces."""
        unknown = unknown_score(self.scores)
        n = max(self.text.longest_run, int(self.lengths.max())) + 1
        best, last = np.empty(n), np.empty(n, np.int32)
        frequencies = np.zeros(self.n, np.int64)
        kernels.count_best(
            self.text.starts, self.text.counts, *self.lattice, self.scores, unknown, best, last, frequencies
        )
        losses = np.empty(self.n)
        kernels.weigh_pieces(self.places, *self.lattice, self.scores, unknown, frequencies, best, last, losses)
        return losses

    def prune(self, losses: Float64s, size: int) -> "Candidates":
        """Returns the `size` pieces with the highest losses, the first of equal ones, without those in no best path."""
        is_kept = np.zeros(self.n, np.bool_)
        is_kept[np.argsort(-losses, kind="stable")[:size]] = True
        return self.keep(is_kept & (losses > -np.inf))


def seed_candidates(
    text: Text, suffixes: Int32s, common: Int32s, pieces: Pieces, shares: Int64s, unit: int
) -> Candidates:
    """Returns seed pieces; their scores are the logarithms of `shares`, int64[n_pieces], divided by their sum."""
    lattice = match(text, suffixes, common, *pieces.spell(text))
    total = (int((shares >> 32).sum()) << 32) + int((shares & 0xFFFFFFFF).sum())  # may be more than 64 bits
    scores = np.empty(shares.size)
    kernels.score_seeds(shares, math.log(float(total)), scores)
    return Candidates(text, lattice, pieces.places, scores, unit)
