# SPDX-License-Identifier: Apache-2.0
"""Columns that are read in part, sorted runs, their merge by ranges, and sums that no order changes."""

import contextlib
import io
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import shuffling as reference
from tokenmill.pipeline import columns, schemas, storage
from tokenmill.pipeline.books.sums import SplitRuns, Sums, sum_doc_ids, sum_rows, sum_values
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.shuffling import runs as runs_of
from tokenmill.pipeline.shuffling.merging import N_KEYS, merge_range, shard_range
from tokenmill.pipeline.shuffling.runs import RunFiles, RunReader, RunsWriter, arrange, open_runs

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
def written(folder, splits, run_bytes=1 << 20, schema=WIDE, where=""):
    """Yields the runs of splits, each a list of batches of rows, as of a folder `where`, and what is known of them."""
    described, paths = [], []
    with Staging(str(folder), "test") as staging, RunFiles(where) as files:
        for index, batches in enumerate(splits):
            file = staging.create(f"{index}.run")
            writer, sums = RunsWriter(file, run_bytes), Sums()
            for rows in batches:
                writer.write(keys_of(rows), make_batch(rows, schema))
                sums += sum_rows(keys_of(rows), make_batch(rows, schema), None)
            record = writer.finish()
            described.append(SplitRuns(str(index), index, record.sha256, tuple(writer.runs), sums))
            paths.append(file.path)
        yield open_runs(files, paths, described, schema), described


@given(ROWS, st.data())
def test_columns_are_read_back_from_any_row_to_any_row(tmp_path_factory, rows, data):
    path = Path(tmp_path_factory.getbasetemp()) / "columns"
    batch = make_batch(rows)
    skipped = data.draw(st.integers(0, len(rows)))
    batch = batch.slice(skipped)  # offsets of a slice do not begin at 0
    with path.open("wb") as file:
        file.write(b"before")
        positions = columns.write_columns(file, batch.columns, batch.schema)
        n_bytes = file.tell() - len(b"before")
    start = data.draw(st.integers(0, batch.num_rows))
    stop = data.draw(st.integers(start, batch.num_rows))
    stored = path.read_bytes()
    found = columns.read_columns(lambda at, n: stored[at : at + n], positions, batch.schema, start, stop)
    found.validate(full=True)
    assert found.to_pylist() == batch.slice(start, stop - start).to_pylist()
    # Each of the five levels of lists and strings has one position more than rows.
    assert columns.row_bytes(batch).sum() <= n_bytes <= columns.row_bytes(batch).sum() + 8 * 5


@given(ROWS, st.data())
def test_rows_are_arranged_as_the_reference_implementation_arranges_them(rows, data):
    batch = make_batch(rows)
    places = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    ends = [0, *cuts, len(rows)]
    for field in WIDE:
        column = batch.column(field.name)
        parts = [column.slice(start, stop - start) for start, stop in pairwise(ends)]
        found = arrange(parts, places, field)
        found.validate(full=True)
        assert found.type == field.type
        assert found.to_pylist() == reference.arrange(column.to_pylist(), places.tolist())


