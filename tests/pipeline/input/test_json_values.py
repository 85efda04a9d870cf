# SPDX-License-Identifier: Apache-2.0
"""Kept fields of JSON lines: many lines at once give what one line at a time gives, numbers as they are written."""

import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.kept_fields import declared_fields
from tokenmill.pipeline.input import json_columns, jsonl
from tokenmill.pipeline.input.batches import Source
from tokenmill.pipeline.input.cutting import LineScanner, Records
from tokenmill.pipeline.input.json_values import spelled

NAMES = st.sampled_from(["a", "b", "a.b", "meta", "é", 'q"a', "a\\", ""])
SPELLED = ["0", "-0", "1", "-7", "1.50", "1e3", "2E+05", "9223372036854775808", "9" * 30, "0.1", "1e999"]
OTHERS = ["null", "true", '"x"', '"\\u00e9"', '"\\ud800"', '"a\\":5"', "[1,2.50]", '{"a":1.0,"b":"y"}', "[]", "{}"]
SCALARS = st.sampled_from([*SPELLED, *SPELLED, *OTHERS])


def spell(pairs):
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in pairs) + "}"


VALUES = SCALARS | st.lists(st.tuples(NAMES, SCALARS), max_size=3).map(spell)
LINES = st.lists(st.tuples(NAMES, VALUES), max_size=4).map(lambda pairs: spell([("text", '"t"'), *pairs]))
ALIKE = st.sampled_from(["1", "2.50", '"x"']).flatmap(
    lambda value: st.lists(st.just(spell([("text", '"t"'), ("a", value), ("meta", f'{{"a":{value}}}')])), min_size=3)
)


def read(data, keep_fields, **options):
    config = InputConfig(paths=["x"], keep_fields=keep_fields, **options)
    parser = jsonl.JsonLines(config, declared_fields(config), Source(0, "x", "x"))
    lines = LineScanner(1).lines(data + b"\n", 0, 0, False)
    part = parser.parse(Records(0, data + b"\n", *lines))
    return part.documents.to_pylist(), [] if part.rejects is None else part.rejects.to_pylist()


def refuse(*_, **__):
    raise pa.ArrowInvalid("not asked")


KEPT = (["a", "a.b", "meta"], ["meta.a"], {"a": "double", "meta": {"a": "string"}}, {"a": "int8"}, {"a": ["float"]})


@given(
    lines=st.lists(LINES, max_size=4), alike=ALIKE, kept=st.sampled_from(KEPT), id_field=st.sampled_from(["a", None])
)
@example(lines=['{"text":"t","a":{"b":2},"a.b":null}'], alike=['{"text":"t","a":{"b":1}}'], kept=["a.b"], id_field=None)
@example(lines=['{"text":"t","a":2.0,"\\u0061":3.00}'], alike=['{"text":"t","a":1.0}'], kept=["a"], id_field="a")
@example(lines=['{"text":"t","q\\"a":2.0,"\\u0061":2.00}'], alike=['{"text":"t","a":1.0}'], kept=["a"], id_field="a")
@example(lines=['{"text":"t","b":{"a":2.0},"a":2.00}'], alike=['{"text":"t","a":1.0}'], kept=["a"], id_field="a")
@example(lines=['{"text":"t","a":-0}'], alike=['{"text":"t","a":0}'], kept=["a"], id_field="a")
def test_lines_give_what_each_of_them_gives_alone(lines, alike, kept, id_field):
    data = "\n".join([*lines, *alike]).encode()
    fast = read(data, kept, id_field=id_field)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_columns, "read_objects", refuse)
        assert read(data, kept, id_field=id_field) == fast


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"a": 1, "a": 2}', "2"),
        ('{"a": {"b": 1}, "a": {}}', ""),
        ('{"a": {}, "a": {"b": 1}}', "1"),
        ('{"a": {"b": "x"}, "a": 3}', ""),
        ('{"a": {"\\u0062": "y"}}', '"y"'),
        ('{"\\u0061": {"b": "z"}}', '"z"'),
        (' {\t"a" : {"c":[{"b":1},"}"] , "b":\r"v" } }\r', '"v"'),
        ('{"a": [{"b": 1}]}', ""),
    ],
)
def test_what_counts_where_names_occur_twice_or_have_escapes(line, expected):
    path = ["a"] if expected == "2" else ["a", "b"]
    assert spelled(line.encode(), [path]) == [expected]
