# SPDX-License-Identifier: Apache-2.0
"""Two commands on one output folder: the second is refused, a dead one is taken over, and no byte is lost."""

import contextlib
import json
import signal
import subprocess
import sys

import pytest

from tests.killing import ROOT, go, paused
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


@pytest.mark.parametrize("mode", ["--resume", "--overwrite"])
def test_a_job_that_is_killed_is_taken_over_at_once(make_job, sections, undisturbed, tmp_path, mode):
    job = make_job("job", **sections)
    for n_renames in (12, 5):
        with paused(n_renames, tmp_path / "signs", *tokenize(job, "--resume")) as running:
            running.kill()
            assert running.wait() == -signal.SIGKILL
        assert (job.output / OWNER).exists()
    assert any(job.output.glob("tokens-*"))
    assert job.run("tokenize", "--mode", "inline", mode) == 0
    assert job.files() == undisturbed
    assert not [path for path in job.output.iterdir() if path.name in (OWNER, "_tmp") or path.name.endswith(".tmp")]
    assert job.run("verify") == 0


def test_a_job_that_was_thought_dead_publishes_nothing(make_job, sections, tmp_path):
    job = make_job("job", **sections)
    with paused(12, tmp_path / "signs", *tokenize(job)) as running:
        record = json.loads((job.output / OWNER).read_text())
        (job.output / OWNER).unlink()
        theirs = json.dumps(record | {"nonce": "0" * 32, "command": "run"})
        (job.output / OWNER).write_text(theirs)
        go(tmp_path / "signs")
        said, _ = running.communicate(timeout=100)
    assert running.returncode == 1
    assert f"tokenmill: failed: output folder '{job.output}' was taken over by run, process" in said
    assert not (job.output / "manifest.json").exists()
    assert (job.output / OWNER).read_text() == theirs


def test_ctrl_c_leaves_the_folder_to_whoever_comes_next(make_job, sections, undisturbed, tmp_path):
    job = make_job("job", **sections)
    with paused(12, tmp_path / "signs", *tokenize(job)) as running:
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=100)
        assert running.returncode == 130, said
    assert not (job.output / OWNER).exists()
    assert job.run("tokenize", "--mode", "inline", "--resume") == 0
    assert job.files() == undisturbed


def test_of_two_that_start_at_once_one_does_the_job(make_job, sections, undisturbed, tmp_path):
    job = make_job("job", **sections)
    program = "import os, sys, tokenmill.pipeline.transforms.jobs\nfrom tokenmill.pipeline.cli import main\n"
    program += "print('ready', flush=True)\n"
    program += "while not os.path.exists(sys.argv[1]): pass\nsys.exit(main(sys.argv[2:]))"
    command = [sys.executable, "-c", program, str(tmp_path / "go"), *tokenize(job, "--resume")]
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
            for _ in range(2)
        ]
        for one in both:
            stack.callback(one.kill)
            while (line := one.stdout.readline()) != b"ready\n":  # Beam says something when it is imported
                assert line
        (tmp_path / "go").touch()
        said = [one.communicate()[0].decode() for one in both]
    codes = [one.returncode for one in both]
    # On a busy machine one may look only when the other is done, or nearly; then it goes on, and has nothing to do.
    assert sorted(codes) in ([0, 2], [0, 0]), said
    assert 2 not in codes or "is in use: tokenize, process" in said[codes.index(2)]
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