def test_columns_need_no_pandas(repository):
    program = """
import sys

class Missing:  # as where only locks/runtime.lock is installed
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import io, numpy as np, pyarrow as pa
from tokenmill.pipeline.shuffling import runs as runs_of
from tokenmill.pipeline.shuffling.runs import arrange
from tokenmill.pipeline.columns import read_columns, write_columns
schema = pa.schema([pa.field("n", pa.int64(), nullable=False),
                    pa.field("ids", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False)])
batch = pa.record_batch([pa.array([1, 2]), pa.array([[3], [4, 5]], schema.field(1).type)], schema=schema)
file = io.BytesIO()
positions = write_columns(file, batch.columns, schema)
read = read_columns(lambda at, n: file.getvalue()[at : at + n], positions, schema, 0, 2)
assert read.equals(batch), read
assert arrange([batch["ids"]], np.array([1, 0]), schema.field(1)).to_pylist() == [[4, 5], [3]]
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=repository, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_file_that_is_cut_off_or_holds_something_else_is_an_error(tmp_path):
    batch = make_batch([(1, "a", [1, 2], ["x"], None), (2, "b", [3], [], "n")])
    with (tmp_path / "f").open("wb") as file:
        positions = columns.write_columns(file, batch.columns, batch.schema)
    stored = (tmp_path / "f").read_bytes()
    with pytest.raises(ValueError, match="cut off"):
        columns.read_columns(lambda at, n: stored[: positions[-1]][at : at + n], positions, batch.schema, 0, 2)
    twisted = stored[: positions[0]] + np.array([5, 1, 0], np.int64).tobytes() + stored[positions[0] + 24 :]
    with pytest.raises(ValueError, match="do not begin in order"):
        columns.read_columns(lambda at, n: twisted[at : at + n], positions, batch.schema, 0, 2)
    with pytest.raises(ValueError, match="must not hold nulls"):
        columns.write_columns(None, [pa.array([1, None])], pa.schema([pa.field("n", pa.int64(), nullable=False)]))


@given(
    st.lists(st.lists(ROWS, max_size=3), max_size=4),
    KEYS,
    KEYS,
    st.integers(1, 5),
    st.sampled_from([1, 60, 9999]),
    st.sampled_from(["", "store://runs"]),
)
def test_runs_are_merged_as_the_reference_implementation_merges_them(
    tmp_path_factory, splits, low, high, bucket_rows, piece_bytes, where
):
    low, high = min(low, high), max(low, high) + 1
    # A run as soon as there is anything to write: a run for each batch.
    with written(tmp_path_factory.getbasetemp(), splits, run_bytes=1, where=where) as (runs, described):
        expected = reference.merge(
            [[(row[0], row) for row in sorted(rows, key=lambda row: row[0])] for batches in splits for rows in batches],
            low,
            high,
        )
        found = list(merge_range(runs, low, high, bucket_rows=bucket_rows, piece_bytes=piece_bytes))
    assert [key for keys, _ in found for key in keys.tolist()] == [key for key, _ in expected]
    rows = [row for _, batch in found for row in batch.to_pylist()]
    assert rows == make_batch([row for _, row in expected]).to_pylist()
    for _, batch in found:
        assert batch.num_rows == 1 or columns.row_bytes(batch).sum() <= piece_bytes
    assert sum((split.sums for split in described), Sums()).n_documents == sum(
        len(rows) for batches in splits for rows in batches
    )


def test_reads_from_a_store_are_small_and_at_once(tmp_path, monkeypatch):
    """Beam reads objects through a buffer of 16 MiB, of which a merge needs some kB for each column."""
    (tmp_path / "f").write_bytes(bytes(range(250)) * 10_000)
    read, waiting = [], threading.Barrier(4)

    class Object(io.FileIO):
        def readinto(self, buffer):
            read.append(len(buffer))
            return super().readinto(buffer)

    monkeypatch.setattr(runs_of, "_OPEN_OBJECTS", 2)
    monkeypatch.setattr(storage, "open_read", lambda path: io.BufferedReader(Object(tmp_path / "f"), 1 << 24))

    def first(i):
        waiting.wait(20)
        return files.read(f"{i % 3}", i * 250, 2)

    with RunFiles("store://runs") as files:
        assert files.each(first, range(4)) == [b"\0\1"] * 4
        assert len(files._handles) <= 2
        handles = [*files._handles.values()]
    assert sum(read) == 4 * runs_of._BUFFER_BYTES
    assert all(handle.closed for handle in handles)


def test_every_key_is_in_one_shard():
    for n_shards in (1, 2, 3, 7, 4096, 100_000):
        ranges = [shard_range(i, n_shards) for i in range(n_shards)]
        assert ranges[0][0] == 0
        assert ranges[-1][1] == N_KEYS
        assert all(left[1] == right[0] for left, right in pairwise(ranges))


@pytest.mark.parametrize("shape", ["uniform", "all low", "all high", "one key"])
def test_find_is_right_wherever_the_keys_are(tmp_path, shape):
    generator = np.random.default_rng(0)
    keys = generator.integers(0, 1 << 63, 3000, np.uint64) * np.uint64(2)
    keys = {
        "uniform": keys,
        "all low": keys >> np.uint64(40),
        "all high": keys | np.uint64(0xFFFFFF << 40),
        "one key": np.full(3000, 77, np.uint64),
    }[shape]
    rows = [(int(key), "", [], [], None) for key in keys]
    with written(tmp_path, [[rows]]) as (runs, _):
        (run,) = runs
        ordered = np.sort(keys)
        wanted = [0, 1, 77, 78, *map(int, ordered[::97]), *(int(key) + 1 for key in ordered[::89]), N_KEYS - 1]
        for key in wanted:
            assert run.find(key) == np.searchsorted(ordered, np.uint64(key)), key
        assert run.find(N_KEYS) == 3000


def test_a_merge_reads_every_row_once_and_little_of_keys(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    rows = [(int(key), "id", [1] * 50, [], None) for key in generator.integers(0, 1 << 63, 4000, np.uint64)]
    read = []
    original = RunReader.rows
    monkeypatch.setattr(
        RunReader, "rows", lambda self, start, stop: read.append(stop - start) or original(self, start, stop)
    )
    with written(tmp_path, [[rows[i : i + 500]] for i in range(0, 4000, 500)]) as (runs, _):
        batches = list(merge_range(runs, 0, N_KEYS, bucket_rows=300, piece_bytes=20_000))
    assert sum(read) == 4000
    assert max(batch.nbytes for _, batch in batches) < 30_000


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
    assert Sums.from_record(found.to_record()) == found


def test_sums_see_padding_on_either_side_as_none():
    keys = np.array([3, 9], np.uint64)
    plain = make_batch([(3, "a", [5, 6], [], None), (9, "b", [8], [], None)])
    for side, ids in (("right", [[5, 6, 0], [8, 0, 0]]), ("left", [[0, 5, 6], [0, 0, 8]])):
        padded = plain.set_column(1, schemas.TOKENS.field(1), pa.array(ids, schemas.TOKENS.field(1).type))
        assert sum_rows(keys, padded, side) == sum_rows(keys, plain, None)


def test_sums_tell_documents_that_have_changed_places():
    keys = np.array([3, 9], np.uint64)
    ids = np.array([5, 6, 6, 5], np.int32)
    ends = np.array([0, 2, 4])
    whole = sum_values(keys, ids, ends[:-1], ends[1:])
    others = [
        sum_values(keys[::-1].copy(), ids, ends[:-1], ends[1:]),  # swapped documents
        sum_values(keys, ids[[1, 0, 2, 3]], ends[:-1], ends[1:]),  # swapped tokens
        sum_values(keys, ids, np.array([0, 3]), np.array([3, 4])),  # another cut
        sum_values(keys[:1], ids, ends[:1], ends[1:2]),  # a document less
    ]
    assert whole not in others
    assert sum_doc_ids(keys, pa.array(["a", "b"])) != sum_doc_ids(keys, pa.array(["b", "a"]))
