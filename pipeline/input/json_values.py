# SPDX-License-Identifier: Apache-2.0
"""Finds the values of fields in lines of JSON, without parsing the rest of the line; and makes columns of kept fields.

The reference implementation is `find_slowly`. It also handles the lines that the kernel leaves to it: those with
escapes in a name that matters.
"""

import io
import json
from collections.abc import Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tokenmill.pipeline.config.kept_fields import TEXT, without_marks
from tokenmill.pipeline.input.json_value_kernels import (
    ABSENT,
    ARRAY,
    BOOLEAN,
    INTEGER,
    NULL,
    NUMBER,
    OBJECT,
    STRING,
    find_values,
    put_lines,
    put_texts,
)
from tokenmill.pipeline.input.lines import Mask, Positions

KIND_NAMES = ("nothing", "a string", "a number", "a number", "true or false", "null", "an object", "an array")
"""Words for the kinds of values, for messages; indexed by the constants of `json_value_kernels`."""


class Values(NamedTuple):
    """The values of one field, one per row."""

    data: np.ndarray
    """uint8[n_bytes]: the bytes that contain the values."""
    kinds: np.ndarray
    """uint8[n]: constants of `json_value_kernels`."""
    starts: np.ndarray
    """int64[n] as `stops`: value i is `data[starts[i]:stops[i]]`; for a string without its quotes."""
    stops: np.ndarray


class Names(NamedTuple):
    """Paths of fields, as arrays for kernels: for each path the names that lead to it, from the outside in."""

    values: np.ndarray
    """uint8: UTF-8 of all names."""
    bounds: np.ndarray
    """int64[n_names + 1]: where each name begins in `values`."""
    firsts: np.ndarray
    """int64[n_paths + 1]: the first name of each path."""

    @classmethod
    def of(cls, paths: Sequence[Sequence[str]]) -> "Names":
        """Returns the paths as arrays."""
        names = [name.encode() for path in paths for name in path]
        return cls(
            np.frombuffer(b"".join(names), np.uint8),
            np.cumsum([0, *map(len, names)]).astype(np.int64),
            np.cumsum([0, *map(len, paths)]).astype(np.int64),
        )


_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
_BLANK = " \t\r"


def find_slowly(line: bytes, paths: Sequence[Sequence[str]]) -> list[bytes]:
    """Returns for each path its value as the line, a JSON object, spells it; b"" if it is absent."""
    text = line.decode()
    found = [""] * len(paths)

    def skip(i: int) -> int:
        while text[i] in _BLANK:
            i += 1
        return i

    def walk(i: int, names: tuple[str, ...]) -> int:
        i = skip(i + 1)
        while text[i] != "}":
            name, i = scanstring(text, skip(i) + 1)
            i = skip(skip(i) + 1)
            here = (*names, name)
            for p, path in enumerate(paths):
                if tuple(path[: len(here)]) == here:
                    found[p] = ""
            is_on_the_way = any(tuple(path[: len(here)]) == here and len(path) > len(here) for path in paths)
            end = walk(i, here) if is_on_the_way and text[i] == "{" else _DECODER.raw_decode(text, i)[1]
            for p, path in enumerate(paths):
                if tuple(path) == here:
                    found[p] = text[i:end]
            i = skip(end)
            if text[i] == ",":
                i = skip(i + 1)
        return i + 1

    walk(skip(0), ())
    return [each.encode() for each in found]


def single_names(value: bytes) -> bytes:
    """Returns a JSON value in which no object has a name twice: the last one counts. Numbers stay as written."""
    text = value.decode()
    is_changed = False

    def last_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal is_changed
        found = dict(pairs)
        is_changed = is_changed or len(found) < len(pairs)
        return found

    decoder = json.JSONDecoder(parse_int=_Number, parse_float=_Number, object_pairs_hook=last_of_each)
    record = decoder.decode(text)
    return _spell(record).encode() if is_changed else value


class _Number(str):
    """A JSON number as it is written."""

    __slots__ = ()


def _spell(value: Any) -> str:
    if type(value) is _Number:
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_spell(each)}" for name, each in value.items()) + "}"
    return f"[{','.join(map(_spell, value))}]" if isinstance(value, list) else json.dumps(value)


_FIRSTS = {b'"': STRING, b"{": OBJECT, b"[": ARRAY, b"n": NULL, b"t": BOOLEAN, b"f": BOOLEAN, b"": ABSENT}


