# SPDX-License-Identifier: Apache-2.0
"""A command that is given a config looks at the results of that config, not at whatever lies in its output folder."""

import contextlib
import json
import shutil

import pytest

from tokenmill.pipeline import cli


@pytest.fixture
def folder(tmp_path, tiny_vocab_file):
    """A folder with input and a vocabulary, to which the paths of configs are relative."""
    (tmp_path / "in.jsonl").write_text('{"text": "the mill", "body": "mill"}\n{"text": 1, "body": "the"}\n' * 3)
    assert tiny_vocab_file == tmp_path / "vocab.txt"
    (tmp_path / "other.txt").write_text("[UNK]\nmill\nthe\n")
    return tmp_path


FILE = {"tokenizer": {"file": "vocab.txt"}}
TRAIN = {"tokenizer": {"train": {"vocab_size": 60, "min_frequency": 1}}}


def write(folder, name, **sections):
    base = {"input": {"paths": ["in.jsonl"], "on_damage": "warn"}, "output": {"path": "out"}}
    (folder / name).write_text(json.dumps(base | sections))


def run(*arguments):
    return cli.main([*arguments])


JOBS = [("tokenize", FILE), ("run", TRAIN), ("train", TRAIN), ("count", {})]


@pytest.mark.parametrize(("command", "sections"), JOBS)
def test_the_config_of_another_job_is_told_apart(folder, capsys, command, sections):
    with contextlib.chdir(folder):
        write(folder, "job.yaml", **sections)
        assert run(command, "job.yaml", "--mode", "inline") == 0
        # Where things lie and what only stops a job may be another.
        (folder / "moved").mkdir()
        shutil.copytree("out", "moved/out")
        same = ["--set", "output.path=moved/out", "--set", "input.paths=[elsewhere/*]", "--set", "input.max_rejected=9"]
        assert run("verify", "job.yaml") == 0
        assert run("verify", "job.yaml", *same) == 0
        others = [("input.text_field=body", "input.text_field: 'text' there, 'body' now")]
        others.append(("output.compression=none", "output.compression: 'auto' there, 'none' now"))
        if command == "tokenize":
            others.append(("tokenizer.file=other.txt", "tokenizer: '"))
            others.append(("tokenizer.file=null", "tokenizer: '"))
        if command in ("run", "train"):
            others.append(("tokenizer.train.vocab_size=61", "tokenizer.train.vocab_size: 60 there, 61 now"))
        capsys.readouterr()
        for setting, says in others:
            for looks in ("verify", "inspect"):
                assert run(looks, "job.yaml", "--set", setting) == 2
                said = capsys.readouterr()
                assert said.out == ""
                assert "'out' holds the results of a job that differs from the config in " in said.err
                assert says in said.err
                assert "give the folder in place of the config" in said.err
        assert run("verify", "out") == 0
        assert run("inspect", "job.yaml") == (0 if command in ("tokenize", "run") else 2)


def test_a_tokenizer_that_is_gone_cannot_be_compared(folder, capsys):
    with contextlib.chdir(folder):
        write(folder, "job.yaml", **FILE)
        assert run("tokenize", "job.yaml", "--mode", "inline") == 0
        (folder / "vocab.txt").unlink()
        assert run("verify", "job.yaml") == 2
        said = capsys.readouterr().err
        assert "tokenizer.file: no such file or folder: 'vocab.txt'" in said
        assert "give the folder in place of the config" in said
        assert run("verify", "out") == 0


def test_the_config_of_a_replay_is_that_of_the_folder_too(folder, capsys):
    with contextlib.chdir(folder):
        write(folder, "job.yaml", **FILE)
        assert run("tokenize", "job.yaml", "--mode", "inline") == 0
        fixed = ["--set", "input.text_field=body"]
        assert run("verify", "job.yaml", *fixed) == 2
        capsys.readouterr()
        assert run("replay", "job.yaml", *fixed, "--set", "tokenizer.file=other.txt") == 2
        assert "cannot replay in 'out': tokenizer: '" in capsys.readouterr().err
        assert run("replay", "job.yaml", *fixed) == 0
        assert run("verify", "job.yaml", *fixed) == 0
        assert run("verify", "job.yaml") == 0
        assert run("verify", "job.yaml", "--set", "tokenizer.file=other.txt") == 2


def test_a_vocabulary_of_counts_that_exist(folder, capsys):
    with contextlib.chdir(folder):
        for name in ("a", "b"):
            (folder / f"{name}.jsonl").write_text(f'{{"text": "the mill {name}"}}\n')
            write(folder, f"{name}.yaml", input={"paths": [f"{name}.jsonl"]}, output={"path": f"counts-{name}"})
            assert run("count", f"{name}.yaml", "--mode", "inline") == 0
        train = {"train": {"vocab_size": 60, "min_frequency": 1, "counts": "counts-a"}}
        (folder / "train.yaml").write_text(json.dumps({"tokenizer": train, "output": {"path": "out"}}))
        assert run("train", "train.yaml", "--mode", "inline") == 0
        assert run("verify", "train.yaml") == 0
        capsys.readouterr()
        assert run("verify", "train.yaml", "--set", "tokenizer.train.counts=counts-b") == 2
        assert "differs from the config in counts: '" in capsys.readouterr().err
        assert run("verify", "train.yaml", "--set", "tokenizer.train.counts=null") == 2
