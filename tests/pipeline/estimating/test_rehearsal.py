# SPDX-License-Identifier: Apache-2.0
"""A job on made-up text: it compiles all that the job needs, whatever the config."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.estimating import rehearsal

QUICK = {"input": {"paths": ["*.jsonl"]}, "tokenizer": {"train": {"vocab_size": 200}}, "output": {"path": "out"}}


def config_of(tokenizer=None, **sections):
    return Config.model_validate(QUICK | ({"tokenizer": tokenizer} if tokenizer else {}) | sections)


def command(*arguments, cache):
    return subprocess.run(
        [sys.executable, "-m", "tokenmill", *map(str, arguments)],
        # Which kernels are compiled is what these tests are about, and not how well.
        env=os.environ | {"TOKENMILL_CACHE_DIR": str(cache), "NUMBA_OPT": "0"},
        check=False,
        capture_output=True,
        text=True,
    )


def test_after_a_warm_up_the_job_compiles_nothing(tmp_path, tiny_corpus):
    cache, path = tmp_path / "cache", tmp_path / "job.yaml"
    path.write_text(
        f"input: {{paths: ['{tiny_corpus}/*.jsonl']}}\n"
        "tokenizer: {train: {vocab_size: 60, min_frequency: 1, limit_alphabet: 20}, oov: contain}\n"
        f"output: {{path: {tmp_path / 'out'}}}\n"
    )
    warmed = command("warm", path, cache=cache)
    assert warmed.returncode == 0, warmed.stderr
    compiled = {each.name for each in cache.rglob("*.kernel")}
    assert f"{len(compiled)} kernels compiled" in warmed.stdout
    assert str(cache) in warmed.stdout
    done = command("run", path, cache=cache)
    assert done.returncode == 0, done.stderr
    assert {each.name for each in cache.rglob("*.kernel")} == compiled
    assert "compiling" not in done.stderr
    assert "nothing to compile" in command("warm", path, cache=cache).stdout


@pytest.mark.parametrize(
    ("job", "sections"),
    [
        ("count", {"counts": {"by": ["source"]}}),
        ("count", {"counts": {"by": ["source"], "sources": {"a": "a*.jsonl"}}}),
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
def test_every_job_runs_on_the_sample(job, sections):
    config = config_of(**sections)
    rehearsal.rehearse(job, config)
    assert not Path("out").exists()


def test_what_cannot_be_rehearsed_is_told_and_fails_warm(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        f"input: {{paths: ['*.jsonl']}}\ntokenizer: {{file: {tmp_path / 'none.txt'}}}\noutput: {{path: out}}\n"
    )
    told = command("warm", path, cache=tmp_path / "cache")
    assert told.returncode == 1
    assert "some kernels are not compiled: tokenizer.file: no such file or folder" in told.stderr
