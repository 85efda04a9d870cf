# SPDX-License-Identifier: Apache-2.0
"""`Ragged`: rows of different lengths in one flat array, which kernels compute on; views and makes Arrow columns."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenizer import recycled, row_kernels


class Ragged(NamedTuple):
    """Rows `values[offsets[i]:offsets[i + 1]]`.

    `offsets` is int64[n_rows + 1], non-decreasing; it need not begin at 0, so that a slice of an Arrow array is viewed
    without a copy. Views of Arrow memory are read-only.
    """

    values: npt.NDArray[Any]
    """uint8[n] or int32[n], bytes or ids."""
    offsets: npt.NDArray[np.int64]
    """int64[n_rows + 1]."""

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.offsets.size - 1

    @property
    def n_values(self) -> int:
        """The number of values in all rows; the buffer may hold more."""
        return int(self.offsets[-1] - self.offsets[0])

    @property
    def max_row(self) -> int:
        """The number of values in the longest row, 0 if there are no rows."""
        return int(np.diff(self.offsets).max(initial=0))

    def take(self, numbers: npt.NDArray[np.int64]) -> "Ragged":
        """Returns copies of the rows, of bytes, with these numbers."""
        return gathered(self.values, self.offsets[:-1][numbers], self.offsets[1:][numbers])


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns a read-only view.

    To numba a read-only array has another type than a writable one. Arrow's memory is read-only; since numpy's arrays
    are made read-only too, kernels are compiled once for both.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def gathered(values: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> Ragged:
    """Returns copies of `values[starts[r]:stops[r]]` as rows r, uint8."""
    starts, stops = np.ascontiguousarray(starts), np.ascontiguousarray(stops)
    out, offsets = recycled.empty(int((stops - starts).sum()), np.uint8), np.empty(starts.size + 1, np.int64)
    row_kernels.gather(values, starts, stops, out, offsets)
    return Ragged(read_only(out), offsets)


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the distinct values, sorted, like `np.unique`, without importing `numpy.ma`, which takes 10 ms."""
    values = np.sort(values)
    return values[np.append(True, values[1:] != values[:-1])[: values.size]]


def _buffer(buffer: pa.Buffer | None, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return read_only(np.empty(0, dtype) if buffer is None or buffer.size == 0 else np.frombuffer(buffer, dtype))


def text_rows(array: Any) -> Ragged:
    """Views the UTF-8 bytes of a text column, values uint8[n].

    Args:
      array: pa.Array or pa.ChunkedArray of string, large_string, string_view or a dictionary of those, or a list of
        str. Nulls count as empty rows.

    Raises:
      TypeError: if it holds anything else.
    """
    if isinstance(array, (list, tuple)):
        if all(isinstance(text, str) for text in array):
            return _encoded([text.encode() for text in array])
        array = pa.array(array, pa.large_string())
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if not isinstance(array, pa.Array):
        raise TypeError(f"expected an Arrow array of strings, got {type(array).__name__}")
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    if pa.types.is_null(array.type):
        return Ragged(_buffer(None, np.uint8), np.zeros(len(array) + 1, np.int64))
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        raise TypeError(f"expected an Arrow array of strings, got one of {array.type}; cast it to string first")
    if array.null_count:
        # The values under a null are undefined; an empty row is not.
        array = array.fill_null("")
    return _rows(array, np.int64 if pa.types.is_large_string(array.type) else np.int32, np.uint8)


def byte_rows(array: Any) -> Ragged:
    """Views a large_binary column, values uint8[n].

    Raises:
      TypeError: if it is anything else. ValueError: if it holds nulls.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if not isinstance(array, pa.LargeBinaryArray):
        raise TypeError(f"expected an Arrow array of large_binary, got {getattr(array, 'type', type(array).__name__)}")
    if array.null_count:
        raise ValueError(f"bytes must not be null, but {array.null_count} of {len(array)} are")
    return _rows(array, np.int64, np.uint8)


def id_rows(array: Any) -> Ragged:
    """Views a list column of integers as rows of int32. Null rows count as empty.

    Raises:
      TypeError: if it is not an Arrow list array of integers; ValueError: if an id is null or does not fit.
    """
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if not isinstance(array, (pa.ListArray, pa.LargeListArray)) or not pa.types.is_integer(array.type.value_type):
        raise TypeError(f"expected an Arrow list array of integers, got {getattr(array, 'type', type(array).__name__)}")
    if array.values.null_count:
        raise ValueError("ids must not be null")
    if array.null_count:
        # The values under a null are undefined; an empty row is not.
        array = array.fill_null([])
    offsets = np.asarray(array.offsets).astype(np.int64)
    return Ragged(read_only(array.values.cast(pa.int32()).to_numpy(zero_copy_only=True)), offsets)


def _rows(array: pa.Array, offset_dtype: npt.DTypeLike, value_dtype: npt.DTypeLike) -> Ragged:
    _, offsets, values = array.buffers()
    if len(array) == 0:
        return Ragged(_buffer(None, value_dtype), np.zeros(1, np.int64))
    first = array.offset
    rows = _buffer(offsets, offset_dtype)[first : first + len(array) + 1].astype(np.int64)
    return Ragged(_buffer(values, value_dtype), rows)


def _encoded(texts: list[bytes]) -> Ragged:
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return Ragged(read_only(np.frombuffer(b"".join(texts), np.uint8)), offsets)


def list_array(
    values: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64], nulls: pa.Array | None = None
) -> pa.LargeListArray:
    """Wraps ids and row boundaries as an Arrow column of int32 lists, without a copy; null where `nulls` is true."""
    element = pa.field("element", pa.int32(), nullable=False)
    return pa.LargeListArray.from_arrays(
        _array(offsets, pa.int64()), _array(values, pa.int32()), type=pa.large_list(element), mask=nulls
    )


def _array(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    # Not `pa.array`: it imports pandas, if that is installed, to check for its types.
    return pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(np.ascontiguousarray(values))])


def string_array(
    values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], nulls: pa.Array | None = None
) -> pa.LargeStringArray:
    """Wraps UTF-8 bytes and row boundaries as an Arrow text column, without copying the bytes; `offsets[0]` is 0."""
    texts = pa.LargeStringArray.from_buffers(offsets.size - 1, pa.py_buffer(offsets), pa.py_buffer(values))
    if nulls is None:
        return texts
    import pyarrow.compute as pc  # takes long to import

    return pc.if_else(nulls, None, texts)


def null_rows(array: Any) -> pa.Array | None:
    """Returns a boolean column that says which rows of a column are null, None if none is."""
    if not isinstance(array, (pa.Array, pa.ChunkedArray)) or array.null_count == 0:
        return None
    mask = array.is_null()
    return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
