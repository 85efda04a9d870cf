# SPDX-License-Identifier: Apache-2.0
"""`tokenmill plan` and `--dry-run`: what they print, what they refuse, and that they leave nothing behind."""

import json

import pytest

from tokenmill.pipeline import cli


@pytest.fixture
def config(tiny_corpus, tiny_vocab_file, tmp_path):
    values = {
        "input": {"paths": [str(tiny_corpus / "*.jsonl")], "split_bytes": 100},
        "tokenizer": {"file": str(tiny_vocab_file)},
        "output": {"path": str(tmp_path / "out")},
    }
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(values))
    return str(path)


@pytest.mark.parametrize("job", ["tokenize", "run", "count"])
def test_a_dry_run_is_the_plan(config, tmp_path, capsys, job):
    before = sorted(tmp_path.rglob("*"))
    assert cli.main([job, config, "--dry-run"]) == 0
    assert sorted(tmp_path.rglob("*")) == before
    table = capsys.readouterr().out
    assert table.startswith("tokenize:" if job == "run" else f"{job}:")
    assert "documents" in table
    assert ("tokens" in table) == (job != "count")


def test_a_plan_refuses_what_the_job_refuses(config, capsys):
    for overrides in (
        ["input.paths=['nowhere/*']"],
        ["tokenizer.file=nowhere"],
        ["output.packing={length: 8, separator: '?'}"],
    ):
        options = [config, *(part for each in overrides for part in ("--set", each))]
        assert cli.main(["tokenize", *options]) == 2
        refused = capsys.readouterr().err
        assert cli.main(["plan", *options, "--job", "tokenize"]) == 2
        assert capsys.readouterr().err == refused


def test_a_job_that_would_fail_is_said_to(config, capsys):
    assert cli.main(["plan", config, "--set", "tokenizer.padding={length: 2}"]) == 1
    error = capsys.readouterr().err
    assert "the job would fail: document" in error
    assert "tokenizer.padding.length 2" in error


def test_no_seconds_of_a_runner_elsewhere(config, capsys):
    assert cli.main(["plan", config, "--json", "--", "--runner=FlinkRunner"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["seconds"] == told["peak_memory"] == {}
    assert told["totals"]["n_tokens"]["value"]
