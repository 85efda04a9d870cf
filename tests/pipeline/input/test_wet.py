# SPDX-License-Identifier: Apache-2.0
"""WET: records as they are written, their places and headers, and what is rejected and why."""

import gzip
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.read_files import read
from tokenmill.pipeline.input import streams


def record(text, kind="conversion", **headers):
    block = text if isinstance(text, bytes) else text.encode()
    lines = {"WARC-Type": kind, **headers, "Content-Length": len(block)}
    return b"WARC/1.0\r\n%s\r\n%s\r\n\r\n" % ("".join(f"{k}: {v}\r\n" for k, v in lines.items()).encode(), block)


ABOUT = record("software: a\r\n\r\n", "warcinfo")


def test_records_have_their_headers_and_places(tmp_path):
    urls = ["http://a.example/ä?b=1: 2", "http://b.example"]
    texts = ["Title\nWARC/1.0\r\n\r\nno record\n\n", ""]
    pages = [
        record(
            text, **{"WARC-Target-URI": url, "WARC-Record-ID": f"\r\n <urn:{i}>", "WARC-Date": "2026-01-02T03:04:05Z"}
        )
        for i, (text, url) in enumerate(zip(texts, urls, strict=True))
    ]
    data = b"".join([ABOUT, *pages])
    path = tmp_path / "a.warc.wet"
    path.write_bytes(data)
    keep = {"WARC-Target-URI": "string", "WARC-Date": "timestamp[s]", "WARC-Identified-Content-Language": "string"}
    found = read(path, keep_fields=keep, id_field="WARC-Record-ID")
    assert [(row["doc_id"], row["text"]) for row in found.documents] == [("<urn:0>", texts[0]), ("<urn:1>", texts[1])]
    assert [row["fields"]["WARC-Target-URI"] for row in found.documents] == urls
    assert found.documents[0]["fields"]["WARC-Date"].year == 2026
    assert found.documents[0]["fields"]["WARC-Identified-Content-Language"] is None
    assert [data[row["offset"] : row["offset"] + row["n_bytes"]] for row in found.documents] == pages
    assert (found.n_bytes, found.n_skipped) == (len(data), len(ABOUT))

    path = tmp_path / "b.warc.wet.gz"  # a member for each record, as Common Crawl writes it
    path.write_bytes(b"".join(gzip.compress(each, mtime=0) for each in (ABOUT, *pages)))
    assert [row["text"] for row in read(path, keep_fields=["WARC-Target-URI"]).documents] == texts


@pytest.mark.parametrize(
    ("tail", "fault"),
    [
        (b"x" * 100, "no record begins here"),
        (b"WARC/1.0\r\nno header\r\n\r\n", "no record begins here"),
        (b"WARC/1.0\r\n" + b"a: b\r\n" * 20_000, "no record begins here"),
        (b"WARC/1.0\r\nWARC-Type: conversion\r\n\r\nabc\r\n\r\n", "the record has no Content-Length"),
        (record("abcdef").replace(b"6", b"5") + record("b"), "does not end where its Content-Length says"),
        (record("abcdef")[:-3], "the file ends inside the record"),
        (record("a" * 600)[:-300], "the file ends inside the record"),
        (b"WAR", "the file ends inside the record"),
        (record("x").replace(b"\r\n", b"\n"), "headers end with bare line feeds, where WARC has CR LF"),
        (record("x").replace(b"h: 1", b"h: -1"), "the Content-Length of the record is '-1', not a number of 1 to 15"),
        (record("x").replace(b"h: 1", b"h: " + b"9" * 16), f"Length of the record is '{'9' * 16}', not a number"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("chunk_bytes", [50, 1 << 20])
def test_what_a_damaged_file_ends_with_is_one_reject(tmp_path, tail, fault, chunk_bytes):
    path = tmp_path / "a.wet"
    path.write_bytes(record("good") + tail)
    with mock.patch.object(streams, "CHUNK_BYTES", chunk_bytes):
        found = read(path, max_document_bytes=400)
    assert found.texts == ["good"]
    assert [(row["reason"], row["n_bytes"]) for row in found.rejects] == [("corrupt_stream", len(tail))]
    assert fault in found.rejects[0]["detail"]


def test_a_file_that_is_cut_or_no_wet_is_told(tmp_path):
    whole = gzip.compress(b"".join(record(f"{i * i:x}") for i in range(100)), mtime=0)
    (tmp_path / "a.wet.gz").write_bytes(whole[:-40])
    found = read(tmp_path / "a.wet.gz")
    assert found.reasons == ["truncated_stream"]
    assert found.texts == [f"{i * i:x}" for i in range(len(found.texts))]
    (tmp_path / "b.wet").write_bytes(b"text\n")
    (tmp_path / "c.txt").write_bytes(record("a"))
    (tmp_path / "d.wet").write_bytes(record("a"))
    (tmp_path / "e.wet").write_bytes(b"")
    with pytest.raises(ValueError, match="does not begin as wet does"):
        read(tmp_path / "b.wet", format="wet")
    with pytest.raises(ValueError, match="is a web page or a crawl, not text"):
        read(tmp_path / "c.txt")
    assert read(tmp_path / "c.txt", format="wet").texts == ["a"]
    with pytest.raises(ValueError, match="header 'Content-Length' cannot be kept as int64: a header is a string"):
        read(tmp_path / "d.wet", keep_fields={"Content-Length": "int64"})
    assert read(tmp_path / "e.wet") == ([], [], 0, 0)
    (tmp_path / "f.wet").write_bytes(record("ä" * 20) + record("ä".encode("latin-1") * 20).replace(b"1.0", b"0.18"))
    for encoding in ("utf-8", "latin-1", "utf-16"):  # lengths are of bytes, so no file is decoded
        found = read(tmp_path / "f.wet", encoding=encoding)
        assert (found.texts, found.reasons) == (["ä" * 20], ["invalid_utf8"])
        assert "input.encoding" not in found.rejects[0]["detail"]


@given(
    st.lists(st.tuples(st.text(max_size=60), st.sampled_from(["conversion", "warcinfo", "metadata"])), max_size=12),
    st.integers(1, 200),
)
def test_any_texts_come_back_whatever_the_chunks(pages, chunk_bytes):
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(streams, "CHUNK_BYTES", chunk_bytes):
        path = Path(folder, "a.wet")
        path.write_bytes(b"".join(record(*page) for page in pages))
        found = read(path)
    assert found.texts == [text for text, kind in pages if kind == "conversion"]
    assert found.reasons == ["not_extracted" for _, kind in pages if kind == "metadata"]
