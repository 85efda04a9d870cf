# SPDX-License-Identifier: Apache-2.0
"""Time and memory by the number of workers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline.estimating import costs
from tokenmill.pipeline.estimating.costs import Work


def work(seconds, **values):
    sizes = np.array([1000 * each for each in seconds], np.int64)
    return Work(
        sizes,
        **{"pace": 0.001, "merge_seconds": 0, "train_seconds": 0, "worker_bytes": 10, "other_bytes": 100} | values,
    )


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(costs, "available_cores", lambda: 8)
    monkeypatch.setattr(costs, "CONTENTION", 0.1)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 9))
def test_the_busiest_worker_has_what_it_is_dealt(seconds, workers):
    busiest = work(seconds).busiest(workers)
    assert max(1000 * sum(seconds) / workers, *(1000 * each for each in seconds)) <= busiest <= 1000 * sum(seconds)


@pytest.mark.usefixtures("eight_cores")
def test_one_large_split_keeps_all_workers_waiting():
    even, skewed = work([2.0] * 8), work([9.0] + [1.0] * 7)
    assert even.seconds(1.0, 1) == skewed.seconds(1.0, 1) == 17.0
    slower = 1 + 3 * 0.1
    assert even.seconds(1.0, 4) == pytest.approx(1 + 4 * slower)
    assert skewed.seconds(1.0, 4) == pytest.approx(1 + 10 * slower)


def test_memory_grows_with_workers_that_have_something_to_do():
    assert [work([1.0, 1.0]).memory(n) for n in (1, 2, 4)] == [110, 120, 120]
