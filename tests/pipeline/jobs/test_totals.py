# SPDX-License-Identifier: Apache-2.0
"""Parts of a ledger, added up one by one and joined: the same manifest and lists as by one process."""

import shutil

import pytest

from tests.plain_job import PlainJob
from tokenmill.pipeline.books import lists
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.jobs import planning
from tokenmill.pipeline.jobs.finish import Folder, add_up_chunk, finish_job
from tokenmill.pipeline.output import folders

WORDS = ["the mill", "", "Привет, мир", "stone " * 40]


def files(job):
    found = {path.relative_to(job.output).as_posix(): path for path in job.output.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith("_tmp/")}


@pytest.mark.parametrize("most_records", [10_000, 2])
@pytest.mark.parametrize(
    "output",
    [
        {"format": ["parquet", "mds"]},
        {"shuffle": {"shards": 5}},
        {"packing": {"length": 8, "separator": "[SEP]"}, "format": "megatron"},
    ],
)
def test_many_parts_give_the_bytes_of_one(tmp_path, tiny_vocab_file, monkeypatch, output, most_records):
    monkeypatch.setattr(lists, "MOST_RECORDS", most_records)
    monkeypatch.setattr(lists, "ROWS", max(3, most_records))
    monkeypatch.setattr(folders.storage, "delete_tree", lambda path: None)  # so that `_runs` stay
    texts = [WORDS[i % 4] + str(i) for i in range(60)]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "bad.jsonl").write_text('{"id": "x", "text": "a"}\nnot json\n' * 9)
    job = PlainJob(tmp_path, texts, tiny_vocab_file, output=output).run()
    expected = files(job)
    ids = {"splits": [split.id for split in job.plan.splits], "shards": [shard.id for shard in job.plan.shards()]}
    assert len(ids["splits"]) > 12
    for size in (1, 4, 1000):
        planning.prepare(job.plan, "resume")
        shutil.rmtree(job.output / "_tmp", ignore_errors=True)
        starts = {kind: range(0, len(of), size) for kind, of in ids.items()}
        for kind, of in ids.items():
            for number, start in reversed([*enumerate(starts[kind])]):
                arguments = job.config, job.plan.job, job.tokenizer, kind, number
                add_up_chunk(*arguments, of[start : start + size])
        parts = {kind: len(of) for kind, of in starts.items()}
        folder = Folder(job.config, job.plan.job, PlannedSplits(job.plan.splits), job.tokenizer, [], parts)
        finish_job(job.config, job.plan.job, {"": folder}, folder.n_planned, None)
        shutil.rmtree(job.output / "_tmp")
        # A worker died behind the manifest, before the runner knew.
        finish_job(job.config, job.plan.job, {"": folder}, folder.n_planned, None)
        assert files(job) == expected


def test_the_last_step_may_die_before_or_behind_the_manifest(tmp_path, tiny_vocab_file, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(folders.storage, "delete_tree", lambda path: None)
        job = PlainJob(tmp_path, WORDS, tiny_vocab_file, output={"shuffle": {"shards": 2}}).run()
    planning.prepare(job.plan, "resume")
    arguments = job.config, job.plan.job, job.tokenizer
    add_up_chunk(*arguments, "splits", 0, [split.id for split in job.plan.splits])
    add_up_chunk(*arguments, "shards", 0, [shard.id for shard in job.plan.shards()])
    of = job.config, job.plan.job, PlannedSplits(job.plan.splits), job.tokenizer
    folder = Folder(*of, n_added_up={"splits": 1, "shards": 1})

    def finish():
        finish_job(job.config, job.plan.job, {"": folder}, folder.n_planned, None)

    def dies(*_):
        raise OSError("died")

    for name in ("json_pieces", "clear_working_files"):  # before the manifest is written, and after that
        with monkeypatch.context() as patch:
            patch.setattr(folders, name, dies)
            with pytest.raises(OSError, match="died"):
                finish()
        assert (job.output / "_runs").exists()
    finish()
    assert (job.output / "manifest.json").exists()
    assert not {"_runs", "_tmp"} & {path.name for path in job.output.iterdir()}
