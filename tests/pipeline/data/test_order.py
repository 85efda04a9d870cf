# SPDX-License-Identifier: Apache-2.0
"""The order of an epoch: a permutation for any number of rows, fair, and the same for ever."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.data import Order


@given(st.integers(1, 20_000), st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_each_row_has_one_place(n: int, seed: int, epoch: int) -> None:
    order = Order(n, seed, epoch)
    rows = order(np.arange(n))
    assert np.array_equal(np.sort(rows), np.arange(n))
    assert np.array_equal(order.inverse(rows), np.arange(n))


@given(st.integers(5000, 2**62 - 1), st.integers(0, 2**64 - 1), st.data())
def test_places_of_any_size_have_an_inverse(n: int, seed: int, data: st.DataObject) -> None:
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=50)))
    order = Order(n, seed)
    rows = order(places)
    assert rows.min() >= 0
    assert rows.max() < n
    assert np.array_equal(order.inverse(rows), places)


def test_it_is_the_same_for_ever() -> None:
    """A run that is resumed after an upgrade would read rows twice if these changed."""
    assert Order(10, 0, 0)(np.arange(10)).tolist() == GOLDEN_10
    assert Order(5000, 1, 2)([0, 1, 2, 4999]).tolist() == GOLDEN_5000
    assert Order(10**12, 2**64 - 1, 7)([0, 1, 2, 10**12 - 1]).tolist() == GOLDEN_LARGE


def test_without_a_seed_rows_come_as_they_are_stored() -> None:
    assert Order(10**12, None, 3)([5, 10**12 - 1]).tolist() == [5, 10**12 - 1]


def test_all_orders_of_four_rows_come_equally_often() -> None:
    counts = Counter(tuple(Order(4, seed, epoch)(np.arange(4)).tolist()) for seed in range(200) for epoch in range(24))
    assert len(counts) == 24
    assert _chi_squared(np.array(list(counts.values()))) < 60  # 23 degrees of freedom: one in 30,000 is larger


@pytest.mark.parametrize("n", [4097, 5000, 65_536, 100_003])
def test_places_and_rows_have_nothing_to_do_with_one_another(n: int) -> None:
    parts, table, steps, fixed = np.arange(n) * 32 // n, np.zeros((32, 32)), np.zeros(32), []
    for seed in range(40):
        rows = Order(n, seed, seed % 3)(np.arange(n))
        np.add.at(table, (parts, rows * 32 // n), 1)
        steps += np.bincount(np.diff(rows) % n * 32 // n, minlength=32)
        fixed.append(int((rows == np.arange(n)).sum()))
    # Chi squared has these degrees of freedom on the average; five standard deviations are allowed.
    assert abs(_chi_squared(table) - 31 * 31) < 5 * np.sqrt(2 * 31 * 31)
    assert _chi_squared(steps) < 31 + 5 * np.sqrt(2 * 31)
    assert 0.3 < np.mean(fixed) < 2  # of a random permutation one row is at its own place, on the average


def test_epochs_and_seeds_differ_everywhere() -> None:
    n = 50_000
    orders = [Order(n, seed, epoch)(np.arange(n)) for seed in (0, 1, 2**63) for epoch in (0, 1, 2)]
    for i, one in enumerate(orders):
        for other in orders[:i]:
            assert (one == other).sum() < 12  # one on the average
            assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(n)


@pytest.mark.parametrize(("n", "seed", "epoch"), [(-1, 0, 0), (1 << 62, 0, 0), (5, -1, 0), (5, 1 << 64, 0), (5, 0, -1)])
def test_numbers_out_of_range_are_refused(n: int, seed: int, epoch: int) -> None:
    with pytest.raises(ValueError, match="no order of"):
        Order(n, seed, epoch)


@pytest.mark.parametrize("place", [-1, 10])
def test_there_is_no_place_beyond_the_rows(place: int) -> None:
    with pytest.raises(IndexError, match="not a number from 0 to 9"):
        Order(10, 0)([0, place])
    assert Order(0, 0)([]).size == 0


def _chi_squared(counts: np.ndarray) -> float:
    return float(((counts - counts.mean()) ** 2).sum() / counts.mean())


GOLDEN_10 = [9, 4, 6, 2, 8, 3, 1, 5, 0, 7]
GOLDEN_5000 = [3697, 326, 3165, 2262]
GOLDEN_LARGE = [183987952207, 956353263614, 413760891046, 246846052497]
