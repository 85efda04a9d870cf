# SPDX-License-Identifier: Apache-2.0
"""`tokenmill chat check`: what it finds, and its exit code."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chats import NAMED, TEMPLATES, make_tokenizer
from tokenmill.pipeline.cli import main

UNSTOPPED = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '\\n' }}{% endfor %}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_tokenizer().save(tmp_path / "tokenizer.json")
    return tmp_path


def check(folder: Path, capsys: pytest.CaptureFixture[str], template: Any, *more: str) -> tuple[int, dict[str, str]]:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, **NAMED}))
    code = main(["chat", "check", str(folder), *more, "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["good"] is (code == 0)
    return code, {each["name"]: f"{each['level']} {each['detail']}" for each in said["findings"]} | said


def test_a_template_without_a_stop_token_is_bad(folder, capsys) -> None:
    code, said = check(folder, capsys, UNSTOPPED.replace("<|", "<").replace("|>", ">"))
    assert code == 1
    assert said["stop token"].startswith("bad")
    assert "tokenizer.train.special_tokens" in said["stop token"]
    code, said = check(folder, capsys, "{{ raise_exception('never') }}")
    assert code == 1
    assert "never" in said["renders a turn"]


def test_the_form_of_arguments_that_a_template_shows_as_json_is_advised(folder, capsys) -> None:
    calls = "{% for c in m.tool_calls or [] %}{{ c.function.arguments }}{% endfor %}"
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}" + calls + "<|im_end|>\n{% endfor %}"
    )
    _, said = check(folder, capsys, template)
    assert said["arguments of calls"].startswith("note give JSON in a text, or let the template write `| tojson`")
    assert "{'of': 'sky'}" in said["arguments of calls"]
    _, said = check(folder, capsys, template.replace("arguments }}", "arguments | tojson }}"))
    assert said["arguments of calls"].startswith("note give objects: JSON in a text becomes '…")


def test_data_is_counted_and_shown(folder, capsys) -> None:
    good = {"messages": [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "so 🙂"}]}
    (folder / "data.jsonl").write_text("\n".join([json.dumps(good), json.dumps({"text": "x"}), json.dumps(good), ""]))
    code, said = check(folder, capsys, TEMPLATES["chatml"], str(folder / "data.jsonl"))
    assert code == 0
    assert (said["records"], said["rejected"]) == (3, {"not_a_conversation": 1})
    shown = said["examples"][0]["tokens"]
    assert (
        "".join(text for text, _ in shown)
        == "<|im_start|>user\nwhy?<|im_end|>\n<|im_start|>assistant\nso 🙂<|im_end|>\n"
    )
    assert "".join(text for text, trained in shown if trained) == "so 🙂<|im_end|>"
    (folder / "bad.jsonl").write_text('{"text": "x"}\n')
    code, said = check(folder, capsys, TEMPLATES["chatml"], str(folder / "bad.jsonl"))
    assert code == 1
    assert "none of 1 records" in said["data"]


def test_records_are_read_as_jobs_read_them(folder, capsys) -> None:
    ask, answer = {"who": "user", "content": "why?"}, {"who": "bot", "content": "so"}
    records = [
        {"messages": [ask, {**answer, "weight": 0.5}]},
        {"messages": [ask, {**answer, "note": "x"}]},
        {"messages": [ask, {**answer, "content": "\ud800"}]},
        {"messages": [ask, {**answer, "mask": "User"}]},
    ]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, records)))
    options = [f"--set=input.{each}" for each in ('chat_fields={"who": "role"}', 'chat_roles={"bot": "assistant"}')]
    code, said = check(folder, capsys, TEMPLATES["chatml"], str(folder / "data.jsonl"), *options)
    assert (code, said["rejected"]) == (0, {"bad_mark": 2, "lone_surrogate": 1})
    more = ["--set=chat.weights=true", "--set=chat.must_show=[note]"]
    code, said = check(folder, capsys, TEMPLATES["chatml"], str(folder / "data.jsonl"), *options, *more)
    assert (code, said["rejected"]) == (0, {"bad_mark": 1, "lone_surrogate": 1, "turn_not_shown": 1})
    lines = (folder / "data.jsonl").read_bytes().split(b"\n")
    offsets = [sum(len(line) + 1 for line in lines[:number]) for number in range(4)]
    found = {tuple(each.split(": ")[:2]) for each in said["rejected_records"]}
    reasons = ((1, "turn_not_shown"), (2, "lone_surrogate"), (3, "bad_mark"))
    assert {(name.rpartition(":")[2], why) for name, why in found} == {(str(offsets[n]), why) for n, why in reasons}
    assert main(["chat", "check", str(folder), str(folder / "data.jsonl"), *options, *more]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-4].startswith("4 records, 3 not trained on, bad_mark 1, ")
    assert [line.strip() for line in printed[-3:]] == said["rejected_records"]
    assert max(map(len, printed)) > 80
    assert [each["name"] for each in said["examples"]] == ["record 1"]


def test_mistakes_are_said(folder, capsys) -> None:
    (folder / "tokenizer_config.json").write_text("{}")
    assert main(["chat", "check", str(folder)]) == 2
    assert "no chat template" in capsys.readouterr().err
