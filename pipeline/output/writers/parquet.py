# SPDX-License-Identifier: Apache-2.0
"""Shards that are columns: Parquet, in a form that every reader accepts, `datasets` among them, and Arrow IPC files.

Both write a row group, or a record batch, at a time. Arrow's files hold columns as they are in memory, so that a reader
can map them and copy nothing.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.columns import open_parquet, whole
from tokenmill.pipeline.output.writers.base import (
    MAX_DOC_ID_BYTES,
    MAX_ROWS,
    RowGroups,
    ShardWriter,
    TokenizerInfo,
    group_weights,
    skip_rows,
)
from tokenmill.pipeline.output.writers.parquet_format import ParquetFileWriter

_MAX_TOKENS = (1 << 31) - 1

MAX_BATCH_TOKENS = 1 << 20
"""The most ids of a record batch of Arrow, unless one row has more; a reader of a compressed file holds one batch."""


class ParquetWriter(ShardWriter):
    """Writes one Parquet shard; holds one row group in memory."""

    def __init__(
        self,
        handle: BinaryIO,
        tokenizer: TokenizerInfo,
        *,
        schema: pa.Schema = schemas.TOKENS,
        compression: str = "zstd",
        row_group_tokens: int = 4 << 20,
    ) -> None:
        """Starts a shard.

        Args:
          handle: the file.
          tokenizer: described in the metadata.
          schema: the schema of the rows.
          compression: "zstd" (level 1) or "none".
          row_group_tokens: ids of a row group, padding included, unless one row alone has more.
        """
        super().__init__(schema)
        # 32-bit offsets: `datasets` calls a large_list by another type name, and a row group never needs more.
        self._stored = stored_schema(schema)
        self._groups = RowGroups((min(row_group_tokens, _MAX_TOKENS), MAX_ROWS, MAX_DOC_ID_BYTES))
        self._writer = ParquetFileWriter(
            handle,
            self._stored,
            compression=compression,
            metadata=_describe(schema, self._stored, tokenizer),
            created_by=f"tokenmill version {schemas.SHARD_FORMAT_VERSION}",
        )

    def _write(self, batch: pa.RecordBatch) -> None:
        weights = group_weights(batch)
        n_ids = weights[0]
        if n_ids.max() > _MAX_TOKENS:
            row = int(n_ids.argmax())
            raise ValueError(
                f"document {batch.column(0)[row].as_py()!r} has {n_ids[row]} ids, more than a Parquet list can hold "
                f"({_MAX_TOKENS}); turn truncation on"
            )
        for group in self._groups.add(batch, weights):
            self._write_group(group)

    def close(self) -> None:
        """Writes the last row group and the footer."""
        for group in self._groups.rest():
            self._write_group(group)
        self._writer.close()

    def _write_group(self, group: pa.Table) -> None:
        columns = [
            _narrow(column.chunk(0), field.type) if pa.types.is_large_list(column.type) else column
            for field, column in zip(self._stored, group.columns, strict=True)
        ]
        self._writer.write_row_group(pa.table(columns, schema=self._stored))


def read_parquet(handle: BinaryIO, name: str, first_row: int = 0) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a shard from `first_row` on, `schemas.rows` of its columns; holds one row group.

    Raises:
      ValueError: if the file is not a Parquet file, is damaged, or has other columns.
    """
    with whole(name):
        file = open_parquet(handle)
        stored = file.schema_arrow
        schema = schemas.stored_rows(stored)
        if not stored.remove_metadata().equals(stored_schema(schema)):
            raise ValueError(f"{name}: columns must be {schema.names}, found {stored.to_string()!r}")
        for group in range(file.num_row_groups):
            n_rows = file.metadata.row_group(group).num_rows
            if first_row < n_rows:
                for batch in skip_rows(file.read_row_group(group, use_threads=False).to_batches(), first_row):
                    yield batch.cast(schema)
            first_row = max(0, first_row - n_rows)


def _narrow(lists: pa.LargeListArray, type_: pa.ListType) -> pa.ListArray:
    offsets = lists.offsets.to_numpy()
    values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    return pa.ListArray.from_arrays(pa.array((offsets - offsets[0]).astype(np.int32)), values, type=type_)


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Returns a schema with lists of 32-bit offsets, under the name that the Parquet format prescribes."""
    lists = {
        field.name: pa.list_(pa.field("element", field.type.value_type, nullable=field.type.value_field.nullable))
        for field in schema
        if pa.types.is_large_list(field.type) and not field.nullable
    }
    return pa.schema([pa.field(each.name, lists.get(each.name, each.type), nullable=each.nullable) for each in schema])


def _describe(schema: pa.Schema, stored: pa.Schema, tokenizer: TokenizerInfo) -> dict[str, str]:
    """Returns the metadata, with types for `datasets`; with kept fields, with Arrow's schema, which it reads, too."""
    own = {"tokenmill": tokenizer.to_json()}
    if any(field.nullable for field in schema):
        # Arrow also takes the metadata from its schema.
        types = base64.b64encode(stored.with_metadata(own).serialize().to_pybytes()).decode()
        return {"ARROW:schema": types, **own}

    def feature(type_: pa.DataType) -> dict[str, Any]:
        if pa.types.is_large_list(type_):
            return {"feature": feature(type_.value_type), "_type": "List"}
        return {"dtype": "float32" if type_ == pa.float32() else str(type_), "_type": "Value"}

    features = {field.name: feature(field.type) for field in schema}
    return {"huggingface": json.dumps({"info": {"features": features}}), **own}


class ArrowWriter(ShardWriter):
    """Writes one shard in Arrow's file format; holds one record batch in memory."""

    def __init__(
        self,
        handle: BinaryIO,
        tokenizer: TokenizerInfo,
        *,
        schema: pa.Schema = schemas.TOKENS,
        compression: str = "none",
    ) -> None:
        """Starts a shard; see `ParquetWriter`. Readers can map a file without compression; "zstd" is the other."""
        super().__init__(schema)
        self._groups = RowGroups((MAX_BATCH_TOKENS, MAX_ROWS, MAX_DOC_ID_BYTES))
        options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression, use_threads=False)
        described = schema.with_metadata({"tokenmill": tokenizer.to_json()})
        self._writer = pa.ipc.new_file(handle, described, options=options)

    def _write(self, batch: pa.RecordBatch) -> None:
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
                    yield batch.slice(first_row).replace_schema_metadata(None)
                first_row = max(0, first_row - batch.num_rows)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name}: not a whole Arrow file: {error}") from error
