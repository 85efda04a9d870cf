# SPDX-License-Identifier: Apache-2.0
"""The Parquet file writer, read back by pyarrow and DuckDB; pyarrow's own writer is its reference implementation."""

import decimal
import io

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline.output.writers import parquet_format
from tokenmill.pipeline.output.writers.parquet_format import ParquetFileWriter


def list_of(type_, *, nullable=False):
    return pa.list_(pa.field("element", type_, nullable=nullable))


SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("ids", list_of(pa.int32()), nullable=False),
        pa.field("n", pa.int32(), nullable=False),
        pa.field("big", list_of(pa.int64()), nullable=False),
        pa.field("sources", list_of(pa.string(), nullable=True), nullable=False),
    ]
)


def write(groups, schema=SCHEMA, **options):
    handle = io.BytesIO()
    writer = ParquetFileWriter(handle, schema, metadata={"who": "tests 🎉"}, created_by="tests version 1", **options)
    for group in groups:
        writer.write_row_group(group)
    writer.close()
    assert not handle.closed
    return handle.getvalue()


def table(rows):
    return pa.table([pa.array([row[i] for row in rows], field.type) for i, field in enumerate(SCHEMA)], schema=SCHEMA)


def read(data):
    return pq.ParquetFile(io.BytesIO(data)).read(use_threads=False)


def twin(groups):
    handle = io.BytesIO()
    with pq.ParquetWriter(handle, groups[0].schema, store_schema=False) as writer:
        for group in groups:
            writer.write_table(group)
    return handle.getvalue()


INT32 = st.integers(-(2**31), 2**31 - 1)
# Few, many and large numbers: indices of one byte, of two, and numbers as they are.
IDS = st.one_of(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 2**20 + 5)), st.lists(INT32))
ROWS = st.lists(
    st.tuples(
        st.text(max_size=5),
        IDS,
        INT32,
        st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
        st.lists(st.none() | st.text(max_size=3), max_size=4),
    ),
    min_size=1,
    max_size=12,
)


@given(st.lists(ROWS, max_size=3), st.sampled_from(["zstd", "none"]))
def test_pyarrow_reads_what_was_written(groups, compression):
    tables = [table(rows) for rows in groups]
    data = write(tables, compression=compression)
    expected = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
    assert read(data).equals(expected)
    assert read(data).schema.equals(SCHEMA)
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [len(rows) for rows in groups]


@given(ROWS)
def test_pages_may_end_anywhere(rows):
    expected = table(rows)
    with pytest.MonkeyPatch.context() as patch:
        for name, size in (("_PAGE_ENTRIES", 3), ("_PAGE_STRINGS", 2), ("_PAGE_STRING_BYTES", 4)):
            patch.setattr(parquet_format, name, size)
        data = write([expected])
    assert read(data).equals(expected)


@given(
    st.lists(st.tuples(st.floats(width=32), st.booleans(), st.lists(st.booleans()), st.text(max_size=3)), max_size=40),
    st.integers(0, 3),
    st.integers(8, 16),
)
def test_fractions_and_bits_are_what_pyarrow_reads(rows, start, page):
    fields = [("share", pa.float32()), ("flag", pa.bool_()), ("flags", list_of(pa.bool_())), ("lang", pa.string())]
    schema = pa.schema([pa.field(name, type_, nullable=False) for name, type_ in fields])
    columns = zip(*rows, strict=True) if rows else [[]] * 4
    expected = pa.table([pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    expected = expected.slice(start)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_format, "_PAGE_ENTRIES", page)
        found = read(write([expected], schema))
    assert found.schema.equals(schema)
    assert found.drop_columns("share").equals(expected.drop_columns("share"))
    bits = [table["share"].to_numpy().view(np.uint32).tolist() for table in (found, expected)]
    assert bits[0] == bits[1]  # NaN is NaN, and -0.0 is not 0.0
    if expected.num_rows:
        theirs = pq.ParquetFile(io.BytesIO(twin([expected]))).schema
        assert pq.ParquetFile(io.BytesIO(write([expected], schema))).schema.equals(theirs)


@pytest.mark.parametrize(("n_distinct", "width"), [(1, 1), (256, 1), (257, 2), (1 << 16, 2), ((1 << 16) + 1, 4)])
def test_ids_take_as_few_bytes_as_their_dictionary_allows(n_distinct, width):
    ids = np.tile(np.arange(n_distinct, dtype=np.int32), 4 * (1 << 18) // n_distinct)
    schema = pa.schema([SCHEMA.field("ids")])
    rows = pa.ListArray.from_arrays(pa.array([0, ids.size], pa.int32()), pa.array(ids), type=SCHEMA.field("ids").type)
    data = write([pa.table([rows], schema=schema)], schema, compression="none")
    n_dictionary = 4 * n_distinct if width < 4 else 0
    assert 0 <= len(data) - width * ids.size - n_dictionary < 600
    assert read(data).column(0).chunk(0).values.to_numpy().tobytes() == ids.tobytes()


def test_other_types_and_compressions_are_refused():
    with pytest.raises(TypeError, match="not null"):
        write([], pa.schema([pa.field("x", pa.int16(), nullable=False)]))
    with pytest.raises(ValueError, match=r"\['none', 'zstd'\], found 'gzip'"):
        write([], compression="gzip")


FOREIGN = {
    "url": pa.array(["a", None, "a", "ü" * 300]),
    "at": pa.array([1, None, 3, 4], pa.timestamp("us", "UTC")),
    "tags": pa.array([["x"], [], None, [None, "y"]]),
    "deep": pa.array([{"a": {"b": [1]}}, None, {"a": None}, {"a": {"b": None}}]),
    "price": pa.array([None, decimal.Decimal("1.25"), None, None], pa.decimal128(9, 2)),
    "none": pa.array([None] * 4, pa.float64()),
    "flag": pa.array([True, None, False, True]),
}


@pytest.mark.parametrize("compression", ["zstd", "none"])
@pytest.mark.parametrize("sizes", [[], [4], [1, 0, 3]])
def test_columns_that_may_be_null_are_of_any_type(compression, sizes, tmp_path):
    whole = pa.table({"doc_id": pa.array(["a", "b", "c", "d"]), "n": pa.array([1, 2, 3, 4], pa.int32()), **FOREIGN})
    own = [pa.field("doc_id", pa.string(), nullable=False), pa.field("n", pa.int32(), nullable=False)]
    schema = pa.schema([*own, *(pa.field(name, column.type) for name, column in FOREIGN.items())])
    whole = whole.cast(schema)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    groups = [whole.slice(start, size).combine_chunks() for start, size in zip(starts, sizes, strict=True)]
    data = write(groups, schema, compression=compression)
    found = pq.ParquetFile(io.BytesIO(data))
    assert found.metadata.num_row_groups == len(sizes)
    assert found.read().cast(schema).equals(whole.slice(0, sum(sizes)))
    for group, size in enumerate(sizes):
        row_group = found.metadata.row_group(group)
        columns = [row_group.column(i) for i in range(row_group.num_columns)]
        assert row_group.num_rows == size
        assert row_group.total_byte_size == sum(column.total_uncompressed_size for column in columns)
    (tmp_path / "x.parquet").write_bytes(data)
    by_others = duckdb.sql(f"select url, tags, deep.a.b, price from '{tmp_path}/x.parquet'").fetchall()
    rows = whole.slice(0, sum(sizes)).to_pylist()
    deep = [((row["deep"] or {}).get("a") or {}).get("b") for row in rows]
    assert by_others == [(row["url"], row["tags"], b, row["price"]) for row, b in zip(rows, deep, strict=True)]
