# SPDX-License-Identifier: Apache-2.0
"""Every command with hostile names and texts, and with streams that are closed, narrow or of another encoding."""

import io
import json
import os
import re
import subprocess
import sys

import pytest
from rich.table import Table
from rich.text import Text

from tokenmill.pipeline import cli
from tokenmill.pipeline.running.terminal import Terminal
from tokenmill.tokenizer import Tokenizer

TOKENS = ["[/INST]", "[url]", "[bold red]", ":smile:", "\x1b[2Jgone", "[link=file:///etc]x", "back\\[b]", "\x9b31m"]
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
NAME = "out [bold]:smile: [/red] \x1b[31m\u202e\x07"


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A config whose paths, documents, ids, fields and added tokens are markup and control sequences."""
    (tmp_path / "corpus").mkdir()
    name = NAME.replace("/", "")
    texts = [f"the {' '.join(TOKENS)} mill 玫瑰 {i}" for i in range(5)]
    lines = [json.dumps({"id": f"{TOKENS[i]}", "text": text, "url": text}) for i, text in enumerate(texts)]
    (tmp_path / "corpus" / f"{name}.jsonl").write_text("\n".join([*lines, "{[/x]\x1b[2J"]) + "\n", encoding="utf-8")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "mill", "##s", *TOKENS, *"abcdefghijklmnopqrstuvwxyz[]/:=\\"]
    tokenizer = Tokenizer.for_bert({word: i for i, word in enumerate(words)})
    tokenizer.with_special_tokens(TOKENS).save(tmp_path / f"{name}.json")
    config = tmp_path / "job.yaml"
    sections = {
        "input": {"paths": [str(tmp_path / "corpus" / "*.jsonl")], "keep_fields": ["url"], "on_damage": "warn"},
        "tokenizer": {"file": str(tmp_path / f"{name}.json")},
        "output": {"path": str(tmp_path / name)},
        "normalize": [{"regex": {"pattern": "mill", "replace": "[/mill]"}}],
    }
    config.write_text(json.dumps(sections), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return config, tmp_path / name, tmp_path / f"{name}.json"


def test_no_command_takes_text_from_data_for_markup_or_lets_it_act_on_a_terminal(hostile, capsys):
    config, output, tokenizer = map(str, hostile)
    shard = f"{output}/tokens-00000-of-00001.parquet"
    counted = ["--set", f"output.path={json.dumps(f'{output} counts')}", "--set", "input.keep_fields=[]"]
    for words, code in (
        (["plan", config], 0),
        (["tokenize", config, "--mode", "inline"], 0),
        (["tokenize", config, "--mode", "inline"], 2),  # there is a result
        (["tokenize", config, "--mode", "inline", "--overwrite", "--json"], 0),
        (["count", config, "--mode", "inline", *counted], 0),
        (["counts", "show", f"{output} counts"], 0),
        (["verify", config, "--deep"], 0),
        (["report", output], 0),
        (["report", output, "--json"], 0),
        (["inspect", shard, "--ids"], 0),
        (["inspect", output, "--json"], 0),
        (["inspect", output, "--doc-id", "[/nothing]\x1b[2J"], 0),
        (["viz", "[/INST] [url] :smile: \x1b[2J", "--tokenizer", tokenizer], 0),
        (["trace", shard, "1", "3"], 0),
        (["diff", output, output], 0),
        (["compare", tokenizer, tokenizer, "--on", "corpus"], 2),  # a file of it loses a sixth
        (["replay", config], 0),
        (["verify", "[/red]\x1b[2J"], 2),
        (["inspect", "[/red]\x1b[2J.yaml"], 2),
        (["run", config, "--set", "tokenizer.oov=[/red]\x1b[2J"], 2),
        (["run", config, "--[/red]\x1b[2J"], 2),
        (["warm", "\x1b[2J[/red]"], 2),
    ):
        assert cli.main(words) == code, (words, capsys.readouterr())
        out, err = capsys.readouterr()
        assert not ACTING.search(out + err), (words, out, err)
        if "--json" in words:
            assert all(json.loads(line) for line in (out.splitlines() if words[0] == "inspect" else [out]))
        if words[:1] == ["tokenize"] and code == 0 and "--json" not in words:
            assert all(f"{token} 5" in out for token in ("[/INST]", "\\u001b[2Jgone"))  # added tokens in text
            assert "[bold]:smile: [red] \\u001b[31m\\u202e\\u0007" in out


CLOSED = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-", "all": "<&- >&- 2>&-", "both": ">&- 2>&-"}


@pytest.mark.parametrize("closed", CLOSED)
def test_a_job_ends_as_ever_without_its_streams(hostile, closed):
    config, output, _ = hostile
    command = f'exec "$0" -m tokenmill "$@" {CLOSED[closed]}'
    for words, code in (
        (["tokenize", str(config), "--mode", "inline"], 0),
        (["tokenize", str(config)], 2),
        (["verify", str(config)], 0),
        (["viz", "-", "--tokenizer", str(hostile[2])], 0),
        (["no-command"], 2),
    ):
        done = subprocess.run(["bash", "-c", command, sys.executable, *words], capture_output=True, check=False)
        assert done.returncode == code, (words, done.stderr)
        assert b"Traceback" not in done.stderr
    assert not [path for path in output.rglob("*") if path.is_file() and b"tokenmill: " in path.read_bytes()]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux that stands for a full disk")
def test_work_goes_on_while_nothing_can_be_printed(hostile):
    config, output, _ = hostile
    for redirected, words, code in (
        ("2>/dev/full", ["tokenize", str(config), "--mode", "inline"], 0),
        (">/dev/full", ["tokenize", str(config), "--mode", "threads", "--overwrite", "--json"], 0),
        (">/dev/full 2>/dev/full", ["tokenize", str(config), "--mode", "processes", "--overwrite"], 0),
        ("2>/dev/full", ["tokenize", str(config)], 2),  # there is a result
        (">/dev/full", ["verify", str(config)], 1),  # nobody learns what it found
    ):
        command = f'exec "$0" -m tokenmill "$@" {redirected}'
        done = subprocess.run(["bash", "-c", command, sys.executable, *words], capture_output=True, check=False)
        assert done.returncode == code, (words, done.stderr)
        assert b"Traceback" not in done.stderr
        lost = b"tokenmill: warning: what this command prints could not be written to stdout: No space left on device"
        assert (lost in done.stderr) == (redirected == ">/dev/full")
        assert (output / "manifest.json").exists()


ENVIRONMENTS = (
    {"COLUMNS": "0"}, {"COLUMNS": "abc"}, {"COLUMNS": "3"}, {"COLUMNS": "-1", "LINES": "0"}, {"TERM": "dumb"},
    {"TERM": ""}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"},
    {"LANG": "C"}, {"PYTHONIOENCODING": "latin-1"}, {"FORCE_COLOR": "1"},
)  # fmt: skip


def test_everything_is_printed_in_any_environment(hostile):
    text = "玫瑰 😀 the mill"
    words = [sys.executable, "-m", "tokenmill", "viz", text, "--tokenizer", str(hostile[2])]
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "PYTHON"))}
    for variables in ENVIRONMENTS:
        for options in ([], ["--json"]):
            done = subprocess.run([*words, *options], env=ours | variables, capture_output=True, check=False)
            assert (done.returncode, b"Error" in done.stderr) == (0, False), (variables, done.stderr)
            if options:
                assert "mill" in [token["text"].strip() for token in json.loads(done.stdout)[0]["shown"]], variables
            assert b"mill" in done.stdout


def test_a_narrow_console_cuts_nothing(monkeypatch):
    for columns in ("0", "3", "abc"):
        monkeypatch.setenv("COLUMNS", columns)
        stream = io.StringIO()
        table = Table("name", "number", box=None)
        table.add_row("[/INST] :smile: [red]x[/red] \x1b[2J", "1,234,567")
        Terminal(stream).print(table, Text("\x9b2J"), "[b]\x1b")
        shown = stream.getvalue()
        assert "[/INST] :smile: [red]x[/red] \\u001b[2J  1,234,567" in shown
        assert shown.endswith("\\u009b2J [b]\\u001b\n")
