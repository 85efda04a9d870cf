# SPDX-License-Identifier: Apache-2.0
"""Columns in a file, from which any range of rows can be read without reading the rest.

Arrow's own files are read a record batch at a time, but a merge of many sorted runs needs a few rows of each. A column
is stored as its buffers are in memory, one after another. For each of its levels, from the outside in:

- where values may be null: uint8[n], 1 for a value;
- of lists and strings: int64[n + 1], where each begins in the next level, from 0;
- of numbers, times and other values of a fixed size: the values; of truth values uint8, 1 for true;
- of structs: the levels of each field, one after another, a value for every row.

Everything is little-endian. The file has no index: the caller keeps the positions of the buffers.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

ReadAt = Callable[[int, int], bytes]
"""Returns the bytes of a file: from a position on, how many."""


def write_columns(file: Any, columns: Sequence[pa.Array], schema: pa.Schema) -> tuple[int, ...]:
    """Appends columns of one length to a file.

    Args:
      file: open for writing, with `tell`.
      columns: columns of any type except dictionaries, views, maps, unions and lists of a fixed size.
      schema: the schema of the columns.

    Returns:
      Where each buffer begins, for `read_columns`.
    """
    positions: list[int] = []
    for field, column in zip(schema, columns, strict=True):
        for buffer in _buffers(column, field):
            positions.append(file.tell())
            file.write(np.ascontiguousarray(buffer).view(np.uint8))
    return tuple(positions)


def read_columns(read: ReadAt, positions: Sequence[int], schema: pa.Schema, start: int, stop: int) -> pa.RecordBatch:
    """Returns rows `start` to `stop` of columns; reads only their values and two offsets for each level of lists.

    Args:
      read: reads bytes of the file.
      positions: as `write_columns` returned them.
      schema: the schema of the columns.
      start: the first row.
      stop: the row after the last; at most the number of rows.

    Raises:
      ValueError: if the file does not hold such columns there.
    """
    remaining = iter(positions)
    columns = [_read(read, remaining, field, start, stop) for field in schema]
    batch = pa.record_batch(columns, schema=schema)
    batch.validate()
    return batch


def read_numbers(read: ReadAt, position: int, dtype: Any, start: int, stop: int) -> np.ndarray:
    """Returns values `start` to `stop` of a buffer of numbers that begins at `position`."""
    dtype = np.dtype(dtype)
    data = read(position + start * dtype.itemsize, (stop - start) * dtype.itemsize)
    if len(data) != (stop - start) * dtype.itemsize:
        raise ValueError(f"{len(data)} bytes from {position + start * dtype.itemsize} on: the file is cut off")
    return np.frombuffer(data, dtype)


def row_bytes(batch: pa.RecordBatch) -> np.ndarray:
    """Returns int64[n], how many bytes each row takes in a file of columns."""
    total = np.zeros(batch.num_rows, np.int64)
    for field, column in zip(batch.schema, batch.columns, strict=True):
        total += _sizes(column, field)
    return total


def stretches(sizes: np.ndarray, limit: int, most: int = 1 << 62) -> Iterator[tuple[int, int]]:
    """Yields neighbouring rows, from the first to behind the last, whose sizes add up to at most `limit`.

    A row that alone is larger comes alone.

    Args:
      sizes: int64[n], none negative.
      limit: the largest sum.
      most: the most rows.
    """
    ends = np.cumsum(sizes)
    start = 0
    while start < ends.size:
        had = int(ends[start - 1]) if start else 0
        stop = max(start + 1, min(start + most, int(np.searchsorted(ends, had + limit, side="right"))))
        yield start, stop
        start = stop


@functools.cache
def numpy_dtype(type_: pa.DataType) -> np.dtype:
    """Returns the NumPy dtype of numbers of an Arrow type; `to_pandas_dtype` would too, but needs pandas."""
    return pa.array([], type_).to_numpy().dtype


@functools.cache
def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def element_of(type_: pa.DataType) -> pa.Field | None:
    """Returns the field of the elements of a list or string type; None for any other type."""
    return _element(type_) if _is_list(type_) or _is_bytes(type_) else None


@functools.cache
def _element(type_: pa.DataType) -> pa.Field:
    return type_.value_field if _is_list(type_) else pa.field("byte", pa.uint8(), nullable=False)


@functools.cache
def _is_bytes(type_: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(type_) for test in tests)


def children(array: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Returns (offsets int64[n + 1], the values that they point into) of lists or strings."""
    if _is_list(array.type):
        return array.offsets.to_numpy(zero_copy_only=False).astype(np.int64), array.values
    is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(len(array) + 1, np.int64), pa.array([], pa.uint8())
    numbers = np.frombuffer(offsets, np.int64 if is_large else np.int32)[array.offset : array.offset + len(array) + 1]
    values = pa.array(np.frombuffer(data, np.uint8)) if data is not None else pa.array([], pa.uint8())
    return numbers.astype(np.int64), values


