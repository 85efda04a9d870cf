# SPDX-License-Identifier: Apache-2.0
"""Finds the values of fields in lines of JSON, without parsing the rest of the line.

The reference implementation is `find_slowly`. It also handles the lines that the kernel leaves to it: those with
escapes in a name that matters.
"""

import json
from collections.abc import Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

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
    put_texts,
)

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
