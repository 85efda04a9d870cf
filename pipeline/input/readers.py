# SPDX-License-Identifier: Apache-2.0
"""What reads each format of `config.formats`: a stream of bytes, or a file of rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from tokenmill.pipeline.config.formats import FORMATS
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input import arrow_file, json_array, jsonl, parquet, text, wet
from tokenmill.pipeline.input.batches import Part, Source
from tokenmill.pipeline.input.delimited import Delimited
from tokenmill.pipeline.input.streams import Stream
from tokenmill.pipeline.splits import Piece

Write = Callable[[Iterable[Mapping[str, Any]], InputConfig], bytes]


@dataclass(frozen=True)
class StreamReader:
    """Reads files that are streams of bytes, decompressed and in UTF-8."""

    read: Callable[[Stream, Source, InputConfig, int, pa.Schema], Iterator[Part]]
    """`read(stream, source, config, block_bytes, fields)` yields the documents and rejects, with the fields to keep."""
    first_names: Callable[[Stream, InputConfig], list[str]]
    """Returns the names of fields in the first records, in the order in which they are met."""
    write: Write
    """Returns a file of records."""
    check: Callable[[Stream, InputConfig], pa.Schema | None] | None = None
    """Returns, when a job is planned, which of the fields to keep a file has; None if only its records say it.
    ValueError if it cannot be read."""


@dataclass(frozen=True)
class RowReader:
    """Reads files of rows, in groups."""

    measure: Callable[[BinaryIO, InputConfig], tuple[list[int], pa.Schema]]
    """Returns the bytes of text in each group of rows, and the fields to keep; ValueError if it cannot be read."""
    read: Callable[[BinaryIO, Source, range, InputConfig, int, Any, pa.Schema], Iterator[Part]]
    """`read(handle, source, groups, config, batch_bytes, digest, fields)` yields the documents and rejects."""
    count_rows: Callable[[BinaryIO], list[int]]
    """Returns the number of rows in each group."""
    column_names: Callable[[BinaryIO], list[str]]
    write: Write


def _delimited(by: str) -> StreamReader:
    reader = Delimited(by)
    return StreamReader(reader.read, reader.first_names, reader.write, reader.check)


READERS: Mapping[str, StreamReader | RowReader] = {
    "jsonl": StreamReader(jsonl.read_jsonl, jsonl.first_names, jsonl.write),
    "json": StreamReader(json_array.read_json_array, json_array.first_names, json_array.write),
    "csv": _delimited(","),
    "tsv": _delimited("\t"),
    "text": StreamReader(text.read_text, text.first_names, text.write),
    "wet": StreamReader(wet.read_wet, wet.first_names, wet.write, wet.check),
    "parquet": RowReader(
        parquet.measure_row_groups, parquet.read_row_groups, parquet.count_rows, parquet.column_names, parquet.write
    ),
    "arrow": RowReader(
        arrow_file.measure, arrow_file.read, arrow_file.count_rows, arrow_file.column_names, arrow_file.write
    ),
}


def is_cut_by_bytes(piece: Piece, document: str) -> bool:
    """Returns whether records can be read by their byte ranges, without what comes before them in the file.

    Args:
      piece: the file.
      document: `input.document`.
    """
    return piece.is_read_as_stored and FORMATS[piece.format].separator(document) is not None


def row_reader(name: str) -> RowReader:
    """Returns the reader of a format that has rows."""
    reader = READERS[name]
    assert isinstance(reader, RowReader)
    return reader
