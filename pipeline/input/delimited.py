# SPDX-License-Identifier: Apache-2.0
r"""CSV and TSV: rows of cells under a row of names, as RFC 4180 has them.

A kernel finds the rows, so that each has its place in the file; Arrow reads their cells. Quoted cells may hold line
ends, delimiters, and quotes written twice. A row that has another number of cells than the header, text after a closing
quote, or a quote that is never closed, is rejected: nothing is guessed. After a row that cannot be read, reading goes
on with the next line. Cells have no null: an empty cell is an empty text, but no id, and no number or date.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.kept_fields import declared_fields
from tokenmill.pipeline.input.batches import Part, Source, lost, skipped
from tokenmill.pipeline.input.cells import Rows
from tokenmill.pipeline.input.columnar import check_columns
from tokenmill.pipeline.input.record_kernels import scan_rows
from tokenmill.pipeline.input.records import Records, Scan, cut_records
from tokenmill.pipeline.input.streams import Stream


class Delimited:
    """Reads files whose cells are separated by `input.delimiter`, or by that of the format."""

    def __init__(self, delimiter: str) -> None:
        """Takes the delimiter of the format."""
        self._usual = delimiter

    def read(
        self, stream: Stream, source: Source, config: InputConfig, block_bytes: int, fields: pa.Schema
    ) -> Iterator[Part]:
        """Yields the documents and rejects of a stream; a part is at most as large as a chunk and a record."""
        del block_bytes
        delimiter = self._delimiter(config)
        rows: Rows | None = None
        yield from skipped(stream.n_skipped)
        for item in cut_records(stream, _scan(delimiter), config.max_document_bytes):
            if not isinstance(item, Records):
                yield lost(item, stream, source, config.max_document_bytes)
                continue
            n_skipped = item.n_between
            if rows is None and item.starts.size:
                names = _names(item, delimiter)
                try:
                    _check_names(names, config)  # again: a replay may look for another column
                except ValueError as error:
                    raise ValueError(f"{source.path!r} {error}") from error
                rows = Rows(stream, source, config, fields, names, delimiter)
                n_skipped += int(item.nexts[0] - item.starts[0])
                columns = (item.starts[1:], item.ends[1:], item.nexts[1:], item.facts[1:])
                item = Records(item.offset, item.data, *columns)
            if rows is None or not item.starts.size:
                yield Part(None, None, len(item.data), n_skipped)
            else:
                yield rows.parse(item, n_skipped)

    def first_names(self, stream: Stream, config: InputConfig) -> list[str]:
        """Returns the names in the header; none if the file is empty.

        Raises:
          ValueError: when the first row is none that can be read.
        """
        delimiter = self._delimiter(config)
        for item in cut_records(stream, _scan(delimiter), config.max_document_bytes):
            if not isinstance(item, Records):
                raise ValueError(f"has a header of more than {config.max_document_bytes} bytes, or is damaged in it")
            if item.starts.size:
                return _names(item, delimiter)
        return []

    def check(self, stream: Stream, config: InputConfig) -> pa.Schema | None:
        """Returns those of the fields to keep that a file has; None if it is empty.

        Raises:
          ValueError: when its header lacks a column for the text, or names one twice.
        """
        names = self.first_names(stream, config)
        if not names:
            return None
        _check_names(names, config)
        found = [field for field in declared_fields(config) if field.name in names]
        for field in found:
            if pa.types.is_nested(field.type):
                raise ValueError(f"column {field.name!r} cannot be kept as {field.type}: a cell is one value")
        return pa.schema(found)

    def write(self, records: Iterable[Mapping[str, Any]], config: InputConfig) -> bytes:
        """Returns a file of records."""
        records = list(records)
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, list(records[0]), delimiter=self._delimiter(config), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return out.getvalue().encode()

    def _delimiter(self, config: InputConfig) -> str:
        return config.delimiter or self._usual


def _scan(delimiter: str) -> Scan:
    byte = ord(delimiter)
    return lambda data, is_last, state, found: scan_rows(data, byte, is_last, state, found)


def _names(records: Records, delimiter: str) -> list[str]:
    """Returns the names in the first of some records."""
    try:
        header = records.data[records.starts[0] : records.ends[0]].decode()
        return next(csv.reader(io.StringIO(header, newline=""), delimiter=delimiter, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"has a header that cannot be read: {error}; its first row must name the columns") from error


def _check_names(names: list[str], config: InputConfig) -> None:
    try:
        check_columns(pa.schema([pa.field(name, pa.string()) for name in names]), config)
    except ValueError as error:
        other = next((each for each in ";\t|," if len(names) == 1 and each in names[0]), None)
        advice = f"set input.delimiter to {other!r}" if other else "its first row must name the columns"
        raise ValueError(f"{error}; {advice}") from error
