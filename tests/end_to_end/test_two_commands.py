# SPDX-License-Identifier: Apache-2.0
"""Two commands on one output folder: the second is refused, and no byte is lost."""

import signal

import pytest

from tests.killing import go, paused
from tokenmill.pipeline import cli

OWNER = "_owner.json"


@pytest.fixture
def sections(corpus, tiny_vocab_file):
    return {
        "input": {"paths": [str(corpus / "*")], "split_bytes": 6000},
        "tokenizer": {"file": str(tiny_vocab_file), "max_unknown_fraction": 1.0},
    }


@pytest.fixture
def undisturbed(make_job, sections):
    job = make_job("undisturbed", **sections)
    assert job.run("tokenize", "--mode", "inline") == 0
    assert not (job.output / OWNER).exists()
    return job.files()


def tokenize(job, *arguments):
    return ["tokenize", str(job.config), "--mode", "inline", *arguments]


def test_a_running_job_is_left_alone(make_job, sections, undisturbed, tmp_path, capsys):
    job = make_job("job", **sections)
    with paused(12, tmp_path / "signs", *tokenize(job)) as running:
        before = {path: path.stat().st_mtime_ns for path in job.output.rglob("*")}
        for mode in ("--resume", "--overwrite"):
            assert job.run("tokenize", "--mode", "inline", mode) == 2
            said = capsys.readouterr().err
            assert f"'{job.output}' is in use: tokenize, process {running.pid} on " in said
            assert "wait until it is done, stop it, or choose another folder" in said
        assert job.run("count", "--overwrite", "--workers", "1") == 2
        assert cli.main(["counts", "merge", str(job.output), "--out", str(job.output)]) == 2
        capsys.readouterr()
        assert job.run("verify") == 1
        said = capsys.readouterr()
        assert f"is in use: tokenize, process {running.pid} on " in said.err
        assert "its job has not finished" in said.out
        assert {path: path.stat().st_mtime_ns for path in job.output.rglob("*")} == before
        go(tmp_path / "signs")
        said, _ = running.communicate(timeout=100)
        assert running.returncode == 0, said
    assert job.files() == undisturbed
    assert not (job.output / OWNER).exists()
    assert job.run("verify") == 0
    assert "in use" not in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_stops_a_job_leaves_the_folder_to_whoever_comes_next(make_job, sections, undisturbed, tmp_path, number):
    job = make_job("job", **sections)
    with paused(12, tmp_path / "signs", *tokenize(job)) as running:
        running.send_signal(number)
        said, _ = running.communicate(timeout=100)
        assert running.returncode == 130, said
        assert "stopped; what is committed is kept" in said
    assert not (job.output / OWNER).exists()
    assert job.run("tokenize", "--mode", "inline", "--resume") == 0
    assert job.files() == undisturbed


def test_a_replay_owns_the_folder_of_its_job(make_job, sections, tmp_path, corpus, capsys):
    (corpus / "a.jsonl").write_bytes(b'{"text": 1}\n' + (corpus / "a.jsonl").read_bytes())
    job = make_job("job", **sections)
    assert job.run("tokenize", "--mode", "inline") == 0
    with paused(2, tmp_path / "signs", "replay", str(job.config)) as running:
        capsys.readouterr()
        assert job.run("tokenize", "--mode", "inline", "--overwrite") == 2
        assert f"is in use: replay, process {running.pid} on " in capsys.readouterr().err
        assert job.run("verify") == 0
        assert "what is read now may change meanwhile" in capsys.readouterr().err
        go(tmp_path / "signs")
        said, _ = running.communicate(timeout=100)
        assert running.returncode == 0, said
    assert not (job.output / OWNER).exists()
