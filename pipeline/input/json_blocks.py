# SPDX-License-Identifier: Apache-2.0
r"""Lines of JSON, many at once, by Arrow's parser: it is asked only about lines that it takes as their definition does.

`jsonl._parse_line` is the definition. Arrow's parser takes more: `NaN` and infinities, any depth, several values on a
line. So a line goes to it only if it is plain: it begins with `{` and ends with `}`, has no such literal, and cannot
nest too deep. As no JSON value holds `}`, a line end and `{` in a row, lines are one value each if there are
as many rows as lines. What Arrow refuses, or returns as null, is left to the definition.
"""

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tokenmill.pipeline.input.rejects import Mask, Positions

MAX_DEPTH = 256
"""How deep arrays and objects may nest. The standard library's own limit depends on how deep its caller's stack is."""

BLANK = b" \t\r"
_MOST_BLANKS = 8
"""So many bytes of white space are looked at for all lines at once."""
_IS_BLANK = np.isin(np.arange(256), list(BLANK))
_CHUNK_BYTES = 1 << 20
_LEADS = np.isin(np.arange(256), list(b":,["))
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)

_ENDS = re.compile(rb"(?:inity)?(?:[,}\] \t\r\n]|\Z)")
"""What follows a literal that Arrow takes; in English `, Inf` begins a word twenty times as often."""

Path = tuple[str, ...]
"""The names that lead to a field, from the outside in."""


def trim(values: np.ndarray, starts: Positions, ends: Positions) -> tuple[Positions, Positions]:
    """Returns int64[n] twice: where lines begin and end without white space around them; the same where blank.

    Args:
      values: uint8[n_bytes], the bytes that contain the lines.
      starts, ends: int64[n] each.
    """
    last = max(values.size - 1, 0)
    for _ in range(_MOST_BLANKS):
        more = (starts < ends) & _IS_BLANK[values[np.minimum(starts, last)]]
        less = (starts + more < ends) & _IS_BLANK[values[np.maximum(ends - 1, 0)]]
        if not more.any() and not less.any():
            return starts, ends
        starts, ends = starts + more, ends - less
    for row in np.flatnonzero(more | less).tolist():
        line = values[starts[row] : ends[row]].tobytes()
        starts[row] += len(line) - len(line.lstrip(BLANK))
        ends[row] = starts[row] + len(line.strip(BLANK))
    return starts, ends


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


def plain_lines(data: bytes, starts: Positions, ends: Positions) -> Mask:
    """Returns bool[n]: the lines about which Arrow may be asked.

    Args:
      data: the bytes that contain the lines.
      starts, ends: int64[n] each, in order: `data[start:end]` is not empty, with no white space around it.
    """
    values = np.frombuffer(data, np.uint8)
    is_plain = (values[starts] == ord("{")) & (values[ends - 1] == ord("}"))
    if not starts.size:
        return is_plain
    odd = np.array(_literals(data, values), np.int64)
    rows = np.searchsorted(starts, odd, "right") - 1
    is_plain[rows[rows >= 0]] = False
    for row in np.flatnonzero(_may_be_deep(values, starts, ends) & is_plain).tolist():
        is_plain[row] = not is_too_deep(data[starts[row] : ends[row]])
    return is_plain


def _literals(data: bytes, values: np.ndarray) -> list[int]:
    """Returns where `NaN` or `Inf` stands where a value of JSON may stand."""
    found = []
    for first, second, word in ((b"N", b"a", b"NaN"), (b"I", b"n", b"Inf")):
        places = np.flatnonzero(values[:-1] == first[0])
        for at in places[values[places + 1] == second[0]].tolist():
            if data.startswith(word, at) and _ENDS.match(data, at + len(word)):
                before = data[max(0, at - 64) : at].removesuffix(b"-").rstrip(BLANK)
                # Behind so much white space it may be one, too.
                if not before or before[-1:] in b":,[":
                    found.append(at)
    return found


