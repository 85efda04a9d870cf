# SPDX-License-Identifier: Apache-2.0
"""Texts, ids and kept fields of many lines of JSON as columns, where Arrow's parser can tell them."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.kept_fields import TEXT, without_marks
from tokenmill.pipeline.input.batches import join_texts
from tokenmill.pipeline.input.json_blocks import Name, Path, column_at, gathered, plain_lines, read_objects, schema_of
from tokenmill.pipeline.input.json_values import Number, decode, is_infinite
from tokenmill.pipeline.input.nested import is_nested
from tokenmill.pipeline.input.rejects import Mask, Positions
from tokenmill.pipeline.isolating import isolate

_FEW = 64
"""So few lines are judged one by one if one is at fault: for short ones calls of Arrow, 60 µs each, are as slow."""
_MOST_OTHERS, _FEW_LINES, _SHORT_BYTES = 100, 8, 1 << 14
_MINUS_ZERO = re.compile(rb":[ \t\r]*-0")


class _NotPlainError(ValueError):
    pass


_UNUSUAL = (pa.ArrowInvalid, _NotPlainError)
_KINDS = {str: pa.string(), bool: pa.bool_(), Number: pa.float64(), type(None): pa.null()}
"""What to read values as, of which only is looked at whether they are JSON."""
Isolated = tuple[int, int, tuple[pa.RecordBatch, Mask] | Exception]


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
        self._others: dict[Path, pa.DataType] | None = {}
        """The other fields that all lines have, if they have no more, as far as it is known; None if they differ."""
        # What follows are the fields whose type the lines decide: Arrow has to be told.
        self._open: list[str] = []
        names = [*fields.names, *([] if self._id is None else [self._id])]
        self._names = {name: Name(name) for field in names for name in (field, field.split(".")[-1])}
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
            schema_of(self._types)
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
        taken: list[Positions] = [rows[:0]]
        batches = []
        if self._can_read and rows.size:
            isolated = self._take_known(*gathered(data, starts[rows], ends[rows]))
            if isolated is None:
                rows = rows[plain_lines(data, starts[rows], ends[rows])]
                lines, bounds = gathered(data, starts[rows], ends[rows])

                def read(start: int, stop: int) -> tuple[pa.RecordBatch, Mask]:
                    stretch = lines[bounds[start] : bounds[stop]]
                    return self._read(stretch, bounds[start : stop + 1] - bounds[start])

                isolated = isolate(read, rows.size, _UNUSUAL, _FEW) if rows.size else ()
            for start, stop, result in isolated:
                if not isinstance(result, Exception):
                    batch, is_usual = result
                    batches.append(batch if is_usual.all() else batch.filter(pa.array(is_usual)))
                    taken.append(rows[start:stop][is_usual])
        batches = batches or [pa.RecordBatch.from_pylist([], schema=self.schema)]
        return np.concatenate(taken), batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def _take_known(self, lines: bytes, bounds: Positions) -> Iterable[Isolated] | None:
        """Returns the columns of lines that have no field but those in a few of them; None if that is not so.

        If each of these is read, nothing can be hidden in another one: no literal that is not JSON, and no depth.
        """
        if self._others is None:
            return None
        try:
            if not self._others:
                self._others = self._others_in(lines, bounds)
            return [(0, bounds.size - 1, self._read(lines, bounds, self._others))]
        except _UNUSUAL:
            self._others = None  # other lines will not have them, either
            return None

    def _others_in(self, lines: bytes, bounds: Positions) -> dict[Path, pa.DataType]:
        """Returns the fields of a few short lines that are not used; those with lists and objects are left out."""
        sizes = np.diff(bounds)
        short = np.flatnonzero(sizes <= max(_SHORT_BYTES, int(sizes.min())))
        used = {path[0] for path in self._types}
        found: dict[Path, pa.DataType] = {}
        for row in short[:: -(-short.size // _FEW_LINES)].tolist():
            try:
                record = decode(lines[bounds[row] : bounds[row + 1]])
                "".join(record).encode()  # a name may have half of a surrogate pair
            except (ValueError, RecursionError) as error:
                raise _NotPlainError(str(error)) from error
            for name, value in record.items():
                if name not in used and type(value) in _KINDS and found.get((name,), pa.null()) == pa.null():
                    found[name,] = _KINDS[type(value)]
        if len(found) > _MOST_OTHERS:
            raise _NotPlainError("there are too many fields")
        return found

    def _read(
        self, lines: bytes, bounds: Positions, others: Mapping[Path, pa.DataType] | None = None
    ) -> tuple[pa.RecordBatch, Mask]:
        """Returns the columns of lines, and bool[n]: which of them are what the definition says.

        Args:
          lines: the lines, one behind another.
          bounds: int64[n + 1]: where each begins.
          others: all fields that they have besides those that are read; None: any.

        Raises:
          pa.ArrowInvalid, _NotPlainError: when that is not so for all of them.
        """
        table = self._parse(lines, bounds, others)
        if any(is_infinite(column_at(table, path)).any() for path in others or ()):
            raise _NotPlainError("a number may be no JSON")
        n = bounds.size - 1
        if table.num_rows != n:
            raise _NotPlainError(f"{n} lines have {table.num_rows} values")
        texts = [column_at(table, (name,)) for name in self._texts]
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

    def _parse(self, lines: bytes, bounds: Positions, others: Mapping[Path, pa.DataType] | None) -> pa.Table:
        """Returns the fields of lines; where an open field seems to hold integers, other numbers are tried, too."""
        if self._open:
            self._look(_shortest(lines, bounds))
        try:
            return read_objects(lines, schema_of({**self._types, **(others or {})}), only_these=others is not None)
        except pa.ArrowInvalid:
            open_paths = {path for name in self._open for path in _paths(name)}
            integers = [path for path in open_paths if self._types[path] == pa.int64()]
            if not integers:
                raise
            before = self._types
            self._types = before | dict.fromkeys(integers, pa.float64())
            try:
                return read_objects(lines, schema_of({**self._types, **(others or {})}), only_these=others is not None)
            except pa.ArrowInvalid:
                self._types = before
                raise

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
        own, *nested = (column_at(table, path) for path in _paths(field))
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


def _shortest(lines: bytes, bounds: Positions) -> bytes:
    row = int(np.argmin(np.diff(bounds)))
    return lines[bounds[row] : bounds[row + 1]]


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
