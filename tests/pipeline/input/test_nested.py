# SPDX-License-Identifier: Apache-2.0
"""Texts inside records: objects, lists of parts, and fields whose own name has a dot; from JSON lines and Parquet."""

import json

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import read_files
from tests.strategies import FEWER
from tokenmill.pipeline.input.json_values import values_at

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
    found = read_files.read(path, **options)
    return dict(found.rows("doc_id", "text")), found.reasons


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


IDS = [{"id": "a"}, {"id": 7}, {"id": -0.0}, {"id": None}, {}, None, [{"id": "x"}], "a", {"id": "é"}]
OWN = ["a", "7", "-0.0", *[None] * 5, "é"]


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet", "arrow"])
def test_ids_inside_records(tmp_path, suffix):
    path, name = tmp_path / f"a.{suffix}", f"a.{suffix}:"
    records = [{"text": str(n), "meta": meta} for n, meta in enumerate(IDS)]
    wrong = [{"text": "w", "meta": {"id": value}} for value in (True, [], {}, "\ud800")]
    if suffix in ("parquet", "arrow"):
        records = [each for each in records if isinstance(each["meta"] or {}, dict)]
        for each in records:
            each["meta"] = each["meta"] and {"id": str(each["meta"]["id"]) if each["meta"]["id"] is not None else None}
        table, wrong = pa.Table.from_pylist(records), []
        pq.write_table(table, path) if suffix == "parquet" else pa.feather.write_feather(table, path)
    elif suffix == "json":
        path.write_text(json.dumps(records + wrong))
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in [*records, *wrong * 100]))
    documents, reasons = read(path, id_field="meta.id")
    by_text = {text: None if own.startswith(name) else own for own, text in documents.items()}
    assert by_text == {record["text"]: OWN[int(record["text"])] for record in records}
    assert reasons[:4] == ["bad_id", "bad_id", "bad_id", "lone_surrogate"][: len(wrong)]
    assert len(reasons) == len(wrong) * (100 if suffix == "jsonl" else 1)


def test_a_field_that_is_called_as_a_path_is_the_id(tmp_path):
    lines = [
        '{"text": "a", "m.i": "x", "m": {"i": "y"}}',
        '{"m": {"i": -0}, "text": "b", "n": 1}',
        '{"text": "c", "m.\\u0069": 3}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert read(tmp_path / "a.jsonl", id_field="m.i")[0] == {"x": "a", "0": "b", "3": "c"}
    assert read(tmp_path / "a.jsonl", id_field="m.i", text_fields=["n", "text"])[0].keys() == {"x", "3"}
