# SPDX-License-Identifier: Apache-2.0
"""Files on their way to their names, and the commit protocol: all of a split, or nothing."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.ledger_entries import SPLIT, commit, committed, entry_of
from tokenmill.pipeline import storage
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.output.staging import StagedFile, Staging


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)


def test_staged_files_know_their_size_and_digest(tmp_path):
    file = StagedFile("a.bin", str(tmp_path / "staged"))
    assert file.write(b"abc") == 3
    file.write(memoryview(np.arange(3, dtype=np.int32)))  # a buffer whose length is not its bytes
    assert file.tell() == 15
    record = file.finish(rows=4, tokens=5)
    data = b"abc" + np.arange(3, dtype=np.int32).tobytes()
    assert record == FileRecord("a.bin", 15, hashlib.sha256(data).hexdigest(), 4, 5)
    assert (tmp_path / "staged").read_bytes() == data


def test_staged_files_take_what_pyarrow_writes(tmp_path):
    file = StagedFile("a.parquet", str(tmp_path / "staged"))
    pq.write_table(pa.table({"a": [1, 2]}), file)
    file.finish()
    assert pq.read_table(tmp_path / "staged").to_pydict() == {"a": [1, 2]}


def test_commit_gives_final_names_and_leaves_nothing_behind(tmp_path):
    output = str(tmp_path / "out")
    commit(output)
    assert files_below(output) == [
        "_ledger/0123456789abcdef.arrow",
        "_ledger/0123456789abcdef.json",
        "documents/documents-00002-of-00004.parquet",
        "rejected/rejects-00002-of-00004.parquet",
        "tokens-00002-of-00004.parquet",
    ]
    assert os.listdir(tmp_path / "out" / "_tmp") == []
    assert committed(output) == entry_of()


def test_a_second_attempt_changes_nothing(tmp_path):
    output = str(tmp_path / "out")
    commit(output)
    before = {name: (tmp_path / "out" / name).read_bytes() for name in files_below(output)}
    commit(output)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in files_below(output)} == before


def test_the_entry_comes_last(tmp_path, monkeypatch):
    """Whatever rename fails, there is no entry, and the next attempt succeeds."""
    rename = storage.rename
    for n_before_failure in range(4):
        output = str(tmp_path / f"out{n_before_failure}")
        calls = []

        def fail(source, destination, calls=calls, allowed=n_before_failure):
            if len(calls) == allowed:
                raise OSError("disk full")
            calls.append(destination)
            rename(source, destination)

        monkeypatch.setattr(storage, "rename", fail)
        with pytest.raises(OSError, match="disk full"):
            commit(output)
        monkeypatch.setattr(storage, "rename", rename)
        assert not any("_ledger" in path for path in calls)
        assert committed(output) is None
        assert os.listdir(os.path.join(output, "_tmp")) == []
        commit(output)
        assert committed(output) == entry_of()


def test_an_error_while_writing_leaves_nothing(tmp_path):
    output = str(tmp_path / "out")

    def fail():
        with Staging(output, SPLIT.id) as staging:
            staging.create("tokens-00002-of-00004.parquet").write(b"half")
            raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        fail()
    assert files_below(output) == []


def test_a_writer_left_in_the_middle_may_still_write_its_end(tmp_path):
    with Staging(str(tmp_path), SPLIT.id) as staging:
        file = staging.create("a.parquet")
        writer = pq.ParquetWriter(file, pa.schema([("a", pa.int64())]))
        writer.write_table(pa.table({"a": [1]}))
    writer.close()  # as its finalizer does
    assert files_below(tmp_path) == []


def test_two_attempts_never_share_a_file(tmp_path):
    with Staging(str(tmp_path), SPLIT.id) as one, Staging(str(tmp_path), SPLIT.id) as two:
        a, b = one.create("x"), two.create("x")
        a.write(b"one")
        b.write(b"two")
        a.finish()
        b.finish()
        assert [Path(file.path).read_bytes() for file in (a, b)] == [b"one", b"two"]


def test_what_does_not_balance_is_not_committed(tmp_path):
    output = str(tmp_path / "out")
    with pytest.raises(BooksError):
        commit(output, entry_of(n_records=6))
    assert files_below(output) == []
