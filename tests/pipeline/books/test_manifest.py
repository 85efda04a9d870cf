# SPDX-License-Identifier: Apache-2.0
"""The manifest: what it says of a finished job, and what it must not say."""

import dataclasses
import json

import pytest

from tests.finished_splits import ENTRIES, JOB, SPLITS, built, config_of, pieces
from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import manifest
from tokenmill.pipeline.books.job_books import PlannedSplits, entry_digest, read_committed
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.output.folders import prepare_output


def test_the_manifest_says_what_was_made_of_what():
    found = built()
    assert [{**each, "read": each["read"]["n_bytes"]} for each in found["inputs"]] == [
        {"name": n, "n_bytes": b, "format": "jsonl", "sha256": n, "read": b}
        for n, b in [("a", 100), ("b", 40), ("c", 13)]
    ]
    assert found["inputs"][2]["read"] == {
        "n_records": 4,
        "n_documents": 1,
        "rejected": {"not_json": 3},
        "n_bytes": 13,
        "n_document_bytes": 10,
        "n_rejected_bytes": 3,
        "n_chars": 5,
        "n_spaced_words": 1,
        "n_text_tokens": 2,
        "n_tokens": 2,
    }
    assert found["shards"][1] == {
        "file": "tokens-00001-of-00002.parquet",
        "n_bytes": 99,
        "rows": 5,
        "sha256": "aa",
        "split": "1" * 16,
        "tokens": 10,
    }
    assert [record["file"] for record in found["rejects"]] == ["rejected/rejects-00001-of-00002.parquet"]
    assert [record["file"] for record in found["files"]] == ["stats.json", "vocab/vocab.txt"]
    assert found["tokenizer"] == {"digest": "digest"}
    assert found["totals"] == {
        "filtered": {},
        "n_bytes": 153,
        "n_chars": 75,
        "n_spaced_words": 15,
        "n_document_bytes": 150,
        "n_documents": 15,
        "n_filtered_bytes": 0,
        "n_oov_tokens": 0,
        "n_records": 18,
        "n_rejected_bytes": 3,
        "n_skipped_bytes": 0,
        "n_splits": 2,
        "n_text_tokens": 30,
        "n_cut_tokens": 0,
        "n_cut_documents": 0,
        "n_special_tokens": 0,
        "n_added_tokens": 0,
        "n_tokens": 30,
        "n_words": 15,
        "reject_bytes": 7,
        "reject_rows": 3,
        "rejected": {"not_json": 3},
        "shard_bytes": 198,
        "shard_rows": 15,
        "shard_tokens": 30,
    }
    for line in found["balance"]:
        assert sum(line["left"].values()) == sum(line["right"].values())


def test_the_manifest_says_nothing_of_places():
    elsewhere = [
        dataclasses.replace(
            entry,
            pieces=tuple(dataclasses.replace(p, path=f"/other{p.path}", version="other") for p in entry.pieces),
        )
        for entry in ENTRIES
    ]
    assert built(elsewhere, Job.of("tokenize", config_of(output={"path": "/other"}), "digest")) == built()


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
    assert sum(map(entry_digest, ENTRIES)) % (1 << 64) == planned.digest
    for changes in {"pieces": pieces(("a", 100), version="w")}, {"fields": "other"}, {"index": 1}:
        wrong = [dataclasses.replace(ENTRIES[0], **changes), ENTRIES[1]]
        assert sum(map(entry_digest, wrong)) % (1 << 64) != planned.digest


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
