# SPDX-License-Identifier: Apache-2.0
"""The table of a shard's documents: their ids, where each came from, and which rows hold its tokens.

Rows of a shard hold tokens, and not all formats can store more. The table leads from any row back to its documents
and to the bytes they were read from.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.columns import row_bytes
from tokenmill.pipeline.config.kept_fields import without_marks
from tokenmill.pipeline.config.output import KEEPS_FIELDS
from tokenmill.pipeline.output.placement import Placement
from tokenmill.pipeline.output.staging import StagedFile
from tokenmill.pipeline.output.writers.parquet import RowGroups
from tokenmill.pipeline.parquet_file import open_parquet, whole

_LIMITS = (1 << 18, 16 << 20)
"""Limits of a row group: its rows, and the bytes of its strings."""

_ENCODINGS = {
    "doc_id": "DELTA_BYTE_ARRAY",
    **dict.fromkeys((*schemas.PLACES.names, "n_tokens"), "DELTA_BINARY_PACKED"),
    "rows.list.element": "DELTA_BINARY_PACKED",
    "starts.list.element": "DELTA_BINARY_PACKED",
}
"""These columns store differences of neighbours, because their values mostly ascend."""


class DocumentTable:
    """Writes the table of one shard. Holds a row group and, if rows are packed, the documents not yet in any."""

    def __init__(self, file: StagedFile, *, has_segments: bool, fields: Sequence[pa.Field] = ()) -> None:
        """Starts a table.

        Args:
          file: open for writing, at its start.
          has_segments: whether rows are packed sequences or windows; `place` then tells which of them hold a document.
          fields: the kept fields to store here.
        """
        self._fields = pa.schema(fields)
        self._file = file
        self._schema = schemas.listed_documents(has_segments=has_segments, fields=fields)
        self._has_segments = has_segments
        self._n_rows = self._n_tokens = 0
        self._waiting: list[pa.RecordBatch] = []
        self._placed: list[Placement] = []
        self._groups = RowGroups(_LIMITS)
        encodings = {name: kind for name, kind in _ENCODINGS.items() if name.split(".")[0] in self._schema.names}
        self._writer = pq.ParquetWriter(
            file,
            self._schema,
            compression="zstd",
            use_dictionary=leaves_of(self._fields) or False,
            column_encoding=encodings,
            store_schema=bool(fields),
        )

    def add(self, batch: pa.RecordBatch) -> None:
        """Appends documents.

        Args:
          batch: has the columns of `schemas.TOKENS`, `schemas.PLACES` and the fields, and may have others.
        """
        documents = batch.select([*schemas.listed_documents(has_segments=False).names, *self._fields.names])
        if self._has_segments:
            self._waiting.append(documents)
        else:
            self._write(documents)

    def place(self, n_placed: int, placed: Sequence[Placement]) -> None:
        """Takes the pieces of documents: the rows that hold their tokens.

        Args:
          n_placed: how many documents, counted from the first, are completely in rows by now.
          placed: the new pieces, documents and rows counted from the first of the shard.
        """
        self._placed += placed
        n = n_placed - self._n_rows
        if not n:
            return
        pieces = Placement.joined(self._placed)
        is_placed = pieces.documents < n_placed
        self._placed = [pieces.chosen(~is_placed)]
        pieces = pieces.chosen(is_placed)
        own = pieces.documents - self._n_rows
        pieces = pieces.chosen(np.argsort(own, kind="stable"))
        offsets = pa.array(np.concatenate([[0], np.cumsum(np.bincount(own, minlength=n))]).astype(np.int32))
        table = pa.Table.from_batches(self._waiting)
        self._waiting = table.slice(n).to_batches()
        documents = table.slice(0, n).combine_chunks()
        for name, values in (("rows", pieces.rows), ("starts", pieces.starts.astype(np.int32))):
            i = self._schema.get_field_index(name)
            column = pa.ListArray.from_arrays(offsets, pa.array(values), type=self._schema.field(i).type)
            documents = documents.add_column(i, self._schema.field(i), column)
        for batch in documents.to_batches():
            self._write(batch)

    def finish(self) -> FileRecord:
        """Writes the last row group and finishes the file."""
        for group in self._groups.rest():
            self._writer.write_table(group)
        self._writer.close()
        return self._file.finish(rows=self._n_rows, tokens=self._n_tokens)

    def _write(self, batch: pa.RecordBatch) -> None:
        self._n_rows += batch.num_rows
        self._n_tokens += int(batch.column("n_tokens").to_numpy().sum(dtype=np.int64))
        n_bytes = pc.binary_length(batch.column("doc_id")).to_numpy().astype(np.int64)
        if len(self._fields):
            n_bytes += row_bytes(batch.select(self._fields.names))
        weights = np.ones(batch.num_rows, np.int64), n_bytes
        for group in self._groups.add(batch, weights):
            self._writer.write_table(group)


def leaves_of(fields: Iterable[pa.Field], before: str = "") -> list[str]:
    """Returns the dotted names that Parquet gives to the leaf columns of fields."""
    leaves = []
    for field in fields:
        if pa.types.is_struct(field.type):
            leaves += leaves_of(field.type, f"{before}{field.name}.")
        elif pa.types.is_list(field.type):
            leaves += leaves_of([field.type.value_field.with_name("element")], f"{before}{field.name}.list.")
        else:
            leaves.append(before + field.name)
    return leaves


def has_fields(format: str, *, are_documents: bool) -> bool:
    """Returns whether the shards of a format store kept fields; `are_documents` says whether rows are documents."""
    return format in KEEPS_FIELDS and are_documents


def listed_fields(formats: Iterable[str], fields: Iterable[pa.Field], *, are_documents: bool) -> list[pa.Field]:
    """Returns the kept fields to store in tables of documents: none if shards of every format store them, else all."""
    if all(has_fields(each, are_documents=are_documents) for each in formats):
        return []
    return without_marks(fields)


def read_table(output: str, record: FileRecord, *, has_segments: bool) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a table, with one row group in memory.

    Args:
      output: the output folder.
      record: the record of the table.
      has_segments: as it was written.

    Raises:
      ValueError: if the file is not a Parquet file, is damaged, or has other columns.
      OSError: if it cannot be read.
    """
    with storage.open_read(storage.join(output, record.file)) as handle, whole(record.file):
        file = open_parquet(handle)
        found = file.schema_arrow.remove_metadata()
        fields = (field for field in found if field.nullable)
        expected = schemas.listed_documents(has_segments=has_segments, fields=fields)
        if not found.equals(expected):
            raise ValueError(f"columns must be {expected.names}, found {found.to_string()!r}")
        for group in range(file.num_row_groups):
            for batch in file.read_row_group(group, use_threads=False).replace_schema_metadata(None).to_batches():
                lowest = pc.min(batch.column("n_tokens")).as_py()
                if lowest is not None and lowest < 0:
                    raise ValueError(f"a document has {lowest} tokens")
                yield batch