def _kind_slowly(value: bytes) -> int:
    is_whole = not any(mark in value for mark in (b".", b"e", b"E"))
    return _FIRSTS.get(value[:1], INTEGER if is_whole else NUMBER)


def find_all(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, paths: Sequence[Sequence[str]], names: Names
) -> list[Values]:
    """Returns the values of every path in lines that are JSON objects in UTF-8.

    Args:
      data: uint8[n_bytes], the bytes that contain the lines.
      starts, ends: int64[n] each: line i is `data[starts[i]:ends[i]]`.
      paths: for each field, the names that lead to it.
      names: the same paths as arrays.
    """
    n, n_paths = starts.size, len(paths)
    kinds = np.zeros((n_paths, n), np.uint8)
    value_starts, value_stops = np.zeros((n_paths, n), np.int64), np.zeros((n_paths, n), np.int64)
    found = np.zeros(n, np.bool_)
    scratch = np.zeros(n_paths, np.int64)
    find_values(data, starts, ends, *names, scratch, found, kinds, value_starts, value_stops)
    others = np.flatnonzero(~found)
    if others.size:
        raw: list[bytes] = []
        at = data.size
        for row in others.tolist():
            for p, value in enumerate(find_slowly(data[starts[row] : ends[row]].tobytes(), paths)):
                kind = _kind_slowly(value)
                is_string = int(kind == STRING)
                kinds[p, row] = kind
                value_starts[p, row], value_stops[p, row] = at + is_string, at + len(value) - is_string
                raw.append(value)
                at += len(value)
        data = np.concatenate([data, np.frombuffer(b"".join(raw), np.uint8)])
    return [Values(data, *columns) for columns in zip(kinds, value_starts, value_stops, strict=True)]


