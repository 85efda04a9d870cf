# SPDX-License-Identifier: Apache-2.0
"""MDS shards, the format of MosaicML's `streaming`, and the `index.json` that makes shards a dataset.

A sample is the sizes of its columns of variable size, u32 each, then the bytes of the columns; everything is
little-endian. The reference implementation is `tests.reference.mds`.
"""

import json
import shutil
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline.books.sums_kernels import copy_rows
from tokenmill.pipeline.columns import children, ragged, stretches
from tokenmill.pipeline.output.writers.base import (
    ShardWriter,
    TokenizerInfo,
    json_texts,
    narrow_ids,
    scatter,
    skip_rows,
)

MAX_BYTES = (1 << 32) - 1
"""The most bytes of a shard: offsets have 32 bits."""

_INT_BYTES = 8
_ONE_DIMENSION = 1 << 2
_LENGTHS = "<u1", "<u2", "<u4", "<u8"
"""An array begins with a byte, `_ONE_DIMENSION` and an index into these, then its length in that many bytes."""
_READ_BYTES = 8 << 20
_MAX_DESCRIPTION_BYTES = 1 << 16


def columns_of(schema: pa.Schema, tokenizer: TokenizerInfo) -> dict[str, str]:
    """Returns the columns of a shard and their encodings, in the order of the samples.

    Ids are called `tokens`, as LLM Foundry expects; n_oov is left out. Kept fields, which may be null, are JSON.
    """
    columns = {"tokens": f"ndarray:{tokenizer.token_dtype.name}", "n_tokens": "int"}
    for field in schema:
        if field.nullable:
            columns[field.name] = "json"
        elif pa.types.is_string(field.type):
            columns[field.name] = "str"
        elif pa.types.is_large_list(field.type) and field.name != "input_ids":
            kind = field.type.value_type
            columns[field.name] = f"ndarray:{'uint8' if pa.types.is_boolean(kind) else kind}"
        elif field.name in schemas.WINDOWS.names:
            columns[field.name] = "int"
    return dict(sorted(columns.items()))


def describe_columns(columns: dict[str, str]) -> dict[str, Any]:
    """Returns the description of the columns, which both a shard and the index contain."""
    return {
        "column_encodings": list(columns.values()),
        "column_names": list(columns),
        "column_sizes": [_INT_BYTES if encoding == "int" else None for encoding in columns.values()],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": None,
        "version": 2,
    }


class MDSWriter(ShardWriter):
    """Writes one shard. Samples are collected in a temporary file, because the format puts their offsets first.

    Holds one batch as samples, and 4 bytes per row.
    """

    def __init__(self, handle: BinaryIO, tokenizer: TokenizerInfo, *, schema: pa.Schema = schemas.TOKENS) -> None:
        """Starts a shard; `tokenizer` says how wide ids are."""
        super().__init__(schema)
        self._handle, self._tokenizer = handle, tokenizer
        self._columns = columns_of(schema, tokenizer)
        self._samples = storage.scratch()  # closed with the shard, or when an attempt fails
        weakref.finalize(self, self._samples.close)
        self._sizes: list[np.ndarray] = []
        self._n_bytes = 0

    def _write(self, batch: pa.RecordBatch) -> None:
        samples, sizes = encode(batch, self._columns, self._tokenizer)
        self._n_bytes += samples.size + 4 * sizes.size
        if self._n_bytes + _MAX_DESCRIPTION_BYTES > MAX_BYTES:
            raise ValueError(f"a shard of MDS cannot have more than {MAX_BYTES} bytes; lower input.split_bytes")
        self._samples.write(samples.data)
        self._sizes.append(sizes.astype(np.uint32))

    def close(self) -> None:
        """Writes the shard."""
        description = json.dumps(describe_columns(self._columns), sort_keys=True).encode()
        sizes = np.concatenate([np.zeros(0, np.uint32), *self._sizes]).astype(np.int64)
        first = 4 + 4 * (sizes.size + 1) + len(description)
        offsets = first + np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        self._handle.write(np.array([sizes.size, *offsets], "<u4").tobytes())
        self._handle.write(description)
        self._samples.seek(0)
        shutil.copyfileobj(self._samples, self._handle, 1 << 20)
        self._samples.close()


