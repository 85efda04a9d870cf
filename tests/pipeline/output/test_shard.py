# SPDX-License-Identifier: Apache-2.0
"""Several formats in one pass, and packed sequences: written, committed, resumed and proven like any shard."""

import json
import os

import numpy as np
import pytest

from tests.plain_job import PlainJob, StepJob
from tokenmill.pipeline import filenames
from tokenmill.pipeline.books import ledger, manifest
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.jobs import planning
from tokenmill.pipeline.output.arranging import packing_ids
from tokenmill.pipeline.proving.from_input import verify_deep
from tokenmill.pipeline.proving.verify import verify
from tokenmill.pipeline.tokenizing.tokenize import tokenize_split

ALL = ["parquet", "tfrecord", "arrow", "mds", "megatron", "memmap"]
PACKABLE = [name for name in ALL if name != "tfrecord"]


@pytest.fixture
def work(tmp_path, tiny_vocab):
    lines = [
        json.dumps({"id": f"d{i}", "text": "the mill grinds 玫 " * (i % 13)}, ensure_ascii=False) for i in range(60)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, "not json"]), encoding="utf-8")

    def make(name="out", padding=None, **output):
        tokenizer = {"padding": {"length": padding}, "truncation": {"max_length": padding}} if padding else {}
        return StepJob(tmp_path / name, tiny_vocab, [tmp_path / "a.jsonl"], tokenizer=tokenizer, **output)

    return make


@pytest.mark.parametrize("padding", [None, 40])
def test_all_formats_in_one_pass_hold_the_same_rows(work, padding):
    job = work(format=ALL, padding=padding)
    job.run()
    expected = [row["input_ids"] for row in job.rows(".parquet")]
    tokens = [row["input_ids"][: row["n_tokens"]] for row in job.rows(".parquet")]
    for suffix in (".tfrecord", ".arrow", ".mds"):
        assert [row["input_ids"] for row in job.rows(suffix)] == expected
    for suffix in (".bin", ".ids.bin"):
        assert [row["input_ids"] for row in job.rows(suffix)] == tokens
    assert verify(str(job.output)).problems == []
    found = manifest.read(str(job.output))
    assert found["tokenizer"]["token_dtype"] == "uint16"
    assert len(found["companions"]) == 7 * len(job.splits)
    index = json.loads((job.output / "index.json").read_text())
    assert sum(each["samples"] for each in index["shards"]) == len(expected)
    for each in index["shards"]:
        assert each["raw_data"]["bytes"] == (job.output / each["raw_data"]["basename"]).stat().st_size


def test_packed_documents_without_tokens_are_proven(work, tmp_path):
    job = work(format=PACKABLE, packing={"length": 16})
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n' * 3)
    job.splits = plan_splits(job.config.input, job.job.digest)
    job.run()
    assert job.rows(".parquet") == []
    assert verify(str(job.output)).problems == []


def test_a_lost_index_is_noticed_and_only_its_split_done_again(work):
    job = work(format=["parquet", "megatron"])
    job.run()
    before = job.files()
    victim = job.output / filenames.shard_name(1, len(job.splits), ".idx")
    victim.unlink()
    assert verify(str(job.output)).problems == [f"{victim.name}: missing"]
    job.prepare("resume")
    done = []
    for i in (0, 1):
        of = job.splits[i], job.config, job.tokenizer, len(job.splits)
        tokenize_split(*of, on_tokens=lambda *_, i=i: done.append(i))
    assert set(done) == {1}
    job.tokenize()
    job.finish()
    assert job.files() == before


def test_an_attempt_that_fails_leaves_none_of_its_files(work, monkeypatch):
    job = work(format=ALL)
    job.prepare()
    rename, renamed = os.replace, []

    def fail(source, destination):
        if destination.endswith(".mds"):
            raise OSError("disk full")
        renamed.append(destination)
        rename(source, destination)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        job.tokenize()
    # Some names may be there; without an entry in the ledger none of them counts.
    assert renamed
    assert ledger.LedgerEntry.read(str(job.output), job.splits[0].id) is None
    monkeypatch.undo()
    again = work("again", format=ALL)
    again.run()
    job.tokenize()
    job.finish()
    assert job.files() == again.files()


def test_a_token_that_is_not_there_is_refused_before_work(work):
    job = work(packing={"length": 8, "separator": "<eos>"})
    with pytest.raises(ValueError, match=r"output\.packing.separator: '<eos>': the tokenizer has no such token"):
        packing_ids(job.config.output.packing, job.tokenizer)


@pytest.mark.parametrize("shuffle", [None, {"shards": 3}])
@pytest.mark.parametrize("formats_", [["megatron", "memmap"], ["parquet", "megatron"]])
def test_readers_find_no_mapped_shard_without_a_token(tmp_path, tiny_vocab_file, formats_, shuffle):
    texts = ["the mill", *[""] * 11]  # of three files, or of shards, most have no token

    def make():
        return PlainJob(tmp_path, texts, tiny_vocab_file, output={"format": formats_, "shuffle": shuffle})

    job = make().run()
    data = sorted(job.output.glob("tokens-*.bin"))
    assert [np.memmap(path, np.uint16).size for path in data] == [2] * (len(formats_) - formats_.count("parquet"))
    assert len(list(job.output.glob("tokens-*.idx"))) == 1
    found = job.json("manifest.json")
    records = [*found["shards"], *found["companions"]]
    assert {record["file"] for record in records if record["file"].startswith("_empty/")} == {
        f"_empty/{path.name}" for path in (job.output / "_empty").iterdir()
    }
    assert len(list((job.output / "_empty").glob("*.idx"))) == (1 if shuffle is None else 2)
    assert verify(str(job.output)).problems == []
    assert verify_deep(str(job.output), 1).problems == []
    before = {path: path.stat().st_mtime_ns for path in job.output.rglob("tokens-*")}
    resumed = make()
    planning.prepare(resumed.plan, "resume")
    if shuffle is None:
        for split in resumed.plan.splits:
            tokenize_split(split, resumed.config, resumed.tokenizer, len(resumed.plan.splits))
    assert {path: path.stat().st_mtime_ns for path in job.output.rglob("tokens-*")} == before
    planning.prepare(make().plan, "overwrite")
    assert not list(job.output.rglob("tokens-*"))
