# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled ahead: what a job needs, in processes that nothing depends on."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs import rehearsal, warming
from tokenmill.pipeline.jobs.warming import STAGE, Warming, WarmUp
from tokenmill.pipeline.running import progress

QUICK = {"input": {"paths": ["*.jsonl"]}, "tokenizer": {"train": {"vocab_size": 200}}, "output": {"path": "out"}}


def config_of(tokenizer=None, **sections):
    return Config.model_validate(QUICK | ({"tokenizer": tokenizer} if tokenizer else {}) | sections)


def command(*arguments, cache):
    return subprocess.run(
        [sys.executable, "-m", "tokenmill", *map(str, arguments)],
        env=os.environ | {"TOKENMILL_CACHE_DIR": str(cache)},
        check=False,
        capture_output=True,
        text=True,
    )


def test_after_a_warm_up_the_job_compiles_nothing(tmp_path, tiny_corpus):
    cache, path = tmp_path / "cache", tmp_path / "job.yaml"
    path.write_text(
        f"input: {{paths: ['{tiny_corpus}/*.jsonl']}}\n"
        "tokenizer: {train: {vocab_size: 60, min_frequency: 1}, oov: contain}\n"
        f"output: {{path: {tmp_path / 'out'}}}\n"
    )
    warmed = command("warm", path, cache=cache)
    assert warmed.returncode == 0, warmed.stderr
    compiled = {each.name for each in cache.rglob("*.kernel")}
    assert f"{len(compiled)} kernels compiled" in warmed.stdout
    assert str(cache) in warmed.stdout
    assert f"{STAGE}, 0 of 4 parts" in warmed.stderr
    done = command("run", path, cache=cache)
    assert done.returncode == 0, done.stderr
    assert {each.name for each in cache.rglob("*.kernel")} == compiled
    assert "compiling" not in done.stderr
    assert "nothing to compile" in command("warm", path, cache=cache).stdout


@pytest.mark.parametrize(
    ("job", "sections"),
    [
        ("count", {"counts": {"by": ["source"]}}),
        ("train", {"tokenizer": {"train": {"model": "bpe", "vocab_size": [300, 200]}}}),
        (
            "run",
            {"input": {"paths": ["*.txt"], "document": "blank_line"}, "output": {"path": "out", "format": "arrow"}},
        ),
        ("run", {"input": {"paths": ["a/*.parquet"], "sample": 0.1}, "output": {"path": "out", "format": "mds"}}),
        ("run", {"output": {"path": "out", "shuffle": {"seed": 1}}}),
        ("run", {"output": {"path": "out", "packing": {"length": 64, "separator": "[SEP]"}}}),
        ("run", {"normalize": ["whitespace"], "languages": {}}),
    ],
    ids=str,
)
def test_every_part_of_a_job_runs_on_the_sample(job, sections):
    config = config_of(**sections)
    for part in rehearsal.parts_of(job, config):
        rehearsal.rehearse(part, job, config)
    assert not Path("out").exists()


def wait_until(is_so):
    end = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def children_of(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.fixture
def cold(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENMILL_CACHE_DIR", str(tmp_path / "cold"))


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for processes in /proc")


@needs_proc
@pytest.mark.usefixtures("cold")
def test_a_job_that_ends_leaves_no_processes(monkeypatch):
    monkeypatch.setattr(warming.compiling, "is_cold", lambda _: True)
    with WarmUp("run", config_of(), 2) as warm_up:
        wait_until(lambda: children_of(warm_up._process.pid))
        children = children_of(warm_up._process.pid)
    assert not warm_up.is_running
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


@needs_proc
@pytest.mark.usefixtures("cold")
def test_helpers_that_are_killed_hold_up_nobody(monkeypatch, tmp_path):
    monkeypatch.setattr(warming.compiling, "is_cold", lambda _: True)
    with WarmUp("run", config_of(), 2) as warm_up:
        wait_until(lambda: children_of(warm_up._process.pid))
        children = children_of(warm_up._process.pid)
        warm_up._process.kill()  # and its children end with it
        warm_up.wait_for(tmp_path / "no.kernel")
        assert not warm_up.is_running
        wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def test_nothing_is_started_where_nothing_is_missing(monkeypatch):
    monkeypatch.setattr(warming.compiling, "is_cold", lambda _: False)
    with WarmUp("run", config_of(), 2) as warm_up:
        assert not warm_up.is_running
        assert warming.compiling.when_missing is not None
    assert warming.compiling.when_missing is None
    assert warm_up._process is None


def test_what_cannot_be_rehearsed_is_told_and_fails_nothing(tmp_path):
    warm_up = WarmUp("tokenize", config_of({"file": str(tmp_path / "none.txt")}), 2)
    with warm_up:
        warm_up.start()
        warm_up.join()
    assert any(f"{tmp_path / 'none.txt'}" in problem for problem in warm_up.problems)
    assert "tokenizing" in warm_up.done


def test_the_phase_ends_before_the_job_begins():
    warm_up = WarmUp("run", config_of(), 2)
    warm_up.started, warm_up.n_parts, warm_up.done = 10.0, 4, ["counting"]
    job = progress.Progress()
    shown = Warming(warm_up, job)
    assert shown.entered() == [(STAGE, 10.0)]
    assert (shown.snapshot().n_done, shown.snapshot().n_planned, shown.snapshot().unit) == (1, 4, "parts")
    warm_up.ended = time.monotonic() + 5
    assert shown.entered() == [(STAGE, 10.0), ("starting", warm_up.ended)]
    assert shown.snapshot() == job.snapshot()
