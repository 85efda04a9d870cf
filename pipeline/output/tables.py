# SPDX-License-Identifier: Apache-2.0
"""Parquet tables beside shards: the documents of a shard, and the rejects of a split.

Rows of shards hold tokens, and not all formats can store more. The table of documents leads from any row back to its
documents and to the bytes they were read from. Rejects are records that could not be read, or that text steps or the
tokenizer gave up on.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline.books.counts import count_reasons
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.columns import open_parquet, row_bytes, whole
from tokenmill.pipeline.config.kept_fields import without_marks
from tokenmill.pipeline.config.output import KEEPS_FIELDS
from tokenmill.pipeline.output.placement import Placement
from tokenmill.pipeline.output.staging import StagedFile, Staging
from tokenmill.pipeline.output.writers.base import RowGroups
from tokenmill.pipeline.splits import Piece

_DOCUMENT_LIMITS = (1 << 18, 16 << 20)
"""Limits of a row group: its rows, and the bytes of their strings."""
_REJECT_LIMITS = (1 << 16, 64 << 20)

_ENCODINGS = {
    "doc_id": "DELTA_BYTE_ARRAY",
    **dict.fromkeys((*schemas.PLACES.names, "n_tokens"), "DELTA_BINARY_PACKED"),
    "rows.list.element": "DELTA_BINARY_PACKED",
    "starts.list.element": "DELTA_BINARY_PACKED",
}
"""These columns store differences of neighbours, because their values mostly ascend."""


class _Table:
    """Writes one table with Arrow's writer; holds a row group."""

    def __init__(self, file: StagedFile, schema: pa.Schema, limits: Sequence[int], **options: Any) -> None:
        self._file, self._groups, self.n_rows = file, RowGroups(limits), 0
        self._writer = pq.ParquetWriter(file, schema, compression="zstd", **options)

    def write(self, batch: pa.RecordBatch, n_bytes: np.ndarray) -> None:
        """Appends rows; n_bytes: int64[n], the bytes of each one's strings."""
        self.n_rows += batch.num_rows
        for group in self._groups.add(batch, (np.ones(batch.num_rows, np.int64), n_bytes)):
            self._writer.write_table(group)

    def finish(self, tokens: int | None = None) -> FileRecord:
        for group in self._groups.rest():
            self._writer.write_table(group)
        self._writer.close()
        return self._file.finish(rows=self.n_rows, tokens=tokens)


class DocumentTable:
    """Writes the table of one shard. Holds a row group and, if rows are packed, the documents not yet in any."""

    def __init__(self, file: StagedFile, *, has_segments: bool, fields: Sequence[pa.Field] = ()) -> None:
        """Starts a table.

        Args:
          file: open for writing, at its start.
          has_segments: whether rows are packed sequences or windows; `place` then tells which of them hold a document.
          fields: the kept fields to store here.
        """
        self._fields, self._has_segments, self._n_tokens = pa.schema(fields), has_segments, 0
        self._schema = schemas.listed_documents(has_segments=has_segments, fields=fields)
        self._waiting: list[pa.RecordBatch] = []
        self._placed: list[Placement] = []
        self._table = _Table(
            file,
            self._schema,
            _DOCUMENT_LIMITS,
            use_dictionary=_leaves(self._fields) or False,
            column_encoding={
                name: kind for name, kind in _ENCODINGS.items() if name.split(".")[0] in self._schema.names
            },
            store_schema=bool(fields),
        )

    def add(self, batch: pa.RecordBatch) -> None:
        """Appends documents, with `schemas.TOKENS`, `schemas.PLACES`, the fields, and perhaps more columns."""
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
        if not (n := n_placed - self._table.n_rows):
            return
        pieces = Placement.joined(self._placed)
        is_placed = pieces.documents < n_placed
        self._placed, pieces = [pieces.chosen(~is_placed)], pieces.chosen(is_placed)
        own = pieces.documents - self._table.n_rows
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
        return self._table.finish(self._n_tokens)

    def _write(self, batch: pa.RecordBatch) -> None:
        self._n_tokens += int(batch.column("n_tokens").to_numpy().sum(dtype=np.int64))
        n_bytes = pc.binary_length(batch.column("doc_id")).to_numpy().astype(np.int64)
        if len(self._fields):
            n_bytes += row_bytes(batch.select(self._fields.names))
        self._table.write(batch, n_bytes)


