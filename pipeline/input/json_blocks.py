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
_PIECE_BYTES = 1 << 18
_LEADS = np.isin(np.arange(256), list(b":,[" + BLANK))
_FOLLOWS = np.isin(np.arange(256), list(b'"[]{}-0123456789tfn' + BLANK))
"""What is before and behind a bracket that opens something inside of something; more white space may hide it."""
_WORDS, _WORDS_2 = np.isin(np.arange(256), list(b"tfn")), np.isin(np.arange(256), list(b"rau"))
"""What `true`, `false` and `null` begin with."""
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
      starts, ends: int64[n] each, in order: `data[start:end]` begins with `{` and ends with `}`.
    """
    values = np.frombuffer(data, np.uint8)
    is_plain = np.ones(starts.size, np.bool_)
    literals, n_open = _look_through(values)
    odd = np.array([at for at in literals if _is_value(data, at)], np.int64)
    rows = np.searchsorted(starts, odd, "right") - 1
    is_plain[rows[rows >= 0]] = False
    # Each line begins with a bracket, so most blocks have too few for one that nests too deep.
    if n_open >= MAX_DEPTH + np.count_nonzero(is_plain):
        for row in np.flatnonzero(is_plain & _may_be_deep(values, starts, ends)).tolist():
            is_plain[row] = not is_too_deep(data[starts[row] : ends[row]])
    return is_plain


def _look_through(values: np.ndarray) -> tuple[list[int], int]:
    """Returns where `NaN` or `Inf` stands, and how many brackets open something.

    A comparison in NumPy takes 0.02 ms for a megabyte, `bytes.find` 0.6 for a word. Arrays as large as a block would be
    taken from the system each time, and given back, which takes ten times as long as filling them.
    """
    found, n_open = list[int](), 0
    is_here, is_also, folded = np.empty((3, _PIECE_BYTES + 2), np.uint8)
    is_here, is_also = is_here.view(np.bool_), is_also.view(np.bool_)
    for start in range(0, values.size, _PIECE_BYTES):
        piece = values[start : start + _PIECE_BYTES + 2]
        n = max(0, piece.size - 2)
        here, also = is_here[:n], is_also[:n]
        for word in (b"NaN", b"Inf"):
            np.equal(piece[:n], word[0], out=here)
            for i in (2, 1):
                here &= np.equal(piece[i : n + i], word[i], out=also)
            if here.any():
                found += (np.flatnonzero(here) + start).tolist()
        own = piece[:_PIECE_BYTES]
        n_open += int(np.count_nonzero(_is_open(own, folded[: own.size], is_also[: own.size])))
    return found, n_open


def _is_open(values: np.ndarray, folded: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Returns bool[n], in `out`: the bytes that are `[` or `{`; `folded`, uint8[n], is overwritten."""
    return np.equal(np.bitwise_or(values, 0x20, out=folded), ord("{"), out=out)


def _is_value(data: bytes, at: int) -> bool:
    """Returns whether `NaN` or `Inf` stands where a value of JSON may stand."""
    if not _ENDS.match(data, at + 3):
        return False
    before = data[max(0, at - 64) : at].removesuffix(b"-").rstrip(BLANK)
    # Behind so much white space it may be one, too.
    return not before or before[-1:] in b":,["


def _may_be_deep(values: np.ndarray, starts: Positions, ends: Positions) -> Mask:
    """Returns bool[n]: lines with more than `MAX_DEPTH` brackets that may open something inside of something."""
    is_deep = np.asarray(ends - starts > 2 * MAX_DEPTH)
    if starts.size == 1 or not is_deep.any():
        return is_deep
    folded, is_open = np.empty((2, _PIECE_BYTES), np.uint8)
    places = []
    for start in range(0, values.size, _PIECE_BYTES):
        piece = values[start : start + _PIECE_BYTES]
        found = _is_open(piece, folded[: piece.size], is_open.view(np.bool_)[: piece.size])
        places.append(np.flatnonzero(found) + start)
    opened = np.concatenate(places)
    is_deep &= _counts(opened, starts, ends) > MAX_DEPTH
    if not is_deep.any():
        return is_deep
    last = values.size - 1
    before, after = np.maximum(opened - 1, 0), np.minimum(opened + 1, last)
    for _ in range(_MOST_BLANKS):
        before = np.maximum(before - _IS_BLANK[values[before]], 0)
        after = np.minimum(after + _IS_BLANK[values[after]], last)
    is_inner = _LEADS[values[before]] & _FOLLOWS[values[after]]
    is_inner &= ~_WORDS[values[after]] | _WORDS_2[values[np.minimum(after + 1, last)]]
    return is_deep & (_counts(opened[is_inner], starts, ends) >= MAX_DEPTH)


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


def read_objects(data: bytes, schema: pa.Schema, *, only_these: bool = False) -> pa.Table:
    """Returns the fields of a schema of lines that are JSON objects, which must end with a line end.

    Raises:
      pa.ArrowInvalid: when a line is no JSON, a field is not of its type, or has its name twice; with `only_these`,
        when there is another field, too.
    """
    return pj.read_json(
        pa.BufferReader(pa.py_buffer(data)),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=False,
            unexpected_field_behavior="error" if only_these else "ignore",
        ),
    )


def column_at(table: pa.Table, path: Path) -> pa.Array:
    """Returns the values of a field, null where it or what it is in is null."""
    chunks = table.column(path[0])
    column = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()  # which would copy
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
