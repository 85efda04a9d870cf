# SPDX-License-Identifier: Apache-2.0
"""Measures of a vocabulary from the counts of its entries: coverage, evenness, idle entries.

All functions but `gini` and `ratio` take `counts`, int64[n], how often each entry occurred, unused entries included, in
any order.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

UNDER_TRAINED = 100
"""An entry that occurs less often than this is under-trained: a model sees few examples of it."""

RENYI_ALPHA = 2.5
"""The order of the Rényi entropy that follows translation quality best in the paper named at `renyi_efficiency`."""


def coverage(counts: Counts) -> list[dict[str, float]]:
    """Returns the share of all tokens that the 1, 2, 5, 10, 20, 50, ... most frequent entries make up, up to all.

    Each point is {"entries", "share"}; there are none if nothing occurred.
    """
    used = np.sort(counts[counts > 0])[::-1]
    if not used.size:
        return []
    shares = np.cumsum(used) / used.sum()
    sizes = [step * 10**power for power in range(len(str(used.size))) for step in (1, 2, 5)]
    return [{"entries": n, "share": float(shares[n - 1])} for n in [*(n for n in sizes if n < used.size), used.size]]


def entries_for(counts: Counts, share: float) -> int:
    """Returns how many of the most frequent entries make up at least `share` of all; 0 where nothing occurred."""
    used = np.sort(counts[counts > 0])[::-1]
    if not used.size:
        return 0
    sums = np.cumsum(used)
    # Rounded up to an integer, so that a share that is met exactly is not missed.
    return int(np.searchsorted(sums, np.ceil(share * sums[-1]))) + 1


def entropy_bits(counts: Counts) -> float | None:
    """Returns Shannon's entropy of the entries in bits per token; None where nothing occurred."""
    shares = _shares(counts)
    return float(-(shares * np.log2(shares)).sum() + 0.0) if shares.size else None


def renyi_efficiency(counts: Counts, alpha: float = RENYI_ALPHA) -> float | None:
    """Returns the Rényi entropy of order `alpha`, divided by that of a uniform distribution over the vocabulary.

    From 0, if only one entry occurs, to 1; None if nothing occurred or the vocabulary has fewer than two entries.

    Source: Zouhar et al., Tokenization and the Noiseless Channel, ACL 2023.
    """
    shares = _shares(counts)
    if not shares.size or counts.size < 2:
        return None
    entropy = np.log2((shares**alpha).sum()) / (1 - alpha)
    return float(entropy / np.log2(counts.size) + 0.0)


def zipf_slope(counts: Counts) -> float | None:
    """Returns the slope of the least-squares line through log(count) over log(rank) of the entries that occur.

    Rank 1 is the most frequent one; text gives about -1. None where fewer than two entries occurred.
    """
    used = np.sort(counts[counts > 0])[::-1]
    if used.size < 2:
        return None
    ranks = np.log(np.arange(1, used.size + 1))
    ranks -= ranks.mean()
    return float((ranks * np.log(used)).sum() / (ranks**2).sum() + 0.0)


def gini(values: Sequence[float]) -> float | None:
    """Returns the Gini coefficient of positive numbers: 0 if all are equal, near 1 if they are very unequal."""
    if not values:
        return None
    ordered = sorted(values)
    weighted = sum((2 * rank - len(ordered) - 1) * value for rank, value in enumerate(ordered, 1))
    return weighted / (len(ordered) * sum(ordered))


def ratio(numerator: float, denominator: float) -> float | None:
    """Returns a ratio; None where there is nothing to divide by."""
    return numerator / denominator if denominator else None


def _shares(counts: Counts) -> npt.NDArray[np.float64]:
    used = counts[counts > 0]
    return used / used.sum()
