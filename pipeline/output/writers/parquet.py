# SPDX-License-Identifier: Apache-2.0
"""Parquet shards: `schemas.TOKENS` in a form that every Parquet reader accepts, `datasets` among them."""

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas
from tokenmill.pipeline.columns import row_bytes
from tokenmill.pipeline.output.writers.base import TokenizerInfo, check_schema, skip_rows
from tokenmill.pipeline.output.writers.parquet_format import ParquetFileWriter
from tokenmill.pipeline.parquet_file import open_parquet, whole

MAX_ROWS = 1 << 20
"""The most rows of a row group, however few tokens they have: empty documents take memory, too."""

MAX_DOC_ID_BYTES = 64 << 20
"""The most bytes of strings in a row group: document ids and sources of spans."""

_MAX_TOKENS = (1 << 31) - 1


class RowGroups:
    """Cuts a sequence of rows into groups by limits on sums, whatever batches the rows arrive in.

    A group is full when the next row would take one of its sums past the limit. A row that alone exceeds a limit is
    the only one of its group. Holds the rows of one unfinished group.
    """

    def __init__(self, limits: Sequence[int]) -> None:
        """Takes, for each weight of rows, the largest sum that a group may have."""
        self._limits = limits
        self._sums = [0] * len(limits)
        self._pending: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch, weights: Sequence[np.ndarray]) -> Iterator[pa.Table]:
        """Yields the groups that `batch` fills.

        Args:
          batch: the next rows.
          weights: int64[n] for each limit, none negative.
        """
        cumulated = [np.concatenate(([0], np.cumsum(weight, dtype=np.int64))) for weight in weights]
        start = 0
        while start < batch.num_rows:
            stop = min(
                int(np.searchsorted(sums, sums[start] + limit - had, side="right")) - 1
                for sums, limit, had in zip(cumulated, self._limits, self._sums, strict=True)
            )
            if stop <= start:
                if self._pending:
                    yield self._take()
                    continue
                stop = start + 1
            self._pending.append(batch.slice(start, stop - start))
            self._sums = [had + int(sums[stop] - sums[start]) for had, sums in zip(self._sums, cumulated, strict=True)]
            start = stop

    def rest(self) -> Iterator[pa.Table]:
        """Yields the last group, unless there are no rows left."""
        if self._pending:
            yield self._take()

    def _take(self) -> pa.Table:
        # In one chunk: pages end where chunks end, so the bytes would otherwise depend on the batches.
        group = pa.Table.from_batches(self._pending).combine_chunks()
        self._pending = []
        self._sums = [0] * len(self._limits)
        return group


def group_weights(batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the weights of rows that limit row groups, int64[n] each: ids, rows (always 1), bytes of strings."""
    n_ids = np.diff(batch.column("input_ids").offsets.to_numpy())
    ones = np.ones(batch.num_rows, np.int64)
    n_bytes = np.zeros_like(ones)
    if "doc_id" in batch.schema.names:
        n_bytes += pc.binary_length(batch.column("doc_id")).to_numpy()
    if fields := [field.name for field in batch.schema if field.nullable]:
        n_bytes += row_bytes(batch.select(fields))
    if schemas.SPAN_SOURCES.name in batch.schema.names:
        n_bytes += _source_bytes(batch.column(schemas.SPAN_SOURCES.name))
    return n_ids, ones, n_bytes


def _source_bytes(sources: pa.LargeListArray) -> np.ndarray:
    """Returns int64[n]: the bytes of each row's sources, plus eight for each source."""
    sizes = pc.fill_null(pc.binary_length(sources.values), 0).to_numpy().astype(np.int64) + 8
    return np.diff(np.concatenate(([0], np.cumsum(sizes)))[sources.offsets.to_numpy()])


class ParquetWriter:
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
          handle: open for writing; stays open.
          tokenizer: described in the metadata.
          schema: the schema of the rows.
          compression: "zstd" (level 1) or "none".
          row_group_tokens: ids of a row group, padding included, unless one row alone has more.
        """
        self.n_rows = 0
        self.n_tokens = 0
        self._schema = schema
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

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends rows of the schema.

        Raises:
          TypeError: if the batch has another schema.
          ValueError: if a row has 2**31 ids or more.
        """
        check_schema(batch, self._schema)
        weights = group_weights(batch)
        n_ids = weights[0]
        if n_ids.size and n_ids.max() > _MAX_TOKENS:
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
        table = pa.table(columns, schema=self._stored)
        self._writer.write_row_group(table)
        self.n_rows += table.num_rows
        self.n_tokens += pc.sum(table.column("n_tokens")).as_py()


def read_parquet(handle: BinaryIO, name: str, first_row: int = 0) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a shard from `first_row` on, `schemas.rows` of its columns; holds one row group.

    Raises:
      ValueError: if the file is not a Parquet file, is damaged, or has other columns.
    """
    with whole(name):
        file = open_parquet(handle)
        found = file.schema_arrow
        schema = schemas.stored_rows(found)
        if not found.remove_metadata().equals(stored_schema(schema)):
            raise ValueError(f"{name}: columns must be {schema.names}, found {found.to_string()!r}")
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
    said = {"tokenmill": tokenizer.to_json()}
    if any(field.nullable for field in schema):
        # Arrow also takes the metadata from its schema.
        types = base64.b64encode(stored.with_metadata(said).serialize().to_pybytes()).decode()
        return {"ARROW:schema": types, **said}
    return {"huggingface": _hf_metadata(schema), **said}


def _hf_metadata(schema: pa.Schema) -> str:
    def feature(type_: pa.DataType) -> dict[str, Any]:
        if pa.types.is_large_list(type_):
            return {"feature": feature(type_.value_type), "_type": "List"}
        return {"dtype": "float32" if type_ == pa.float32() else str(type_), "_type": "Value"}

    return json.dumps({"info": {"features": {field.name: feature(field.type) for field in schema}}})
