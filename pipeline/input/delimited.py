# SPDX-License-Identifier: Apache-2.0
r"""CSV and TSV: rows of cells under a row of names, as RFC 4180 has them.

A kernel finds the rows, so that each has its place in the file; Arrow reads their cells. Quoted cells may hold line
ends, delimiters, and quotes written twice. A row that has another number of cells than the header, text after a closing
quote, or a quote that is never closed, is rejected: nothing is guessed. After a row that cannot be read, reading goes
on with the next line. Cells have no null: an empty cell is an empty text, but no id, and no number or date.
"""

import csv
import io
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.kept_fields import TEXT, declared_fields, without_marks
from tokenmill.pipeline.input.batches import Part, join_texts, make_documents
from tokenmill.pipeline.input.columnar import check_columns, text_columns
from tokenmill.pipeline.input.cutting import KernelScanner, Records, Scanner, StreamReader, copied, cut
from tokenmill.pipeline.input.record_kernels import BROKEN, STRAY, UNCLOSED, scan_rows
from tokenmill.pipeline.input.rejects import Mask, Rejects, joined
from tokenmill.pipeline.input.streams import Stream
from tokenmill.pipeline.isolating import isolate

_LEAST_QUOTED = 1 << 20
"""A quoted cell with line ends is at least looked at so far, however small documents must be."""

_SHAPES = (
    (pa.types.is_integer, "^[-+]?(0[xX][0-9a-fA-F]+|[0-9]+)$"),
    (pa.types.is_floating, "(?i)^[-+0-9.einfaty]+$"),
    (pa.types.is_boolean, "(?i)^(true|false|0|1)$"),
    (pa.types.is_timestamp, "^[0-9]{4}"),
)
"""What every text matches that Arrow takes for a value of such a type: most columns of another type are told by it."""


