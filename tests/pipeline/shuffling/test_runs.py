# SPDX-License-Identifier: Apache-2.0
"""Sorted runs: damaged, merged by ranges, and with sums that no order changes."""

import contextlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import shuffling as reference
from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.sums import SplitRuns, Sums, sum_rows
from tokenmill.pipeline.output import spill
from tokenmill.pipeline.output.spill import (
    N_KEYS,
    RunFiles,
    RunReader,
    RunsWriter,
    merge_range,
    open_runs,
)
from tokenmill.pipeline.output.staging import Staging

WIDE = pa.schema(
    [
        *schemas.TOKENS,
        pa.field("span_sources", pa.large_list(pa.field("element", pa.string())), nullable=False),
        pa.field("note", pa.string()),
        pa.field("share", pa.float32(), nullable=False),
        pa.field("is_mixed", pa.bool_(), nullable=False),
        pa.field("is_known", pa.bool_()),
    ]
)

# Few keys, so that there are equal ones, and the ends of all of them.
KEYS = st.sampled_from([0, 1, 5, 1 << 62, 1 << 63, (1 << 63) + 1, N_KEYS - 2, N_KEYS - 1]) | st.integers(0, N_KEYS - 1)
ROWS = st.lists(
    st.tuples(
        KEYS,
        st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        st.lists(st.integers(0, 70000), max_size=5),
        st.lists(st.none() | st.sampled_from(["", "x", "été"]), max_size=2),
        st.none() | st.sampled_from(["", "n"]),
    ),
    max_size=12,
)


def make_batch(rows, schema=WIDE):
    values = {
        "doc_id": [row[1] for row in rows],
        "input_ids": [row[2] for row in rows],
        "n_tokens": [len(row[2]) for row in rows],
        "n_oov": [row[2].count(7) for row in rows],
        "span_sources": [row[3] for row in rows],
        "note": [row[4] for row in rows],
        "share": [len(row[2]) / 4 for row in rows],
        "is_mixed": [len(row[1]) % 2 == 0 for row in rows],
        "is_known": [None if row[4] is None else row[4] == "n" for row in rows],
    }
    return pa.record_batch([pa.array(values[field.name], field.type) for field in schema], schema=schema)


def keys_of(rows):
    return np.array([row[0] for row in rows], np.uint64)


@contextlib.contextmanager
def written(folder, splits, run_bytes=1 << 20, schema=WIDE, where="", patch=None):
    """Yields the runs of splits, each a list of batches of rows, as of a folder `where`."""
    described, paths = [], []
    if patch is not None:
        patch.setattr(spill, "_PIECE_BYTES", 1)  # pieces of four rows
    with Staging(str(folder), "test") as staging, RunFiles(where) as files:
        for index, batches in enumerate(splits):
            file = staging.create(f"{index}.run")
            writer = RunsWriter(file, run_bytes, of_all_keys=index % 2 == 0)
            for rows in batches:
                writer.write(keys_of(rows), make_batch(rows, schema))
            record = writer.finish()
            described.append(SplitRuns(str(index), index, record.sha256, tuple(writer.runs)))
            paths.append(file.path)
        yield open_runs(files, paths, described, schema)


def test_a_file_that_is_damaged_or_holds_something_else_is_an_error(tmp_path):
    rows = [(i << 40, f"d{i}", [i], [], None) for i in range(8)]
    with written(tmp_path, [[rows]]) as runs:
        (run,) = runs
        path, data = Path(run._path), Path(run._path).read_bytes()
        other = RunReader(run.files, run._path, run.run, schemas.TOKENS)
        with pytest.raises(ValueError, match="other columns, or rows that are not sorted"):
            list(merge_range([other], 0, N_KEYS, step_bytes=1))
        offsets = np.arange(9, dtype=np.int64).tobytes()
        first, second = (key.to_bytes(8, "little") for key in (3 << 40, 4 << 40))
        assert offsets in data
        for name, damaged in (
            ("cut off", data[: len(data) // 2]),
            ("offsets", data.replace(offsets, offsets[:8] + b"\xff" + offsets[9:])),
            ("order", data.replace(first + second, second + first)),
            ("nothing", b""),
        ):
            path.write_bytes(damaged)
            with RunFiles() as files:
                reader = RunReader(files, str(path), run.run, WIDE)
                with pytest.raises(ValueError, match=r"damaged|not sorted"):
                    pytest.fail(f"{name}: {list(merge_range([reader], 0, N_KEYS, step_bytes=1 << 20))}")


@given(
    st.lists(st.lists(ROWS, max_size=3), max_size=4),
    KEYS,
    KEYS,
    st.sampled_from([1, 60, 9999]),
    st.sampled_from([1, 300]),
    st.sampled_from(["", "store://runs"]),
)
def test_runs_are_merged_as_the_reference_implementation_merges_them(
    tmp_path_factory, splits, low, high, step_bytes, run_bytes, where
):
    low, high = min(low, high), max(low, high) + 1
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch, written(folder, splits, run_bytes, where=where, patch=patch) as runs:
        expected = reference.merge(
            [sorted([(row[0], row) for rows in batches for row in rows], key=lambda row: row[0]) for batches in splits],
            low,
            high,
        )
        found = list(merge_range(runs, low, high, step_bytes=step_bytes))
    assert [key for keys, _ in found for key in keys.tolist()] == [key for key, _ in expected]
    rows = [row for _, batch in found for row in batch.to_pylist()]
    assert rows == make_batch([row for _, row in expected]).to_pylist()


@given(ROWS)
def test_sums_are_those_of_the_reference_implementation_in_any_order(rows):
    batch, keys = make_batch(rows), keys_of(rows)
    found = sum_rows(keys, batch, None)
    assert found.tokens == reference.fingerprint((row[0], row[2]) for row in rows)
    assert found.doc_ids == reference.fingerprint((row[0], row[1].encode()) for row in rows)
    assert found.n_tokens == sum(len(row[2]) for row in rows)
    assert found.n_oov_tokens == sum(row[2].count(7) for row in rows)
    parts = [sum_rows(keys[i : i + 2], batch.slice(i, 2), None) for i in reversed(range(0, len(rows), 2))]
    assert sum(parts, Sums()) == found
