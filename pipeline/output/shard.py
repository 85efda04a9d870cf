# SPDX-License-Identifier: Apache-2.0
"""All files of one shard, written together: every format of the config, with its index, and the table of documents."""

from collections.abc import Mapping, Sequence
from typing import BinaryIO, cast

import pyarrow as pa

from tokenmill.pipeline import filenames, schemas
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.config.output import KEEPS_COLUMNS, Format, OutputConfig
from tokenmill.pipeline.output.arranging import Arranger
from tokenmill.pipeline.output.document_tables import DocumentTable, has_fields, listed_fields
from tokenmill.pipeline.output.placement import RowForm
from tokenmill.pipeline.output.staging import StagedFile, Staging
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.output.writers.base import ShardWriter, TokenizerInfo
from tokenmill.pipeline.output.writers.for_trainers import stored, stored_schema


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
        if schema is None:
            schema = schemas.placed(schemas.TOKENS)
        fields = list(schema.field(schemas.FIELDS).type) if schemas.FIELDS in schema.names else []
        self._has_fields = bool(fields)
        schema = pa.schema([field for field in schema if field.name not in (*schemas.PLACES.names, schemas.FIELDS)])
        documents = schemas.TOKENS
        self._arranger: Arranger | None = None
        self._form = form
        if form.strategy != "documents":
            documents = schema
            if form.is_packed:
                documents = schemas.rows(name for name in schema.names if name == schemas.LOSS_MASK.name)
            self._arranger = Arranger(form, documents, output.packing.boundaries if output.packing is not None else ())
        self._taken = documents.names
        if self._arranger is not None:
            schema = self._arranger.schema
        own = (*schemas.TOKENS.names, *schemas.WINDOWS.names, schemas.LOSS_MASK.name)
        narrow = schemas.rows(name for name in schema.names if name in own)
        self._table = DocumentTable(
            staging.create(filenames.documents_name(index, n_shards)),
            has_segments=self._arranger is not None,
            fields=listed_fields(output.formats, fields, are_documents=self._arranger is None),
        )
        self.documents: FileRecord | None = None
        """The record of the table of documents; None until the shard is finished."""
        self._files: list[StagedFile] = []
        self._writers: list[ShardWriter] = []
        self._schemas: list[pa.Schema] = []
        self._writer_of: list[ShardWriter | None] = []
        for format_ in output.formats:
            kept = schema if format_ in KEEPS_COLUMNS or form.is_packed else narrow
            kept = stored_schema(kept, output, format_)
            if has_fields(format_, are_documents=self._arranger is None):
                kept = pa.schema([*kept, *fields])
            names = [filenames.shard_name(index, n_shards, each) for each in formats.suffixes(output, format_)]
            handles = [staging.create(name) for name in names]
            self._open(handles, format_, output, tokenizer, kept)

    def _open(
        self,
        handles: Sequence[StagedFile],
        format_: Format,
        output: OutputConfig,
        tokenizer: TokenizerInfo,
        kept: pa.Schema,
    ) -> None:
        """Adds the writer of a format, for rows with the columns `kept`; its second file, if any, is an index."""
        handle, *indexes = (cast(BinaryIO, each) for each in handles)
        index = indexes[0] if indexes else None
        writer = formats.open_writer(handle, output, tokenizer, format=format_, index=index, schema=kept)
        self._writers.append(writer)
        self._schemas.append(kept)
        self._files += handles
        self._writer_of += [writer, *([None] * len(indexes))]

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
        """Finishes the files and returns their records, in the order of `formats.suffixes`.

        Without a token, the files of `formats.MAPPED` are put where no reader looks for data.
        """
        if self._arranger is not None:
            for rows in self._arranger.rest():
                self._write(rows)
            self._table.place(*self._arranger.take_placed())
        self.documents = self._table.finish()
        for writer in self._writers:
            writer.close()
        if not self._writers[0].n_tokens:
            for file in self._files:
                if file.name.endswith(formats.MAPPED):
                    file.name = f"{filenames.EMPTY}/{file.name}"
        return tuple(
            file.finish(rows=writer.n_rows, tokens=writer.n_tokens) if writer is not None else file.finish()
            for file, writer in zip(self._files, self._writer_of, strict=True)
        )

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
        for writer, schema in zip(self._writers, self._schemas, strict=True):
            writer.write(stored(rows, schema))
