# SPDX-License-Identifier: Apache-2.0
"""The clock of a job: its sums are those of its splits, whatever they are, and it fails nothing."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline import filenames
from tokenmill.pipeline.running import clock
from tokenmill.pipeline.splits import Piece, Split

BEGAN = 1_000.0

TIMES = st.builds(
    lambda i, start, length, n, workers: clock.SplitTime(
        f"{i:016x}", i, "a.jsonl", start, start + length, length / 2, n, n // 4, "host", f"{workers}-1"
    ),
    st.integers(0, 50),
    st.floats(BEGAN, 2_000),
    st.floats(0.001, 500),
    st.integers(0, 10**9),
    st.integers(1, 3),
)


def gathered(folder, times, n_splits=10, **changes):
    (folder / filenames.CLOCKS).mkdir(exist_ok=True)
    for each in times:
        (folder / filenames.CLOCKS / f"{each.split}.json").write_text(json.dumps(asdict(each) | changes))
    clock.gather(str(folder), n_splits, BEGAN, [("tokenizing", 3.0)], 4.0)
    assert not (folder / filenames.CLOCKS).exists()
    return json.loads((folder / filenames.CLOCK).read_text())


@given(st.lists(TIMES, max_size=30, unique_by=lambda each: each.split))
def test_throughput_adds_up_to_what_was_read(tmp_path_factory, times):
    found = gathered(tmp_path_factory.mktemp("clock"), times)
    assert found["splits"] == {"planned": 10, "timed": len(times), "earlier": 0}
    assert found["workers"] == len({each.worker for each in times})
    assert found["worker_seconds"] == pytest.approx(sum(each.ended - each.started for each in times))
    points = found["throughput"]
    if not times:
        assert points == found["slowest"] == []
        return
    assert len(points) == clock.BINS
    width = points[0]["second"]
    assert points[-1]["second"] == pytest.approx(max(e.ended for e in times) - min(e.started for e in times))
    for name, attribute in (("bytes_per_second", "n_bytes"), ("tokens_per_second", "n_tokens")):
        total = sum(getattr(each, attribute) for each in times)
        assert sum(point[name] for point in points) * width == pytest.approx(total, rel=1e-6, abs=1e-6)
    lengths = sorted((each.ended - each.started for each in times), reverse=True)
    assert [each["seconds"] for each in found["slowest"]] == pytest.approx(lengths[: clock.SLOWEST])
    assert found["seconds_of_splits"]["p100"] == pytest.approx(lengths[0])


def test_what_is_no_time_is_left_out(tmp_path):
    (tmp_path / filenames.CLOCKS).mkdir()
    (tmp_path / filenames.CLOCKS / "x.json").write_text('{"later": 1}')
    (tmp_path / filenames.CLOCKS / "y.json").write_text("no json")
    assert gathered(tmp_path, [])["splits"]["timed"] == 0


SPLIT = Split(3, "s", (Piece("/c/a", "a", 7, "v", "jsonl", "none", 0, 7),))


def test_a_split_is_as_good_without_its_time(tmp_path):
    (tmp_path / filenames.CLOCKS).write_text("in the way")
    clock.Stopwatch(str(tmp_path), SPLIT).stop(n_bytes=7, n_tokens=2)
