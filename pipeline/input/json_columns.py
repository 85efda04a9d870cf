# SPDX-License-Identifier: Apache-2.0
r"""Texts, ids and kept fields of many lines of JSON as columns, where Arrow's parser can tell them.

`jsonl._parse_line` is the definition. Arrow's parser takes more: `NaN` and infinities, any depth, several values on a
line. So a line goes to it only if it is plain: it begins with `{` and ends with `}`, has no such literal, and cannot
nest too deep. As no JSON value holds `}`, a line end and `{` in a row, lines are one value each if there are
as many rows as lines. What Arrow refuses, or returns as null, is left to the definition.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.kept_fields import TEXT, without_marks
from tokenmill.pipeline.input.batches import join_texts
from tokenmill.pipeline.input.json_values import (
    BLANK,
    MAX_DEPTH,
    Number,
    decode,
    is_infinite,
    is_nested,
    is_too_deep,
    read_objects,
)
from tokenmill.pipeline.input.rejects import Mask, Positions
from tokenmill.pipeline.isolating import isolate

_FEW = 64
"""So few lines are judged one by one if one is at fault: for short ones calls of Arrow, 60 µs each, are as slow."""
_MOST_BLANKS = 8
"""So many bytes of white space are looked at for all lines at once."""
_IS_BLANK = np.isin(np.arange(256), list(BLANK))
_PIECE_BYTES = 1 << 18
_ENDS = re.compile(rb"(?:inity)?(?:[,}\] \t\r\n]|\Z)")
"""What follows a literal that Arrow takes; in English `, Inf` begins a word twenty times as often."""
_MINUS_ZERO = re.compile(rb":[ \t\r]*-0")

Path = tuple[str, ...]
"""The names that lead to a field, from the outside in."""


class _NotPlainError(ValueError):
    pass


class Columns:
    """Takes columns of lines."""

    def __init__(self, config: InputConfig, fields: pa.Schema) -> None:
        """Takes which fields hold text and id, and the fields to keep, as `kept_fields.settle_fields` returned them."""
        kept = [pa.field("fields", pa.struct(without_marks(fields)))] if len(fields) else []
        self.schema = pa.schema([("text", pa.string()), ("id", pa.string()), *kept])
        """Of what `take` returns."""
        self._fields = fields
        self._join = config.join
        self._texts = config.text_fields or [config.text_field]
        self._id = config.id_field
        self._types: dict[Path, pa.DataType] = {}
        # What follows are the fields whose type the lines decide: Arrow has to be told.
        self._open: list[str] = []
        names = [*fields.names, *([] if self._id is None else [self._id])]
        self._names = {name: _Name(name) for field in names for name in (field, field.split(".")[-1])}
        self._can_read = config.messages_field is None and not any(map(is_nested, self._texts)) and self._settle()

    def _settle(self) -> bool:
        """Settles the types to read; returns whether Arrow can read them."""
        kinds = {name: pa.string() for name in self._texts}
        for field in self._fields:
            is_open = TEXT in (field.metadata or {})
            if not _is_readable(field.type) or kinds.setdefault(field.name, field.type) != field.type:
                return False
            if is_open and field.name not in self._texts:
                self._open.append(field.name)
        if self._id is not None and self._id not in kinds:
            kinds[self._id] = pa.string()
            self._open.append(self._id)
        self._types = {path: kind for name, kind in kinds.items() for path in _paths(name)}
        try:
            _schema_of(self._types)
        except ValueError:
            return False
        return True

    def take(self, data: bytes, starts: Positions, ends: Positions) -> tuple[Positions, pa.RecordBatch]:
        """Returns the numbers of lines about which nothing is unusual, in order, and their columns.

        Args:
          data: the bytes that contain the lines.
          starts, ends: int64[n] each, in order: `data[start:end]` is a line that is not empty, with no white space
            around it.
        """
        values = np.frombuffer(data, np.uint8)
        rows = np.flatnonzero((values[starts] == ord("{")) & (values[ends - 1] == ord("}")))
        taken, batches = [rows[:0]], [pa.RecordBatch.from_pylist([], schema=self.schema)]
        rows = rows[plain_lines(data, starts[rows], ends[rows])] if self._can_read else rows[:0]
        if rows.size:
            lines, bounds = _gathered(data, starts[rows], ends[rows])

            def read(start: int, stop: int) -> tuple[pa.RecordBatch, Mask]:
                stretch = lines[bounds[start] : bounds[stop]]
                return self._read(stretch, bounds[start : stop + 1] - bounds[start])

            for start, stop, result in isolate(read, rows.size, (pa.ArrowInvalid, _NotPlainError), _FEW):
                if not isinstance(result, Exception):
                    batch, is_usual = result
                    batches.append(batch if is_usual.all() else batch.filter(pa.array(is_usual)))
                    taken.append(rows[start:stop][is_usual])
        return np.concatenate(taken), batches[1] if len(batches) == 2 else pa.concat_batches(batches)

    def _read(self, lines: bytes, bounds: Positions) -> tuple[pa.RecordBatch, Mask]:
        """Returns the columns of lines, and bool[n]: which of them are what the definition says.

        Args:
          lines: the lines, one behind another.
          bounds: int64[n + 1]: where each begins.

        Raises:
          pa.ArrowInvalid, _NotPlainError: when that is not so for all of them.
        """
        table, n = self._parse(lines, bounds), bounds.size - 1
        if table.num_rows != n:
            raise _NotPlainError(f"{n} lines have {table.num_rows} values")
        texts = [_column_at(table, (name,)) for name in self._texts]
        text = join_texts(texts, self._join) if len(texts) > 1 else texts[0]
        is_usual = text.is_valid().to_numpy(zero_copy_only=False)
        ids = pa.nulls(n, pa.string())
        if self._id is not None:
            column, is_sure, name = self._column(table, self._id, lines)
            if pa.types.is_integer(column.type):
                ids = column.cast(pa.string())
            elif pa.types.is_boolean(column.type):
                raise _NotPlainError("true and false are no ids")
            else:
                ids, is_also_sure = self._spelled(column, name, lines, bounds)
                is_sure &= is_also_sure
                if not pa.types.is_string(column.type):
                    ids = pc.replace_with_mask(ids, pc.fill_null(pc.equal(ids, "-0"), False), "0")
            is_usual &= is_sure
        kept = []
        for field in self._fields:
            column, is_sure, name = self._column(table, field.name, lines)
            if TEXT in (field.metadata or {}):
                column, is_also_sure = self._spelled(column, name, lines, bounds)
            else:
                is_also_sure = ~is_infinite(column)
            is_usual &= is_sure & is_also_sure
            kept.append(column)
        fields = [pa.StructArray.from_arrays(kept, fields=without_marks(self._fields))] if kept else []
        return pa.RecordBatch.from_arrays([text, ids, *fields], schema=self.schema), is_usual

    def _parse(self, lines: bytes, bounds: Positions) -> pa.Table:
        """Returns the fields of lines; where an open field seems to hold integers, other numbers are tried, too."""
        if self._open:
            shortest = int(np.argmin(np.diff(bounds)))
            self._look(lines[bounds[shortest] : bounds[shortest + 1]])
        try:
            return read_objects(lines, _schema_of(self._types))
        except pa.ArrowInvalid:
            integers = [path for name in self._open for path in _paths(name) if self._types[path] == pa.int64()]
            if not integers:
                raise
            types = self._types | dict.fromkeys(integers, pa.float64())
            table = read_objects(lines, _schema_of(types))
            self._types = types
            return table

    def _look(self, line: bytes) -> None:
        """Sets the types of open fields to those in a line; an absent field leaves its type as it is."""
        try:
            record = decode(line)
        except (ValueError, RecursionError):
            return  # Arrow will say so
        for name in self._open:
            for path in _paths(name):
                value = record
                for key in path:
                    value = value.get(key) if isinstance(value, dict) else None
                if isinstance(value, dict | list):
                    raise _NotPlainError(f"the spelling of {name!r} counts")
                if type(value) is Number:
                    is_integer = value.is_integer and self._types[path] != pa.float64()
                    self._types[path] = pa.int64() if is_integer else pa.float64()
                elif value is not None:
                    self._types[path] = pa.bool_() if isinstance(value, bool) else pa.string()

    def _column(self, table: pa.Table, field: str, lines: bytes) -> tuple[pa.Array, Mask, str]:
        """Returns the values of a field; bool[n]: where they are sure; and the name that it has in its object."""
        own, *nested = (_column_at(table, path) for path in _paths(field))
        is_sure = np.ones(len(own), np.bool_)
        if not nested:
            return own, is_sure, field
        # `a.b` is the field "a.b" if a line has one, be it null, else the field "b" inside "a".
        if self._names[field].may_be_in(lines):
            is_sure = own.is_valid().to_numpy(zero_copy_only=False)
        if own.null_count == len(own):
            return nested[0], is_sure, field.rsplit(".", maxsplit=1)[-1]
        return own, is_sure, field

    def _spelled(self, column: pa.Array, name: str, lines: bytes, bounds: Positions) -> tuple[pa.Array, Mask]:
        """Returns values as text, numbers as they are written; and bool[n]: where that is sure."""
        is_sure = np.ones(len(column), np.bool_)
        if pa.types.is_floating(column.type):
            if self._names[name].may_be_escaped(lines):
                raise _NotPlainError(f"{name!r} may be spelled with escapes")
            is_there = column.is_valid()
            texts = pc.if_else(is_there, self._names[name].numbers(lines, bounds), pa.scalar(None, pa.string()))
            is_sure = pc.equal(texts.is_valid(), is_there).to_numpy(zero_copy_only=False)
            return texts, is_sure & ~is_infinite(column)
        if pa.types.is_integer(column.type) and _MINUS_ZERO.search(lines):
            is_sure = ~pc.fill_null(pc.equal(column, 0), False).to_numpy(zero_copy_only=False)
        return column if pa.types.is_string(column.type) else column.cast(pa.string()), is_sure


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


def plain_lines(data: bytes, starts: Positions, ends: Positions) -> Mask:
    """Returns bool[n]: the lines about which Arrow may be asked.

    Args:
      data: the bytes that contain the lines.
      starts, ends: int64[n] each, in order: `data[start:end]` begins with `{` and ends with `}`.
    """
    is_plain = np.ones(starts.size, np.bool_)
    literals, opened = _look_through(np.frombuffer(data, np.uint8))
    odd = np.array([at for at in literals if _is_value(data, at)], np.int64)
    rows = np.searchsorted(starts, odd, "right") - 1
    is_plain[rows[rows >= 0]] = False
    n_opened = np.searchsorted(opened, ends) - np.searchsorted(opened, starts)
    for row in np.flatnonzero(is_plain & (n_opened > MAX_DEPTH)).tolist():
        is_plain[row] = not is_too_deep(data[starts[row] : ends[row]])
    return is_plain


def _look_through(values: np.ndarray) -> tuple[list[int], Positions]:
    """Returns where `NaN` or `Inf` stands, and int64[n], where a bracket opens something.

    A comparison in NumPy takes 0.02 ms for a megabyte, `bytes.find` 0.6 for a word. Arrays as large as a block would be
    taken from the system each time, and given back, which takes ten times as long as filling them.
    """
    literals, opened = list[int](), [np.zeros(0, np.int64)]
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
                literals += (np.flatnonzero(here) + start).tolist()
        own = piece[:_PIECE_BYTES]
        both = np.bitwise_or(own, 0x20, out=folded[: own.size])  # `[` becomes `{`
        opened.append(np.flatnonzero(np.equal(both, ord("{"), out=is_also[: own.size])) + start)
    return literals, np.concatenate(opened)


def _is_value(data: bytes, at: int) -> bool:
    """Returns whether `NaN` or `Inf` stands where a value of JSON may stand."""
    if not _ENDS.match(data, at + 3):
        return False
    before = data[max(0, at - 64) : at].removesuffix(b"-").rstrip(BLANK)
    # Behind so much white space it may be one, too.
    return not before or before[-1:] in b":,["


def _gathered(data: bytes, starts: Positions, ends: Positions) -> tuple[bytes, Positions]:
    """Returns lines one behind another, each with a line end, and int64[n + 1], where each begins; as `plain_lines`."""
    bounds = np.concatenate([[0], np.cumsum(ends - starts + 1)])
    if starts.size and bounds[-1] == len(data) and (starts == bounds[:-1]).all() and data.endswith(b"\n"):
        return data, bounds
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    return b"\n".join([*(data[start:end] for start, end in places), b""]), bounds


def _schema_of(leaves: Mapping[Path, pa.DataType]) -> pa.Schema:
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
        fields.append(pa.field(name, within[()] if () in within else pa.struct(list(_schema_of(within)))))
    return pa.schema(fields)


def _column_at(table: pa.Table, path: Path) -> pa.Array:
    """Returns the values of a field, null where it or what it is in is null."""
    chunks = table.column(path[0])
    column = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()  # which would copy
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


class _Name:
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


def _paths(name: str) -> Sequence[Path]:
    return [(name,), tuple(name.split("."))] if is_nested(name) else [(name,)]


def _is_readable(kind: pa.DataType) -> bool:
    """Returns whether Arrow takes the values that are declared so, and no others; see `json_values`."""
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_timestamp(kind)
        or (types.is_list(kind) and _is_readable(kind.value_type))
        or (types.is_struct(kind) and all(_is_readable(each.type) for each in kind))
    )
