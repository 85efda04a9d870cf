# SPDX-License-Identifier: Apache-2.0
"""What all commands have in common: JSON for programs, quiet, verbose, and completion."""

import json
import shutil
import subprocess

import pytest

from tokenmill.pipeline import cli
from tokenmill.pipeline.cli import SHELLS
from tokenmill.pipeline.commands.arguments import commands_of


@pytest.fixture
def config(tmp_path, tiny_corpus, tiny_vocab_file):
    path = tmp_path / "job.yaml"
    with tiny_vocab_file.open("a", encoding="utf-8") as vocab:
        vocab.write("##ⰻ\n")  # else there are unknown tokens, which are warned of
    path.write_text(
        f"input: {{paths: [{tiny_corpus}/*.jsonl], on_damage: warn}}\ntokenizer: {{file: {tiny_vocab_file}}}\n"
        f"output: {{path: {tmp_path / 'out'}}}\n",
        encoding="utf-8",
    )
    return str(path)


def totals(tmp_path):
    return json.loads((tmp_path / "out/manifest.json").read_text())["totals"]


def test_a_job_prints_its_books_as_json(config, tmp_path, capsys):
    assert cli.main(["tokenize", config, "--workers", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["totals"] == totals(tmp_path)
    assert (found["job"], found["output"], found["warnings"]) == ("tokenize", str(tmp_path / "out"), [])
    assert found["seconds"] > 0
    assert cli.main(["verify", config, "--deep", "--json"]) == 0
    verified = json.loads(capsys.readouterr().out)
    assert (verified["is_proven"], verified["problems"]) == (True, [])
    assert verified["n_tokens"] == verified["tokenized_again"]["n_tokens"] == found["totals"]["n_tokens"]
    (tmp_path / "out/stats.json").write_text("{}")
    assert cli.main(["verify", config, "--json"]) == 1
    broken = json.loads(capsys.readouterr().out)
    assert not broken["is_proven"]
    assert "stats.json" in broken["problems"][0]


COMMANDS = {name: command for name, command, _ in commands_of(cli.parser())}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_and_takes_json_quiet_and_verbose(name):
    assert f"For example: tokenmill {name} " in " ".join([*COMMANDS[name].format_help().split(), ""])
    if any(other.startswith(f"{name} ") for other in COMMANDS):
        return  # a group of commands
    known = {option for action in COMMANDS[name]._actions for option in action.option_strings}
    assert known >= {"--json", "--quiet", "--verbose", "--debug"}


def test_commands_that_write_say_what_as_json_or_nothing(config, tiny_vocab_file, tmp_path, capsys):
    assert cli.main(["count", config, "--workers", "1", "--quiet"]) == 0
    out, total, target = str(tmp_path / "out"), str(tmp_path / "total"), str(tmp_path / "vocab.txt")
    assert cli.main(["counts", "merge", f"a={out}", f"b={out}", "--out", total, "--json"]) == 0
    merged = json.loads(capsys.readouterr().out)
    assert cli.main(["counts", "show", total, "--top", "0", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert merged == {name: shown[name] for name in shown if name != "top_words"} | {"output": total}
    assert cli.main(["counts", "show", out, "--json", "--top", "2"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["top_words"]) == 2
    assert shown["totals"]["n_words"] >= sum(n for _, n in shown["top_words"])
    rest = str(tmp_path / "rest")
    assert cli.main(["counts", "subtract", total, f"a={out}", "--out", rest, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert cli.main(["convert", str(tiny_vocab_file), target, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == target
    assert cli.main(["warm", config, "--job", "count", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == []
    assert cli.main(["completion", "bash", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shell"] == "bash"


def test_a_quiet_command_answers_by_its_exit_code(config, tmp_path, capsys):
    assert cli.main(["tokenize", config, "--workers", "1", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert cli.main(["verify", config, "--quiet"]) == 0
    (tmp_path / "out/stats.json").write_text("{}")
    assert cli.main(["verify", config, "--quiet"]) == 1
    assert capsys.readouterr() == ("", "")


def test_verbose_shows_where_a_mistake_was_found(tmp_path, capsys):
    missing = str(tmp_path / "missing")
    assert cli.main(["inspect", missing]) == 2
    assert "Traceback" not in (said := capsys.readouterr().err)
    assert cli.main(["inspect", missing, "--verbose"]) == 2
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert told.endswith(said)


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_commands_and_options(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("tokenize", "verify", "overwrite", "deep"):
        assert word in script
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, check=False).stderr == ""
