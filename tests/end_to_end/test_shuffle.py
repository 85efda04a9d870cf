# SPDX-License-Identifier: Apache-2.0
"""Shuffled jobs through the command line: the same bytes in every mode, however they are cut, killed and resumed."""

import json
import os
import signal

import pytest

from tests.killing import run_killed
from tokenmill.pipeline import shuffling as passes
from tokenmill.pipeline.shuffling import plan_passes

N_SHARDS = 5


@pytest.fixture
def sections(corpus, tiny_vocab_file, tmp_path):
    def make(name="out", split_bytes=6000, **output):
        shuffle = {"seed": 7, "shards": N_SHARDS}
        return {
            "input": {"paths": [str(corpus / "*")], "split_bytes": split_bytes},
            "tokenizer": {"file": str(tiny_vocab_file), "max_unknown_fraction": 1.0},
            "output": {"path": str(tmp_path / name / "out"), "shuffle": shuffle, **output},
        }

    return make


def shards(job):
    return {name: data for name, data in job.files().items() if name.startswith("tokens-")}


def test_runs_that_are_left_behind_the_manifest_are_removed_by_whoever_comes_next(make_job, sections):
    job = make_job("job", **sections("job", 12_000))
    assert job.run("tokenize", "--workers", "1") == 0
    files = job.files()
    (job.output / "_runs").mkdir()
    (job.output / "_runs/0123456789abcdef.run").write_bytes(b"left")
    assert job.run("verify") == 0
    assert job.run("tokenize", "--resume", "--workers", "1") == 0
    assert job.files() == files
    assert not (job.output / "_runs").exists()


def test_passes_give_the_same_bytes_and_survive_kills(make_job, sections, monkeypatch):
    once = make_job("once", **sections("once", 1200, shuffle={"seed": 7, "shards": N_SHARDS, "run_bytes": 4000}))
    assert once.run("tokenize", "--workers", "1") == 0
    few = "from tokenmill.pipeline.shuffling import plan_passes\nplan_passes.__kwdefaults__['fan_in'] = 3\n"
    monkeypatch.setitem(plan_passes.__kwdefaults__, "fan_in", 3)
    merged = []
    original = passes.merge_range
    monkeypatch.setattr(passes, "merge_range", lambda *args, **kwargs: merged.append(1) or original(*args, **kwargs))
    given = sections("passes", 1200, shuffle={"seed": 7, "shards": N_SHARDS, "run_bytes": 4000})
    job = make_job("passes", **given)
    n_splits = json.loads((once.output / "manifest.json").read_text())["totals"]["n_splits"]
    assert n_splits > 27, "at least three passes"
    n_merged = []
    for n_renames in (170, 70):  # in the first pass, in the last one
        code = run_killed(n_renames, "tokenize", str(job.config), "--resume", "--workers", "1", before=few)
        assert code == -signal.SIGKILL
        n_merged.append(len(list(job.output.glob("_runs/*.json"))))
    assert 0 < n_merged[0] < n_merged[1]
    assert job.run("tokenize", "--resume", "--workers", "2") == 0
    assert merged, "the rest was merged"
    assert job.files() == once.files()
    assert job.run("verify", "--deep") == 0
    assert not (job.output / "_runs").exists()


def test_a_file_that_changes_before_a_job_goes_on_is_in_all_shards(make_job, sections, corpus):
    job = make_job("job", **sections("job"))
    assert job.run("tokenize", "--workers", "1") == 0
    before = shards(job)
    (job.output / "manifest.json").unlink()  # all shards are merged, but the job has not ended
    changed = corpus / "a.jsonl"
    changed.write_bytes(changed.read_bytes().replace(b"o", b"a"))  # of the same size
    os.utime(changed, (2_000_000_000, 2_000_000_000))
    assert job.run("tokenize", "--workers", "1", "--resume") == 0
    anew = make_job("anew", **sections("anew"))
    assert anew.run("tokenize", "--workers", "1") == 0
    assert job.files() == anew.files()
    assert shards(job) != before
