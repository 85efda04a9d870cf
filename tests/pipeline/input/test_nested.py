# SPDX-License-Identifier: Apache-2.0
"""Texts inside records: objects, lists of parts, and fields whose own name has a dot; from JSON lines and Parquet."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenmill
from tests.strategies import FEWER
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.nested import values_at
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits

RECORDS = [
    {"id": "a", "content": {"text": "first"}},
    {"id": "b", "content.text": "whole name", "content": {"text": "inside"}},
    {"id": "c", "content": [{"type": "text", "text": "one"}, {"type": "image"}, {"text": "two"}]},
    {"id": "d", "content": {"text": ["x", "y"]}},
    {"id": "e", "content": {"text": "é\u2028", "more": 1}, "x": 2.5},
]
TEXTS = {"a": "first", "b": "whole name", "c": "one|two", "d": "x|y", "e": "é\u2028"}
UNUSABLE = [
    ({"content": "text"}, "missing_field"),
    ({"content": {}}, "missing_field"),
    ({"content": []}, "missing_field"),
    ({"text": "x"}, "missing_field"),
    ({"content": {"text": None}}, "null_text"),
    ({"content": [{"text": None}]}, "null_text"),
    ({"content": {"text": 5}}, "not_string"),
    ({"content": [{"text": "a"}, {"text": {}}]}, "not_string"),
    ({"content": {"text": "\ud800"}}, "lone_surrogate"),
]


def read(path, **options):
    config = InputConfig(paths=[str(path)], **options)
    documents, rejects = {}, []
    for split in plan_splits(config, ""):
        for batch in read_split(split, config):
            rows = batch.documents.to_pylist()
            documents |= {row["doc_id"]: row["text"] for row in rows}
            rejects += batch.rejects.to_pylist() if batch.rejects is not None else []
    return documents, [row["reason"] for row in rejects]


@pytest.mark.parametrize("times", [1, 300])
def test_texts_inside_json_lines(tmp_path, times):
    path = tmp_path / "a.jsonl"
    records = [{**record, "id": f"{record['id']}{i}"} for i in range(times) for record in RECORDS]
    lines = [*records, *(record for record, _ in UNUSABLE * times)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    documents, reasons = read(path, text_field="content.text", join="|")
    assert documents == {record["id"]: TEXTS[record["id"][0]] for record in records}
    assert reasons == [reason for _, reason in UNUSABLE * times]
    assert read(path, text_fields=["id", "content.text"], join="|")[0]["a0"] == "a0|first"


def test_texts_inside_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    parts = [[{"text": "one"}, {"text": None}, {"text": "two"}], [], None, [{"text": None}]]
    inside = [{"text": "first"}, {"text": None}, None, {"text": "last"}]
    columns = {"id": list("abcd"), "parts": parts, "content": inside, "content.text": ["w", "x", None, "z"]}
    pq.write_table(pa.table(columns), path)
    assert read(path, text_field="parts.text", join="|") == ({"a": "one|two"}, ["null_text"] * 3)
    assert read(path, text_field="content.text") == ({"a": "w", "b": "x", "d": "z"}, ["null_text"])
    pq.write_table(pa.table({name: columns[name] for name in ("id", "content")}), path)
    assert read(path, text_field="content.text") == ({"a": "first", "d": "last"}, ["null_text"] * 2)
    with pytest.raises(
        ValueError,
        match=r"has no column 'content\.body' for input\.text_field; it has 'id', 'content', 'content\.text'$",
    ):
        read(path, text_field="content.body")
    for written in (
        "content[].text",
        "content[0].text",
        "$.content[*].text",
        "content.0.text",
        "content.list.element.text",
    ):
        with pytest.raises(ValueError, match=r"; lists of parts need no mark, write 'content\.text'$"):
            read(path, text_field=written)
    pq.write_table(pa.table({"id": ["a"], "content": [[{"text": 5}]]}), path)
    with pytest.raises(ValueError, match=r"column 'content\.text' is int64; a text column is a string or binary"):
        read(path, text_field="content.text")


LEAVES = st.none() | st.text("ab.", max_size=3) | st.integers(0, 3)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner))


@FEWER
@given(st.dictionaries(st.sampled_from(["a", "b", "a.b"]), VALUES))
def test_values_are_those_that_a_search_of_the_whole_record_finds(record):
    def leaves(value, at):
        if isinstance(value, list):
            return [leaf for each in value for leaf in leaves(each, at)]
        if isinstance(value, dict):
            return [leaf for name, each in value.items() for leaf in leaves(each, (*at, name))] or [(at, value)]
        return [(at, value)]

    if "a.b" in record:
        assert values_at(record, "a.b") == [record["a.b"]]
    else:
        found = [value for at, value in leaves(record, ()) if at == ("a", "b")]
        # An object there is a value, too, if not one that was looked for; here only those that hold something differ.
        assert [each for each in values_at(record, "a.b") if not (isinstance(each, dict) and each)] == found


def test_a_job_takes_nested_texts_and_tells_them_apart(tmp_path, tiny_vocab):
    pq.write_table(
        pa.table({"id": ["p"], "content": [[{"text": "a mill"}, {"text": "the text"}]]}), tmp_path / "b.parquet"
    )
    (tmp_path / "a.jsonl").write_text('{"id": "j", "content": {"text": "a mill"}}\n{"id": "k", "content": 5}\n')
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tiny_vocab))
    config = {
        "input": {"paths": [str(tmp_path / "[ab].*")], "text_field": "content.text", "on_damage": "warn"},
        "tokenizer": {"file": str(tmp_path / "vocab.txt")},
        "output": {"path": str(tmp_path / "out")},
    }
    assert tokenmill.run(config).totals["reject_rows"] == 1
    assert tokenmill.verify(config, deep=True, share=1).is_proven
    (shard,) = (tmp_path / "out").glob("tokens-*.parquet")
    assert sorted(pq.ParquetFile(shard).read().column("doc_id").to_pylist()) == ["j", "p"]
