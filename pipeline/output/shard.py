# SPDX-License-Identifier: Apache-2.0
"""All files of one shard, written together: every format of the config, with its index, and the table of documents."""

from collections.abc import Iterator, Mapping
from typing import BinaryIO, cast

import pyarrow as pa

from tokenmill.pipeline import filenames, schemas
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.config.formats import Format
from tokenmill.pipeline.config.output import KEEPS_COLUMNS, OutputConfig
from tokenmill.pipeline.output.arranging import Arranger
from tokenmill.pipeline.output.placement import RowForm
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.output.tables import DocumentTable, has_fields, listed_fields
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.output.writers.base import TokenizerInfo


class FormatFiles:
    """The files of a shard in one format: that of the rows, and that of the index if there is one."""

    def __init__(
        self,
        staging: Staging,
        index: int,
        n_shards: int,
        output: OutputConfig,
        tokenizer: TokenizerInfo,
        format: Format,
        schema: pa.Schema,
    ) -> None:
        """Creates the files; `schema` is what `row_schemas` says of the format, the others are as in `Shard`."""
        names = (filenames.shard_name(index, n_shards, suffix) for suffix in formats.suffixes(output, format))
        self.files, self._schema = [staging.create(name) for name in names], schema
        rows, *indexes = (cast(BinaryIO, file) for file in self.files)
        index_file = next(iter(indexes), None)
        self._writer = formats.open_writer(rows, output, tokenizer, format=format, index=index_file, schema=schema)

    def write(self, rows: pa.RecordBatch) -> None:
        """Appends rows, with more columns than the format stores if there are more."""
        self._writer.write(formats.stored(rows, self._schema))

    def finish(self) -> Iterator[FileRecord]:
        """Finishes the files and yields their records; without a token, maps go where no reader looks for data."""
        self._writer.close()
        for file in self.files:
            if not self._writer.n_tokens and file.name.endswith(formats.MAPPED):
                file.name = f"{filenames.EMPTY}/{file.name}"
        yield self.files[0].finish(rows=self._writer.n_rows, tokens=self._writer.n_tokens)
        yield from (file.finish() for file in self.files[1:])


def row_schemas(schema: pa.Schema, form: RowForm, output: OutputConfig) -> dict[Format, pa.Schema]:
    """Returns the columns that each format of the config stores.

    Args:
      schema: the documents, as `Shard` takes them.
      form: what the rows are.
      output: formats and packing.
    """
    fields = list(schema.field(schemas.FIELDS).type) if schemas.FIELDS in schema.names else []
    rows = pa.schema([field for field in schema if field.name not in (*schemas.PLACES.names, schemas.FIELDS)])
    if form.is_packed:
        mask = {schemas.LOSS_MASK.name} & {*rows.names}
        rows = schemas.packed([*(output.packing.boundaries if output.packing is not None else ()), *mask])
    elif form.strategy == "windows":
        rows = schemas.windowed(rows)
    own = (*schemas.TOKENS.names, *schemas.WINDOWS.names, schemas.LOSS_MASK.name)
    narrow = rows if form.is_packed else schemas.rows(name for name in rows.names if name in own)
    stored = {}
    for format_ in output.formats:
        kept = formats.stored_schema(rows if format_ in KEEPS_COLUMNS else narrow, output, format_)
        if has_fields(format_, are_documents=form.strategy == "documents"):
            kept = pa.schema([*kept, *fields])
        stored[format_] = kept
    return stored


class Shard:
    """Writes the rows of one shard in all formats. The files are staged: none gets its final name before all are done.

    Holds what the writers hold and, with packing, one window of documents.
    """

    def __init__(
        self,
        staging: Staging,
        index: int,
        n_shards: int,
        output: OutputConfig,
        tokenizer: TokenizerInfo,
        form: RowForm,
        schema: pa.Schema | None = None,
    ) -> None:
        """Creates the files.

        Args:
          staging: the staged files of the attempt.
          index: the index of the shard.
          n_shards: the number of shards of the job; with `index` it makes the names.
          output: formats and packing.
          tokenizer: what made the ids.
          form: what the rows are.
          schema: the documents: `schemas.TOKENS`, columns that a config adds, which not all formats store, and
            `schemas.PLACES`, which only the table of documents stores. Kept fields, if there are any, go to the formats
            that can store them, and to the table if one format cannot.
        """
        schema = schemas.placed(schemas.TOKENS) if schema is None else schema
        fields = list(schema.field(schemas.FIELDS).type) if schemas.FIELDS in schema.names else []
        are_documents = form.strategy == "documents"
        self._form, self._has_fields = form, bool(fields)
        self._arranger: Arranger | None = None
        if not are_documents:
            own = pa.schema([each for each in schema if each.name not in (*schemas.PLACES.names, schemas.FIELDS)])
            taken = schemas.rows({schemas.LOSS_MASK.name} & {*own.names}) if form.is_packed else own
            boundaries = output.packing.boundaries if output.packing is not None else ()
            self._taken, self._arranger = taken.names, Arranger(form, taken, boundaries)
        self._table = DocumentTable(
            staging.create(filenames.documents_name(index, n_shards)),
            has_segments=not are_documents,
            fields=listed_fields(output.formats, fields, are_documents=are_documents),
        )
        self.documents: FileRecord | None = None
        """The record of the table of documents; None until the shard is finished."""
        kept = row_schemas(schema, form, output).items()
        self._formats = [FormatFiles(staging, index, n_shards, output, tokenizer, *each) for each in kept]

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends documents in the schema."""
        if self._has_fields:
            kept = batch.column(schemas.FIELDS)
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            del columns[schemas.FIELDS]
            columns |= dict(zip((field.name for field in kept.type), kept.flatten(), strict=True))
            own = [field for field in batch.schema if field.name != schemas.FIELDS]
            batch = pa.record_batch(list(columns.values()), schema=pa.schema([*own, *kept.type]))
        self._table.add(batch)
        if self._arranger is None:
            self._write(batch)
            return
        for rows in self._arranger.add(batch.select(self._taken)):
            self._write(rows)
        self._table.place(*self._arranger.take_placed())

    def finish(self) -> tuple[FileRecord, ...]:
        """Finishes the files and returns their records, in the order of `formats.suffixes`."""
        if self._arranger is not None:
            for rows in self._arranger.rest():
                self._write(rows)
            self._table.place(*self._arranger.take_placed())
        self.documents = self._table.finish()
        return tuple(record for files in self._formats for record in files.finish())

    runs = None
    """None: a shard has no sorted runs, unlike `spill.SortedSplit`, which has the same interface."""

    @property
    def packing(self) -> Mapping[str, int] | None:
        """The counts of packing, complete once the shard is finished; None without packing."""
        return self._arranger.counts if self._arranger is not None and self._form.is_packed else None

    @property
    def windows(self) -> Mapping[str, int] | None:
        """The counts of windows, complete once the shard is finished; None if rows are not windows."""
        return self._arranger.counts if self._arranger is not None and not self._form.is_packed else None

    def _write(self, rows: pa.RecordBatch) -> None:
        for files in self._formats:
            files.write(rows)