def texts_of(values: Values) -> tuple[pa.StringArray, np.ndarray]:
    """Returns values as text, string[n], and bool[n]: which of them are null because they had half a surrogate pair."""
    n = values.kinds.size
    out = np.empty(int((values.stops - values.starts).sum()) + 64, np.uint8)
    offsets, is_valid = np.zeros(n + 1, np.int32), np.zeros(n, np.uint8)
    put_texts(values.data, values.kinds, values.starts, values.stops, out, offsets, is_valid)
    bitmap = pa.py_buffer(np.packbits(is_valid == 1, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(out[: offsets[-1]])]
    return pa.Array.from_buffers(pa.string(), n, buffers), is_valid == 2


class FieldColumns:
    """Extracts the kept fields of lines."""

    def __init__(self, fields: pa.Schema) -> None:
        """Takes the fields that `kept_fields.settle_fields` returned."""
        self._fields = fields
        # `a.b` is the field "a.b" if a line has one, else the field "b" inside "a".
        self._paths = [[field.name] for field in fields]
        self._nested = [field.name.split(".") for field in fields if "." in field.name]
        self._all = [*self._paths, *self._nested]
        self._names = Names.of(self._all)

    def take(
        self, data: np.ndarray, starts: Positions, ends: Positions
    ) -> tuple[pa.StructArray, dict[int, tuple[str, str]]]:
        """Returns the fields of lines, and for each row whose values do not fit their types a reason and a detail.

        Args:
          data: uint8[n_bytes], the bytes that contain the lines.
          starts, ends: int64[n] each: line i is `data[starts[i]:ends[i]]`, a valid JSON object in UTF-8.
        """
        found = find_all(data, starts, ends, self._all, self._names)
        nested = iter(found[len(self._paths) :])
        misfits: dict[int, tuple[str, str]] = {}
        columns = []
        for field, values in zip(self._fields, found, strict=False):
            if "." in field.name:
                values = first_of(values, next(nested))
            columns.append(_column(field, values, misfits))
        return pa.StructArray.from_arrays(columns, fields=without_marks(self._fields)), misfits


def first_of(values: Values, others: Values) -> Values:
    """Returns the values of one field, and where it is absent those of another, of one call of `find_all`."""
    is_other = values.kinds == ABSENT
    pairs = zip(values[1:], others[1:], strict=True)
    return Values(values.data, *(np.where(is_other, theirs, ours) for ours, theirs in pairs))


def _column(field: pa.Field, values: Values, misfits: dict[int, tuple[str, str]]) -> pa.Array:
    is_text = TEXT in (field.metadata or {})
    if not is_text:
        fits = np.isin(values.kinds, [ABSENT, NULL, *_kinds_for(field.type)])
        for row in np.flatnonzero(~fits).tolist():
            misfits[row] = "bad_field", f"field {field.name!r} is {KIND_NAMES[values.kinds[row]]}, not {field.type}"
        values = values._replace(kinds=np.where(fits, values.kinds, NULL).astype(np.uint8))
    if pa.types.is_string(field.type):
        column, is_broken = texts_of(values)
        for row in np.flatnonzero(is_broken).tolist():
            misfits[row] = "lone_surrogate", f"half a surrogate pair in field {field.name!r}"
        return column
    column = _parse(field, values, 0, misfits)
    # JSON has no infinity, so one is a number that the type cannot hold.
    for row in np.flatnonzero(_is_infinite(column)).tolist():
        misfits[row] = "bad_field", f"field {field.name!r} is not {field.type}: a number is too large"
    return column


def _is_infinite(column: pa.Array) -> Mask:
    """Returns bool[n]: the values that are an infinite number or hold one."""
    types = pa.types
    if types.is_floating(column.type):
        return pc.fill_null(pc.is_inf(column), False).to_numpy(zero_copy_only=False)
    found = np.zeros(len(column), np.bool_)
    if types.is_struct(column.type):
        for each in column.flatten():
            found |= _is_infinite(each)
    elif types.is_list(column.type):
        found[pc.list_parent_indices(column).to_numpy()[_is_infinite(column.flatten())]] = True
    return found


def _kinds_for(type_: pa.DataType) -> tuple[int, ...]:
    types = pa.types
    if types.is_boolean(type_):
        return (BOOLEAN,)
    if types.is_integer(type_):
        return (INTEGER,)
    if types.is_floating(type_):
        return (INTEGER, NUMBER)
    if types.is_list(type_):
        return (ARRAY,)
    return (OBJECT,) if types.is_struct(type_) else (STRING,)


def _with_single_names(values: Values) -> Values:
    """Returns values in which the last of several equal names of an object counts, which Arrow refuses."""
    starts, stops, raw, at = values.starts.copy(), values.stops.copy(), [], values.data.size
    for row in np.flatnonzero(np.isin(values.kinds, [ARRAY, OBJECT])).tolist():
        value = values.data[starts[row] : stops[row]].tobytes()
        single = single_names(value)
        if single != value:
            starts[row], stops[row] = at, at + len(single)
            raw.append(single)
            at += len(single)
    if not raw:
        return values
    return Values(np.concatenate([values.data, np.frombuffer(b"".join(raw), np.uint8)]), values.kinds, starts, stops)


def _parse(field: pa.Field, values: Values, first: int, misfits: dict[int, tuple[str, str]]) -> pa.Array:
    """Returns values as a column; values that do not fit are found by halving, and become null."""
    try:
        return _parse_all(field, values)
    except pa.ArrowInvalid:
        return _parse_halves(field, _with_single_names(values), first, misfits)


def _parse_all(field: pa.Field, values: Values) -> pa.Array:
    """Returns values as a column; ArrowInvalid if one does not fit."""
    n = values.kinds.size
    if not n:
        return pa.nulls(0, field.type)
    out = np.empty(int((values.stops - values.starts).sum()) + 13 * n, np.uint8)
    size = put_lines(*values, out)
    table = pj.read_json(
        io.BytesIO(out[:size].tobytes()),
        read_options=pj.ReadOptions(use_threads=False, block_size=size),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema([pa.field("v", field.type)]), unexpected_field_behavior="ignore"
        ),
    )
    return table.column("v").combine_chunks()


def _parse_halves(field: pa.Field, values: Values, first: int, misfits: dict[int, tuple[str, str]]) -> pa.Array:
    n = values.kinds.size
    try:
        return _parse_all(field, values)
    except pa.ArrowInvalid as error:
        if n == 1:
            misfits[first] = "bad_field", f"field {field.name!r} is not {field.type}: {error}"
            return pa.nulls(1, field.type)
    middle = n // 2
    halves = [
        _parse_halves(field, Values(values.data, *(column[part] for column in values[1:])), first + start, misfits)
        for part, start in ((slice(0, middle), 0), (slice(middle, n), middle))
    ]
    return pa.concat_arrays(halves)
