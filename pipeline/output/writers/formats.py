# SPDX-License-Identifier: Apache-2.0
"""All formats of shards: opens a writer or a reader for Parquet, TFRecord, Arrow, MDS, Megatron or memory maps."""

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.output import KEEPS_FIELDS, Format, OutputConfig
from tokenmill.pipeline.output.writers.arrow import ArrowWriter, read_arrow
from tokenmill.pipeline.output.writers.base import ShardWriter, TokenizerInfo, skip_rows
from tokenmill.pipeline.output.writers.flat import MegatronWriter, MemmapWriter, read_megatron, read_memmap
from tokenmill.pipeline.output.writers.for_trainers import loaded
from tokenmill.pipeline.output.writers.mds import MDSWriter, read_mds
from tokenmill.pipeline.output.writers.parquet import ParquetWriter, read_parquet
from tokenmill.pipeline.output.writers.tfrecord import TFRecordWriter, read_tfrecord

ROWS = (".parquet", ".tfrecord", ".tfrecord.gz", ".arrow", ".mds", ".bin")
"""The endings of names of files with rows, of all formats."""

_MEMMAP = (".ids.bin", ".offsets.npy")
_MEGATRON = (".bin", ".idx")
MAPPED = (*_MEMMAP, *_MEGATRON)
"""The endings of formats whose readers map files into memory, which files of no bytes cannot be."""


def suffixes(output: OutputConfig, format: Format | None = None) -> tuple[str, ...]:
    """Returns the name endings of a shard's files: for each format that of its rows, then that of its index if any.

    Args:
      output: formats and compression.
      format: one of them; None for all.
    """
    if format is None:
        return tuple(suffix for name in output.formats for suffix in suffixes(output, name))
    if format in ("megatron", "memmap"):
        return _MEGATRON if format == "megatron" else _MEMMAP
    return (f".{format}" + (".gz" if output.compression == "gzip" else ""),)


def suffix(output: OutputConfig) -> str:
    """Returns the name ending of shards of the first format, for example ".parquet" or ".tfrecord.gz"."""
    return suffixes(output)[0]


def index_name(name: str) -> str | None:
    """Returns the name of the index of a shard; None where the format has none."""
    for rows, index in (_MEMMAP, _MEGATRON):
        if name.endswith(rows):
            return name.removesuffix(rows) + index
    return None


def keeps_padding(name: str) -> bool:
    """Returns whether the rows of the shard `name` include padding."""
    return index_name(name) is None


def keeps_fields(name: str) -> bool:
    """Returns whether the format of the shard `name` can store kept fields."""
    return name.endswith(tuple(f".{format}" for format in KEEPS_FIELDS))


def open_writer(
    handle: BinaryIO,
    output: OutputConfig,
    tokenizer: TokenizerInfo,
    *,
    format: Format | None = None,
    index: BinaryIO | None = None,
    schema: pa.Schema = schemas.TOKENS,
) -> ShardWriter:
    """Returns a writer of one format.

    Args:
      handle: open for writing, at its start; stays open when the writer closes.
      output: formats, compression, size of row groups.
      tokenizer: what the shard says about its tokenizer.
      format: one of the formats of `output`; None for the first.
      index: open for writing, if the format has an index; stays open.
      schema: the schema of the rows.
    """
    format = format or output.formats[0]
    if format == "parquet":
        compression = "zstd" if output.compression == "auto" else output.compression
        return ParquetWriter(
            handle, tokenizer, schema=schema, compression=compression, row_group_tokens=output.row_group_tokens
        )
    if format == "tfrecord":
        gzip = output.compression == "gzip"
        return TFRecordWriter(handle, padding_side=tokenizer.padding_side, gzip=gzip, schema=schema)
    if format == "arrow":
        compression = "none" if output.compression == "auto" else output.compression
        return ArrowWriter(handle, tokenizer, schema=schema, compression=compression)
    if format == "mds":
        return MDSWriter(handle, tokenizer, schema=schema)
    if index is None:
        raise ValueError(f"{format} needs a file for its index")
    if format == "megatron":
        return MegatronWriter(handle, index, tokenizer, schema=schema)
    assert format == "memmap", format
    return MemmapWriter(handle, index, tokenizer, schema=schema)


def _checked(batches: Iterator[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
    """Yields rows whose masks, if there are any, have a value for each id, as they were before they were stored."""
    row = 0
    for batch in batches:
        try:
            batch = loaded(batch)
        except ValueError as error:
            raise ValueError(f"{name}, row {row} and on: {error}") from None
        if schemas.LOSS_MASK.name in batch.schema.names:
            ids, mask = (np.diff(batch.column(each).offsets.to_numpy()) for each in ("input_ids", "loss_mask"))
            if (wrong := np.flatnonzero(ids != mask)).size:
                at = wrong[0]
                raise ValueError(f"{name}: row {row + at} has {ids[at]} ids, and {mask[at]} values in loss_mask")
        yield batch
        row += batch.num_rows


def read_rows(
    handle: BinaryIO, name: str, first_row: int = 0, index: BinaryIO | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a shard in the order in which they were written, in bounded memory.

    Args:
      handle: open for reading, at its start.
      name: the name of the file; its ending tells the format, and messages show it.
      first_row: the row to begin with; TFRecord and MDS read everything before it, the others skip to it.
      index: the file `index_name(name)`, open for reading, if there is one.

    Yields:
      Packed sequences; or doc_id: string, input_ids: large_list<int32>, n_tokens: int32, and `schemas.WINDOWS` if rows
      are windows. Parquet and Arrow also yield n_oov: int32, and `schemas.SPAN_SOURCES` and `schemas.LANGUAGES` if the
      shard has them. Megatron and memory maps keep no document ids, no windows and no boundaries: doc_id is empty.

    Raises:
      ValueError: if the name has another ending, or the file is not one that TokenMill writes; the message says where.
    """
    if name.endswith(".parquet"):
        return _checked(read_parquet(handle, name, first_row), name)
    if name.endswith((".tfrecord", ".tfrecord.gz")):
        return skip_rows(read_tfrecord(handle, name, gzipped=name.endswith(".gz")), first_row)
    if name.endswith(".arrow"):
        return _checked(read_arrow(handle, name, first_row), name)
    if name.endswith(".mds"):
        return _checked(read_mds(handle, name, first_row), name)
    if index_name(name) is not None:
        if index is None:
            raise ValueError(f"{name}: its index {index_name(name)!r} is missing")
        read = read_memmap if name.endswith(_MEMMAP[0]) else read_megatron
        return read(handle, index, name, first_row)
    raise ValueError(f"{name!r} does not look like a shard: its name must end in {', '.join(ROWS[:-1])} or {ROWS[-1]}")
