# SPDX-License-Identifier: Apache-2.0
"""What all packages need to know about columns of Arrow: their lists, how much their rows take, and opening Parquet."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def row_bytes(batch: pa.RecordBatch) -> np.ndarray:
    """Returns int64[n], how many bytes each row takes as columns of values and offsets.

    A value of a fixed size takes its bytes, at least one, a list or a string 8 more than its elements, and where a
    value may be null it takes a byte to say so.
    """
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
    return pa.array([], type_).to_numpy(zero_copy_only=False).dtype


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


def ragged(column: pa.LargeListArray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (values, offsets int64[n + 1] from 0) of a column of lists; of a slice, only the values in it."""
    offsets = column.offsets.to_numpy()
    return column.values.to_numpy()[offsets[0] : offsets[-1]], offsets - offsets[0]


def as_lists(values: np.ndarray, offsets: np.ndarray) -> pa.LargeListArray:
    """Returns a column of lists of numbers; offsets: int64[n + 1], where each list begins in `values`."""
    element = pa.field("element", pa.from_numpy_dtype(values.dtype), nullable=False)
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(values), type=pa.large_list(element))


_LONG = 200
"""Stretches of more values are copied one by one, 0.5 us each; shorter ones by the place of each value, 2.5 ns each."""


def copy_stretches(
    values: np.ndarray, starts: np.ndarray, stops: np.ndarray, begins: np.ndarray, out: np.ndarray
) -> None:
    """Copies stretches of `values` to where `begins` says in `out`, by the shorter of two ways.

    Where numba is imported anyway, `sums_kernels.copy_rows` takes less time.
    """
    sizes = stops - starts
    if int(sizes.sum()) > _LONG * sizes.size:
        for begin, start, stop in zip(begins.tolist(), starts.tolist(), stops.tolist(), strict=True):
            out[begin : begin + stop - start] = values[start:stop]
    else:
        nth = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        out[np.repeat(begins, sizes) + nth] = values[np.repeat(starts, sizes) + nth]


def open_parquet(handle: Any, **options: Any) -> pq.ParquetFile:
    """Opens a Parquet file through a Python handle, a seekable file for reading or what has its methods.

    Arrow would otherwise read ahead on threads of its own (as `pq.read_table` always does). Such a thread may still
    hold the handle when the interpreter ends, and then the process aborts instead of exiting.

    Raises:
      pa.ArrowException: if it is not Parquet.
    """
    return pq.ParquetFile(handle, pre_buffer=False, **options)


@contextlib.contextmanager
def whole(name: str) -> Iterator[None]:
    """Turns any exception of Arrow in the block, which reads the file `name`, into a ValueError."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name}: not a whole Parquet file: {error}") from error
