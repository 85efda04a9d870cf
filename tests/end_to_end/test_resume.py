# SPDX-License-Identifier: Apache-2.0
"""kill -9 anywhere, start again with --resume: the same bytes as a run that nobody disturbed."""

import errno
import os

import pytest

from tokenmill.pipeline import storage


@pytest.fixture
def sections(corpus):
    return {
        "input": {"paths": [str(corpus / "*")], "split_bytes": 6000},
        "tokenizer": {"train": {"vocab_size": 300, "min_frequency": 1}},
    }


def test_a_killed_worker_process_and_resumed(make_job, sections, capsys, monkeypatch, tmp_path):
    # What the worker meets when it starts the third split: a mine, in a module it imports by PYTHONPATH.
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "if 'tokenmill.pipeline.running.worker_process' in sys.orig_argv:\n"
        "    from tokenmill.pipeline import storage\n"
        "    rename, seen = storage.rename, []\n"
        "    def rename_or_die(source, destination):\n"
        "        seen.append(1)\n"
        "        if len(seen) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        rename(source, destination)\n"
        "    storage.rename = rename_or_die\n"
    )
    job = make_job("job", **sections)
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    assert job.run("run", "--mode", "processes", "--workers", "2") == 1
    assert "tokenmill: failed: a worker process was killed by SIGKILL" in capsys.readouterr().err
    monkeypatch.undo()
    assert job.run("run", "--resume", "--workers", "1") == 0
    undisturbed = make_job("undisturbed", **sections)
    assert undisturbed.run("run", "--workers", "1") == 0
    assert job.files() == undisturbed.files()


def test_new_files_are_added_and_changed_ones_redone(make_job, sections, corpus):
    sections["tokenizer"] = {"train": None, "file": None, "max_unknown_fraction": 1.0}
    job = make_job("job", **sections)
    vocabulary = corpus.parent / "vocab.txt"
    vocabulary.write_text("[UNK]\nthe\nmill\n")
    options = ["--set", f"tokenizer.file={vocabulary}", "--workers", "1"]
    assert job.run("tokenize", *options) == 0
    n_before = job.manifest()["totals"]["n_documents"]

    (corpus / "g.jsonl").write_text('{"text": "the mill"}\n')
    (corpus / "d.jsonl").write_text('{"text": "mill the"}\n')
    assert job.run("tokenize", "--resume", *options) == 0
    assert job.run("verify", *options[:2]) == 0
    assert job.manifest()["totals"]["n_documents"] == n_before - 40 + 2
    fresh = make_job("fresh", **sections)
    assert fresh.run("tokenize", *options) == 0
    assert job.files() == fresh.files()


def test_files_that_are_gone_when_a_job_is_resumed_are_named(make_job, sections, corpus, capsys):
    job = make_job("job", **sections)
    assert job.run("run", "--workers", "1") == 0
    corpus.rename(corpus.parent / "moved")  # by another path, but under the same names
    moved = ["--set", f"input.paths=[{corpus.parent / 'moved' / '*'}]", "--resume", "--workers", "1"]
    assert job.run("run", *moved) == 0
    assert "are gone" not in capsys.readouterr().err
    (corpus.parent / "moved/d.jsonl").unlink()
    assert job.run("run", *moved, "--quiet") == 0
    err = capsys.readouterr().err
    assert "warning: input files that this job had are gone: 1, such as " in err
    assert "d.jsonl'; what was read of them leaves the output" in err
    (job.output / "_ledger/plan.jsonl").write_text("[")
    assert job.run("run", *moved) == 0
    assert "plan.jsonl' is damaged, so input files that this job had" in capsys.readouterr().err


@pytest.mark.parametrize("n_files", [4, 9, 14])
def test_a_disk_that_is_full_leaves_nothing_half_written(
    make_job, corpus, tiny_vocab_file, capsys, monkeypatch, n_files
):
    sections = {
        "input": {"paths": [str(corpus / "*")], "split_bytes": 6000},
        "tokenizer": {"file": str(tiny_vocab_file), "max_unknown_fraction": 1.0},
    }
    undisturbed = make_job("undisturbed", **sections)
    assert undisturbed.run("tokenize", "--mode", "inline") == 0
    files = undisturbed.files()
    finish, n_left = storage.finish, n_files

    def finish_or_fail(handle):
        nonlocal n_left
        n_left -= 1
        if n_left < 0:
            handle.close()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finish(handle)

    monkeypatch.setattr(storage, "finish", finish_or_fail)
    job = make_job("job", **sections)
    assert job.run("tokenize", "--mode", "inline") == 1
    assert "tokenmill: failed: [Errno 28] No space left on device" in capsys.readouterr().err
    assert all(files[name] == data for name, data in job.files().items())
    monkeypatch.undo()
    assert job.run("tokenize", "--mode", "inline", "--resume") == 0
    assert job.files() == files
