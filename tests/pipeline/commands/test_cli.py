# SPDX-License-Identifier: Apache-2.0
"""The command line: what it refuses and how, what it imports, what its commands print."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forking
from tokenmill.pipeline import cli
from tokenmill.pipeline.commands.arguments import commands_of
from tokenmill.pipeline.running.display import megabytes
from tokenmill.pipeline.tokenizing import pages

ROOT = Path(__file__).parents[3]


@pytest.fixture
def write_config(tiny_corpus, tiny_vocab_file, tmp_path):
    def write(**sections):
        config = {
            "input": {"paths": [str(tiny_corpus / "*.jsonl")], "split_bytes": 100, "on_damage": "warn"},
            "tokenizer": {"file": str(tiny_vocab_file), "oov": "contain"},
            "output": {"path": str(tmp_path / "out")},
        }
        path = tmp_path / "job.yaml"
        path.write_text(json.dumps(config | sections))  # JSON is YAML
        return str(path)

    return write


@pytest.mark.parametrize(
    ("command", "heavy"),
    [
        (["--help"], "yaml pydantic pyarrow numba apache_beam rich"),
        (["schema"], "pyarrow numba apache_beam rich"),
        (["run", "no.yaml"], "pyarrow numba apache_beam rich"),
    ],
)
def test_commands_import_what_they_need(command, heavy):
    code = (
        "import sys; from tokenmill.pipeline.cli import main; main(sys.argv[2:]);"
        "loaded = {m.split('.')[0] for m in sys.modules} & set(sys.argv[1].split()); sys.exit(' '.join(loaded) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, heavy, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["rum", "x"], "invalid choice: 'rum'"),
        (["tokenise", "x"], "did you mean tokenize?"),
        (["run"], "the following arguments are required: CONFIG"),
        (["run", "x", "--resume", "--overwrite"], "not allowed with argument"),
        (["run", "x", "--workers", "0"], "--workers: must be a number of at least 1, got '0'"),
        (["run", "x", "--mode", "fast"], "--mode: invalid choice: 'fast'"),
        (["inspect", "x", "--start", "-1"], "--start: must be a number, got '-1'"),
        (["run", "x", "--d"], "unrecognized arguments: --d; did you mean --dry-run or --debug or --detach?"),
        (["run", "x", "--over"], "unrecognized arguments: --over; did you mean --overwrite?"),
        (["run", "x", "--runner", "X"], "unrecognized arguments: --runner X; options for Beam go last, after --"),
        (["run", "x", "--wokers=2"], "unrecognized arguments: --wokers=2; did you mean --workers?"),
        (["counts", "merge", "x", "--out", "y", "--temp", "2"], "arguments: --temp 2; did you mean --temperature?"),
        (["--vers", "run", "x"], "unrecognized arguments: --vers; did you mean --version?"),
        (["verify", "x", "--deep", "0.5"], "unrecognized arguments: 0.5"),
        (["verify", "x", "--share", "0.5"], "--share sets how much --deep tokenizes again: give --deep too"),
    ],
)
def test_mistakes_in_the_command(capsys, arguments, expected):
    assert cli.main(arguments) == 2
    assert expected in capsys.readouterr().err


def test_a_job_says_what_it_did_and_refuses_to_do_it_twice(capsys, write_config, tmp_path):
    config = write_config()
    assert cli.main(["tokenize", config, "--workers", "2"]) == 0
    out, err = capsys.readouterr()
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[:8] == [
        "tokenize: done", "documents 7 of 7 records", "rejected 0", "bytes 281 281 B", "words 13 75 characters",
        "tokens 28 21 of 28 vocabulary entries used", "unknown tokens 1 3.571% of tokens", "tokens per word 2.154",
    ]  # fmt: skip
    assert lines[9].startswith("time ")
    n_bytes = sum(path.stat().st_size for path in (tmp_path / "out").glob("tokens-*"))
    assert lines[10:] == [
        f"in {tmp_path}/out",
        f"4 shards, {megabytes(n_bytes)}: tokens-00000-of-00004.parquet ... tokens-00003-of-00004.parquet",
        ".huggingface.yaml, stats.json, vocab/, manifest.json, clock.json, report.html",
    ]
    assert err.splitlines()[0] == "tokenmill: tokenize: 281 B in 4 splits, 2 workers, threads"
    assert all(line.startswith("tokenmill: ") for line in err.splitlines())

    assert cli.main(["tokenize", config]) == 2
    assert "holds the complete results of the same job; go on with them by --resume" in capsys.readouterr().err
    before = (tmp_path / "out/manifest.json").read_bytes()
    assert cli.main(["tokenize", config, "--resume"]) == 0
    assert (tmp_path / "out/manifest.json").read_bytes() == before
    assert cli.main(["tokenize", config, "--resume", "--set", "tokenizer.oov=char"]) == 2
    assert "cannot resume" in capsys.readouterr().err
    assert cli.main(["tokenize", config, "--overwrite", "--set", "tokenizer.oov=char"]) == 0
    assert (tmp_path / "out/manifest.json").read_bytes() != before


def test_a_failed_job_is_one_message(capsys, write_config, monkeypatch):
    def fail(*_, **__):
        raise ValueError("disk: on fire\nsecond line")

    monkeypatch.setattr(pages, "read_split", fail)
    config = write_config()
    assert cli.main(["tokenize", config, "--workers", "2"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if "tokenizing" not in line and "kernels" not in line]
    assert lines == [
        "tokenmill: tokenize: 281 B in 4 splits, 2 workers, threads",
        "tokenmill: failed: disk: on fire",
        "tokenmill: second line",
        "tokenmill: what is committed is kept: --resume goes on from there, --verbose shows where it failed",
    ]
    assert cli.main(["tokenize", config, "--resume", "--workers", "1", "--debug"]) == 1
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert "ValueError: disk: on fire" in err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_stopped_job_says_how_to_go_on(capsys, write_config, monkeypatch, workers):
    def stop(*_, **__):
        raise KeyboardInterrupt

    # Where the signal finds the main thread: in a worker of its own, or waiting for others.
    if workers == "1":
        monkeypatch.setattr(pages, "read_split", stop)
    else:
        monkeypatch.setattr("apache_beam.Pipeline.run", stop)
    assert cli.main(["tokenize", write_config(), "--workers", workers]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == (
        "tokenmill: stopped; what is committed is kept: the same command with --resume goes on from there"
    )


@pytest.fixture
def helps(capsys):
    """The help of every command, by its words."""
    waiting, found = [[]], {}
    while waiting:
        words = waiting.pop()
        assert cli.main([*words, "--help"]) == 0
        text = found[" ".join(words)] = capsys.readouterr().out
        listed = re.search(r"^(?:commands|actions):\n  (?:COMMAND|ACTION)\n((?:    .+\n)+)", text, re.MULTILINE)
        waiting += [[*words, name] for name in re.findall(r"^    (\w+)", listed[1], re.MULTILINE)] if listed else []
    return found


def test_no_option_is_taken_by_part_of_its_name_or_takes_what_was_meant_for_another(capsys, helps):
    assert helps.keys() >= {"", "run", "verify", "counts merge"}
    for words, text in helps.items():
        usage = " ".join(text.partition("\n\n")[0].split())
        options = re.findall(r"--[\w-]+", usage)
        # `--option [VALUE]`, and `--option VALUE ...`, take the argument that follows, whatever that was meant to be.
        assert not re.search(r"--[\w-]+ (?:\[(?!-)|[A-Z]+ \[[A-Z]+ \.\.\.)", usage), usage
        for option in options:
            assert cli.main([*words.split(), option[:-1], "1", "2"]) == 2
            error = capsys.readouterr().err
            assert "usage: " in error or ": unrecognized arguments: " in error


@pytest.fixture
def finished(write_config, tmp_path, capsys):
    assert cli.main(["tokenize", write_config(), "--workers", "1"]) == 0
    capsys.readouterr()
    return tmp_path / "out"


def run_unread(*arguments, unread="stdout"):
    """Runs a command whose output nobody reads: the other end of the pipe is closed before it starts."""
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {unread: writer}
    command = [forking.python(), "-m", "tokenmill", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, text=True, check=False, **streams)
    os.close(writer)
    return done


def test_docstrings_that_beam_needs_are_asked_for_before_work():
    command = [sys.executable, "-OO", "-m", "tokenmill", "schema"]
    done = subprocess.run(command, cwd=ROOT, text=True, check=False, capture_output=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "PYTHONOPTIMIZE at most 1" in done.stderr


def test_a_reader_that_has_gone_is_no_error(finished, tmp_path):
    config = tmp_path / "job.yaml"
    for words in (
        ["--help"], ["run", "--help"], ["--version"], ["schema"], ["inspect", finished], ["verify", finished],
        ["tokenize", config, "--overwrite"],
    ):  # fmt: skip
        done = run_unread(*words)
        assert (words, done.returncode) == (words, 0), done.stderr
        assert all(line.startswith("tokenmill: ") for line in done.stderr.splitlines()), done.stderr


def test_a_reader_that_has_gone_hides_no_failure(finished, tmp_path, write_config):
    assert run_unread("run", "no.yaml", unread="stderr").returncode == 2
    assert run_unread("tokenize", tmp_path / "job.yaml", unread="stderr").returncode == 2  # there are results
    (finished / "stats.json").write_bytes(b"damaged")
    assert run_unread("verify", finished).returncode == 1


def test_convert_writes_another_format_or_says_why_not(capsys, tmp_path, tiny_vocab_file):
    converted = tmp_path / "new" / "tokenizer.json"
    assert cli.main(["convert", str(tiny_vocab_file), str(converted)]) == 0
    assert cli.main(["convert", str(converted), str(tmp_path / "again.txt")]) == 0
    assert cli.main(["convert", str(converted), str(tmp_path / "other"), "--to", "vocab.txt"]) == 0
    assert (tmp_path / "other").read_bytes() == (tmp_path / "again.txt").read_bytes()
    assert cli.main(["convert", str(converted), str(tmp_path / "other"), "--to", "nothing"]) == 2
    assert (tmp_path / "again.txt").read_bytes() == tiny_vocab_file.read_bytes()
    assert cli.main(["convert", str(converted), str(tmp_path / "ranks.tiktoken")]) == 2
    assert "ranks.tiktoken: tiktoken cannot hold WordPiece" in capsys.readouterr().err


def test_every_argument_that_is_a_path_is_expanded():
    names = re.compile(r"FILE|FOLDER|CONFIG|TOKENIZER|CORPUS|OUT\d|PART|PLACE")
    for command, parser, _ in commands_of(cli.parser()):
        for action in parser._actions:
            metavar = str(action.metavar)
            if names.search(metavar) and metavar != "TEXT|FILE|-" and action.nargs != 0:
                assert action.type is not None, (command, metavar)
                value = action.type("$$a/~")
                assert value in ("$a/~", (None, "$a/~")), (command, metavar)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("chat check TOK --template x DATA", {"tokenizer": "TOK", "data": "DATA", "template": "x"}),
        ("chat check --template x TOK --json DATA", {"tokenizer": "TOK", "data": "DATA", "json": True}),
        ("compare a --html x b --on c d", {"tokenizers": ["a", "b"], "html": "x", "on": ["c", "d"]}),
        ("counts merge a --out o b", {"counts": [(None, "a"), (None, "b")], "out": "o"}),
        ("trace f --json 1 2", {"place": ["f", "1", "2"], "json": True}),
    ],
)
def test_options_may_stand_anywhere(words, expected):
    found = vars(cli.parser().parse_args(words.split()))
    assert expected.items() <= found.items()
