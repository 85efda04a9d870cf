# SPDX-License-Identifier: Apache-2.0
"""Parquet shards: `schemas.TOKENS` as every Parquet reader, `datasets` among them, takes it."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline import schemas
from pipeline.parquet_file import open_parquet
from pipeline.writers.base import FORMAT_VERSION, TokenizerInfo, check_schema, skip_rows

ELEMENT = pa.field("element", pa.int32(), nullable=False)
"""What stands in the list, under the name that the Parquet format prescribes."""

# 32-bit offsets: `datasets` calls a large_list by another type name, and a row group never needs more.
SCHEMA = schemas.TOKENS.set(1, pa.field("input_ids", pa.list_(ELEMENT), nullable=False))
"""What a Parquet shard holds."""

SCHEMA_WITH_SOURCES = SCHEMA.append(
    pa.field("span_sources", pa.list_(pa.field("element", pa.string())), nullable=False)
)
"""What it holds where spans keep their sources."""

MAX_ROWS = 1 << 20
"""Rows of a row group, however few tokens they have: empty documents take memory too."""

MAX_DOC_ID_BYTES = 64 << 20
"""Bytes of all document ids of a row group."""

_MAX_TOKENS = (1 << 31) - 1


class RowGroups:
    """Cuts a sequence of rows into groups by limits on sums, whatever batches the rows arrive in.

    A group is full when its next row would take one of its sums past its limit. A row that alone exceeds a limit is a
    group alone. Holds the rows of one unfinished group.
    """

    def __init__(self, limits: Sequence[int]) -> None:
        """Takes, for each weight that rows have, the largest sum a group may have."""
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
        # In one chunk: where chunks end, pages end, and the bytes would depend on the batches.
        group = pa.Table.from_batches(self._pending).combine_chunks()
        self._pending = []
        self._sums = [0] * len(self._limits)
        return group


class ParquetWriter:
    """Writes one Parquet shard; holds one row group in memory.

    The two small counts are dictionary-encoded; ids and document ids stand as they are, compressed.
    """

    def __init__(
        self,
        handle: BinaryIO,
        tokenizer: TokenizerInfo,
        *,
        compression: str = "zstd",
        row_group_tokens: int = 4 << 20,
        with_sources: bool = False,
    ) -> None:
        """Starts a shard.

        Args:
          handle: open for writing; stays open.
          tokenizer: described in the metadata.
          compression: "zstd" (level 1) or "none".
          row_group_tokens: ids of a row group, padding included, unless one row alone has more.
          with_sources: whether rows have `schemas.SPAN_SOURCES`.
        """
        self._schema = SCHEMA_WITH_SOURCES if with_sources else SCHEMA
        self.n_rows = 0
        self.n_tokens = 0
        self._groups = RowGroups((min(row_group_tokens, _MAX_TOKENS), MAX_ROWS, MAX_DOC_ID_BYTES))
        self._writer = pq.ParquetWriter(
            handle,
            self._schema,
            compression=compression,
            # Ids as they are, at zstd's fastest level: 364 MB/s here against 262 with a dictionary and level 3, and no
            # larger. BYTE_STREAM_SPLIT would reach 474, but not all readers in use know it for integers.
            compression_level=1 if compression == "zstd" else None,
            use_dictionary=["n_tokens", "n_oov"],
            # The Arrow schema that pyarrow would add repeats what the Parquet schema says, in a form of its own.
            store_schema=False,
        )
        self._writer.add_key_value_metadata(
            {"huggingface": _hf_metadata(with_sources), "tokenmill": _tokenmill_metadata(tokenizer)}
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends rows of `schemas.TOKENS`.

        Raises:
          TypeError: if the batch has another schema.
          ValueError: if a row has 2**31 ids or more.
        """
        with_sources = self._schema is SCHEMA_WITH_SOURCES
        check_schema(batch, schemas.SPAN_SOURCES if with_sources else None)
        n_ids = np.diff(batch.column(1).offsets.to_numpy())
        if n_ids.size and n_ids.max() > _MAX_TOKENS:
            row = int(n_ids.argmax())
            raise ValueError(
                f"document {batch.column(0)[row].as_py()!r} has {n_ids[row]} ids, more than a Parquet list can hold "
                f"({_MAX_TOKENS}); turn truncation on"
            )
        n_doc_id = pc.binary_length(batch.column(0)).to_numpy().astype(np.int64)
        if with_sources:
            n_doc_id += _source_bytes(batch.column(4))
        for group in self._groups.add(batch, (n_ids, np.ones(batch.num_rows, np.int64), n_doc_id)):
            self._write_group(group)

    def close(self) -> None:
        """Writes the last row group and the footer."""
        for group in self._groups.rest():
            self._write_group(group)
        self._writer.close()

    def _write_group(self, group: pa.Table) -> None:
        rows = group.column(1).chunk(0)
        offsets = rows.offsets.to_numpy()
        ids = rows.values.slice(offsets[0], offsets[-1] - offsets[0])
        narrow = pa.ListArray.from_arrays(pa.array((offsets - offsets[0]).astype(np.int32)), ids, type=SCHEMA.types[1])
        columns = [group.column(0), narrow, group.column(2), group.column(3)]
        if self._schema is SCHEMA_WITH_SOURCES:
            columns.append(group.column(4).cast(self._schema.types[4]))
        table = pa.table(columns, schema=self._schema)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.n_rows += table.num_rows
        self.n_tokens += pc.sum(table.column("n_tokens")).as_py()


