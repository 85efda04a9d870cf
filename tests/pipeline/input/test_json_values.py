# SPDX-License-Identifier: Apache-2.0
"""Values of fields in lines of JSON: the kernel, its reference implementation and the standard library agree."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline.input.json_value_kernels import find_values
from tokenmill.pipeline.input.json_values import KIND_NAMES, Names, find_all, find_slowly, texts_of

NAMES = st.sampled_from(["a", "b", "a.b", "meta", "é", 'q"', "a\\", ""])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)
PATHS = [("a",), ("a", "b"), ("a.b",), ("meta", "a", "b"), ("é",)]


def look_up(record, path):
    for name in path:
        if not isinstance(record, dict) or name not in record:
            return None, False
        record = record[name]
    return record, True


def lines_of(records, **how):
    lines = [json.dumps(record, **how).encode() for record in records]
    ends = np.cumsum([len(line) + 1 for line in lines]) - 1
    starts = ends - [len(line) for line in lines]
    return np.frombuffer(b"".join(line + b"\n" for line in lines), np.uint8), starts, ends


@given(st.lists(OBJECTS, min_size=1, max_size=4), st.booleans(), st.sampled_from([None, (" , ", " : "), (",", ":")]))
def test_values_are_those_of_the_standard_library(records, ensure_ascii, separators):
    data, starts, ends = lines_of(records, ensure_ascii=ensure_ascii, separators=separators)
    for path, values in zip(PATHS, find_all(data, starts, ends, PATHS, Names.of(PATHS)), strict=True):
        texts, is_broken = texts_of(values)
        assert not is_broken.any()
        for i, record in enumerate(records):
            value, is_there = look_up(record, path)
            assert (KIND_NAMES[values.kinds[i]] == "nothing") == (not is_there)
            if not is_there or value is None:
                assert texts[i].as_py() is None
            elif isinstance(value, str):
                assert texts[i].as_py() == value
            else:
                assert json.loads(texts[i].as_py()) == value


@given(st.lists(OBJECTS, min_size=1, max_size=4))
def test_the_kernel_is_its_reference_implementation(records):
    data, starts, ends = lines_of(records)
    n, n_paths = len(records), len(PATHS)
    found, kinds = np.zeros(n, np.bool_), np.zeros((n_paths, n), np.uint8)
    begins, stops = np.zeros((n_paths, n), np.int64), np.zeros((n_paths, n), np.int64)
    find_values(data, starts, ends, *Names.of(PATHS), np.zeros(n_paths, np.int64), found, kinds, begins, stops)
    for i in np.flatnonzero(found):
        for p, value in enumerate(find_slowly(data[starts[i] : ends[i]].tobytes(), PATHS)):
            ours = data[begins[p, i] : stops[p, i]].tobytes() if kinds[p, i] else b""
            assert ours == (value[1:-1] if value[:1] == b'"' else value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"a": 1, "a": 2}', "2"),
        ('{"a": {"b": 1}, "a": {}}', None),
        ('{"a": {}, "a": {"b": 1}}', "1"),
        ('{"a": {"b": "x"}, "a": 3}', None),
        ('{"a": {"\\u0062": "y"}}', "y"),
        ('{"\\u0061": {"b": "z"}}', "z"),
        (' {\t"a" : {"c":[{"b":1},"}"] , "b":\r"v" } }\r', "v"),
        ('{"a": {"b": "\\ud83d\\ude00 \\n"}}', "😀 \n"),
        ('{"a": [{"b": 1}]}', None),
    ],
)
def test_what_counts_where_names_occur_twice_or_have_escapes(line, expected):
    path = ("a",) if expected == "2" else ("a", "b")
    data = np.frombuffer(line.encode(), np.uint8)
    (values,) = find_all(data, np.array([0]), np.array([data.size]), [path], Names.of([path]))
    assert texts_of(values)[0].to_pylist() == [expected]


def test_half_a_surrogate_pair_is_told():
    data = np.frombuffer(b'{"a": "x\\ud800"}', np.uint8)
    (values,) = find_all(data, np.array([0]), np.array([data.size]), [("a",)], Names.of([("a",)]))
    texts, is_broken = texts_of(values)
    assert (texts.to_pylist(), is_broken.tolist()) == ([None], [True])
