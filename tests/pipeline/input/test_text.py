# SPDX-License-Identifier: Apache-2.0
"""Plain text: documents by line, by file and by paragraph, in any cut, against definitions of a few lines."""

import io
import itertools
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import read_files
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input import streams
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.splits import Piece

BOM = b"\xef\xbb\xbf"


def read(path, batch_bytes=1 << 22, **options):
    """Returns documents, rejects and skipped bytes of files, as Python."""
    found = read_files.read(path, batch_bytes, format="text", **options)
    assert not path.is_file() or found.n_bytes == path.stat().st_size
    assert all(row["doc_id"].endswith(f":{row['offset']}") for row in found.documents)
    return found.rows("text", "offset", "n_bytes"), found.refused(), found.n_skipped


def write(directory, data):
    path = Path(directory) / "f.txt"
    path.write_bytes(data)
    return path


def lines_of(data, offset):
    *lines, last = data.split(b"\n")
    for line in [each + b"\n" for each in lines] + ([last] if last else []):
        yield offset, line
        offset += len(line)


def without_end(record):
    return record[:-1].removesuffix(b"\r") if record.endswith(b"\n") else record


def expect(data, document, max_bytes):
    """The definitions: documents, rejects without details, and skipped bytes."""
    n_skipped = 3 if data.startswith(BOM) else 0
    records = []  # offset, bytes
    if document == "file":
        records = [(n_skipped, data[n_skipped:])]
    elif document == "line":
        for offset, line in lines_of(data[n_skipped:], n_skipped):
            if without_end(line):
                records.append((offset, line))
    else:
        is_open = False
        for offset, line in lines_of(data[n_skipped:], n_skipped):
            if not line.strip(b" \t\r\n"):
                is_open = False
            elif is_open:
                records[-1] = (records[-1][0], records[-1][1] + line)
            else:
                records.append((offset, line))
                is_open = True
    documents, rejects = [], []
    for offset, record in records:
        content = record if document == "file" else without_end(record)
        if len(record) > max_bytes:
            rejects.append((offset, len(record), "too_large", content[:1024]))
            continue
        try:
            documents.append((content.decode("utf-8").lstrip("\ufeff"), offset, len(record)))
        except UnicodeDecodeError:
            rejects.append((offset, len(record), "invalid_utf8", content[:1024]))
    return documents, rejects, len(data) - sum(len(record) for _, record in records)


pieces_of_text = st.sampled_from(
    [
        b"a", b"bc", "é日".encode(), b"\xff", b"\xe6\x97", b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b" ", b"\t", b"\r",
        BOM, b"x" * 40, b" " * 40, b"\n \t\r\n",
    ]
)  # fmt: skip


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(pieces_of_text, max_size=25),
    document=st.sampled_from(["line", "blank_line", "blank_line", "file"]),
    split_bytes=st.integers(1, 60),
    batch_bytes=st.one_of(st.integers(1, 80), st.just(1 << 22)),
    max_bytes=st.one_of(st.integers(1, 50), st.just(1 << 26)),
    chunk_bytes=st.one_of(st.integers(1, 30), st.just(1 << 20)),
)
def test_any_cut_gives_the_documents_of_the_definition(
    tmp_path, parts, document, split_bytes, batch_bytes, max_bytes, chunk_bytes
):
    data = b"".join(parts)
    path = write(tmp_path, data)
    options = {"document": document, "max_document_bytes": max_bytes}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "CHUNK_BYTES", chunk_bytes)
        patch.setattr(streams, "_PROBE_BYTES", chunk_bytes)
        documents, rejects, n_skipped = read(path, batch_bytes, split_bytes=split_bytes, **options)
    assert (documents, [row[:3] + row[4:] for row in rejects], n_skipped) == expect(data, document, max_bytes)
    assert (documents, rejects, n_skipped) == read(path, **options)  # details, too


@pytest.mark.parametrize("document", ["line", "blank_line", "file"])
def test_a_huge_record_is_rejected_in_little_memory(tmp_path, document):
    path = tmp_path / "f.txt"
    n_long = 256 << 20
    with path.open("wb") as file:
        file.write(b"a\n\n")
        file.truncate(3 + n_long)  # a hole, read as NUL bytes
        file.seek(0, 2)
        file.write(b"\n\nb")
    tracemalloc.start()
    documents, rejects, _ = read(path, document=document, max_document_bytes=1 << 20, split_bytes=1 << 40)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    if document == "file":
        assert (documents, rejects[0][:3]) == ([], (0, n_long + 6, "too_large"))
    else:
        assert [row[0] for row in documents] == ["a", "b"]
        assert rejects[0][:3] == (3, n_long + 1, "too_large")
    assert peak < 40 << 20


def of_no_version(split):
    """As on a store, which is not asked whether a file has changed."""
    return replace(split, pieces=tuple(replace(piece, version="") for piece in split.pieces))


def test_a_file_that_shrank_since_the_plan_is_an_error(tmp_path):
    path = write(tmp_path, b"one\ntwo\nthree\n" * 100)
    for document in ("line", "blank_line", "file"):
        config = InputConfig(paths=[str(path)], split_bytes=400, document=document)
        path.write_bytes(b"one\ntwo\nthree\n" * 100)
        splits = [of_no_version(split) for split in plan_splits(config, "")]
        path.write_bytes(b"one\n" * 90)
        batches = itertools.chain.from_iterable(read_split(split, config) for split in splits)
        with pytest.raises(OSError, match="but had 1400 when the job was planned"):
            list(batches)


def test_paragraph_boundaries_of_every_short_text(monkeypatch):
    for text in itertools.product(b"a \n", repeat=7):
        data = bytes(text)
        lines = list(lines_of(data, 0))
        is_blank = [not line.strip() for _, line in lines]
        starts = [lines[i][0] for i in range(len(lines)) if i == 0 or is_blank[i] or is_blank[i - 1]]
        piece = Piece("f", "f", 7, "", "text", "none", 0, 7)
        for probe_bytes in (1, 2, 100):
            monkeypatch.setattr(streams, "_PROBE_BYTES", probe_bytes)
            for position, end in itertools.combinations_with_replacement(range(8), 2):
                found = streams._paragraph_boundary(io.BytesIO(data), piece, position, end)
                assert found == min([start for start in starts if position <= start < end], default=end)
