# SPDX-License-Identifier: Apache-2.0
"""What reads each format of `config.formats`: a stream of bytes, or a file of rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from tokenmill.pipeline.config.formats import FORMATS
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input import arrow_file, parquet
from tokenmill.pipeline.input.batches import Part, Source
from tokenmill.pipeline.input.cutting import StreamReader
from tokenmill.pipeline.input.delimited import Delimited
from tokenmill.pipeline.input.jsonl import JsonArray, JsonLines
from tokenmill.pipeline.input.text import TextReader
from tokenmill.pipeline.input.wet import WetReader
from tokenmill.pipeline.splits import Piece


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
    write: Callable[[Iterable[Mapping[str, Any]], InputConfig], bytes]
    """Returns a file of records."""


READERS: Mapping[str, StreamReader | RowReader] = {
    "jsonl": JsonLines(),
    "json": JsonArray(),
    "csv": Delimited(","),
    "tsv": Delimited("\t"),
    "text": TextReader(),
    "wet": WetReader(),
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


def stream_reader(name: str) -> StreamReader:
    """Returns the reader of a format that is a stream of bytes."""
    reader = READERS[name]
    assert isinstance(reader, StreamReader)
    return reader
