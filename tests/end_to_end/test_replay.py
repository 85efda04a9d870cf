# SPDX-License-Identifier: Apache-2.0
"""Rejected records are read again after a fix, and nothing else is."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

LONG = "the mill " * 40
LINES = [
    b'{"id": "1", "text": "the mill"}\n',
    b'{"id": "2", "text": "%s"}\n' % LONG.encode(),
    b'{"id": "3", "text": "%s"}\n' % LONG.encode(),
    b"not json\n",
    b'{"id": "5", "text": "mill"}\n',
    b'{"id": "6", "text": "%s"}' % LONG.encode(),
]


@pytest.fixture
def job(make_job, tiny_vocab_file, tmp_path):
    """A finished job that has rejected three long records of every file, and one that is no JSON of some."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + b"".join(LINES))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(LINES), mtime=0))
    texts = ["the", LONG, "mill", LONG, None, LONG]
    pq.write_table(pa.table({"text": texts}), folder / "c.parquet", row_group_size=2)
    (folder / "d.txt").write_text(f"the\n{LONG}\n{LONG}\nmill\n{LONG}\n")
    job = make_job(
        "job",
        input={"paths": [str(folder / "*")], "max_document_bytes": 100, "split_bytes": 500, "on_damage": "warn"},
        tokenizer={"file": str(tiny_vocab_file)},
    )
    assert job.run("tokenize", "--workers", "1") == 0
    assert job.manifest()["totals"]["rejected"] == {"not_json": 2, "null_text": 1, "too_large": 12}
    return job


def replayed(job):
    paths = sorted(job.output.glob("replay/tokens-*.parquet"))
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def test_only_the_rejected_records_are_tokenized_again(job, capsys):
    files = job.files()
    assert job.run("replay", "--set", "input.max_document_bytes=100000") == 0
    assert "15 rejected records read again: 12 documents in replay/, 3 rejected again" in capsys.readouterr().out
    assert {name: data for name, data in job.files().items() if not name.startswith("replay/")} == files
    rows = replayed(job)
    assert [row["doc_id"] for row in rows][:6] == ["2", "3", "6", "2", "3", "6"]
    assert [row["doc_id"] for row in rows][6:9] == ["c.parquet:1", "c.parquet:3", "c.parquet:5"]
    assert [row["doc_id"] for row in rows][9:] == ["d.txt:4", "d.txt:365", "d.txt:731"]
    totals = json.loads((job.output / "replay/manifest.json").read_text())["totals"]
    assert totals["rejected"] == {"not_json": 2, "null_text": 1}
    assert totals["n_records"] - sum(totals["filtered"].values()) == 15
    assert job.run("verify", "--deep") == 0

    # The same documents as a job that had the fix from the start.
    assert job.run("tokenize", "--workers", "1", "--overwrite", "--set", "input.max_document_bytes=100000") == 0
    assert not (job.output / "replay").exists()
    ids = {row["doc_id"]: row["input_ids"] for row in job.rows()}
    assert all(ids[row["doc_id"]] == row["input_ids"] for row in rows)


def test_a_replay_replaces_the_one_before(job):
    assert job.run("replay") == 0
    assert replayed(job) == []
    assert job.run("replay", "--set", "input.max_document_bytes=100000") == 0
    files = job.files()
    assert len(replayed(job)) == 12
    assert job.run("replay", "--set", "input.max_document_bytes=100000") == 0
    assert job.files() == files


def test_what_a_replay_cannot_do_is_said(job, capsys, tmp_path):
    assert job.run("replay", "--set", "tokenizer.add_special_tokens=true", "--set", "input.split_bytes=7") == 2
    error = capsys.readouterr().err
    assert "input.split_bytes: 500 there, 7 now; tokenizer.add_special_tokens: False there, True now" in error
    path = tmp_path / "in/a.jsonl"
    path.write_bytes(path.read_bytes() + b"\n")
    assert job.run("replay") == 2
    said = capsys.readouterr().err
    assert "a.jsonl' has changed since the job, so it cannot be read again: run the job again with --resume" in said


def test_text_steps_are_the_same_in_a_replay_and_what_they_gave_up_is_read_again(
    make_job, tiny_vocab_file, tmp_path, capsys
):
    texts = ["THE mill", "x" * 60, "the " * 30]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    slow = {"regex": {"pattern": "(?:(?:x|xx)+)+[yz]", "seconds": 0.05}}
    job = make_job(
        "job",
        input={"paths": [str(tmp_path / "a.jsonl")], "max_document_bytes": 100, "on_damage": "warn"},
        tokenizer={"file": str(tiny_vocab_file)},
        normalize=["lowercase", slow],
    )
    assert job.run("tokenize", "--workers", "1") == 0
    assert job.manifest()["totals"]["rejected"] == {"text_timeout": 1, "too_large": 1}
    assert job.run("replay", "--set", "normalize=[lowercase]") == 2
    assert "normalize: ['lowercase', {'regex': " in capsys.readouterr().err
    assert job.run("replay", "--set", "input.max_document_bytes=1000") == 0
    assert [row["doc_id"] for row in replayed(job)] == [f"a.jsonl:{(tmp_path / 'a.jsonl').read_bytes().rindex(b'{')}"]
    assert "2 rejected records read again: 1 documents in replay/, 1 rejected again" in capsys.readouterr().out
    assert job.run("verify", "--deep") == 0


def test_a_replay_that_is_not_of_this_job_or_has_lost_records_is_found(job, capsys):
    assert job.run("replay", "--set", "input.max_document_bytes=100000") == 0
    path = job.output / "replay/manifest.json"
    found = json.loads(path.read_text())
    path.write_text(json.dumps(found | {"replay_of": "0" * 64}))
    assert job.run("verify") == 1
    assert "replay: belongs to another run of the job" in capsys.readouterr().out
    path.write_text(json.dumps(found))
    next(job.output.glob("replay/tokens-*")).write_bytes(b"")
    assert job.run("verify") == 1
    assert "replay/tokens-" in capsys.readouterr().out
