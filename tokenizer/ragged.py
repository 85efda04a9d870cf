# SPDX-License-Identifier: Apache-2.0
"""`Ragged`: rows of different lengths in one flat array, which kernels compute on; views and makes Arrow columns."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer import recycled, row_kernels
from tokenmill.tokenizer.utf8 import find_invalid_utf8

Errors = Literal["strict", "replace"]
"""What to do with bytes that are not UTF-8: raise an error, or read them as U+FFFD."""


Int64s = npt.NDArray[np.int64]


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
        offsets = self.offsets
        if offsets.size == 2:  # of one text, most of the time would go into the other
            return int(offsets[1] - offsets[0])
        return int((offsets[1:] - offsets[:-1]).max(initial=0))

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


def put_rows(rows: Ragged, *parts: tuple[Any, Ragged]) -> Ragged:
    """Returns rows with some replaced; parts: int64[k], the numbers of some, and the k rows in their place."""
    starts, stops = np.empty((2, rows.n_rows), np.int64)
    values, at = [], 0
    for numbers, new in ((slice(None), rows), *parts):
        first, last = new.offsets[0], new.offsets[-1]
        starts[numbers], stops[numbers] = (each + (at - first) for each in (new.offsets[:-1], new.offsets[1:]))
        values.append(new.values[first:last])
        at += last - first
    return gathered(read_only(np.concatenate(values)), starts, stops)


def characters_before(values: npt.NDArray[np.uint8], at: Int64s) -> Int64s:
    """Returns how many characters of UTF-8 begin before each place, int64[n]; places must not decrease."""
    before = np.empty(at.size, np.int64)
    row_kernels.character_positions(values, 0, read_only(at), before)
    return before


def stretches(starts: Int64s, stops: Int64s) -> Int64s:
    """Returns the numbers from each start to its stop, one stretch after the other."""
    lengths = stops - starts
    return np.repeat(stops - np.cumsum(lengths), lengths) + np.arange(lengths.sum())


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the distinct values, sorted, like `np.unique`, without importing `numpy.ma`, which takes 10 ms."""
    values = np.sort(values)
    return values[np.append(True, values[1:] != values[:-1])[: values.size]]


_REMEDY = "; decode it by its own encoding, or pass errors='replace' where that is an argument"


def text_rows(texts: Any, errors: Errors = "strict") -> Ragged:
    """Does what `text_column` does, but returns the rows alone; nulls count as empty rows."""
    return text_column(texts, errors)[0]


def text_column(texts: Any, errors: Errors = "strict") -> tuple[Ragged, pa.Array | None]:
    """Checks a text column from outside, once; returns its UTF-8 as rows, values uint8[n], and which rows are null.

    This is the door: whatever is in the buffers of `texts`, kernels read within the rows, and find valid UTF-8 there.

    Args:
      texts: pa.Array or pa.ChunkedArray of string, large_string, string_view, null or a dictionary of strings, or a
        list or tuple of str and None. `Ragged` rows were checked before, and are returned as they are.
      errors: what to do with bytes that are not UTF-8: "strict" raises an error, "replace" reads them as U+FFFD, like
        `bytes.decode`.

    Returns:
      The rows, empty where the column is null; bool[n_rows], true for null, or None if no row is null.

    Raises:
      TypeError: if it holds anything but text.
      ValueError: if an offset, a length or a number of nulls does not fit the buffers, or if bytes are not UTF-8; the
        message names the row and the byte.
    """
    if errors not in ("strict", "replace"):
        raise ValueError(f"errors must be 'strict' or 'replace', got {errors!r}")
    if isinstance(texts, Ragged):
        return texts, None
    if isinstance(texts, (list, tuple)):
        return _of_strings(texts, errors)
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    columns = [_text_bytes(chunk) for chunk in chunks] or [_text_bytes(pa.array([], texts.type))]
    column = columns[0] if len(columns) == 1 else pa.concat_arrays(columns)
    rows, nulls = unchecked_text_rows(column), null_rows(column)
    if errors == "replace":
        return mended(rows), nulls
    check_utf8(rows, "row", _REMEDY)
    return rows, nulls