def _may_be_deep(values: np.ndarray, starts: Positions, ends: Positions) -> Mask:
    """Returns bool[n]: the lines with more than `MAX_DEPTH` brackets that may open something inside of something."""
    is_deep = np.zeros(starts.size, np.bool_)
    if starts.size == 1 or (ends - starts).max() <= 2 * MAX_DEPTH:
        return ends - starts > 2 * MAX_DEPTH
    opened = np.flatnonzero((values | 0x20) == ord("{"))
    if opened.size <= MAX_DEPTH or (_counts(opened, starts, ends) <= MAX_DEPTH).all():
        return is_deep
    before = np.maximum(opened - 1, 0)
    for _ in range(_MOST_BLANKS):
        before = np.maximum(before - _IS_BLANK[values[before]], 0)
    found = values[before]
    opened = opened[_LEADS[found] | _IS_BLANK[found]]
    return _counts(opened, starts, ends) >= MAX_DEPTH


def _counts(places: Positions, starts: Positions, ends: Positions) -> Positions:
    return np.searchsorted(places, ends) - np.searchsorted(places, starts)


def gathered(data: bytes, starts: Positions, ends: Positions) -> tuple[bytes, Positions]:
    """Returns lines one behind another, each with a line end, and int64[n + 1], where each begins; as `plain_lines`."""
    bounds = np.concatenate([[0], np.cumsum(ends - starts + 1)])
    if starts.size and bounds[-1] == len(data) and (starts == bounds[:-1]).all() and data.endswith(b"\n"):
        return data, bounds
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    return b"\n".join([*(data[start:end] for start, end in places), b""]), bounds


def schema_of(leaves: Mapping[Path, pa.DataType]) -> pa.Schema:
    """Returns the schema of records with these fields.

    Raises:
      ValueError: when one is inside another.
    """
    inner: dict[str, dict[Path, pa.DataType]] = {}
    for (first, *rest), kind in leaves.items():
        inner.setdefault(first, {})[tuple(rest)] = kind
    fields = []
    for name, within in inner.items():
        if () in within and len(within) > 1:
            raise ValueError(f"{name!r} is a field and has fields")
        fields.append(pa.field(name, within[()] if () in within else pa.struct(list(schema_of(within)))))
    return pa.schema(fields)


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


def column_at(table: pa.Table, path: Path) -> pa.Array:
    """Returns the values of a field, null where it or what it is in is null."""
    column = table.column(path[0]).combine_chunks()
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


class Name:
    """A name that objects may have, in whatever way it is spelled."""

    def __init__(self, name: str) -> None:
        """Takes the name."""
        units = np.frombuffer(name.encode("utf-16-le"), np.uint16).tolist()
        self._plain = f'"{name}"'.encode()
        self._is_always = any(character < " " or character in '"\\/' for character in name)
        self._escapes = re.compile(rb"\\u(?:%s)" % b"|".join(b"%04x" % unit for unit in units), re.IGNORECASE)
        self._number = re.compile(re.escape(self._plain) + rb"[ \t\r]*:[ \t\r]*([-0-9.eE+]*)")

    def may_be_escaped(self, data: bytes) -> bool:
        """Returns whether lines may have it with an escape in it; False only if none does."""
        return self._is_always or (b"\\u" in data and self._escapes.search(data) is not None)

    def may_be_in(self, data: bytes) -> bool:
        """Returns whether lines may have it; False only if none does."""
        return self._plain in data or self.may_be_escaped(data)

    def numbers(self, data: bytes, bounds: Positions) -> pa.StringArray:
        """Returns string[n]: the number with this name in each line, as it is written.

        It is null where no object of the line has the name, or where several objects have it.

        Args:
          data: lines in which no name has an escape.
          bounds: int64[n + 1]: where each begins.
        """
        # A quote inside of a string has a backslash before it, so what is found is a name, or the end of a longer one.
        found = [(match.start(), match[1]) for match in self._number.finditer(data)]
        rows = np.searchsorted(bounds, np.array([at for at, _ in found], np.int64), "right") - 1
        counts = np.bincount(rows, minlength=bounds.size - 1)
        places = np.full(bounds.size - 1, -1)
        places[rows] = np.arange(rows.size)
        places = pa.array(places, mask=counts != 1)
        return pa.array([number for _, number in found], pa.string()).take(places)