def read_parquet(handle: BinaryIO, name: str, first_row: int = 0) -> Iterator[pa.RecordBatch]:
    """Reads a shard back from row `first_row` on, as batches of `schemas.TOKENS`, one row group in memory.

    With `schemas.SPAN_SOURCES` where the shard has it.

    Raises:
      ValueError: if the file is not a Parquet file, is damaged, or has other columns.
    """
    try:
        file = open_parquet(handle)
        with_sources = file.schema_arrow.equals(SCHEMA_WITH_SOURCES)
        schema = schemas.TOKENS.append(schemas.SPAN_SOURCES) if with_sources else schemas.TOKENS
        if not with_sources and not file.schema_arrow.equals(SCHEMA):
            raise ValueError(f"{name}: columns must be {SCHEMA.names}, found {file.schema_arrow.to_string()!r}")
        for group in range(file.num_row_groups):
            n_rows = file.metadata.row_group(group).num_rows
            if first_row < n_rows:
                for batch in skip_rows(file.read_row_group(group, use_threads=False).to_batches(), first_row):
                    yield batch.cast(schema)
            first_row = max(0, first_row - n_rows)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name}: not a whole Parquet file: {error}") from error


def _source_bytes(sources: pa.LargeListArray) -> np.ndarray:
    """Returns how many bytes the sources of each row have, and eight for each, int64[n]."""
    sizes = pc.fill_null(pc.binary_length(sources.values), 0).to_numpy().astype(np.int64) + 8
    return np.diff(np.concatenate(([0], np.cumsum(sizes)))[sources.offsets.to_numpy()])


def _hf_metadata(with_sources: bool) -> str:
    def value(dtype: str) -> dict[str, str]:
        return {"dtype": dtype, "_type": "Value"}

    features: dict[str, Any] = {
        "doc_id": value("string"),
        "input_ids": {"feature": value("int32"), "_type": "List"},
        "n_tokens": value("int32"),
        "n_oov": value("int32"),
    }
    if with_sources:
        features["span_sources"] = {"feature": value("string"), "_type": "List"}
    return json.dumps({"info": {"features": features}})


def _tokenmill_metadata(tokenizer: TokenizerInfo) -> str:
    record = {
        "format_version": FORMAT_VERSION,
        "padding_side": tokenizer.padding_side,
        "special_ids": dict(tokenizer.special_ids),
        "tokenizer": tokenizer.digest,
        "vocab_size": tokenizer.vocab_size,
    }
    return json.dumps(record, sort_keys=True, ensure_ascii=False)