def mended(rows: Ragged, how: Literal["replace", "ignore"] = "replace") -> Ragged:
    """Returns rows of UTF-8, values uint8[n]: other bytes become U+FFFD, or are left out, as by `bytes.decode`."""
    if find_invalid_utf8(rows.values, rows.offsets[:-1], rows.offsets[1:]) is None:
        return rows
    each = (rows.values[a:b].tobytes() for a, b in itertools.pairwise(rows.offsets.tolist()))
    return encoded_rows([data.decode("utf-8", how).encode() for data in each])


def unchecked_text_rows(column: pa.Array) -> Ragged:
    """Views the bytes of a text column without a check, values uint8[n]; nulls count as empty rows.

    It is for string or binary columns that are known to be valid, such as those that the readers of the pipeline
    return.
    """
    if column.null_count:
        column = column.fill_null(b"" if column.type in (pa.binary(), pa.large_binary()) else "")  # not what is there
    is_large = column.type in (pa.large_string(), pa.large_binary())
    return _rows(column, np.int64 if is_large else np.int32)


_AS_BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
    pa.null(): pa.null(),
}


def _text_bytes(array: Any) -> pa.Array:
    """Returns an array of text as binary or large_binary, of which all but the UTF-8 is checked."""
    if not isinstance(array, pa.Array):
        kind = type(array).__name__
        raise TypeError(f"expected an Arrow array of strings, got {kind}; give pa.array(texts), also of a Series")
    if isinstance(array, pa.DictionaryArray):
        check_array(array.indices)
        values = _text_bytes(array.dictionary)
        try:
            return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()
        except pa.ArrowException as error:
            raise ValueError(f"not a valid Arrow array: {error}") from None
    if array.type not in _AS_BYTES:
        raise TypeError(f"expected an Arrow array of strings, got one of {array.type}; cast it to string first")
    check_array(array)
    column = array.view(_AS_BYTES[array.type])
    return column.cast(pa.large_binary()) if column.type in (pa.binary_view(), pa.null()) else column


def check_utf8(rows: Ragged, name: str, remedy: str = "") -> None:
    """Raises ValueError if rows, which the message calls `name`, are not UTF-8: where, and `remedy`."""
    found = find_invalid_utf8(rows.values, rows.offsets[:-1], rows.offsets[1:])
    for row in [] if found is None else np.flatnonzero(found >= 0)[:1].tolist():
        data = rows.values[rows.offsets[row] : rows.offsets[row + 1]].tobytes()
        try:
            data.decode()
        except UnicodeDecodeError as error:
            found_byte = f"{error.reason} 0x{data[error.start]:02x} at byte {error.start} of it"
            raise ValueError(f"{name} {row} is not UTF-8: {found_byte}{remedy}") from None


def check_array(array: pa.Array) -> None:
    """Checks an Arrow array from outside, so that nothing reads outside its buffers.

    Strings inside lists, structs and dictionaries must be UTF-8. Those of a text column are not looked at: functions
    that take text look themselves, and name the row.

    Raises:
      ValueError: if an offset, a length or a number of nulls does not fit the buffers.
    """
    part = array
    while part is not None:
        if part.offset < 0:  # which `validate` does not look at
            raise ValueError(f"not a valid Arrow array: it begins at row {part.offset}")
        part = part.dictionary if isinstance(part, pa.DictionaryArray) else getattr(part, "values", None)
    try:
        (array.view(_AS_BYTES[array.type]) if array.type in _AS_BYTES else array).validate(full=True)
        for view in filter(_is_view, _parts(array)):
            # `validate` does not look at null rows, but `cast` adds their lengths up.
            buffers = [None, *view.buffers()[1:]]
            pa.Array.from_buffers(pa.binary_view(), len(view), buffers, offset=view.offset).validate(full=True)
    except pa.ArrowException as error:  # one of them, ArrowIndexError, is no ValueError
        raise ValueError(f"not a valid Arrow array: {error}") from None
    if isinstance(array, pa.ListArray | pa.LargeListArray) and not len(array) and array.buffers()[1]:
        # Nor does it look where a list without rows begins, but `flatten` ends the process if that is too far.
        wide = isinstance(array, pa.LargeListArray)
        offsets = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32)
        first = offsets[array.offset : array.offset + 1].tolist()
        if first and not 0 <= first[0] <= len(array.values):
            raise ValueError(f"not a valid Arrow array: it begins at value {first[0]} of {len(array.values)}")


def _is_view(array: pa.Array) -> bool:
    return pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type)


