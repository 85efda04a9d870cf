# SPDX-License-Identifier: Apache-2.0
"""Same input, config and version: the same bytes, whatever the splits, the place, and the runner of Beam."""

import json
import os
import shutil

import pytest

TRAINING = {"train": {"vocab_size": 300, "min_frequency": 1}, "oov": "contain"}


def sections(corpus, split_bytes=4000, **tokenizer):
    paths = [str(corpus / "*.jsonl*"), str(corpus / "*.txt"), str(corpus / "*.parquet")]
    return {"input": {"paths": paths, "split_bytes": split_bytes}, "tokenizer": tokenizer or TRAINING}


def differing(one, other):
    """Names of files that are not in both, or not the same."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def test_the_place_and_the_age_of_files_do_not_matter(corpus, make_job, tmp_path):
    output = ["--set", "output.shuffle.shards=2"]
    here = make_job("here", **sections(corpus))
    assert here.run("run", "--workers", "1", *output) == 0
    moved = tmp_path / "elsewhere/deep/corpus"
    shutil.copytree(corpus, moved)
    for path in moved.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))
    there = make_job("there", **sections(moved))
    assert there.run("run", "--workers", "1", *output) == 0
    assert differing(here.files(), there.files()) == []


def test_other_splits_give_the_same_rows_and_the_same_vocabulary(corpus, make_job):
    small = make_job("small", **sections(corpus, split_bytes=2000))
    large = make_job("large", **sections(corpus, split_bytes=1 << 25))
    for job in (small, large):
        assert job.run("run", "--workers", "1") == 0
    assert len(small.manifest()["shards"]) > 3 * len(large.manifest()["shards"])
    assert small.rows() == large.rows()
    assert len(small.rows()) == 360
    differ = differing(small.files(), large.files())
    assert not any(name.startswith(("counts/", "vocab/")) for name in differ)
    ours, theirs = (json.loads(job.files()["stats.json"]) for job in (small, large))
    assert ours.pop("sample")["documents"] == ours["documents"]
    assert theirs.pop("sample")["documents"] < theirs["documents"], "a large split is not sampled whole"
    assert ours == theirs


OTHER_JOBS = {
    "run": ("run", []),
    "count": ("count", []),
    "shuffle": ("run", ["--set", "output.shuffle.shards=5", "--set", "output.shuffle.seed=7"]),
    "pack": ("run", ["--set", "output.packing={length: 32, separator: '[SEP]'}", "--set", "output.format=megatron"]),
    "tfrecord": ("run", ["--set", "output.format=tfrecord", "--set", "output.compression=gzip"]),
}


@pytest.mark.xdist_group("prism")
@pytest.mark.parametrize(
    ("beam_options", "name"),
    [
        *(("embed", name) for name in OTHER_JOBS),
        *(pytest.param("prism-loopback", name, marks=pytest.mark.prism) for name in OTHER_JOBS),
        # Only how workers come to be is another: with two steps and with four.
        *(pytest.param("prism-external", name, marks=pytest.mark.prism) for name in ("run", "shuffle")),
    ],
    indirect=["beam_options"],
)
def test_another_beam_runner_gives_the_same_bytes(corpus, make_job, beam_options, name):
    # Beam's portable protocol from end to end: job server, staging, workers of its own making.
    command, settings = OTHER_JOBS[name]
    given = sections(corpus) if command == "run" else {"input": sections(corpus)["input"]}
    reference = make_job("reference", **given)
    assert reference.run(command, *settings, "--mode", "inline") == 0
    job = make_job("portable", **given)
    running = job.start(command, *settings, "--", *beam_options)
    _, messages = running.communicate(timeout=200)
    assert running.returncode == 0, messages
    assert "tokenmill: counting took" in messages
    assert differing(job.files(), reference.files()) == []
    assert len(job.files()) >= (8 if command == "run" else 2)
    assert job.run("verify", *settings) == 0
