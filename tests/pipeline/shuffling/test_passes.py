# SPDX-License-Identifier: Apache-2.0
"""A shuffle in passes: few runs at once, and the same rows in the same order as with all at once."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.shuffling.test_runs import ROWS, WIDE, keys_of, make_batch
from tokenmill.pipeline import shuffling as passes
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.filenames import runs_name
from tokenmill.pipeline.output.spill import RunFiles, RunsWriter, merge_range, open_runs, shard_range
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.shuffling import Pass, deal, merge_runs, plan_passes


def sort(folder, index, batches, run_bytes):
    """Writes the runs of a split, as the first step does; returns their description as it goes through Beam."""
    with Staging(folder, str(index)) as staging:
        writer = RunsWriter(staging.create(runs_name(f"{index:016x}")), run_bytes)
        for rows in batches:
            writer.write(keys_of(rows), make_batch(rows))
        file = writer.finish()
        staging.publish()
    runs = SplitRuns(f"{index:016x}", index, file.sha256, tuple(writer.runs))
    return SplitRuns.from_json(runs.to_json())


def dealt(files, into):
    groups = defaultdict(list)
    for file in files:
        for key, needed in deal(file, into):
            groups[key].append(needed)
    return groups


def merged(folder, files, n_shards):
    """Yields keys and rows of each shard, and the number of runs that it was merged from."""
    for (_, _, number), needed in sorted(dealt(files, Pass(1 << 62, n_shards)).items()):
        with RunFiles() as handles:
            runs = open_runs(handles, [f"{folder}/{runs_name(each.split_id)}" for each in needed], needed, WIDE)
            found = list(merge_range(runs, *shard_range(number, n_shards), step_bytes=200))
        keys = [key for keys, _ in found for key in keys.tolist()]
        yield number, keys, [row for _, batch in found for row in batch.to_pylist()], len(runs)


@given(
    st.lists(st.lists(ROWS, max_size=2), min_size=1, max_size=9),
    st.integers(1, 5),
    st.sampled_from([2, 3]),
    st.sampled_from([1, 100, 1 << 20]),
)
def test_passes_change_nothing(tmp_path_factory, splits, n_shards, fan_in, run_bytes):
    folder = str(tmp_path_factory.mktemp("passes"))
    files = [sort(folder, index, batches, run_bytes) for index, batches in enumerate(splits)]
    expected = list(merged(folder, files, n_shards))
    for into in plan_passes(len(splits), 0, run_bytes, fan_in=fan_in):
        groups = dealt(files, into)
        files = [
            merge_runs(needed[::-1], group, (number, into.n_ranges), folder, run_bytes, WIDE)
            for (_, group, number), needed in groups.items()
        ]
    found = list(merged(folder, files, n_shards))
    assert [each[:3] for each in found] == [each[:3] for each in expected]
    assert [number for number, *_ in found] == [*range(n_shards)]


@pytest.mark.parametrize("fan_in", [2, 8, 256])
@pytest.mark.parametrize("run_bytes", [32 << 20, 256 << 20])
@pytest.mark.parametrize("split_bytes", [1 << 20, 256 << 20, 8 << 30])
@pytest.mark.parametrize("n_work", [1e6, 1e9, 1e11, 1e13, 1e14])
def test_no_merge_reads_from_many_runs(fan_in, run_bytes, split_bytes, n_work):
    n_splits = max(1, int(n_work) // split_bytes)
    n_files, n_runs = n_splits, max(n_splits, int(1.2 * n_work) // run_bytes)  # 1.2 bytes of rows for a byte of text
    n_parts, runs_in_file = 1, n_runs / n_splits
    for into in plan_passes(n_splits, int(n_work), run_bytes, fan_in=fan_in):
        # As long as a split is not itself of more runs.
        assert into.width * runs_in_file <= max(2 * fan_in, runs_in_file)
        n_files, runs_in_file = -(-n_files // into.width), 1
        assert into.n_ranges % n_parts == 0
        n_parts = into.n_ranges
        assert n_files * n_parts <= max(8 * n_runs, n_files * fan_in)
    assert n_files * runs_in_file <= 2 * fan_in + 1


def test_a_pass_finds_what_it_has_merged_and_merges_what_is_damaged(tmp_path, monkeypatch):
    rows = [(int(key), "id", [1, 2], [], None) for key in np.random.default_rng(0).integers(0, 1 << 63, 50)]
    files = [sort(str(tmp_path), i, [rows[i::3]], 1 << 20) for i in range(3)]
    arguments = 0, (0, 4), str(tmp_path), 1 << 20, WIDE
    calls = []
    monkeypatch.setattr(passes, "merge_range", lambda *args, **kwargs: calls.append(1) or merge_range(*args, **kwargs))
    first = merge_runs(files, *arguments)
    path = tmp_path / runs_name(first.split_id)
    data = path.read_bytes()
    assert merge_runs(files, *arguments) == first
    assert len(calls) == 1
    for damaged, content in ((path, data[:-1]), (path.with_suffix(".json"), b"{")):
        damaged.write_bytes(content)
        assert merge_runs(files, *arguments) == first
        assert path.read_bytes() == data
    assert len(calls) == 3
    assert merge_runs(files[:2], *arguments).split_id != first.split_id