def encode(batch: pa.RecordBatch, columns: dict[str, str], tokenizer: TokenizerInfo) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows as (samples uint8, bytes of each sample int64[n])."""
    parts = {name: _column_bytes(batch, name, tokenizer) for name, encoding in columns.items() if encoding != "int"}
    n_rows = batch.num_rows
    sizes, widths = {}, {}
    for name, (_, offsets, item_bytes) in parts.items():
        n_bytes = np.diff(offsets)
        widths[name] = np.zeros(n_rows, np.int64)
        if item_bytes:
            widths[name] += np.searchsorted([1 << 8, 1 << 16, 1 << 32], n_bytes // item_bytes, side="right")
            n_bytes = n_bytes + 1 + (1 << widths[name])
        sizes[name] = n_bytes
    fixed = sum(_INT_BYTES for encoding in columns.values() if encoding == "int")
    total = np.full(n_rows, 4 * len(parts) + fixed, np.int64)
    for n_bytes in sizes.values():
        total += n_bytes
    starts = np.cumsum(total) - total
    out = np.empty(int(total.sum()), np.uint8)
    at = starts.copy()
    for n_bytes in sizes.values():
        scatter(out, at, n_bytes.astype("<u4"))
        at += 4
    for name, encoding in columns.items():
        if encoding == "int":
            scatter(out, at, batch.column(name).to_numpy().astype("<i8"))
            at += _INT_BYTES
        else:
            data, offsets, item_bytes = parts[name]
            n_bytes = np.diff(offsets)
            if item_bytes:
                scatter(out, at, (_ONE_DIMENSION | widths[name]).astype(np.uint8))
                for width, code in enumerate(_LENGTHS):
                    rows = np.flatnonzero(widths[name] == width)
                    scatter(out, at[rows] + 1, (n_bytes[rows] // item_bytes).astype(code))
                at += 1 + (1 << widths[name])
            copy_rows(data, offsets[:-1], offsets[1:], at, out)
            at += n_bytes
    return out, total


def _column_bytes(batch: pa.RecordBatch, name: str, tokenizer: TokenizerInfo) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns (bytes, offsets in bytes int64[n + 1], bytes of an array's values or 0) of a column."""
    name_in_batch = "input_ids" if name == "tokens" else name
    column = batch.column(name_in_batch)
    is_kept = batch.schema.field(name_in_batch).nullable
    if is_kept or pa.types.is_string(column.type):
        offsets, data = children(json_texts(column) if is_kept else column)
        return data.to_numpy(), offsets, 0
    if pa.types.is_boolean(column.type.value_type):
        column = column.cast(pa.large_list(pa.uint8()))
    values, offsets = ragged(column)
    if name == "tokens":
        values = narrow_ids(values, tokenizer)
    return np.ascontiguousarray(values).view(np.uint8), offsets * values.itemsize, values.itemsize


def _gather(data: np.ndarray, at: np.ndarray, dtype: str) -> np.ndarray:
    return data[at[:, None] + np.arange(np.dtype(dtype).itemsize)].view(dtype).reshape(-1)


