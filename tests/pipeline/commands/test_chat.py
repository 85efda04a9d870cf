# SPDX-License-Identifier: Apache-2.0
"""`tokenmill chat check`: what it finds, and its exit code."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
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


@pytest.mark.parametrize("family", TEMPLATES)
def test_templates_with_stop_tokens_are_good(folder, capsys, family) -> None:
    if family == "bare":  # as of GLM, whose model ends its turns with the header of the next
        code, said = check(folder, capsys, TEMPLATES[family])
        assert (code, said["stop token"].startswith("bad")) == (1, True)
        assert check(folder, capsys, TEMPLATES[family], "--set", 'chat.end_tokens=["<|user|>"]')[0] == 0
        ids = [make_tokenizer().token_to_id(token) for token in ("<|user|>", "</s>")]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    code, said = check(folder, capsys, TEMPLATES[family])
    assert code == 0
    assert said["trains the answer"].startswith("good")


def test_a_template_for_contents_in_parts_is_good_with_data_that_has_them(folder, capsys) -> None:
    source = TEMPLATES["chatml"].replace("message['content']", "message['content'][0]['text']")
    assert check(folder, capsys, source)[0] == 1
    turns = [{"role": role, "content": [{"type": "text", "text": "why?"}]} for role in ("user", "assistant")]
    (folder / "a.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    code, said = check(folder, capsys, source, str(folder / "a.jsonl"))
    assert (code, said["plain messages"][:4]) == (0, "note")


def test_a_template_without_a_stop_token_is_bad(folder, capsys) -> None:
    code, said = check(folder, capsys, UNSTOPPED.replace("<|", "<").replace("|>", ">"))
    assert code == 1
    assert said["stop token"].startswith("bad")
    assert "tokenizer.train.special_tokens" in said["stop token"]
    code, said = check(folder, capsys, "{{ raise_exception('never') }}")
    assert code == 1
    assert "never" in said["renders a turn"]


def test_what_a_template_drops_is_said(folder, capsys) -> None:
    _, said = check(folder, capsys, TEMPLATES["thinking"])
    assert said["reasoning"].startswith("note is left out of earlier turns")
    assert said["prefix-stable with reasoning"].startswith("note")
    assert said["prefix-stable"].startswith("good") or "change" in said["prefix-stable"]
    assert 'JSON in a text becomes uments": "{\\"of' in said["arguments of calls"]
    _, said = check(folder, capsys, TEMPLATES["thinking"].replace("arguments | tojson +", "arguments +"))
    assert said["arguments of calls"] == "note it takes only JSON in a text, not objects"
    _, said = check(folder, capsys, TEMPLATES["inst"])
    assert "only user and assistant" in said["system"]


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


def test_it_takes_what_jobs_take(folder, capsys) -> None:
    turns = [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "<think>hm</think>so"}]
    pq.write_table(pa.table({"turns": [turns] * 3, "n": [1, 2, 3]}), folder / "data.parquet")
    (folder / "data.jsonl.gz").write_bytes(gzip.compress(f"{json.dumps({'turns': turns})}\nnot JSON\n".encode()))
    options = ["--messages-field", "turns", "--set", "chat.thinking=false", "--set", "chat.arguments.deep=true"]
    template = TEMPLATES["chatml"] + "{{ '!' if deep }}".replace(" }}", " else '' }}")
    for name, n_records, rejected in (("data.parquet", 3, {}), ("data.jsonl.gz", 2, {"not_json": 1})):
        code, said = check(folder, capsys, template, str(folder / name), *options)
        assert (code, said["records"], said["rejected"]) == (0, n_records, rejected)
        assert "".join(text for text, trained in said["examples"][0]["tokens"] if trained) == "so<|im_end|>"
        assert said["examples"][0]["tokens"][-1][0].endswith("!")
    assert main(["chat", "check", str(folder), "--set", "chat.thinkin=false"]) == 2
    assert "thinking" in capsys.readouterr().err


def test_a_template_for_records_with_tools_is_checked_and_used(folder, capsys) -> None:
    lists = "{% for t in tools %}{{ t.function.name }}\n{% endfor %}"  # fails without tools
    turns = [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "so"}]
    records = [{"messages": turns}, {"messages": turns, "tools": [{"type": "function", "function": {"name": "look"}}]}]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, records)))
    for source, code, level in ((lists + TEMPLATES["chatml"], 0, "good"), (lists + TEMPLATES["bare"], 1, "bad")):
        named = [{"name": "default", "template": TEMPLATES["chatml"]}, {"name": "tool_use", "template": source}]
        found, said = check(folder, capsys, named, str(folder / "data.jsonl"))
        assert (found, said["stop token"][:4]) == (code, "good")
        assert said["with tools, stop token"].startswith(level)
        plain, tools = ("".join(text for text, _ in each["tokens"]) for each in said["examples"])
        assert (plain.startswith("<|im_start|>"), tools.startswith("look\n")) == (True, True)
        _, said = check(folder, capsys, named)
        assert {"one turn", "with tools, one turn"} <= {each["name"] for each in said["examples"]}


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


def test_a_person_sees_what_is_trained_without_colour(folder, capsys) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATES["chatml"], **NAMED}))
    assert main(["chat", "check", str(folder)]) == 0
    assert "«Blood.<|im_end|>»" in capsys.readouterr().out


def test_mistakes_are_said(folder, capsys) -> None:
    (folder / "tokenizer_config.json").write_text("{}")
    assert main(["chat", "check", str(folder)]) == 2
    assert "no chat template" in capsys.readouterr().err