def _parts(array: pa.Array) -> Iterator[pa.Array]:
    """Yields a valid array and all arrays that it consists of."""
    yield array
    if isinstance(array, pa.DictionaryArray):
        yield from _parts(array.dictionary)
    elif isinstance(array, pa.StructArray):
        for i in range(array.type.num_fields):
            yield from _parts(array.field(i))
    elif hasattr(array, "values"):
        yield from _parts(array.values)


def byte_rows(array: Any) -> Ragged:
    """Checks a large_binary column from outside, and views it, values uint8[n].

    Raises:
      TypeError: if it is anything else. ValueError: if it holds nulls, or as `check_array`.
    """
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    for chunk in chunks:
        if not isinstance(chunk, pa.LargeBinaryArray):
            kind = getattr(chunk, "type", type(chunk).__name__)
            raise TypeError(f"expected an Arrow array of large_binary, got {kind}")
        check_array(chunk)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.null_count:
        raise ValueError(f"bytes must not be null, but {array.null_count} of {len(array)} are")
    return _rows(array, np.int64)


def id_rows(array: Any) -> Ragged:
    """Checks a list column of integers from outside, and views it as rows of int32. Null rows count as empty.

    Raises:
      TypeError: if it is not an Arrow list array of integers.
      ValueError: if an id is null or does not fit, or as `check_array`.
    """
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    for chunk in chunks or [pa.array([], array.type)]:
        is_list = isinstance(chunk, (pa.ListArray, pa.LargeListArray))
        if not is_list or not pa.types.is_integer(chunk.type.value_type):
            kind = getattr(chunk, "type", type(chunk).__name__)
            raise TypeError(f"expected an Arrow list array of integers, got {kind}")
        check_array(chunk)
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(chunks) if chunks else pa.array([], array.type)
    if array.null_count:
        # The values under a null are undefined; an empty row is not.
        array = array.fill_null([])
    offsets = np.asarray(array.offsets).astype(np.int64)
    values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    if values.null_count:
        raise ValueError("ids must not be null")
    return Ragged(read_only(values.cast(pa.int32()).to_numpy(zero_copy_only=True)), offsets - offsets[0])


def _rows(array: pa.Array, offset_dtype: npt.DTypeLike) -> Ragged:
    _, offsets, buffer = array.buffers()
    values = np.empty(0, np.uint8) if buffer is None or buffer.size == 0 else np.frombuffer(buffer, np.uint8)
    if len(array) == 0:
        return Ragged(read_only(values[:0]), np.zeros(1, np.int64))
    size = np.dtype(offset_dtype).itemsize
    rows = np.frombuffer(offsets, offset_dtype, len(array) + 1, array.offset * size).astype(np.int64)
    return Ragged(read_only(values), rows)


def _of_strings(texts: Sequence[str | None], errors: Errors) -> tuple[Ragged, pa.Array | None]:
    with contextlib.suppress(TypeError, UnicodeEncodeError):  # for something in a row that is looked for below
        whole = "".join(cast("Sequence[str]", texts))
        if whole.isascii():
            return encoded_rows([whole.encode()], texts), None
        return encoded_rows([text.encode() for text in cast("Sequence[str]", texts)]), None
    data = []
    for row, text in enumerate(texts):
        if not isinstance(text, str | None):
            raise TypeError(f"expected str or None in a list of texts, got {text!r:.80} in row {row}")
        try:
            data.append((text or "").encode())
        except UnicodeEncodeError as error:
            if errors == "strict":
                raise ValueError(
                    f"row {row} is not text: {error.object[error.start]!r} at character {error.start} is half a "
                    f"character{_REMEDY}"
                ) from None
            # Through UTF-16, in which two halves that belong together become their character.
            data.append(error.object.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode())
    nulls = pa.array([text is None for text in texts]) if None in texts else None
    return encoded_rows(data), nulls


def encoded_rows(texts: list[bytes], rows: Sequence[Any] | None = None) -> Ragged:
    """Returns texts as rows; rows: values with the lengths of the rows, if they are not these texts."""
    lengths = texts if rows is None else rows
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.fromiter(map(len, lengths), np.int64, len(lengths)).cumsum(out=offsets[1:])
    return Ragged(np.frombuffer(texts[0] if len(texts) == 1 else b"".join(texts), np.uint8), offsets)


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
