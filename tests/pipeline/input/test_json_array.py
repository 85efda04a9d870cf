# SPDX-License-Identifier: Apache-2.0
"""JSON arrays: elements as the standard library reads them, their places, and what is rejected and why."""

import bz2
import gzip
import json
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.read_files import read
from tokenmill.pipeline.input import cutting, streams

PRETTY = json.dumps([{"text": 'a "b"\n[c', "id": 7, "z": {"text": [1]}}, {"text": "d", "n": 2}], indent=2)


def write(path, text):
    path.write_bytes(text.encode())
    return path


def test_the_content_tells_arrays_from_lines(tmp_path):
    for name, data in (("a.json", PRETTY.encode()), ("b.json.gz", gzip.compress(PRETTY.encode()))):
        (tmp_path / name).write_bytes(data)
        assert len(read(tmp_path / name).documents) == 2
    assert read(write(tmp_path / "c.json", '{"text": "a"}\n{"text": "b"}\n')).texts == ["a", "b"]
    assert read(write(tmp_path / "d.json", " [ ] \n")) == ([], [], 6, 6)
    assert read(write(tmp_path / "e.json", "")) == ([], [], 0, 0)
    assert read(write(tmp_path / "f.data", PRETTY), format="json").texts == ['a "b"\n[c', "d"]
    # A block of bz2 is longer than what is looked at of other files.
    many = json.dumps([{"text": f"{i * i:x}"} for i in range(90_000)]).encode()
    (tmp_path / "g.json.bz2").write_bytes(bz2.compress(many))
    assert len(read(tmp_path / "g.json.bz2").documents) == 90_000
    with pytest.raises(ValueError, match=r"begins as json does, but input\.format says 'jsonl'; set it to 'json'"):
        read(tmp_path / "a.json", format="jsonl")
    with pytest.raises(ValueError, match="does not begin as json does"):
        read(tmp_path / "c.json", format="json")


@pytest.mark.parametrize(
    ("data", "reason", "sample"),
    [
        ('[{"text": "a"}, {"text": "b"', "corrupt_stream", b'{"text": "b"'),
        ('[{"text": "a"}, {"text": "b', "corrupt_stream", b'{"text": "b'),
        ('[{"text": "a"},\n', "corrupt_stream", b""),
        ('[{"text": "a"}\n', "corrupt_stream", b'{"text": "a"} '),
        ('[{"text": "a"}]\n{"text": "b"} x\n', "not_json", b'{"text": "b"} x'),
    ],
)
def test_what_a_file_ends_with_is_not_lost(tmp_path, data, reason, sample):
    found = read(write(tmp_path / "a.json", data))
    assert [(row["reason"], row["sample"]) for row in found.rejects] == [(reason, sample)]
    assert found.n_bytes == len(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "a", 'b"]']), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.lists(st.dictionaries(st.just("text"), st.text(max_size=9) | JSON) | JSON, max_size=8),
    st.sampled_from([None, 0, 3]),
    st.booleans(),
    st.integers(1, 40),
    st.integers(1, 3),
)
def test_elements_are_those_of_the_standard_library(elements, indent, is_ascii, chunk_bytes, most):
    text = json.dumps(elements, indent=indent, ensure_ascii=is_ascii)
    data = text.encode("utf-8", "replace")  # half a surrogate pair is no UTF-8
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(streams, "CHUNK_BYTES", chunk_bytes),
        mock.patch.object(cutting, "MOST_RECORDS", most),
    ):
        path = Path(folder, "a.data")
        path.write_bytes(data)
        elements = json.loads(data)
        found = read(path, format="json") if elements and isinstance(elements[0], dict) else None
    if found is None:
        return
    texts = [each["text"] for each in elements if isinstance(each, dict) and isinstance(each.get("text"), str)]
    lost = found.reasons.count("lone_surrogate")
    assert len(found.texts) + lost == len(texts)
    assert lost or found.texts == texts
    assert len(found.rejects) == len(elements) - len(found.texts)
    assert found.n_bytes == len(data)


@given(st.lists(st.sampled_from(["[", "]", "{", "}", ",", '"', "\\", "\n", " ", '{"text": "a"}', "é"]), max_size=25))
def test_nothing_is_lost_of_what_is_no_json(parts):
    data = ("[{" + "".join(parts)).encode()
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(streams, "CHUNK_BYTES", 5):
        path = Path(folder, "a.json")
        path.write_bytes(data)
        found = read(path)
    assert found.n_bytes == len(data)
    places = sorted((row["offset"], row["n_bytes"]) for row in [*found.documents, *found.rejects])
    between, at = b"", 0
    for offset, n_bytes in places:
        between, at = between + data[at:offset], offset + n_bytes
    assert not (between + data[at:]).strip(b"[], \n")
