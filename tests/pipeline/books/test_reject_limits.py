# SPDX-License-Identifier: Apache-2.0
"""How many rejected records a job takes."""

import pytest

from tokenmill.pipeline.books.reject_limits import LossyFiles, RejectLimits
from tokenmill.pipeline.config.input import InputConfig


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
    limits.check_all(2, {"not_json": 1}, 0, 0)
    with pytest.raises(ValueError, match="2 of 3 records read were"):
        limits.check_all(3, {"not_json": 1, "too_large": 1}, 0, 0)
    limits.check_all(2, {"too_large": 1}, 100, 50)
    with pytest.raises(ValueError, match=r"51 of 100 bytes read were .* more than input\.max_rejected_fraction 0\.5"):
        limits.check_all(2, {"too_large": 1}, 100, 51)


def record(name, n_records=100, n_bytes=1000, n_rejected_bytes=0, **rejected):
    read = {"n_records": n_records, "n_bytes": n_bytes, "n_rejected_bytes": n_rejected_bytes, "rejected": rejected}
    return {"name": name, "read": {key: value for key, value in read.items() if value}}


@pytest.mark.parametrize(
    "found, is_named",
    [
        (record("a"), False),
        (record("a", not_json=5, n_rejected_bytes=50), False),
        (record("a", not_json=6), True),
        (record("a", too_large=1, n_rejected_bytes=51), True),
        (record("a", truncated_stream=1), True),
        (record("a", corrupt_stream=1), True),
        (record("a", n_records=1, n_bytes=0, null_text=1), True),
        ({"name": "of counts, without rejects"}, False),
    ],
)
def test_a_file_is_named_if_it_is_damaged_or_loses_more_than_its_share(found, is_named):
    assert bool(LossyFiles(InputConfig(), [found]).warnings()) == is_named


def test_damage_fails_unless_the_config_says_to_warn():
    damaged = [record(f"{i}", bomb=1) for i in range(22)]
    LossyFiles(InputConfig(on_damage="warn"), damaged).check()
    with pytest.raises(ValueError, match=r"^22 files are damaged .* 5 % of") as caught:
        LossyFiles(InputConfig(), damaged).check()
    assert "'19' is damaged" in str(caught.value)
    with pytest.raises(ValueError, match=r"if conversations are not where input\.messages_field says, correct that"):
        LossyFiles(InputConfig(messages_field="messages"), damaged).check()
    (line,) = LossyFiles(InputConfig(paths=["corpus/*.txt"]), damaged[:1]).warnings()
    assert line.startswith("input file '0' is damaged")
    assert line.endswith("(bomb 1); found by 'corpus/*.txt'")
    assert "and 2 more" in str(caught.value)
    lenient = LossyFiles(InputConfig(max_rejected_per_file=1), [record("a", not_json=100, n_rejected_bytes=1000)])
    assert lenient.warnings() == []
