# SPDX-License-Identifier: Apache-2.0
"""The manifest: what it says of a finished job, and what it must not say."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenmill.data  # noqa: F401 - it has every kind of index
from tests.finished_splits import JOB, built
from tokenmill.pipeline import filenames
from tokenmill.pipeline.books import manifest
from tokenmill.pipeline.books.manifest import NameSet
from tokenmill.pipeline.data.index import Indexed
from tokenmill.pipeline.output.folders import prepare_output


def test_reading_says_why_there_is_no_manifest(tmp_path):
    with pytest.raises(ValueError, match=r"holds no manifest\.json$"):
        manifest.read(str(tmp_path))
    assert {*filenames.INDEXES} == {f"{kind}.json" for kind in Indexed.kinds}
    for name in filenames.INDEXES:
        (tmp_path / name).touch()
        with pytest.raises(ValueError, match=rf"holds no manifest\.json; it has {name}, an index of rows of outputs, "):
            manifest.read(str(tmp_path))
        (tmp_path / name).unlink()
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
