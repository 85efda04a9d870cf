# SPDX-License-Identifier: Apache-2.0
"""Token rows to the bytes of one shard, and back: Parquet and TFRecord."""

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from pipeline.config import OutputConfig
from pipeline.writers.base import FORMAT_VERSION as FORMAT_VERSION
from pipeline.writers.base import ShardWriter as ShardWriter
from pipeline.writers.base import TokenizerInfo as TokenizerInfo
from pipeline.writers.base import skip_rows
from pipeline.writers.parquet import ParquetWriter, read_parquet
from pipeline.writers.tfrecord import TFRecordWriter, read_tfrecord


def suffix(output: OutputConfig) -> str:
    """Returns how the names of shards end: ".parquet", ".tfrecord" or ".tfrecord.gz"."""
    return f".{output.format}" + (".gz" if output.compression == "gzip" else "")


def open_writer(
    handle: BinaryIO, output: OutputConfig, tokenizer: TokenizerInfo, *, with_sources: bool = False
) -> ShardWriter:
    """Returns a writer of the format that `output` names.

    Args:
      handle: open for writing, at its start; stays open when the writer closes.
      output: format, compression, size of row groups.
      tokenizer: what the shard says about where its ids come from.
      with_sources: whether rows have `schemas.SPAN_SOURCES`, which only Parquet holds.
    """
    if output.format == "parquet":
        compression = "zstd" if output.compression == "auto" else output.compression
        return ParquetWriter(
            handle,
            tokenizer,
            compression=compression,
            row_group_tokens=output.row_group_tokens,
            with_sources=with_sources,
        )
    return TFRecordWriter(handle, padding_side=tokenizer.padding_side, gzip=output.compression == "gzip")


def read_rows(handle: BinaryIO, name: str, first_row: int = 0) -> Iterator[pa.RecordBatch]:
    """Reads a shard back in bounded memory, in batches of the order it was written in.

    Args:
      handle: open for reading, at its start.
      name: of the file; its ending tells the format, and messages show it.
      first_row: to begin with; Parquet skips to its row group, TFRecord reads what stands before it.

    Yields:
      doc_id: string, input_ids: large_list<int32>, n_tokens: int32, and for Parquet n_oov: int32; and
      `schemas.SPAN_SOURCES` where the shard has it.

    Raises:
      ValueError: if the name has another ending, or the file is not what TokenMill writes; says where.
    """
    if name.endswith(".parquet"):
        return read_parquet(handle, name, first_row)
    if name.endswith((".tfrecord", ".tfrecord.gz")):
        return skip_rows(read_tfrecord(handle, name, gzipped=name.endswith(".gz")), first_row)
    raise ValueError(f"{name!r} does not look like a shard: its name must end in .parquet, .tfrecord or .tfrecord.gz")
