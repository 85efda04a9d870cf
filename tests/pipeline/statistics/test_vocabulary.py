# SPDX-License-Identifier: Apache-2.0
"""Measures of a vocabulary against the same, counted out in plain Python."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline.statistics import vocabulary

COUNTS = st.lists(st.integers(0, 10**9) | st.just(0), max_size=60)


def arrays(counts):
    return np.array(counts, np.int64)


@given(COUNTS)
def test_coverage_is_what_the_most_frequent_entries_make_up(counts):
    used = sorted((n for n in counts if n), reverse=True)
    points = vocabulary.coverage(arrays(counts))
    assert bool(points) == bool(used)
    for point in points:
        assert point["share"] == pytest.approx(sum(used[: point["entries"]]) / sum(used))
    entries = [point["entries"] for point in points]
    assert entries == sorted(set(entries))
    if used:
        assert (entries[0], entries[-1]) == (1, len(used))


@given(COUNTS, st.sampled_from([0.1, 0.5, 0.9, 0.95, 1.0]))
def test_entries_for_a_share_are_as_few_as_possible(counts, share):
    used = sorted((n for n in counts if n), reverse=True)
    n = vocabulary.entries_for(arrays(counts), share)
    if not used:
        assert n == 0
        return
    needed = math.ceil(share * sum(used))
    assert sum(used[:n]) >= needed
    assert sum(used[: n - 1]) < needed


@given(COUNTS)
def test_entropies_and_slope(counts):
    used = sorted((n for n in counts if n), reverse=True)
    shares = [n / sum(used) for n in used]
    entropy = vocabulary.entropy_bits(arrays(counts))
    efficiency = vocabulary.renyi_efficiency(arrays(counts))
    slope = vocabulary.zipf_slope(arrays(counts))
    if not used:
        assert (entropy, efficiency, slope) == (None, None, None)
        return
    assert entropy == pytest.approx(-sum(p * math.log2(p) for p in shares), abs=1e-9)
    if len(counts) < 2:
        assert efficiency is None
    else:
        renyi = math.log2(sum(p**vocabulary.RENYI_ALPHA for p in shares)) / (1 - vocabulary.RENYI_ALPHA)
        assert efficiency == pytest.approx(renyi / math.log2(len(counts)), abs=1e-9)
    if len(used) < 2:
        assert slope is None
    else:
        xs, ys = [math.log(rank) for rank in range(1, len(used) + 1)], [math.log(n) for n in used]
        x, y = sum(xs) / len(xs), sum(ys) / len(ys)
        expected = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
        assert slope == pytest.approx(expected, abs=1e-6)


def test_an_even_vocabulary_has_all_the_entropy_there_is():
    even = np.full(1024, 7, np.int64)
    assert vocabulary.entropy_bits(even) == pytest.approx(10)
    assert vocabulary.renyi_efficiency(even) == pytest.approx(1)
    assert vocabulary.zipf_slope(even) == pytest.approx(0)
    assert vocabulary.renyi_efficiency(np.array([5, 0, 0])) == 0


def test_counts_that_fall_as_zipf_says_have_the_slope_minus_one():
    counts = np.array([10**9 // rank for rank in range(1, 2000)])
    assert vocabulary.zipf_slope(counts) == pytest.approx(-1, abs=1e-3)


def test_gini():
    assert vocabulary.gini([]) is None
    assert vocabulary.gini([3, 3, 3]) == 0
    assert vocabulary.gini([0.0001, 0.0001, 1]) == pytest.approx(2 / 3, abs=1e-3)
