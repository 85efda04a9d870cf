# SPDX-License-Identifier: Apache-2.0
"""Values of Arrow types that neither JSON nor Python has, without the help of pandas."""

import json

import pyarrow as pa
import pytest

from tokenmill.pipeline.output.writers.json_texts import json_texts, spell_nanoseconds

NS = pa.timestamp("ns")
MOMENT = 1_700_000_000_123_456_789
SPELLED = "2023-11-14 22:13:20.123456789"


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (NS, MOMENT, SPELLED),
        (pa.timestamp("ns", "UTC"), MOMENT, f"{SPELLED}Z"),
        (pa.duration("ns"), 1500, "1500"),
        (pa.time64("ns"), 1500, "00:00:00.000001500"),
        (pa.list_(NS), [MOMENT, None], [SPELLED, None]),
        (pa.list_(NS, 1), [MOMENT], [SPELLED]),
        (pa.struct([("a", pa.large_list(NS)), ("b", pa.int8())]), {"a": [MOMENT], "b": 1}, {"a": [SPELLED], "b": 1}),
        (pa.map_(pa.string(), NS), [("k", MOMENT)], [("k", SPELLED)]),
    ],
    ids=str,
)
def test_times_of_nanoseconds_are_spelled(type_, value, expected):
    column = pa.array([value, None], type_)
    batch = pa.record_batch([column, pa.array([b"x", None])], names=["t", "b"])
    assert spell_nanoseconds(batch).to_pylist() == [{"t": expected, "b": b"x"}, {"t": None, "b": None}]
    assert [json.loads(text) for text in json_texts(column).to_pylist()] == [json.loads(json.dumps(expected)), None]


def test_other_times_are_iso_8601():
    assert json_texts(pa.array([1500], pa.timestamp("us"))).to_pylist() == ['"1970-01-01T00:00:00.001500"']
