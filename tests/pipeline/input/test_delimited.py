# SPDX-License-Identifier: Apache-2.0
"""CSV and TSV: rows as the standard library reads them, their types, and what is rejected and why."""

import contextlib
import csv
import io
import math
import tempfile
import time
import tracemalloc
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.read_files import read
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input import cutting, delimited, streams
from tokenmill.pipeline.input.splitting import plan_splits


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def reference(text, width, limit=1 << 30):
    """Returns for each row after the header what `csv` reads, or why the row is rejected.

    A row over several lines that is no row costs its first line; byte order marks in front of rows are no part of them.
    """
    lines, found, at = io.StringIO(text, newline="").readlines(), [], 1
    while at < len(lines):
        left = [lines[at].lstrip("\ufeff"), *lines[at + 1 :]]
        rows = csv.reader(left, strict=True)
        try:
            row = next(rows, [])
        except csv.Error:
            row = None
        n_bytes = len("".join(left[: rows.line_num]).encode())
        if rows.line_num > 1 and (row is None or len(row) != width or n_bytes > limit):
            found.append("too_large" if len(left[0].rstrip("\r\n").encode()) >= limit else "bad_quotes")
            at += 1
            continue
        if n_bytes > limit:
            row = "too_large"
        elif row is None:
            row = "bad_quotes"
        elif len(row) not in (0, width):
            row = "wrong_cells"
        found += [row] if row else []
        at += rows.line_num
    return found


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"id,body\n1,a\n", "has no column 'text' for input.text_field; it has 'id', 'body'; its first row must name"),
        (b"id;text\n1;a\n", "it has 'id;text'; set input.delimiter to ';'"),
        (b"text,text\n", "has 2 columns 'text'"),
        (b'"text"x,a\n', "has a header that cannot be read"),
        (b"\xff,text\n", "has a header that cannot be read: .*; set input.encoding, if it is not UTF-8"),
        (b"a" * 2000, "has a header of more than 1000 bytes"),
    ],
)
def test_a_file_without_the_columns_is_refused_before_work_begins(tmp_path, data, problem):
    (tmp_path / "a.csv").write_bytes(data)
    with pytest.raises(ValueError, match=problem), mock.patch.object(streams, "CHUNK_BYTES", 500):
        plan_splits(InputConfig(paths=[str(tmp_path / "a.csv")], max_document_bytes=1000), "")


def test_fields_are_kept_in_their_types(tmp_path):
    path = write(tmp_path / "a.csv", "text,n,when,note\na,1,2026-01-02,x\nb,,,\nc,one,2026-01-02,y\nd,4,soon,z\n")
    found = read(path, keep_fields={"n": "int64", "when": "timestamp[s]", "note": None})
    assert [(row["fields"]["n"], row["fields"]["note"]) for row in found.documents] == [(1, "x"), (None, "")]
    assert [row["detail"] for row in found.rejects] == ["column 'n' is not int64", "column 'when' is not timestamp[s]"]
    assert found.documents[1]["fields"]["when"] is None
    with pytest.raises(ValueError, match=r"'gone' of input\.keep_fields is in none of the files"):
        read(path, keep_fields=["gone"])
    with pytest.raises(ValueError, match="column 'n' cannot be kept as list"):
        read(path, keep_fields={"n": ["int64"]})


CELLS = st.sampled_from(["a", '"', '""', ",", "\n", "\r", "\r\n", "é", "\ufeff", " ", "x" * 9, '"a"', ",b\n", "\1"])


@given(
    st.lists(CELLS, max_size=30),
    st.integers(1, 40),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([9, 30, 999]),
)
def test_rows_are_those_of_the_standard_library(cells, chunk_bytes, most, width, limit):
    header = ",".join(["text", "n", "m"][:width]) + "\n"
    body = "".join(cells)
    expected = reference(header + body, width, limit)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(streams, "CHUNK_BYTES", chunk_bytes),
        mock.patch.object(cutting, "CHUNK_BYTES", chunk_bytes),
        mock.patch.object(cutting, "MOST_RECORDS", most),
        mock.patch.object(cutting, "HEAD_BYTES", 1),
        mock.patch.object(delimited, "_LEAST_QUOTED", 1),  # as `limit` says
    ):
        path = write(Path(folder, "a.csv"), header + body)
        found = read(path, max_document_bytes=limit)
    assert found.texts == [row[0] for row in expected if isinstance(row, list)]
    assert found.reasons == [row for row in expected if isinstance(row, str)]
    assert found.n_bytes == len((header + body).encode())


def test_a_stray_quote_costs_one_line(tmp_path):
    rows = [f"{n},text {n}" for n in range(1000)]
    rows[970] = '970,"text 970'
    for other in ("", '990,"quoted"', '990,",quoted"', '990,"a\nb"', '"990","c"'):
        rows[990] = other or "990,text 990"
        found = read(write(tmp_path / "a.csv", "\n".join(["id,text", *rows, ""])))
        assert len(found.documents) == 999
        assert [(row["reason"], row["sample"], row["n_bytes"]) for row in found.rejects] == [
            ("bad_quotes", b'970,"text 970', len('970,"text 970\n'))
        ]


def test_a_quote_that_is_never_closed_takes_bounded_memory(tmp_path):
    path = tmp_path / "a.csv"
    line = b"x," + b"1" * 5000 + b"\n"
    path.write_bytes(b'text,n\n"' + line * 8000)
    tracemalloc.start()
    found = read(path, max_document_bytes=1 << 20)
    assert tracemalloc.get_traced_memory()[1] < 24 << 20  # some blocks of 4 MiB
    tracemalloc.stop()
    assert found.reasons == ["bad_quotes"]
    assert "no row of 2 cells and at most 1048576 bytes comes of it" in found.rejects[0]["detail"]
    assert len(found.texts) == 7999


def test_quotes_that_close_and_open_again_in_every_line_are_read_in_linear_time(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,n,m\n" + b'b","y\n' * (1 << 19))
    start = time.process_time()
    found = read(path)
    assert time.process_time() - start < 30
    assert (found.texts, found.reasons) == ([], ["bad_quotes"] * (1 << 19))


NUMBERS = [
    "", "1", "-1", "+1", "0x1F", "00012", "1.5", ".5", "5.", "1e5", "-inf", "NaN", "nope", "TRUE", "t", " 1", "1_0",
]  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["int8", "int64", "uint16", "float", "double", "bool", "timestamp[s]", "timestamp[ns]"]
)
@given(st.lists(st.sampled_from(NUMBERS) | st.text("0123456789+-.eExXinfaT: Z", max_size=6), max_size=30))
def test_cells_of_a_type_are_those_that_arrow_takes_for_it(kind, cells):
    cells += ["2026-01-02", "2026-01-02T03:04:05Z", "20260102", "9" * 30, "1e39", "-1e400", "Infinity"]
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, "a.csv"), "text,n\n" + "".join(f"a,{cell}\n" for cell in cells))
        found = read(path, keep_fields={"n": kind})
    expected = []
    for cell in cells:
        with contextlib.suppress(pa.ArrowInvalid):
            value = pa.scalar(cell or None, pa.string()).cast(pa.type_for_alias(kind)).as_py()
            if value not in (math.inf, -math.inf) or "inf" in cell.lower():  # a number may be beyond the type
                expected.append(str(value))
    assert [str(row["fields"]["n"]) for row in found.documents] == expected
    assert found.reasons == ["bad_field"] * (len(cells) - len(expected))
