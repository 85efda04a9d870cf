# SPDX-License-Identifier: Apache-2.0
"""Values in objects of JSON, one object at a time: fields inside of others, and kept fields that fit, or why not.

`json_columns` takes the fields of many lines at once where nothing is wrong with them; this module says what they are.
`content.text` is the field of that name if an object has one, else the field in `content`.
"""

import itertools
import json
import re
from collections.abc import Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tokenmill.pipeline.config.kept_fields import TEXT, without_marks
from tokenmill.pipeline.input.rejects import Mask
from tokenmill.pipeline.isolating import isolate

MAX_DEPTH = 256
"""How deep arrays and objects may nest. The standard library's own limit depends on how deep its caller's stack is."""
BLANK = b" \t\r"
_CHUNK_BYTES = 1 << 20
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)


class Number(str):
    """A JSON number as it is written, of any length."""

    __slots__ = ()

    @property
    def is_integer(self) -> bool:
        """Whether it has neither a fraction nor an exponent."""
        return not any(mark in self for mark in ".eE")


_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number)
KINDS = {dict: "an object", list: "an array", str: "a string", bool: "true or false", Number: "a number"}


def decode(line: bytes) -> object:
    """Returns the value of a line of JSON, in which numbers are as they are written; ValueError if it is none."""
    return _DECODER.decode(line.decode().strip(" \t\r"))


def is_too_deep(line: bytes) -> bool:
    """Returns whether arrays and objects of a line nest more than `MAX_DEPTH` deep; strings do not count."""
    if line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return False
    values = np.frombuffer(_STRINGS.sub(b"", line), np.uint8)
    depth = 0
    for at in range(0, values.size, _CHUNK_BYTES):
        chunk = values[at : at + _CHUNK_BYTES] | 0x20  # `[` becomes `{`, `]` becomes `}`
        depths = depth + np.cumsum((chunk == ord("{")).astype(np.int64) - (chunk == ord("}")))
        if depths.max() > MAX_DEPTH:
            return True
        depth = depths[-1]
    return False


def is_nested(field: str) -> bool:
    """Returns whether a field may be inside another one."""
    return "." in field


def values_at(record: dict[str, Any], field: str) -> list[Any]:
    """Returns the values of a field of a record: none where it is absent, several where lists are on the way to it.

    A list of parts, as `[{"type": "text", "text": "a"}, {"type": "image"}]`, gives the texts of those that have one.
    """
    if field in record or not is_nested(field):
        return [record[field]] if field in record else []
    return walk(record, field.split("."))


def inside(record: Any, field: str) -> object:
    """Returns the value of a field of a record, which a path through objects may lead to; None where it is absent."""
    if field in record:
        return record[field]
    for name in field.split("."):
        record = record.get(name) if isinstance(record, dict) else None
    return record


def walk(value: Any, names: Sequence[str]) -> list[Any]:
    """Returns the values that names lead to from a value, through objects, and through all elements of lists."""
    if isinstance(value, list):
        return list(itertools.chain.from_iterable(walk(each, names) for each in value))
    if not names:
        return [value]
    return walk(value[names[0]], names[1:]) if isinstance(value, dict) and names[0] in value else []


def spelled(line: bytes, paths: Sequence[Sequence[str]]) -> list[str]:
    """Returns for each path its value as the line, a JSON object, spells it; "" if it is absent."""
    text = line.decode()
    found = [""] * len(paths)

    def skip(i: int) -> int:
        while text[i] in " \t\r":
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
    return found


def _spell(value: Any) -> str:
    """Returns JSON of a value in which numbers are as they were written."""
    if type(value) is Number:
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_spell(each)}" for name, each in value.items()) + "}"
    return f"[{','.join(map(_spell, value))}]" if isinstance(value, list) else json.dumps(value)


def read_objects(data: bytes, schema: pa.Schema) -> pa.Table:
    """Returns the fields of a schema of lines that are JSON objects, which must end with a line end.

    Raises:
      pa.ArrowInvalid: when a line is no JSON, a field is not of its type, or has its name twice.
    """
    return pj.read_json(
        pa.BufferReader(pa.py_buffer(data)),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="ignore"
        ),
    )


