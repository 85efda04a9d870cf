# SPDX-License-Identifier: Apache-2.0
"""The one loop that cuts streams of all formats: its records do not depend on chunks, blocks, or what is kept."""

import io
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input import cutting, streams
from tokenmill.pipeline.input.readers import STREAM_READERS
from tokenmill.pipeline.splits import Piece

PARTS = {
    "jsonl": [b'{"a":1}', b"\n", b"\r\n", b" " * 9, b"x" * 30, b"\xef\xbb\xbf"],
    "json": [b"[", b'{"a":\n"]"}', b",", b" " * 9, b"]", b'"', b"x" * 30, b"\\"],
    "csv": [b"a,b", b"\n", b"\r\n", b"\r", b'"', b'"x\ny"', b",", b"x" * 30, b"\xef\xbb\xbf"],
    "text": [b"a", b"\n", b"\r\n", b" \t", b" " * 9, b"x" * 30],
    "wet": [b"WARC/1.0\r\nContent-Length: 3\r\n\r\nabc\r\n\r\n", b"WARC/1.0\r\n", b"a: b\r\n", b"\r\n", b"x" * 30],
}


def cut(format_, data, document, max_bytes, block_bytes, chunk_bytes):
    """Returns the places of records, and what is lost, and checks that no byte is passed over."""
    config = InputConfig(paths=["x"], document=document, max_document_bytes=max_bytes)
    piece = Piece("x", "x", len(data), "", format_, "none", 0, len(data))
    found, lost, at = [], [], 0
    with (
        mock.patch.object(streams, "CHUNK_BYTES", chunk_bytes),
        mock.patch.object(cutting, "CHUNK_BYTES", chunk_bytes),
        mock.patch.object(cutting, "HEAD_BYTES", 1),
    ):
        stream = streams.Stream(io.BytesIO(data), piece)
        at = stream.offset
        for item in cutting.cut(stream, STREAM_READERS[format_](config).scanner(), block_bytes, max_bytes):
            assert item.offset == at
            if isinstance(item, cutting.Lost):
                at += item.n_bytes
                lost += [(item.offset, item.n_bytes, item.reason, item.detail)] if item.reason else []
                continue
            at += len(item.data)
            assert item.starts.size <= 1 or item.nexts[-1] <= block_bytes
            for start, end, stop, fact in zip(item.starts, item.ends, item.nexts, item.facts, strict=True):
                place = item.offset + int(start), item.offset + int(end), item.offset + int(stop), int(fact)
                assert item.data[start:stop].replace(b" ", b"\n") == data[place[0] : place[2]].replace(b" ", b"\n")
                found.append(place)
    assert at == len(data)
    return found, lost


@pytest.mark.parametrize(
    ("format_", "document"), [*((each, "line") for each in PARTS), ("text", "blank_line"), ("text", "file")]
)
@given(data=st.data(), chunk_bytes=st.integers(1, 20), block_bytes=st.integers(1, 60), limit=st.integers(1, 40))
def test_records_do_not_depend_on_chunks_and_blocks(format_, document, data, chunk_bytes, block_bytes, limit):
    content = b"".join(data.draw(st.lists(st.sampled_from(PARTS[format_]), max_size=20)))
    whole, lost = cut(format_, content, document, 1 << 20, 1 << 20, 1 << 20)
    assert cut(format_, content, document, 1 << 20, block_bytes, chunk_bytes) == (whole, lost)
    short, too_long = cut(format_, content, document, limit, block_bytes, chunk_bytes)
    assert {each for each in whole if each[2] - each[0] <= limit} <= {*short}
    if format_ != "csv":  # where what is too long is told from a stray quote
        places = {(start, stop - start) for start, _, stop, _ in whole} | {each[:2] for each in lost}
        assert {each[:2] for each in too_long} <= places


def test_a_record_with_much_white_space_behind_it_is_not_too_long():
    data = b'[{"a": 1}' + b" " * 500 + b', {"a": 2}]'
    assert cut("json", data, "line", 20, 1 << 20, 50) == ([(1, 9, 9, 0), (511, 519, 519, 0)], [])
    data = b"a\n" + b" " * 500 + b"\nb"
    assert cut("text", data, "blank_line", 20, 1 << 20, 50) == ([(0, 1, 2, 0), (503, 504, 504, 0)], [])
