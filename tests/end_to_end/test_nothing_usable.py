# SPDX-License-Identifier: Apache-2.0
"""A job that ends without a document does not end as if all were well."""

import gzip
import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.input.unusable import check_usable

RECORDS = [{"id": str(i), "body": "the mill", "url": "u"} for i in range(3)]


def write_input(folder, kind):
    """Writes three records of which none can be used, and returns the pattern, the reason and what is said of them."""
    folder.mkdir()
    lines = "".join(json.dumps(record) + "\n" for record in RECORDS).encode()
    if kind == "jsonl":
        (folder / "a.jsonl").write_bytes(b"")
        (folder / "b.jsonl").write_bytes(lines)
        return "missing_field", ["at 0: no field 'text'", "fields of the first records: 'id', 'body', 'url'"]
    if kind == "gzip":
        (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines, mtime=0))
        return "missing_field", ["at 0: no field 'text'", "fields of the first records: 'id', 'body', 'url'"]
    if kind == "parquet":
        table = pa.table({"id": ["a", "b", "c"], "text": pa.nulls(3, pa.string()), "body": ["the"] * 3})
        pq.write_table(table, folder / "a.parquet")
        return "null_text", ["at 0: column 'text' is null", "columns: 'id', 'text', 'body'"]
    (folder / "a.txt").write_bytes(b"\xff\n" * 3)
    return "invalid_utf8", ["at 0: "]


KINDS = ["jsonl", "gzip", "parquet", "text"]


def sections(folder, command, tiny_vocab_file):
    train = {"train": {"vocab_size": 100, "min_frequency": 1}}
    tokenizer = {"tokenize": {"file": str(tiny_vocab_file)}, "run": train, "train": train, "count": {}}
    return {"input": {"paths": [str(folder / "*")]}, "tokenizer": tokenizer[command]}


@pytest.mark.parametrize(
    ("command", "kind"),
    [*(("tokenize", kind) for kind in KINDS), ("run", "jsonl"), ("train", "gzip"), ("count", "text")],
)
def test_all_records_rejected_is_a_failure(make_job, tiny_vocab_file, tmp_path, capsys, command, kind):
    reason, says = write_input(tmp_path / "in", kind)
    job = make_job("job", **sections(tmp_path / "in", command, tiny_vocab_file))
    assert job.run(command, "--mode", "inline") == 1
    said = capsys.readouterr().err
    assert f"failed: none of the 3 records read can be used: 3 rejected as {reason}" in said
    for part in says:
        assert part in said
    assert "start again with --overwrite" in said
    assert "what is committed is kept" not in said
    if reason != "invalid_utf8":
        assert "input.text_field 'text' must name the field that holds the text" in said
    assert not (job.output / "manifest.json").exists()
    if command == "tokenize":
        assert f"all rejected records are in {job.output}/rejected" in said
        assert [row["reason"] for row in job.rejects()] == [reason] * 3
    if kind != "text":
        assert job.run(command, "--mode", "inline", "--resume", "--set", "input.text_field=body") == 2
        assert "input.text_field: 'text' there, 'body' now" in capsys.readouterr().err
        assert job.run(command, "--mode", "inline", "--overwrite", "--set", "input.text_field=body") == 0
        assert job.run("verify", "--set", "input.text_field=body") == 0


def test_conversations_in_a_job_for_texts_are_recognized(make_job, tiny_vocab_file, tmp_path, capsys):
    line = {"id": 1, "conversations": [{"from": "human", "value": "the"}, {"from": "gpt", "value": "mill"}]}
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "chat.jsonl").write_text(f"{json.dumps(line)}\n" * 2)
    job = make_job("job", **sections(tmp_path / "in", "tokenize", tiny_vocab_file))
    assert job.run("tokenize", "--mode", "inline") == 1
    hint = "; if records are conversations, set input.messages_field: conversations, and start again with --overwrite"
    assert hint in capsys.readouterr().err


