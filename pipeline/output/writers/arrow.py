# SPDX-License-Identifier: Apache-2.0
"""Arrow IPC shards: the columns as they are in memory, so that a reader can map the file and copy nothing."""

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas
from tokenmill.pipeline.output.writers.base import TokenizerInfo, check_schema, skip_rows
from tokenmill.pipeline.output.writers.parquet import MAX_DOC_ID_BYTES, MAX_ROWS, RowGroups, group_weights

MAX_BATCH_TOKENS = 1 << 20
"""The most ids of a record batch, unless one row has more; a reader of a compressed file holds one batch."""


class ArrowWriter:
    """Writes one shard in Arrow's file format; holds one record batch in memory."""

    def __init__(
        self,
        handle: BinaryIO,
        tokenizer: TokenizerInfo,
        *,
        schema: pa.Schema = schemas.TOKENS,
        compression: str = "none",
    ) -> None:
        """Starts a shard.

        Args:
          handle: open for writing; stays open.
          tokenizer: described in the metadata of the schema.
          schema: the schema of the rows.
          compression: "none", which readers can map, or "zstd".
        """
        self.n_rows = 0
        self.n_tokens = 0
        self._schema = schema
        self._groups = RowGroups((MAX_BATCH_TOKENS, MAX_ROWS, MAX_DOC_ID_BYTES))
        options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression, use_threads=False)
        described = schema.with_metadata({"tokenmill": tokenizer.to_json()})
        self._writer = pa.ipc.new_file(handle, described, options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends rows of the schema.

        Raises:
          TypeError: if the batch has another schema.
        """
        check_schema(batch, self._schema)
        for group in self._groups.add(batch, group_weights(batch)):
            self._write_group(group)

    def close(self) -> None:
        """Writes the last batch and the footer."""
        for group in self._groups.rest():
            self._write_group(group)
        self._writer.close()

    def _write_group(self, group: pa.Table) -> None:
        columns = [_compact(column.combine_chunks()) for column in group.columns]
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
        self.n_rows += group.num_rows
        self.n_tokens += pc.sum(group.column("n_tokens")).as_py() or 0


def _compact(column: pa.Array) -> pa.Array:
    """Returns a column whose buffers begin with its first row; with those of a slice, bytes would depend on batches."""
    if pa.types.is_large_list(column.type) and not column.null_count:
        offsets = column.offsets.to_numpy()
        values = _compact(column.values.slice(offsets[0], offsets[-1] - offsets[0]))
        return pa.LargeListArray.from_arrays(pa.array(offsets - offsets[0]), values, type=column.type)
    if pa.types.is_integer(column.type) and not column.null_count:
        return pa.array(column.to_numpy())  # not copied
    return pa.concat_arrays([column])


def read_arrow(handle: BinaryIO, name: str, first_row: int = 0) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a shard from `first_row` on, `schemas.rows` of its columns; holds one record batch.

    Raises:
      ValueError: if the file is not a whole Arrow file, or has other columns.
    """
    try:
        with pa.ipc.open_file(handle) as file:
            if not file.schema.remove_metadata().equals(schemas.stored_rows(file.schema)):
                raise ValueError(f"{name}: not the columns of a shard: {file.schema.to_string()!r}")
            for i in range(file.num_record_batches):
                batch = file.get_batch(i)
                batch.validate(full=True)
                if first_row < batch.num_rows:
                    yield from skip_rows([batch.replace_schema_metadata(None)], first_row)
                first_row = max(0, first_row - batch.num_rows)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name}: not a whole Arrow file: {error}") from error
