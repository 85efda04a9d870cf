# SPDX-License-Identifier: Apache-2.0
"""Estimates: bounds hold as often as they say, a sample of everything is exact; time and memory by workers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline.estimating import estimates
from tokenmill.pipeline.estimating.estimates import Estimate, Scale, Unit, Work


def sample(counts, sizes, step):
    """Takes every `step`-th block of a corpus."""
    return [unit(sizes[i], counts[i]) for i in range(step // 2, len(sizes), step)]


def unit(n_bytes, n, n_meant=None):
    """Returns a unit that stands for what was to be read of it."""
    n_meant = float(n_meant or n_bytes)
    return Unit(float(n_bytes), n_meant, {"n": int(n)} if n else {}, n_meant)


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 5000)), min_size=1, max_size=40))
def test_a_sample_of_everything_is_exact(blocks):
    units = [unit(size, n) for size, n in blocks]
    total = sum(n for _, n in blocks)
    scaled = Scale(units, sum(size for size, _ in blocks)).estimate("n")
    assert scaled.value == pytest.approx(total, abs=1)
    assert scaled.low <= total
    assert scaled.high is None or total <= scaled.high


def test_bounds_hold_about_as_often_as_they_say():
    """Of corpora that are noisy, sorted by kind, or have a trend."""
    chance = np.random.default_rng(3)
    n_held = n_tried = 0
    for kind in ("noise", "sorted", "trend"):
        for _ in range(200):
            sizes = chance.integers(900, 1100, 512)
            rate = {"noise": 0.25, "sorted": np.repeat([0.2, 0.5, 0.3, 0.25], 128), "trend": np.linspace(0.2, 0.6, 512)}
            counts = np.round(sizes * rate[kind] * chance.normal(1, 0.2, 512))
            units = sample(counts, sizes, 16)
            found = Scale(units, int(sizes.sum())).estimate("n")
            n_held += found.low <= counts.sum() <= found.high
            n_tried += 1
            assert (found.high - found.low) / found.value < 0.35
    assert n_held / n_tried > 0.92


def test_a_sorted_corpus_is_not_taken_for_one_of_great_variance():
    sizes = np.full(512, 1000)
    counts = np.repeat([100, 900], 256)
    found = Scale(sample(counts, sizes, 16), 512_000).estimate("n")
    assert found.value == 256_000
    assert found.high - found.value < 0.1 * found.value  # one step among 31; as a random sample it would be 0.3


def test_long_records_do_not_count_for_more_than_their_bytes():
    """More is read than was meant where a range holds the beginning of a long record."""
    units = [unit(1000, 200) for _ in range(15)]
    units.insert(7, unit(50_000, 30_000, n_meant=1000))
    found = Scale(units, 1_000_000).estimate("n")
    assert found.value == pytest.approx(1_000_000 * (15 * 0.2 + 0.6) / 16)


def test_places_inside_long_records_are_no_places_of_short_ones():
    """Half of the corpus are records of 16 units, in most of which none begins."""
    long = [unit(16_000, 1, n_meant=1000) if i % 16 == 0 else unit(0, 0, n_meant=1000) for i in range(32)]
    found = Scale([*long, *(unit(1000, 100) for _ in range(32))], 640_000).estimate("n")
    assert found.value == pytest.approx(32_000 + 20, rel=0.01)
    assert found.low <= 32_020 <= found.high


def test_what_the_sample_has_not_may_still_be_there():
    units = [unit(1000, 0) for _ in range(10)]
    assert Scale(units, 100_000).estimate("n") == Estimate(0, 0, 30)


def test_what_is_counted_of_the_whole_sample_is_as_spread_as_what_is_counted_of_its_units():
    scale = Scale([unit(1000, n) for n in (200, 300, 250, 200)], 40_000)
    of_units = scale.estimate("n")
    assert of_units == scale.in_proportion(950, "n")
    twice = scale.in_proportion(1900, "n")
    assert (twice.value, twice.low) == (2 * of_units.value, 2 * of_units.low)
    assert twice.high == pytest.approx(2 * of_units.high, abs=2)
    assert scale.in_proportion(7, "none") == Estimate(70, 7, 100)


def work(seconds, **values):
    sizes = np.array([1000 * each for each in seconds], np.int64)
    return Work(
        sizes,
        **{"pace": 0.001, "merge_seconds": 0, "train_seconds": 0, "worker_bytes": 10, "other_bytes": 100} | values,
    )


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 9))
def test_the_busiest_worker_has_what_it_is_dealt(seconds, workers):
    busiest = work(seconds).busiest(workers)
    assert max(1000 * sum(seconds) / workers, *(1000 * each for each in seconds)) <= busiest <= 1000 * sum(seconds)


def test_one_large_split_keeps_all_workers_waiting(monkeypatch):
    monkeypatch.setattr(estimates, "available_cores", lambda: 8)
    monkeypatch.setattr(estimates, "CONTENTION", 0.1)
    even, skewed = work([2.0] * 8), work([9.0] + [1.0] * 7)
    assert even.seconds(1.0, 1) == skewed.seconds(1.0, 1) == 17.0
    slower = 1 + 3 * 0.1
    assert even.seconds(1.0, 4) == pytest.approx(1 + 4 * slower)
    assert skewed.seconds(1.0, 4) == pytest.approx(1 + 10 * slower)


def test_memory_grows_with_workers_that_have_something_to_do():
    assert [work([1.0, 1.0]).memory(n) for n in (1, 2, 4)] == [110, 120, 120]