def read_mds(handle: BinaryIO, name: str, first_row: int = 0) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a shard from `first_row` on; holds its offsets and 8 MiB of samples, or one longer sample.

    Yields:
      doc_id, input_ids, n_tokens, as in `schemas.TOKENS`, or packed sequences.

    Raises:
      ValueError: if the file is not one that `MDSWriter` writes.
    """
    n_rows = int.from_bytes(handle.read(4), "little")
    head = handle.read(4 * (n_rows + 1))
    offsets = np.frombuffer(head[: len(head) // 4 * 4], "<u4").astype(np.int64)
    if offsets.size != n_rows + 1 or (np.diff(offsets) < 0).any():
        raise ValueError(f"{name}: not the offsets of {n_rows} samples")
    n_description = int(offsets[0]) - 4 - 4 * offsets.size
    if not 0 <= n_description <= _MAX_DESCRIPTION_BYTES:
        raise ValueError(f"{name}: the first sample is at byte {offsets[0]}")
    try:
        described = json.loads(handle.read(n_description))
        columns = dict(zip(described["column_names"], described["column_encodings"], strict=True))
        is_known = described == describe_columns(columns) and list(columns) == sorted(columns)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name}: its columns are not described: {error!r}") from error
    schema = _schema_of(columns) if is_known else None
    if schema is None:
        raise ValueError(f"{name}: not the columns of a shard: {columns}")
    for row, stop in stretches(np.diff(offsets), _READ_BYTES):
        data = np.frombuffer(handle.read(int(offsets[stop] - offsets[row])), np.uint8)
        if data.size != offsets[stop] - offsets[row]:
            raise ValueError(f"{name}: ends within the samples from row {row} on")
        where = f"{name}, row {row} and on"
        batch = _decode(data, offsets[row : stop + 1] - offsets[row], columns, schema, where)
        yield from skip_rows([batch], max(0, first_row - row))
    if handle.read(1):
        raise ValueError(f"{name}: goes on after its last sample")


def _schema_of(columns: dict[str, str]) -> pa.Schema | None:
    """Returns the schema of the rows of a shard with these columns, kept fields as JSON; None if no schema fits."""
    kept = [name for name, encoding in columns.items() if encoding == "json"]
    columns = {name: encoding for name, encoding in columns.items() if encoding != "json"}
    packed = schemas.packed(list(columns))
    tokens = pa.schema([schemas.TOKENS.field(name) for name in ("doc_id", "input_ids", "n_tokens")])
    trained = (pa.schema([*tokens, field]) for field in (schemas.LOSS_MASK, schemas.LABELS))
    for schema in (tokens, *trained, pa.schema([*tokens, *schemas.WINDOWS]), packed):
        for vocab_size in (1, 1 << 20):
            if columns == columns_of(schema, TokenizerInfo("", vocab_size)):
                return pa.schema([*schema, *(pa.field(name, pa.string()) for name in kept)])
    return None


def _decode(
    data: np.ndarray, offsets: np.ndarray, columns: dict[str, str], schema: pa.Schema, where: str
) -> pa.RecordBatch:
    variable = [name for name, encoding in columns.items() if encoding != "int"]
    n_fixed = _INT_BYTES * (len(columns) - len(variable))
    at = offsets[:-1].copy()
    if (offsets[1:] - at < 4 * len(variable) + n_fixed).any():
        raise ValueError(f"{where}: a sample is shorter than its sizes")
    sizes = {}
    for name in variable:
        sizes[name] = _gather(data, at, "<u4").astype(np.int64)
        at += 4
    if (at + sum(sizes.values()) + n_fixed != offsets[1:]).any():
        raise ValueError(f"{where}: the columns of a sample do not take the bytes that it has")
    arrays: dict[str, pa.Array] = {}
    for name, encoding in columns.items():
        stored = "input_ids" if name == "tokens" else name
        if encoding == "int":
            arrays[stored] = pa.array(_gather(data, at, "<i8"))
            at += _INT_BYTES
            continue
        arrays[stored] = _decode_column(data, at, sizes[name], encoding, where)
        at += sizes[name]
    try:
        return pa.record_batch([arrays[field.name].cast(field.type) for field in schema], schema=schema)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{where}: {error}") from error


def _decode_column(data: np.ndarray, at: np.ndarray, sizes: np.ndarray, encoding: str, where: str) -> pa.Array:
    starts, n_bytes = at, sizes
    if encoding not in ("str", "json"):
        dtype = np.dtype(encoding.removeprefix("ndarray:"))
        if (sizes < 2).any():
            raise ValueError(f"{where}: an array is shorter than its shape")
        widths = data[at].astype(np.int64)
        starts = at + 1 + (1 << (widths & 3))
        n_bytes = sizes - (starts - at)
        if (widths & ~3 != _ONE_DIMENSION).any() or (n_bytes < 0).any() or (n_bytes % dtype.itemsize).any():
            raise ValueError(f"{where}: an array is not one of one dimension")
        for width, code in enumerate(_LENGTHS):
            rows = np.flatnonzero(widths & 3 == width)
            said = _gather(data, at[rows] + 1, code).astype(np.int64)
            if (said * dtype.itemsize != n_bytes[rows]).any():
                raise ValueError(f"{where}: an array has another length than its shape says")
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(n_bytes)])
    out = np.empty(int(ends[-1]), np.uint8)
    copy_rows(data, starts, starts + n_bytes, ends[:-1], out)
    if encoding in ("str", "json"):
        strings = pa.LargeStringArray.from_buffers(at.size, pa.py_buffer(ends), pa.py_buffer(out))
        try:
            strings.validate(full=True)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{where}: {error}") from error
        return strings
    return pa.LargeListArray.from_arrays(pa.array(ends // dtype.itemsize), pa.array(out.view(dtype)))


Shard = tuple[str, int, int]
"""Name, size in bytes and number of rows of a shard."""


def make_index(shards: Iterable[Shard], columns: dict[str, str]) -> bytes:
    """Returns `index.json` of a dataset.

    Args:
      shards: all shards, in order; those without rows are left out.
      columns: as `columns_of` returns them.
    """
    described = [
        {
            **describe_columns(columns),
            "raw_data": {"basename": name, "bytes": n_bytes, "hashes": {}},
            "samples": n_rows,
            "zip_data": None,
        }
        for name, n_bytes, n_rows in shards
        if n_rows
    ]
    return json.dumps({"shards": described, "version": 2}, sort_keys=True).encode()