class Delimited(StreamReader):
    """Reads rows of cells that `input.delimiter` separates, or that of the format; the first row names the columns."""

    has_header = True
    usual = ","
    """The delimiter of the format."""

    def __init__(self, config: InputConfig, *of_file: Any) -> None:
        """Takes how to read a file; see `StreamReader`."""
        super().__init__(config, *of_file)
        self._delimiter = config.delimiter or self.usual
        self._names: list[str] | None = None

    def scanner(self) -> Scanner:
        """Returns what finds rows."""
        # A row that is too large is one reject up to here, and told from a stray quote.
        return self._scanner(max(self._config.max_document_bytes, _LEAST_QUOTED))

    def _scanner(self, limit: int) -> Scanner:
        return KernelScanner(partial(_scan_rows, ord(self._delimiter), limit), limit)

    def names(self, records: Records) -> list[str]:
        """Returns the names in the header, which is the first of some records."""
        try:
            header = records.data[records.starts[0] : records.ends[0]].decode()
            return next(csv.reader(io.StringIO(header, newline=""), delimiter=self._delimiter, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            of_bytes = "set input.encoding, if it is not UTF-8"
            advice = of_bytes if isinstance(error, UnicodeDecodeError) else "its first row must name the columns"
            raise ValueError(f"has a header that cannot be read: {error}; {advice}") from error

    def first_names(self, stream: Stream) -> list[str]:
        """Returns the names in the header; none if the file is empty.

        Raises:
          ValueError: when the first row is none that can be read.
        """
        limit = self._config.max_document_bytes
        for item in cut(stream, self._scanner(limit), 1, limit):
            if not isinstance(item, Records):
                raise ValueError(f"has a header of more than {limit} bytes, or is damaged in it")
            if item.starts.size:
                return self.names(item)
        return []

    def check(self, stream: Stream) -> pa.Schema | None:
        """Returns those of the fields to keep that a file has; None if it is empty.

        Raises:
          ValueError: when its header lacks a column for the text, or names one twice.
        """
        names = self.first_names(stream)
        if not names:
            return None
        _check_names(names, self._config)
        found = [field for field in declared_fields(self._config) if field.name in names]
        for field in found:
            if pa.types.is_nested(field.type):
                raise ValueError(f"column {field.name!r} cannot be kept as {field.type}: a cell is one value")
        return pa.schema(found)

    def _take_header(self, records: Records) -> None:
        try:
            names = self.names(records)
            _check_names(names, self._config)  # again: a replay may look for another column
        except ValueError as error:
            raise ValueError(f"{self._source.path!r} {error}") from error
        self._names = names
        self._numbers = {name: str(number) for number, name in enumerate(names)}
        """What Arrow shall call each column; two columns that are not used may have one name."""
        config = self._config
        used = [*text_columns(config), *([config.id_field] if config.id_field else []), *self._fields.names]
        self._used = [self._numbers[name] for name in dict.fromkeys(used) if name in self._numbers]

    def parse(self, records: Records) -> Part:
        """Returns the documents and rejects of rows; the header is among the skipped bytes."""
        n_skipped, rejects = records.n_between, Rejects(self._source.path)
        if self._names is None:
            self._take_header(records)
            n_skipped += int(records.nexts[0] - records.starts[0])
            records = records.take(slice(1, None))
        rows = np.flatnonzero(self._reject_rows(records, rejects))
        starts, sizes = records.starts[rows], (records.nexts - records.starts)[rows]
        table = self._cells(copied(records.data, starts, records.nexts[rows]))
        if table.num_rows != rows.size:
            raise RuntimeError(f"{rows.size} rows are read as {table.num_rows}; this is a bug in the reader of CSV")
        kept, misfits = self._keep(table)
        for row, detail in sorted(misfits.items()):
            start = int(starts[row])
            sample = records.data[start : records.ends[rows[row]]]
            rejects.add(records.offset + start, int(sizes[row]), "bad_field", detail, sample)
        if kept is not None and misfits:
            left = np.setdiff1d(np.arange(rows.size), list(misfits))
            table, starts, sizes, kept = table.take(left), starts[left], sizes[left], kept.take(pa.array(left))
        there = [name for name in text_columns(self._config) if name in self._numbers]
        texts = join_texts([self._column(table, name) for name in there], self._config.join)
        ids = None
        if self._config.id_field in self._numbers:
            ids = _or_null(self._column(table, self._config.id_field))
        documents = make_documents(self._source, texts, ids, records.offset + starts, sizes, kept)
        return Part(documents, rejects.to_batch(), len(records.data), n_skipped)

    def _reject_rows(self, records: Records, rejects: Rejects) -> Mask:
        """Adds rows that have not the shape of a row to rejects; returns bool[n], the others."""
        assert self._names is not None
        facts, n_cells, limit = records.facts, len(self._names), self._config.max_document_bytes
        good = ~self._reject_too_large(rejects, records)
        stray = f"a quoted cell has line ends, but no row of {n_cells} cells and at most {limit} bytes comes of it"
        for fact, detail in (
            (BROKEN, "text follows the quote that closes a cell"),
            (UNCLOSED, "the file ends before the quote that closes a cell"),
            (STRAY, stray),
        ):
            wrong = good & (facts == fact)
            self._reject(rejects, records, wrong, "bad_quotes", detail)
            good &= ~wrong
        wrong = good & (facts != n_cells)
        self._reject(
            rejects, records, wrong, "wrong_cells", joined(facts[wrong], f" cells, but the header has {n_cells}")
        )
        good &= ~wrong
        return good & ~self._reject_invalid(rejects, records, good)

    def _cells(self, data: bytes) -> pa.Table:
        """Returns string[n] for each column that is used."""
        names = [str(number) for number in range(len(self._names or ()))]
        if not data:
            return pa.table({name: pa.array([], pa.string()) for name in self._used})
        data = b"\n" + data  # a blank line: Arrow would drop a byte order mark at the beginning
        return pacsv.read_csv(
            io.BytesIO(data),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=pacsv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(
                check_utf8=False, include_columns=self._used, column_types=dict.fromkeys(self._used, pa.string())
            ),
        )

    def _column(self, table: pa.Table, name: str | None) -> pa.Array:
        assert name is not None
        return table.column(self._numbers[name]).combine_chunks()

    def _keep(self, table: pa.Table) -> tuple[pa.StructArray | None, dict[int, str]]:
        """Returns the kept fields, and by row what is wrong with a cell."""
        misfits: dict[int, str] = {}
        columns = []
        for field in self._fields:
            if field.name not in self._numbers:
                columns.append(pa.nulls(table.num_rows, field.type))
                continue
            column = self._column(table, field.name)
            if not pa.types.is_string(field.type) and TEXT not in (field.metadata or {}):
                column = _or_null(column)
            column, wrong = _parse(column, field.type)
            misfits |= dict.fromkeys(wrong, f"column {field.name!r} is not {field.type}")
            columns.append(column)
        if not columns:
            return None, misfits
        return pa.StructArray.from_arrays(columns, fields=without_marks(self._fields)), misfits


class TabDelimited(Delimited):
    """Reads rows of cells that tabs separate."""

    usual = "\t"


def _or_null(column: pa.Array) -> pa.Array:
    """Returns string[n] with null in place of an empty text."""
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def _parse(column: pa.Array, type_: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Returns texts as values of a type, and which of them are none, which become null."""
    shape = next((shape for is_kind, shape in _SHAPES if is_kind(type_)), "")
    is_wrong = pc.fill_null(pc.invert(pc.match_substring_regex(column, shape)), False)
    values, others = _cast(pc.if_else(is_wrong, pa.scalar(None, pa.string()), column), type_)
    if pa.types.is_floating(type_):  # a number that is too large for the type becomes infinite
        is_beyond = pc.and_(pc.is_inf(values), pc.invert(pc.match_substring(column, "inf", ignore_case=True)))
        others += np.flatnonzero(pc.fill_null(is_beyond, False)).tolist()
    return values, np.flatnonzero(is_wrong).tolist() + others


def _cast(column: pa.Array, type_: pa.DataType) -> tuple[pa.Array, list[int]]:
    """As `_parse`; what is wrong is found by halving, which takes 30 µs each."""
    parts, wrong = [], []
    for start, stop, part in isolate(lambda start, stop: column[start:stop].cast(type_), len(column), pa.ArrowInvalid):
        if isinstance(part, Exception):
            wrong.append(start)
            part = pa.nulls(stop - start, type_)
        parts.append(part)
    return pa.concat_arrays(parts), wrong


def _scan_rows(delimiter: int, limit: int, data: Any, is_last: bool, state: Any, found: Any) -> int:
    return int(scan_rows(data, delimiter, limit, is_last, state, found))


def _check_names(names: list[str], config: InputConfig) -> None:
    try:
        check_columns(pa.schema([pa.field(name, pa.string()) for name in names]), config)
    except ValueError as error:
        other = next((each for each in ";\t|," if len(names) == 1 and each in names[0]), None)
        advice = f"set input.delimiter to {other!r}" if other else "its first row must name the columns"
        raise ValueError(f"{error}; {advice}") from error
