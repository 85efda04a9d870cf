# SPDX-License-Identifier: Apache-2.0
"""Kept fields of JSON lines as columns, in the types that the job has settled on."""

import io

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
    put_lines,
)
from tokenmill.pipeline.input.json_values import KIND_NAMES, Names, Values, find_all, single_names, texts_of
from tokenmill.pipeline.input.lines import Mask, Positions


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
                values = _first_of(values, next(nested))
            columns.append(_column(field, values, misfits))
        return pa.StructArray.from_arrays(columns, fields=without_marks(self._fields)), misfits


def _first_of(values: Values, others: Values) -> Values:
    is_other = values.kinds == ABSENT
    pairs = zip(values[1:], others[1:], strict=True)
    # All fields of a call share one array `data`.
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