def _leaves(fields: Iterable[pa.Field], before: str = "") -> list[str]:
    """Returns the dotted names that Parquet gives to the leaf columns of fields."""
    leaves = []
    for field in fields:
        if pa.types.is_struct(field.type):
            leaves += _leaves(field.type, f"{before}{field.name}.")
        elif pa.types.is_list(field.type):
            leaves += _leaves([field.type.value_field.with_name("element")], f"{before}{field.name}.list.")
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


def read_documents(output: str, record: FileRecord, *, has_segments: bool) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a table of documents, with one row group in memory.

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
        stored = file.schema_arrow.remove_metadata()
        fields = (field for field in stored if field.nullable)
        expected = schemas.listed_documents(has_segments=has_segments, fields=fields)
        if not stored.equals(expected):
            raise ValueError(f"columns must be {expected.names}, found {stored.to_string()!r}")
        for group in range(file.num_row_groups):
            for batch in file.read_row_group(group, use_threads=False).replace_schema_metadata(None).to_batches():
                lowest = pc.min(batch.column("n_tokens")).as_py()
                if lowest is not None and lowest < 0:
                    raise ValueError(f"a document has {lowest} tokens")
                yield batch


class RejectsFile:
    """Writes the rejects of a split, if there are any.

    It names sources by their names, not by their paths, so that the bytes do not depend on where the corpus is.
    """

    def __init__(self, staging: Staging, name: str, pieces: Iterable[Piece]) -> None:
        """Creates no file yet.

        Args:
          staging: the staged files of the attempt.
          name: `filenames.rejects_name` of the split.
          pieces: the pieces of the split.
        """
        self.reasons: Counter[str] = Counter()
        self.n_rows = self.n_bytes = 0
        self._staging, self._name = staging, name
        self._names = {piece.path: piece.name for piece in pieces}
        self._table: _Table | None = None

    def write(self, rejects: pa.RecordBatch) -> None:
        """Appends rows of `schemas.REJECTS`."""
        if rejects.num_rows == 0:
            return
        if self._table is None:
            self._table = _Table(
                self._staging.create(self._name),
                schemas.REJECTS,
                _REJECT_LIMITS,
                store_schema=False,
                # Samples differ, and nobody looks for one by its value: a dictionary and statistics only cost time.
                use_dictionary=["source", "reason", "detail"],
                write_statistics=False,
            )
        self.n_rows += rejects.num_rows
        self.n_bytes += pc.sum(rejects.column("n_bytes")).as_py()
        self.reasons.update(count_reasons(rejects))
        sources = rejects.column("source").dictionary_encode()
        names = pa.array([self._names[path] for path in sources.dictionary.to_pylist()], pa.string())
        rejects = rejects.set_column(0, schemas.REJECTS.field(0), names.take(sources.indices))
        strings = (rejects.column(name) for name in ("source", "detail", "sample"))
        self._table.write(rejects, sum(pc.binary_length(each).to_numpy().astype(np.int64) for each in strings))

    def finish(self) -> FileRecord | None:
        """Finishes the file; None if there is none."""
        return None if self._table is None else self._table.finish()


def read_rejects(output: str, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file of rejects in batches, `columns` or all of `schemas.REJECTS`.

    Raises:
      ValueError: if it is no such file; OSError: if it cannot be opened.
    """
    with storage.open_read(storage.join(output, name)) as handle, whole(name):
        file = open_parquet(handle)
        if not file.schema_arrow.equals(schemas.REJECTS):
            raise ValueError(f"{name}: columns are not {schemas.REJECTS.names}")
        yield from file.iter_batches(1024, columns=columns, use_threads=False)
