# SPDX-License-Identifier: Apache-2.0
"""A job that shuffles, stopped and started again: nothing is done twice, nothing old is left."""

import json
import shutil

import pytest

from tests.shuffled_job import N_DOCUMENTS
from tokenmill.pipeline.proving.verify import verify


def _calls(monkeypatch, name, module="tokenmill.pipeline.tokenizing.pages"):
    seen = []
    target = __import__(module, fromlist=[name])
    original = getattr(target, name)
    monkeypatch.setattr(target, name, lambda *args, **kwargs: seen.append(args) or original(*args, **kwargs))
    return seen


def test_what_is_committed_is_not_done_again(make_shuffled, monkeypatch):
    undisturbed = make_shuffled("undisturbed")
    undisturbed.run()
    job = make_shuffled()
    job.prepare()
    entries = job.tokenize()
    job.merge(entries, job.planned[:2])
    shutil.rmtree(job.output / "_tmp", ignore_errors=True)
    job.prepare("resume")
    read = _calls(monkeypatch, "read_split")
    merged = _calls(monkeypatch, "merge_range", "tokenmill.pipeline.shuffling")
    job.merge(job.tokenize())
    job.finish()
    assert len(read) == 0
    assert len(merged) == 2
    assert job.shards() == undisturbed.shards()
    # Finished, and the runs are gone: nothing is done.
    job.prepare("resume")
    job.merge(job.tokenize(are_merged=True))
    job.finish()
    assert (len(read), len(merged)) == (0, 2)
    assert verify(str(job.output)).problems == []


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("name", ["0.jsonl", "c.jsonl"])
def test_new_input_makes_all_shards_again_and_leaves_none_behind(make_shuffled, tmp_path, is_finished, name):
    job = make_shuffled()
    job.prepare()
    job.merge(job.tokenize())
    if is_finished:
        job.finish()
    before = job.shards()
    (tmp_path / name).write_text(json.dumps({"id": "new", "text": "the mill"}))
    again = make_shuffled()
    again.prepare("resume")
    again.merge(again.tokenize())
    again.finish()
    assert {row["doc_id"] for row in again.rows()} == {"new", *(f"d{i}" for i in range(N_DOCUMENTS))}
    assert again.shards().keys() == before.keys()
    fresh = make_shuffled("fresh")
    fresh.run()
    assert fresh.shards() == again.shards()
    assert verify(str(again.output)).problems == []
