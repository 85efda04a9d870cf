# SPDX-License-Identifier: Apache-2.0
"""All files of one shard, written together: every format of the config, each with its index, packed or not."""

from collections.abc import Mapping
from typing import BinaryIO, cast

import pyarrow as pa

from pipeline import ledger, schemas, writers
from pipeline.document_tables import DocumentTable
from pipeline.ledger import FileRecord
from pipeline.output_config import KEEPS_COLUMNS, OutputConfig
from pipeline.packing import Packer, PackingTokens
from pipeline.staging import StagedFile, Staging
from pipeline.writers import ShardWriter, TokenizerInfo


class Shard:
    """Writes the rows of one shard in all formats. They are staged: none of the files has its name before all are done.

    Holds what the writers hold and, with packing, one window of documents.
    """

    def __init__(
        self,
        staging: Staging,
        index: int,
        n_shards: int,
        output: OutputConfig,
        tokenizer: TokenizerInfo,
        packing: PackingTokens | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        """Creates the files.

        Args:
          staging: of the attempt.
          index: of the shard.
          n_shards: of the job; with `index` it makes the names.
          output: formats and packing.
          tokenizer: what made the ids.
          packing: the ids that packing adds; where `output.packing` is given.
          schema: of the documents: `schemas.TOKENS`, what a config adds, which not all formats keep, and
            `schemas.PLACES`, which none does: it is for the table of documents.
        """
        if schema is None:
            schema = schemas.placed(schemas.TOKENS)
        schema = pa.schema([field for field in schema if field.name not in schemas.PLACES.names])
        self._packer = None
        if output.packing is not None and packing is not None:
            self._packer = Packer(output.packing, packing)
            schema = self._packer.schema
        self._table = DocumentTable(
            staging.create(ledger.documents_name(index, n_shards)), has_segments=self._packer is not None
        )
        self.documents: FileRecord | None = None
        """The table of documents, once the shard is finished."""
        self._files: list[StagedFile] = []
        self._writers: list[ShardWriter] = []
        self._columns: list[list[str]] = []
        self._writer_of: list[ShardWriter | None] = []
        for format_ in output.formats:
            names = [ledger.shard_name(index, n_shards, each) for each in writers.suffixes(output, format_)]
            handles = [staging.create(name) for name in names]
            index_handle = cast(BinaryIO, handles[1]) if len(handles) > 1 else None
            handle = cast(BinaryIO, handles[0])
            kept = schemas.TOKENS if self._packer is None and format_ not in KEEPS_COLUMNS else schema
            writer = writers.open_writer(handle, output, tokenizer, format=format_, index=index_handle, schema=kept)
            self._writers.append(writer)
            self._columns.append(kept.names)
            self._files += handles
            self._writer_of += [writer, *([None] * (len(handles) - 1))]

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends documents, of the schema."""
        self._table.add(batch)
        if self._packer is None:
            self._write(batch)
            return
        for rows in self._packer.add(batch.select(schemas.TOKENS.names)):
            self._write(rows)
        self._table.place(*self._packer.take_placed())

    def finish(self) -> tuple[FileRecord, ...]:
        """Finishes the files and returns their records, in the order of `writers.suffixes`."""
        if self._packer is not None:
            for rows in self._packer.rest():
                self._write(rows)
            self._table.place(*self._packer.take_placed())
        self.documents = self._table.finish()
        for writer in self._writers:
            writer.close()
        return tuple(
            file.finish(rows=writer.n_rows, tokens=writer.n_tokens) if writer is not None else file.finish()
            for file, writer in zip(self._files, self._writer_of, strict=True)
        )

    runs = None
    """What is written is a shard, not the runs of a shuffle."""

    @property
    def packing(self) -> Mapping[str, int] | None:
        """What packing counted, complete once the shard is finished; None without packing."""
        return self._packer.counts if self._packer is not None else None

    def _write(self, rows: pa.RecordBatch) -> None:
        for writer, columns in zip(self._writers, self._columns, strict=True):
            writer.write(rows.select(columns))
