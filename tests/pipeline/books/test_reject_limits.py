# SPDX-License-Identifier: Apache-2.0
"""How many rejected records a job takes."""

import pytest

from pipeline.books.reject_limits import RejectLimits
from pipeline.running.progress import Progress, Stage


def test_a_number_of_rejects_is_a_limit_from_the_first_record_on():
    limits = RejectLimits(max_rejected=2)
    limits.check(2, 2)
    with pytest.raises(ValueError, match=r"^3 of 1,000 records read were rejected, more than input\.max_rejected 2; "):
        limits.check(1000, 3)
    with pytest.raises(ValueError, match="max_rejected 0"):
        RejectLimits(max_rejected=0).check(1, 1)


def test_a_fraction_waits_for_enough_records_or_the_end():
    limits = RejectLimits(max_fraction=0.5)
    limits.check(9_999, 9_999)
    limits.check(10_000, 5_000)
    with pytest.raises(ValueError, match=r"5,001 of 10,000 .* more than input\.max_rejected_fraction 0\.5"):
        limits.check(10_000, 5_001)
    limits.check(2, 1, is_all=True)
    with pytest.raises(ValueError, match="2 of 3"):
        limits.check(3, 2, is_all=True)


def test_no_limit_is_none():
    RejectLimits().check(10**9, 10**9, is_all=True)


def test_splits_of_one_process_are_counted_together():
    progress = Progress([Stage("s", "f", {"a": 1, "b": 1})], RejectLimits(max_rejected=3))
    progress.advance("s", "a", 10, 2, 0, 7)
    with pytest.raises(ValueError, match="4 of 14 records"):
        progress.advance("s", "b", 10, 2, 0, 7)
