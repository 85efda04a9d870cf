# SPDX-License-Identifier: Apache-2.0
"""A writer of Parquet files, one row group at a time, which is as fast as the compression of token columns.

pyarrow's writer takes a third of the time of a whole job: for each token it makes two levels of two bytes, and its
dictionaries come from a hash table. Here the levels of lists are runs, and integers are indices into a dictionary of
the values of the row group, the most frequent first. "Bit-packed" indices of 16 bits are simply little-endian `uint16`:
zstd has half as much to read, and compresses it to fewer bytes. Every Parquet reader knows these encodings.

Source: `src/main/thrift/parquet.thrift`, `Encodings.md` and `LogicalTypes.md` of the Apache Parquet format.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.pipeline.books.sums_kernels import copy_rows
from tokenmill.pipeline.output.writers.base import scatter
from tokenmill.pipeline.output.writers.parquet_kernels import (
    MAX_LEVEL_BYTES,
    count_values,
    list_levels,
    map_values,
)
from tokenmill.pipeline.output.writers.thrift import BINARY, I32, I64, LIST, STRUCT, Fields, encode, read_struct, varint

_MAGIC = b"PAR1"
_PAGE_ENTRIES = 1 << 19
"""The most entries of a page: a megabyte as indices of 16 bits."""
_PAGE_STRINGS = 1 << 15
_PAGE_STRING_BYTES = 1 << 20
_MAX_DICTIONARY_VALUE = 1 << 20
"""Larger numbers are stored as they are, because the counting table has an entry for every number up to the largest."""

_BOOLEAN, _INT32, _INT64, _FLOAT, _BYTE_ARRAY = 0, 1, 2, 4, 6
_PLAIN, _RLE, _RLE_DICTIONARY = 0, 3, 8
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_UTF8, _LIST = 0, 3
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_CODECS = {"none": 0, "zstd": 6}
_PHYSICAL = {
    pa.bool_(): _BOOLEAN,
    pa.int32(): _INT32,
    pa.int64(): _INT64,
    pa.float32(): _FLOAT,
    pa.string(): _BYTE_ARRAY,
}
_ELEMENTS, _GROUPS, _CHUNKS, _METADATA, _TOTAL_BYTES = 2, 4, 1, 3, 6
_OFFSETS = (9, 10, 11)
"""Numbers of fields of a footer; the last are where the data, the index and the dictionary of a column begin."""


@dataclass
class _Chunk:
    """What the footer says about one column of one row group."""

    offset: int
    dictionary_offset: int | None = None
    data_offset: int = 0
    n_values: int = 0
    n_bytes: int = 0
    n_compressed: int = 0
    statistics: Fields | None = None


class ParquetFileWriter:
    """Writes columns of `int32`, `int64`, `float`, `bool` and `string`, and of lists of these, none of them null.

    Only strings in lists may be null. Columns that may be null come last and have any type: their pages are made by
    Arrow's writer.
    """

    def __init__(
        self,
        handle: BinaryIO,
        schema: pa.Schema,
        *,
        compression: str = "zstd",
        metadata: Mapping[str, str],
        created_by: str,
    ) -> None:
        """Starts a file.

        Args:
          handle: open for writing, at its start; stays open.
          schema: the schema of the tables.
          compression: "zstd" (level 1) or "none".
          metadata: keys and values of the footer.
          created_by: the writer that the footer names: application, the word "version", its version.

        Raises:
          TypeError: for a type that this writer does not support.
          ValueError: for another compression.
        """
        if compression not in _CODECS:
            raise ValueError(f"compression of Parquet shards must be one of {sorted(_CODECS)}, found {compression!r}")
        self._foreign = _ForeignColumns([field for field in schema if field.nullable], compression)
        for field in schema:
            if not field.nullable:
                _check_type(field)
        self._handle = handle
        self._schema = schema
        self._compression = compression
        self._codec = pa.Codec("zstd", compression_level=1) if compression == "zstd" else None
        self._metadata = metadata
        self._created_by = created_by
        self._n_written = 0
        self._n_rows = 0
        self._groups: list[Fields] = []
        self._put(_MAGIC)

    def write_row_group(self, table: pa.Table) -> None:
        """Writes the rows of `table`, which has the schema of the file, as one row group.

        Raises:
          TypeError: if it has another schema.
        """
        if not table.schema.equals(self._schema):
            raise TypeError(f"a row group must have the columns {self._schema}, got {table.schema}")
        start = self._n_written
        own = [field for field in self._schema if not field.nullable]
        chunks = [self._write_column(table.column(i)) for i in range(len(own))]
        columns = [
            {2: (I64, chunk.offset), 3: (STRUCT, self._describe_chunk(field, chunk))}
            for field, chunk in zip(own, chunks, strict=True)
        ]
        foreign, data, n_foreign = self._foreign.write(table, self._n_written)
        self._put(data)
        columns += foreign
        self._groups.append(
            {
                1: (LIST, (STRUCT, columns)),
                2: (I64, sum(chunk.n_bytes for chunk in chunks) + n_foreign),
                3: (I64, table.num_rows),
                5: (I64, start),
                6: (I64, self._n_written - start),
            }
        )
        self._n_rows += table.num_rows

    def close(self) -> None:
        """Writes the footer; leaves the handle open."""
        n_leaves = len(self._schema) - self._foreign.n_fields + self._foreign.n_leaves
        ordered_by_type: Fields = {1: (STRUCT, {})}
        footer = encode(
            {
                1: (I32, 2),
                2: (LIST, (STRUCT, [*_describe_schema(self._schema), *self._foreign.described])),
                3: (I64, self._n_rows),
                4: (LIST, (STRUCT, self._groups)),
                5: (LIST, (STRUCT, [{1: (BINARY, key), 2: (BINARY, each)} for key, each in self._metadata.items()])),
                6: (BINARY, self._created_by),
                7: (LIST, (STRUCT, [ordered_by_type] * n_leaves)),
            }
        )
        self._put(footer + len(footer).to_bytes(4, "little") + _MAGIC)

    def _write_column(self, column: pa.ChunkedArray) -> _Chunk:
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        chunk = _Chunk(self._n_written)
        is_list = pa.types.is_list(array.type)
        offsets, elements = _elements(array) if is_list else (None, array)
        if pa.types.is_string(elements.type):
            valid = elements.is_valid().to_numpy(zero_copy_only=False) if elements.null_count else None
            values: _Values = _Strings(elements.drop_null() if valid is not None else elements)
        elif pa.types.is_boolean(elements.type):
            valid, values = None, _Bits(elements)
        else:
            valid, values = None, _Numbers(elements.to_numpy())
            if not is_list:
                chunk.statistics = values.statistics()
        if values.dictionary is not None:
            chunk.dictionary_offset = self._n_written
            header = {1: (I32, values.dictionary.size), 2: (I32, _PLAIN)}
            self._write_page(chunk, _DICTIONARY_PAGE, 7, header, [values.dictionary.tobytes()])
        chunk.data_offset = self._n_written
        start = 0
        for n_entries, n_values, levels in _pages(array, offsets, valid, values):
            header = {1: (I32, n_entries), 2: (I32, values.encoding), 3: (I32, _RLE), 4: (I32, _RLE)}
            self._write_page(chunk, _DATA_PAGE, 5, header, [*levels, *values.encode(start, start + n_values)])
            chunk.n_values += n_entries
            start += n_values
        return chunk

    def _write_page(self, chunk: _Chunk, kind: int, number: int, header: Fields, parts: list[Any]) -> None:
        body = b"".join(parts)
        data = body if self._codec is None else self._codec.compress(body, asbytes=True)
        described = encode({1: (I32, kind), 2: (I32, len(body)), 3: (I32, len(data)), number: (STRUCT, header)})
        self._put(described)
        self._put(data)
        chunk.n_bytes += len(described) + len(body)
        chunk.n_compressed += len(described) + len(data)

    def _describe_chunk(self, field: pa.Field, chunk: _Chunk) -> Fields:
        is_list = pa.types.is_list(field.type)
        encodings = [_PLAIN, _RLE] if chunk.dictionary_offset is None else [_PLAIN, _RLE, _RLE_DICTIONARY]
        described: Fields = {
            1: (I32, _PHYSICAL[field.type.value_type if is_list else field.type]),
            2: (LIST, (I32, encodings)),
            3: (LIST, (BINARY, [field.name, "list", "element"] if is_list else [field.name])),
            4: (I32, _CODECS[self._compression]),
            5: (I64, chunk.n_values),
            6: (I64, chunk.n_bytes),
            7: (I64, chunk.n_compressed),
            9: (I64, chunk.data_offset),
        }
        if chunk.dictionary_offset is not None:
            described[11] = I64, chunk.dictionary_offset
        if chunk.statistics is not None:
            described[12] = STRUCT, chunk.statistics
        return described

    def _put(self, data: bytes) -> None:
        self._handle.write(data)
        self._n_written += len(data)


class _Numbers:
    """Numbers of one column and row group: indices into their dictionary where that is smaller, else as they are."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values
        is_whole = values.size and values.dtype != np.float32
        self._range = (int(values.min()), int(values.max())) if is_whole else None
        self._indices: np.ndarray | None = None
        self.dictionary: np.ndarray | None = None
        if self._range is not None and values.dtype == np.int32:
            self._index(*self._range)

    @property
    def encoding(self) -> int:
        return _PLAIN if self.dictionary is None else _RLE_DICTIONARY

    def statistics(self) -> Fields | None:
        """Returns the smallest and the largest number; None if there are none, and for floats."""
        if self._range is None:
            return None
        low, high = (np.array(value, self._values.dtype).tobytes() for value in self._range)
        return {3: (I64, 0), 5: (BINARY, high), 6: (BINARY, low)}

    def encode(self, start: int, stop: int) -> list[Any]:
        values = self._values[start:stop]
        if self._indices is None:
            return [values.tobytes()]
        # One run of whole groups of eight; a reader takes as many of them as the page has values.
        n_groups = -(-values.size // 8)
        dtype = np.uint8 if self._indices.dtype == np.uint8 else np.uint16
        indices = np.zeros(n_groups * 8, dtype)
        map_values(values, self._indices, indices[: values.size])
        return [bytes([8 * dtype().itemsize]), varint(n_groups << 1 | 1), indices]

    def _index(self, low: int, high: int) -> None:
        if low < 0 or high >= _MAX_DICTIONARY_VALUE:
            return
        counts = np.zeros((2, high + 1), np.int64)
        count_values(self._values, counts)
        total = counts.sum(axis=0)
        used = np.flatnonzero(total)
        if used.size > 1 << 16:
            return
        dtype = np.uint8 if used.size <= 1 << 8 else np.uint16
        if 4 * used.size + dtype().itemsize * self._values.size >= 4 * self._values.size:
            return
        # The most frequent first, so that most high bytes are zero; among equals the lower number first.
        self.dictionary = used[np.argsort(-total[used], kind="stable")].astype(np.int32)
        self._indices = np.zeros(high + 1, dtype)
        self._indices[self.dictionary] = np.arange(self.dictionary.size, dtype=dtype)


class _Bits:
    """Booleans of one column and row group, a bit each."""

    dictionary = None
    encoding = _PLAIN

    def __init__(self, values: pa.BooleanArray) -> None:
        self._values = values.to_numpy(zero_copy_only=False)

    def encode(self, start: int, stop: int) -> list[Any]:
        return [np.packbits(self._values[start:stop], bitorder="little")]


class _Strings:
    """Strings of one column and row group, each after its length."""

    dictionary = None
    encoding = _PLAIN

    def __init__(self, values: pa.StringArray) -> None:
        _, offsets, data = values.buffers()
        self.offsets = np.frombuffer(offsets or b"\0\0\0\0", np.int32)[values.offset :][: len(values) + 1]
        self._data = np.frombuffer(data or b"", np.uint8)

    def encode(self, start: int, stop: int) -> list[Any]:
        offsets = self.offsets[start : stop + 1].astype(np.int64)
        sizes = np.diff(offsets)
        ends = np.cumsum(sizes + 4)
        out = np.empty(int(ends[-1]) if ends.size else 0, np.uint8)
        scatter(out, ends - sizes - 4, sizes.astype("<u4"))
        copy_rows(self._data, offsets[:-1], offsets[1:], ends - sizes, out)
        return [out]


_Values = _Strings | _Numbers | _Bits


def _pages(
    array: pa.Array, offsets: np.ndarray | None, valid: np.ndarray | None, values: _Values
) -> Iterator[tuple[int, int, list[bytes]]]:
    """Yields for each page: how many entries it has, how many of them are values, and its encoded levels."""
    if offsets is None:
        for start, stop in _flat_pages(len(array), values):
            yield stop - start, stop - start, []
        return
    max_entries = min(_PAGE_STRINGS if isinstance(values, _Strings) else _PAGE_ENTRIES, len(array) + int(offsets[-1]))
    repetition, definition = (np.empty(MAX_LEVEL_BYTES * max_entries, np.uint8) for _ in range(2))
    state = np.zeros(2, np.int64)
    nullable = np.zeros(0, np.uint8) if not array.type.value_field.nullable else _as_bytes(valid, int(offsets[-1]))
    while state[0] < len(array):
        n_entries, n_values, *sizes = list_levels(offsets, nullable, state, max_entries, repetition, definition)
        levels = []
        for encoded, size in zip((repetition, definition), sizes, strict=True):
            levels += [size.to_bytes(4, "little"), encoded[:size].tobytes()]
        yield n_entries, n_values, levels


def _flat_pages(n_rows: int, values: _Values) -> Iterator[tuple[int, int]]:
    start = 0
    while start < n_rows:
        stop = min(n_rows, start + _PAGE_ENTRIES)
        if isinstance(values, _Strings):
            ends = values.offsets[start + 1 : min(n_rows, start + _PAGE_STRINGS) + 1]
            stop = start + max(1, int(np.searchsorted(ends, int(values.offsets[start]) + _PAGE_STRING_BYTES, "right")))
        yield start, stop
        start = stop


def _elements(lists: pa.ListArray) -> tuple[np.ndarray, pa.Array]:
    """Returns where each list begins, int64[n + 1] from 0, and the elements of all of them."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0], lists.values.slice(offsets[0], offsets[-1] - offsets[0])


def _as_bytes(valid: np.ndarray | None, size: int) -> np.ndarray:
    return np.ones(size, np.uint8) if valid is None else valid.astype(np.uint8)


def _check_type(field: pa.Field) -> None:
    is_list = pa.types.is_list(field.type)
    leaf = field.type.value_type if is_list else field.type
    may_be_null = is_list and pa.types.is_string(leaf)
    if leaf not in _PHYSICAL or field.nullable or (is_list and field.type.value_field.nullable and not may_be_null):
        raise TypeError(
            f"Parquet shards have no columns as {field}: int32, int64, float, bool, string or lists of these, not null"
        )


def _describe_schema(schema: pa.Schema) -> list[Fields]:
    described: list[Fields] = [{4: (BINARY, "schema"), 5: (I32, len(schema))}]
    for field in schema:
        if field.nullable:
            continue
        if pa.types.is_list(field.type):
            logical: Fields = {3: (STRUCT, {})}
            described += [
                {3: (I32, _REQUIRED), 4: (BINARY, field.name), 5: (I32, 1), 6: (I32, _LIST), 10: (STRUCT, logical)},
                {3: (I32, _REPEATED), 4: (BINARY, "list"), 5: (I32, 1)},
                _describe_leaf("element", field.type.value_type, field.type.value_field.nullable),
            ]
        else:
            described.append(_describe_leaf(field.name, field.type, field.nullable))
    return described


def _describe_leaf(name: str, type_: pa.DataType, nullable: bool) -> Fields:
    repetition = _OPTIONAL if nullable else _REQUIRED
    leaf: Fields = {1: (I32, _PHYSICAL[type_]), 3: (I32, repetition), 4: (BINARY, name)}
    if pa.types.is_string(type_):
        leaf |= {6: (I32, _UTF8), 10: (STRUCT, {1: (STRUCT, {})})}
    return leaf


class _ForeignColumns:
    """Columns of any type: Arrow writes them into a file in memory, whose pages are copied, a row group at a time.

    The pages of a column do not refer to the rest of a file. Only their positions, which are in the footer, must be
    changed.
    """

    def __init__(self, fields: Sequence[pa.Field], compression: str) -> None:
        self.n_fields = self.n_leaves = 0
        self.described: list[Fields] = []
        """The columns as elements of a Parquet schema."""
        self._schema = pa.schema(fields)
        self._compression = compression
        if fields:
            footer, _ = self._write(self._schema.empty_table())
            elements = _structs(footer, _ELEMENTS)
            self.described = elements[1:]
            self.n_fields = len(fields)
            self.n_leaves = sum(1 for element in elements[1:] if 1 in element)  # with a physical type

    def write(self, table: pa.Table, position: int) -> tuple[list[Fields], bytes, int]:
        """Returns the metadata of the columns for a row group, their pages, and the bytes of these before compression.

        Args:
          table: the row group; has the columns, and may have others.
          position: where in the file the pages will begin.
        """
        if not self.n_fields:
            return [], b"", 0
        footer, data = self._write(table.select(self._schema.names))
        groups = _structs(footer, _GROUPS)
        chunks = _structs(groups[0], _CHUNKS)
        n_bytes = 0
        for chunk in chunks:
            metadata = chunk[_METADATA][1]
            n_bytes += metadata[_TOTAL_BYTES][1]
            for number in _OFFSETS:
                if number in metadata:
                    kind, offset = metadata[number]
                    metadata[number] = kind, offset + position - len(_MAGIC)
            # Where the column begins; Arrow says nothing there.
            chunk[2] = chunk[2][0], min(metadata[number][1] for number in _OFFSETS if number in metadata)
        return chunks, data, n_bytes

    def _write(self, table: pa.Table) -> tuple[Fields, bytes]:
        sink = io.BytesIO()
        pq.write_table(
            table,
            sink,
            compression=self._compression,
            store_schema=False,
            row_group_size=max(1, table.num_rows),
            write_page_index=False,
        )
        data = sink.getvalue()
        n_footer = int.from_bytes(data[-8:-4], "little")
        footer, _ = read_struct(data, len(data) - 8 - n_footer)
        return footer, data[len(_MAGIC) : len(data) - 8 - n_footer]


def _structs(fields: Fields, number: int) -> list[Fields]:
    _, elements = fields[number][1]
    return list(elements)