def _buffers(array: pa.Array, field: pa.Field) -> Iterator[np.ndarray]:
    if field.nullable:
        yield array.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
    elif array.null_count:
        raise ValueError(f"column {field.name!r} must not hold nulls")
    if pa.types.is_struct(field.type):
        for i, child in enumerate(field.type):
            yield from _buffers(array.field(i), child)
        return
    if _is_opaque(field.type):
        yield _opaque_values(array)
        return
    if not _is_list(field.type) and not _is_bytes(field.type):
        values = array.fill_null(False if pa.types.is_boolean(field.type) else 0) if array.null_count else array
        yield values.to_numpy(zero_copy_only=False)
        return
    offsets, values = children(array)
    yield offsets - offsets[0]
    yield from _buffers(values.slice(offsets[0], offsets[-1] - offsets[0]), _element(field.type))


def _read(read: ReadAt, positions: Iterator[int], field: pa.Field, start: int, stop: int) -> pa.Array:
    validity = None
    if field.nullable:
        is_valid = read_numbers(read, next(positions), np.uint8, start, stop).astype(np.bool_)
        validity = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    n = stop - start
    if pa.types.is_boolean(field.type):
        is_true = read_numbers(read, next(positions), np.uint8, start, stop).astype(np.bool_)
        return pa.Array.from_buffers(field.type, n, [validity, pa.py_buffer(np.packbits(is_true, bitorder="little"))])
    if pa.types.is_struct(field.type):
        parts = [_read(read, positions, child, start, stop) for child in field.type]
        return pa.Array.from_buffers(field.type, n, [validity], children=parts)
    if _is_opaque(field.type):
        width = field.type.bit_width // 8
        data = read_numbers(read, next(positions), np.dtype(f"V{width}"), start, stop)
        return pa.Array.from_buffers(field.type, n, [validity, pa.py_buffer(data)])
    if not _is_list(field.type) and not _is_bytes(field.type):
        values = read_numbers(read, next(positions), numpy_dtype(field.type), start, stop)
        return pa.Array.from_buffers(field.type, n, [validity, pa.py_buffer(values)])
    offsets = read_numbers(read, next(positions), np.int64, start, stop + 1)
    if offsets[0] < 0 or (np.diff(offsets) < 0).any():
        raise ValueError(f"column {field.name!r}: rows {start} to {stop} do not begin in order")
    child = _read(read, positions, _element(field.type), int(offsets[0]), int(offsets[-1]))
    is_narrow = field.type in (pa.string(), pa.binary()) or pa.types.is_list(field.type)
    relative = pa.py_buffer((offsets - offsets[0]).astype(np.int32 if is_narrow else np.int64))
    if _is_list(field.type):
        return pa.Array.from_buffers(field.type, n, [validity, relative], children=[child])
    return pa.Array.from_buffers(field.type, n, [validity, relative, child.buffers()[1]])


@functools.cache
def _is_opaque(type_: pa.DataType) -> bool:
    """Returns whether values have a fixed size, but are not numbers to NumPy: times, decimals, bytes."""
    types = pa.types
    tests = (types.is_temporal, types.is_decimal, types.is_fixed_size_binary, types.is_float16)
    return any(test(type_) for test in tests)


def _opaque_values(array: pa.Array) -> np.ndarray:
    """Returns the bytes of values of a fixed size; zeros where there is none."""
    width = array.type.bit_width // 8
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array) * width, np.uint8)
    values = np.frombuffer(data, np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    values = values.reshape(len(array), width).copy()
    if array.null_count:
        values[~array.is_valid().to_numpy(zero_copy_only=False)] = 0
    return values.reshape(-1)


def _sizes(array: pa.Array, field: pa.Field) -> np.ndarray:
    width = _width(field)
    if width is not None:
        return np.full(len(array), width, np.int64)
    if pa.types.is_struct(field.type):
        total = np.full(len(array), int(field.nullable), np.int64)
        for i, child in enumerate(field.type):
            total += _sizes(array.field(i), child)
        return total
    n_own, element = int(field.nullable) + 8, _element(field.type)
    offsets, values = children(array)
    width = _width(element)
    if width is not None:  # most bytes of a file are such values, and need not be read
        return np.diff(offsets) * width + n_own
    values = values.slice(offsets[0], offsets[-1] - offsets[0])
    ends = np.cumsum(_sizes(values, element))
    return np.diff(np.concatenate([np.zeros(1, np.int64), ends])[offsets - offsets[0]]) + n_own


def _width(field: pa.Field) -> int | None:
    """Returns the bytes of each value; None where they are not all of one size."""
    if _is_list(field.type) or _is_bytes(field.type) or pa.types.is_struct(field.type):
        return None
    return int(field.nullable) + max(1, int(field.type.bit_width) // 8)
