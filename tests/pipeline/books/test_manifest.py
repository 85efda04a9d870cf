# SPDX-License-Identifier: Apache-2.0
"""The manifest: what it says of a finished job, and what it must not say."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.finished_splits import ENTRIES, JOB, SPLITS, built, pieces
from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import manifest
from tokenmill.pipeline.books.job_books import JobBooks, PlannedSplits, read_committed
from tokenmill.pipeline.books.manifest import NameSet
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.output.folders import prepare_output


def test_entries_must_be_those_of_the_plan(tmp_path):
    planned = PlannedSplits(SPLITS[::-1])
    assert (len(planned), list(planned.ids()), planned.n_bytes) == (2, ["0" * 16, "1" * 16], 153)

    def read(*entries):
        for entry in entries:
            storage.write_atomic(str(tmp_path / filenames.entry_name(entry.split_id)), entry.to_json())
        return [read_committed(each, str(tmp_path), "digest") for each in planned.ids()]

    with pytest.raises(BooksError, match=r"split 1{16} has not been committed with tokenizer digest"):
        read(ENTRIES[0])
    assert read(*ENTRIES) == ENTRIES
    with pytest.raises(BooksError, match=r"split 0{16} has not been committed with tokenizer other"):
        read_committed("0" * 16, str(tmp_path), "other")

    def check(entries, shards=()):
        books = JobBooks(lambda *_: None)
        for entry in entries:
            books.add(entry)
        books.check_planned(planned, shards)

    check(ENTRIES)
    changes = {"pieces": pieces(("a", 100), version="w")}, {"fields": "other"}, {"index": 1}, {"split_id": "3" * 16}
    for wrong in ([dataclasses.replace(ENTRIES[0], **change), ENTRIES[1]] for change in changes):
        with pytest.raises(BooksError, match="not those of the plan"):
            check(wrong)
    with pytest.raises(BooksError, match="not those of the plan"):
        check(ENTRIES, ["2" * 16])


def test_reading_says_why_there_is_no_manifest(tmp_path):
    with pytest.raises(ValueError, match=r"holds no manifest\.json$"):
        manifest.read(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"there is no folder '.*/gone'$"):
        manifest.read(str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match=r"there is no folder 'gone' in '/"):
        manifest.read("gone")
    (tmp_path / "shard.parquet").touch()
    with pytest.raises(
        FileNotFoundError, match=r"there is no folder '.*/shard.parquet'; give the folder that a file is in$"
    ):
        manifest.read(str(tmp_path / "shard.parquet"))
    (tmp_path / "shard.parquet").unlink()
    prepare_output(str(tmp_path), JOB, "new")
    with pytest.raises(ValueError, match="its job has not finished"):
        manifest.read(str(tmp_path))
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(ValueError, match="is not a manifest of format 4 or 5"):
        manifest.read(str(tmp_path))
    for name, value in [("config", []), ("totals", {}), ("shards", ["x"]), ("rejects", None), ("tokenizer", {})]:
        (tmp_path / "manifest.json").write_text(json.dumps({**built(), name: value}))
        with pytest.raises(ValueError, match="is not a manifest of format 4 or 5"):
            manifest.read(str(tmp_path))
    (tmp_path / "manifest.json").write_text('{"format_version": 1}')
    with pytest.raises(ValueError, match="has format 1, but this TokenMill reads 4 and 5: use the"):
        manifest.read(str(tmp_path))


@given(st.lists(st.text(max_size=5)), st.text(max_size=5))
def test_a_set_of_names_has_what_was_added(names, other):
    found = NameSet(names)
    assert all(name in found for name in names)
    assert (other in found) == (other in names)
