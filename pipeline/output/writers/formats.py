# SPDX-License-Identifier: Apache-2.0
"""All formats of shards: what each is called, how it is written and read, and what it keeps of a row.

In memory a row of a conversation has `schemas.LOSS_MASK`. A shard has `schemas.LABELS` in its place, and what
`output.for` adds: columns that trainers would else have to be told, and do not compute themselves. They are made when a
row is stored; checked, and taken away again, when it is read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.columns import as_lists, ragged
from tokenmill.pipeline.config.formats import SHARD_FORMATS, Format
from tokenmill.pipeline.config.output import KEEPS_FIELDS, OutputConfig
from tokenmill.pipeline.output.writers.base import ShardWriter, TokenizerInfo
from tokenmill.pipeline.output.writers.flat import MegatronWriter, MemmapWriter, read_megatron, read_memmap
from tokenmill.pipeline.output.writers.mds import MDSWriter, read_mds
from tokenmill.pipeline.output.writers.parquet import ArrowWriter, ParquetWriter, read_arrow, read_parquet
from tokenmill.pipeline.output.writers.tfrecord import TFRecordWriter, read_tfrecord

ROWS = (*(each.suffixes[0] for each in SHARD_FORMATS.values()), ".tfrecord.gz")
"""The endings of names of files with rows, of all formats."""

MAPPED = tuple(end for each in SHARD_FORMATS.values() if len(each.suffixes) > 1 for end in each.suffixes)
"""The endings of formats whose readers map files into memory, which files of no bytes cannot be."""


@dataclass(frozen=True)
class _Files:
    """How rows become files and rows again."""

    write: Callable[[Sequence[BinaryIO], TokenizerInfo, pa.Schema, OutputConfig], ShardWriter]
    """Takes the file, and that of the index if there is one."""
    read: Callable[..., Iterator[pa.RecordBatch]]
    """Takes the file, its index if there is one, its name, and the first row."""


def _parquet(files: Sequence[BinaryIO], info: TokenizerInfo, schema: pa.Schema, output: OutputConfig) -> ShardWriter:
    compression = "zstd" if output.compression == "auto" else output.compression
    size = output.row_group_tokens
    return ParquetWriter(files[0], info, schema=schema, compression=compression, row_group_tokens=size)


def _tfrecord(files: Sequence[BinaryIO], info: TokenizerInfo, schema: pa.Schema, output: OutputConfig) -> ShardWriter:
    is_gzip = output.compression == "gzip"
    return TFRecordWriter(files[0], padding_side=info.padding_side, gzip=is_gzip, schema=schema)


def _arrow(files: Sequence[BinaryIO], info: TokenizerInfo, schema: pa.Schema, output: OutputConfig) -> ShardWriter:
    compression = "none" if output.compression == "auto" else output.compression
    return ArrowWriter(files[0], info, schema=schema, compression=compression)


_FORMATS: Mapping[Format, _Files] = {
    "parquet": _Files(_parquet, read_parquet),
    "tfrecord": _Files(_tfrecord, read_tfrecord),
    "arrow": _Files(_arrow, read_arrow),
    "mds": _Files(lambda files, info, schema, _: MDSWriter(files[0], info, schema=schema), read_mds),
    "memmap": _Files(lambda files, info, schema, _: MemmapWriter(files[0], files[1], info, schema=schema), read_memmap),
    "megatron": _Files(
        lambda files, info, schema, _: MegatronWriter(files[0], files[1], info, schema=schema), read_megatron
    ),
}


def format_of(name: str) -> Format | None:
    """Returns the format of a file with rows, by the ending of its name; None if it has no such ending."""
    stem = name.removesuffix(".gz") if name.endswith(".tfrecord.gz") else name
    return next((format for format, each in SHARD_FORMATS.items() if stem.endswith(each.suffixes[0])), None)


def suffixes(output: OutputConfig, format: Format | None = None) -> tuple[str, ...]:
    """Returns the name endings of a shard's files: for each format that of its rows, then that of its index if any.

    Args:
      output: formats and compression.
      format: one of them; None for all.
    """
    if format is None:
        return tuple(suffix for name in output.formats for suffix in suffixes(output, name))
    rows, *index = SHARD_FORMATS[format].suffixes
    return (rows + ".gz" * (format == "tfrecord" and output.compression == "gzip"), *index)


def suffix(output: OutputConfig) -> str:
    """Returns the name ending of shards of the first format, for example ".parquet" or ".tfrecord.gz"."""
    return suffixes(output)[0]


def index_name(name: str) -> str | None:
    """Returns the name of the index of a shard; None where the format has none."""
    format = format_of(name)
    end, *index = SHARD_FORMATS[format].suffixes if format else ("",)
    return name.removesuffix(end) + index[0] if index else None


def keeps_padding(name: str) -> bool:
    """Returns whether the rows of the shard `name` include padding."""
    return index_name(name) is None


def keeps_fields(name: str) -> bool:
    """Returns whether the format of the shard `name` can store kept fields."""
    return format_of(name) in KEEPS_FIELDS


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
    if len(SHARD_FORMATS[format].suffixes) == 1:
        return _FORMATS[format].write([handle], tokenizer, schema, output)
    if index is None:
        raise ValueError(f"{format} needs a file for its index")
    return _FORMATS[format].write([handle, index], tokenizer, schema, output)


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
    if (format := format_of(name)) is None:
        ends = ", ".join(ROWS[:-1])
        raise ValueError(f"{name!r} does not look like a shard: its name must end in {ends} or {ROWS[-1]}")
    if len(SHARD_FORMATS[format].suffixes) == 1:
        return _checked(_FORMATS[format].read(handle, name, first_row), name)
    if index is None:
        raise ValueError(f"{name}: its index {index_name(name)!r} is missing")
    return _FORMATS[format].read(handle, index, name, first_row)


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


_FOR: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    # A batch of TRL has an attention mask of ones, unless `padding_free`, where it takes positions from lengths.
    "trl": ((), ("seq_lengths",)),
    # Axolotl takes rows without `attention_mask` for texts to be tokenized.
    "axolotl": (("attention_mask",), ("attention_mask", "position_ids")),
    # With an attention mask, models of transformers would look across conversations.
    "transformers": (("attention_mask",), ("position_ids",)),
    # `GPTSFTPackedParquetDataset` of Megatron Bridge; a row that is one conversation is a short pack.
    "megatron": (("seq_start_id",), ("seq_start_id",)),
}
"""For each value of `output.for`: columns of rows that are conversations, and of packed ones."""


def stored_schema(schema: pa.Schema, output: OutputConfig, format: Format) -> pa.Schema:
    """Returns the schema of the rows of conversations in a shard; other rows are stored as they are.

    Args:
      schema: of the rows in memory, without kept fields.
      output: whether there are labels, and for whom.
      format: that of the shard.
    """
    if schemas.LOSS_MASK.name not in schema.names:
        return schema
    names = [name for name in schema.names if name != schemas.LOSS_MASK.name]
    added = _FOR[output.for_][output.packing is not None] if output.for_ is not None else ()
    trained = schemas.LABELS if output.has_labels(format) else schemas.LOSS_MASK
    return schemas.rows([*names, trained.name, *added])


def stored(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns rows as a shard with this schema has them."""
    columns = [
        rows.column(field.name)
        if field.name in rows.schema.names and field != schemas.NEXT_MASK
        else _make(rows, field.name)
        for field in schema
    ]
    return pa.record_batch(columns, schema=schema)


