# SPDX-License-Identifier: Apache-2.0
"""Small files that are read together, against each of them read alone."""

from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline.books.counts import Accounts
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.kept_fields import encode_fields
from tokenmill.pipeline.input import reading
from tokenmill.pipeline.splits import Piece, Split

LINES = st.lists(st.sampled_from([b"one", b"\xc3\xa9 \r", b"\n", b"\n", b"\r\n", b" ", b"\xef\xbb\xbf", b"\xff"]))
RECORDS = st.lists(
    st.sampled_from(
        [b'{"text":"a","id":"x","n":1}', b'{"te\\u0078t":""}', b'{"text":"\\u00e9"}', b" ", b"\n", b"\r\n", b"\n", b"["]
    )
)


def read(folder, contents, ending, together, **options):
    """Returns documents, rejects and the counts of each file."""
    has_fields = "id_field" in options
    section = {"paths": ["x"], "max_document_bytes": 30, **options}
    config = InputConfig(sources={"s": section}) if has_fields else InputConfig(**section)
    pieces = []
    for number, data in enumerate(contents):
        path = folder / f"{number}.{ending}"
        path.write_bytes(data)
        kind, source = "text" if ending == "txt" else ending, "s" if has_fields else ""
        positions = len(data), "", kind, "none", 0, len(data)
        pieces.append(Piece(str(path), path.name, *positions, source=source))
    fields = pa.schema([("n", pa.int64()), ("source", pa.string())]) if has_fields else pa.schema([])
    split = Split(0, "", tuple(pieces), encode_fields(fields))
    accounts, documents, rejects = Accounts(len(pieces)), [], []
    with mock.patch.object(reading, "_JOINED_BYTES", 60 if together else -1):
        for batch in reading.read_split(split, config, 200):
            accounts.add(batch.pieces)
            documents += batch.documents.to_pylist()
            rejects += batch.rejects.to_pylist() if batch.rejects is not None else []
            assert batch.n_bytes == sum(counts.n_bytes for _, counts in batch.pieces)
            assert batch.n_records == sum(counts.n_records for _, counts in batch.pieces)
    return documents, rejects, accounts.finish()


@pytest.mark.parametrize("document", ["line", "blank_line", "file"])
@given(contents=st.lists(LINES.map(b"".join), max_size=8))
def test_texts_are_the_same_together_and_alone(document, contents, tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    found, expected = (read(folder, contents, "txt", each, document=document) for each in (True, False))
    assert found == expected


@pytest.mark.parametrize("options", [{}, {"id_field": "id"}])
@given(contents=st.lists(RECORDS.map(b"".join), max_size=8))
def test_records_are_the_same_together_and_alone(options, contents, tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    found, expected = (read(folder, contents, "jsonl", each, **options) for each in (True, False))
    assert found == expected