def test_what_is_said_of_a_hostile_input_is_short_and_escaped(make_job, tiny_vocab_file, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    names = ["\x1b[2J\u202e", "n" * 10_000, *(f"field{i}" for i in range(5000))]
    lines = [json.dumps(dict.fromkeys(names, 1)), "[" * 100_000, '{"text": 1}', "x" * 10_000, "7"]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines))
    job = make_job("job", **sections(tmp_path / "in", "tokenize", tiny_vocab_file))
    assert job.run("tokenize", "--mode", "inline") == 1
    said = capsys.readouterr().err
    said = said[said.index("failed: ") :]
    assert "'\\x1b[2J\\u202e', 'nnn" in said
    assert "and 4,983 more" in said
    assert "\x1b" not in said
    assert len(said) < 4000

    table = pa.table({name: ["a"] for name in names})
    (tmp_path / "in" / "a.jsonl").unlink()
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    assert job.run("tokenize", "--mode", "inline", "--overwrite") == 2
    said = capsys.readouterr().err
    assert "has no column 'text' for input.text_field; it has '\\x1b[2J\\u202e', 'nnn" in said
    assert "and 4,982 more" in said
    assert len(said) < 4000


def test_json_that_is_not_in_lines_is_answered_by_what_makes_lines_of_it():
    with pytest.raises(ValueError, match=r"`jq -c \.` writes values so, and `jq -c '\.\[\]'` the elements of an array"):
        check_usable(3, {"not_json": 2, "not_object": 1}, [], InputConfig(paths=["a.jsonl"]), "")


@pytest.mark.parametrize("command", ["tokenize", "count"])
def test_a_job_whose_rules_leave_nothing_warns(make_job, tiny_vocab_file, tmp_path, capsys, command):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.jsonl"
    path.write_text('{"text": "the mill"}\n' * 3 + "not json\n")
    job = make_job("job", **sections(tmp_path / "in", command, tiny_vocab_file))
    assert job.run(command, "--mode", "inline", "--set", "languages.keep=[ja]", "--set", "input.on_damage=warn") == 0
    said = capsys.readouterr().err
    assert "warning: there is no document in the output: of 4 records 3 were filtered (language 3)" in said
    assert "and 1 were rejected (not_json 1)" in said
    assert job.run("verify", "--set", "languages.keep=[ja]") == 0

    path.write_text("\n\n")
    assert job.run(command, "--mode", "inline", "--overwrite") == 0
    assert "warning: there is no record in the input, and no document in the output" in capsys.readouterr().err
    assert job.run("verify") == 0


def test_conversations_that_are_none_have_an_example_too(make_job, tiny_vocab_file, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"dialogue": "?"}\n' * 3)
    given = {"paths": [str(tmp_path / "in")], "messages_field": "messages"}
    chat = {"template": "{{ messages[0].content }}", "on_bad_mask": "warn"}
    job = make_job("job", input=given, tokenizer={"file": str(tiny_vocab_file)}, chat=chat)
    assert job.run("tokenize", "--mode", "inline") == 1
    said = capsys.readouterr().err
    assert "not_a_conversation: 'a.jsonl' at 0: no field 'messages'; the record has dialogue" in said
    assert "input.messages_field 'messages' must name the field that holds the messages" in said


@pytest.mark.parametrize(
    ("name", "indent", "wrap"), [("data", None, {"n": 3}), ("a.rows", 1, {}), ("data", 1, {"x": {"y": []}})]
)
def test_records_in_a_field_of_one_object_are_named(tmp_path, name, indent, wrap):
    records: object = [{"text": f"document {n}"} for n in range(3)]
    for field in reversed(name.split(".")):
        records = {field: records}
    (tmp_path / "a.json").write_text(json.dumps(wrap | records, indent=indent))
    config = InputConfig(paths=[str(tmp_path / "a.json")])
    splits = [*plan_splits(config, "")]
    batches = [batch for split in splits for batch in read_split(split, config)]
    rejected = Counter(reason for each in batches for reason in each.rejects.column("reason").to_pylist())
    with pytest.raises(
        ValueError, match=rf"one object, whose field '{name}' holds the records: `jq -c '\.{name}\[\]'`"
    ):
        check_usable(sum(each.n_records for each in batches), rejected, splits, config, "")