def loaded(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns stored rows as they are in memory.

    Raises:
      ValueError: if a column is not what `stored` makes of the others.
    """
    if schemas.LABELS.name in rows.schema.names:
        rows = schemas.masked(rows)
    elif schemas.NEXT_MASK in rows.schema:
        at, (values, offsets) = rows.schema.get_field_index(schemas.NEXT_MASK.name), ragged(rows.column("loss_mask"))
        mask = np.roll(values.astype(np.bool_), 1)
        mask[offsets[:-1][np.diff(offsets) > 0]] = False
        made = rows.set_column(at, schemas.LOSS_MASK, as_lists(mask, offsets))
        if not _make(made, schemas.NEXT_MASK.name).equals(rows.column(at)):
            raise ValueError("loss_mask is not 0 and 1, with 0 for the last id of a row")
        rows = made
    for name in {*schemas.FOR_TRAINERS.names} & {*rows.schema.names}:
        if not any(_make(rows, name, is_left=is_left).equals(rows.column(name)) for is_left in (False, True)):
            raise ValueError(f"{name} is not what the ids of the rows, and where conversations begin in them, give")
        rows = rows.drop_columns([name])
    return rows


def _make(rows: pa.RecordBatch, name: str, *, is_left: bool = False) -> pa.LargeListArray:
    """Returns a stored column of rows; `is_left` is whether padding is in front."""
    if name == schemas.LABELS.name:
        return schemas.labelled(rows).column(name)
    if name == schemas.NEXT_MASK.name:
        mask, offsets = ragged(rows.column(name).cast(pa.large_list(pa.int8())))
        after = np.append(mask[1:], 0)
        after[offsets[1:][np.diff(offsets) > 0] - 1] = 0
        return _int32_lists(after, offsets)
    ids, offsets = ragged(rows.column("input_ids"))
    lengths, n_tokens = np.diff(offsets), rows.column("n_tokens").to_numpy().astype(np.int64)
    if name == "attention_mask":
        first = lengths - n_tokens if is_left else np.zeros_like(lengths)
        at = np.arange(ids.size) - np.repeat(offsets[:-1], lengths)
        return _int32_lists((at >= np.repeat(first, lengths)) & (at < np.repeat(first + n_tokens, lengths)), offsets)
    bounds, at = np.stack([np.zeros_like(n_tokens), n_tokens], axis=1).reshape(-1), 2 * np.arange(lengths.size + 1)
    if "cu_seqlens" in rows.schema.names:
        bounds, at = ragged(rows.column("cu_seqlens"))
    if (np.diff(at) < 2).any() or (bounds[at[:-1]] != 0).any():
        raise ValueError("cu_seqlens are not where conversations begin and end")
    is_last = np.zeros(bounds.size, np.bool_)
    is_last[at[1:] - 1] = True
    if name == "position_ids":  # the padding of a row counts as another conversation
        begins = (bounds + np.repeat(offsets[:-1], np.diff(at)))[bounds < np.repeat(lengths, np.diff(at))]
        places = np.arange(ids.size)
        return _int32_lists(places - begins[np.searchsorted(begins, places, side="right") - 1], offsets)
    values = np.diff(bounds, append=0) if name == "seq_lengths" else bounds
    return _int32_lists(values[~is_last], at - np.arange(at.size))


def _int32_lists(values: np.ndarray, offsets: np.ndarray) -> pa.LargeListArray:
    return as_lists(values.astype(np.int32), offsets)