class KeptFields:
    """Takes the kept fields of lines, one line at a time."""

    def __init__(self, fields: pa.Schema) -> None:
        """Takes the fields that `kept_fields.settle_fields` returned."""
        self._fields = fields

    def take(self, lines: Sequence[bytes]) -> tuple[pa.StructArray, dict[int, tuple[str, str]]]:
        """Returns the fields of lines, and for each row whose values do not fit their types a reason and a detail.

        Args:
          lines: JSON objects in UTF-8.
        """
        records = [decode(line) for line in lines]
        misfits: dict[int, tuple[str, str]] = {}
        columns = []
        for field in self._fields:
            # `a.b` is the field "a.b" if a line has one, else the field "b" inside "a".
            values = [inside(record, field.name) for record in records]
            if TEXT in (field.metadata or {}):
                values = [_text(line, field.name, value) for line, value in zip(lines, values, strict=True)]
            columns.append(_column(field, values, misfits))
        return pa.StructArray.from_arrays(columns, fields=without_marks(self._fields)), misfits


def _text(line: bytes, name: str, value: Any) -> str | None:
    """Returns a value as text: a string as it is, what else there is as the line spells it."""
    if isinstance(value, dict | list):
        whole, nested = spelled(line, [[name], name.split(".")])
        return whole or nested
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _column(field: pa.Field, values: list[Any], misfits: dict[int, tuple[str, str]]) -> pa.Array:
    if TEXT not in (field.metadata or {}):
        for row, value in enumerate(values):
            if value is not None and not _fits(value, field.type):
                misfits[row] = "bad_field", f"field {field.name!r} is {KINDS[type(value)]}, not {field.type}"
                values[row] = None
    if pa.types.is_string(field.type):
        for row, value in enumerate(values):
            try:
                values[row] = value and value.encode().decode()
            except UnicodeEncodeError:
                misfits[row] = "lone_surrogate", f"half a surrogate pair in field {field.name!r}"
                values[row] = None
        return pa.array(values, pa.string())
    lines = [b'{"v":%s}\n' % _spell(value).encode() for value in values]
    schema = pa.schema([pa.field("v", field.type)])

    def parse(start: int, stop: int) -> pa.Array:
        return read_objects(b"".join(lines[start:stop]), schema).column("v").combine_chunks()

    parts = []
    for start, _, part in isolate(parse, len(lines), pa.ArrowInvalid) if lines else ():
        if isinstance(part, Exception):
            misfits[start] = "bad_field", f"field {field.name!r} is not {field.type}: {part}"
            part = pa.nulls(1, field.type)
        parts.append(part)
    column = pa.concat_arrays(parts) if parts else pa.nulls(0, field.type)
    # JSON has no infinity, so one is a number that the type cannot hold.
    for row in np.flatnonzero(is_infinite(column)).tolist():
        misfits[row] = "bad_field", f"field {field.name!r} is not {field.type}: a number is too large"
    return column


def _fits(value: Any, kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_boolean(kind):
        return isinstance(value, bool)
    if types.is_integer(kind) or types.is_floating(kind):
        return type(value) is Number and (value.is_integer or types.is_floating(kind))
    if types.is_list(kind):
        return isinstance(value, list)
    return isinstance(value, dict) if types.is_struct(kind) else type(value) is str


def is_infinite(column: pa.Array) -> Mask:
    """Returns bool[n]: the values that are no finite number or hold one; JSON has no others."""
    types = pa.types
    if types.is_floating(column.type):
        return pc.invert(pc.fill_null(pc.is_finite(column), True)).to_numpy(zero_copy_only=False)
    found = np.zeros(len(column), np.bool_)
    if types.is_struct(column.type):
        for each in column.flatten():
            found |= is_infinite(each)
    elif types.is_list(column.type):
        found[pc.list_parent_indices(column).to_numpy()[is_infinite(column.flatten())]] = True
    return found
