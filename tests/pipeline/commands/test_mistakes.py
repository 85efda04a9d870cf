# SPDX-License-Identifier: Apache-2.0
"""Mistakes in configs: the job, what is wrong, and the words that a person needs. Each is told by a line, before work.

What a section says of itself in Python is in `tests/pipeline/config`; the words are only in `mistakes.yaml`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chats import NAMED, TEMPLATES, make_tokenizer
from tokenmill.pipeline import cli

ROWS = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))


def _told(capsys: pytest.CaptureFixture[str], words: str, *command: str) -> None:
    """The command ends with 2, and one line on stderr has the words; nothing is written."""
    before = sorted(Path().rglob("*"))
    assert cli.main([*command]) == 2
    printed, told = capsys.readouterr()
    assert printed == ""
    (line,) = told.splitlines()
    assert line.startswith("tokenmill: ")
    assert words in line
    assert sorted(Path().rglob("*")) == before


def _write(sections: dict[str, Any], **base: dict[str, Any]) -> str:
    """Writes a config in which keys of a section come after those of the base; a section that is null is left out."""
    merged = {
        name: {**base.get(name, {}), **keys} if isinstance(keys, dict) else keys for name, keys in sections.items()
    }
    Path("job.yaml").write_text(json.dumps({**base, **merged}), encoding="utf-8")
    return "job.yaml"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with inputs of a line, and a tokenizer that has a chat template."""
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text('{"text": "the mill"}\n', encoding="utf-8")
    Path("chat.jsonl").write_text('{"messages": [{"role": "user", "content": "the mill"}]}\n', encoding="utf-8")
    Path("tokenizer").mkdir()
    make_tokenizer().save("tokenizer/tokenizer.json")
    Path("tokenizer/tokenizer_config.json").write_text(
        json.dumps({"chat_template": TEMPLATES["chatml"], **NAMED}), encoding="utf-8"
    )


@pytest.mark.parametrize(("job", "sections", "words"), ROWS["configs"])
def test_a_mistake_in_a_config(
    capsys: pytest.CaptureFixture[str], job: str, sections: dict[str, Any], words: str
) -> None:
    base: dict[str, Any] = {"input": {"paths": ["a.jsonl"]}, "tokenizer": {}, "output": {"path": "out"}}
    if "input" in sections:
        base["input"] = {}
    if "tokenizer" not in sections and job != "count":
        base["tokenizer"] = {"file": "tokenizer"}
    _told(capsys, words, job, _write(sections, **base))


@pytest.mark.parametrize(("setting", "words"), ROWS["sources"])
def test_a_mistake_in_sources(capsys: pytest.CaptureFixture[str], setting: str, words: str) -> None:
    given = {"sources": {"wiki": {"paths": ["a.jsonl"]}, "news": {"paths": ["chat.jsonl"]}}}
    base = {"input": given, "tokenizer": {"file": "tokenizer"}, "output": {"path": "out"}}
    _told(capsys, words, "run", _write({}, **base), "--set", setting)


@pytest.mark.parametrize(("job", "sections", "words"), ROWS["chat"])
def test_a_mistake_in_a_job_of_conversations(
    capsys: pytest.CaptureFixture[str], job: str, sections: dict[str, Any], words: str
) -> None:
    given = {"paths": ["chat.jsonl"], "messages_field": "messages"}
    base = {"input": given, "tokenizer": {"file": "tokenizer"}, "output": {"path": "out"}}
    _told(capsys, words, job, _write(sections, **base))


@pytest.mark.parametrize(("option", "words"), ROWS["beam"])
def test_a_mistake_in_options_of_beam(capsys: pytest.CaptureFixture[str], option: str, words: str) -> None:
    base = {"input": {"paths": ["a.jsonl"]}, "tokenizer": {"file": "tokenizer"}, "output": {"path": "out"}}
    _told(capsys, words, "tokenize", _write({}, **base), "--", option)
