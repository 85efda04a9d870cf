# SPDX-License-Identifier: Apache-2.0
"""Shards that are ids, one after another, with a file that says where rows begin: Megatron's format and memory maps.

Neither format keeps document ids or padding: a row is its tokens. The ids have the narrowest type that holds the
vocabulary; the index says which. The index of a shard is held in memory while it is written, 8 bytes per row.
"""

import io
import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.columns import ragged, stretches
from tokenmill.pipeline.output.writers.base import ShardWriter, TokenizerInfo, make_rows, narrow_ids

MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
MEGATRON_VERSION = 1
MEGATRON_DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""Integer types by their codes in Megatron-LM's `IndexedDataset`."""

_HEADER = struct.Struct("<9sQBQQ")
_READ_BYTES = 8 << 20


class _FlatWriter(ShardWriter):
    """Writes the ids of rows without their padding, and remembers how many each has."""

    def __init__(
        self, handle: BinaryIO, index: BinaryIO, tokenizer: TokenizerInfo, *, schema: pa.Schema = schemas.TOKENS
    ) -> None:
        """Takes the files of ids and of the index; `tokenizer` says how wide ids are, and where rows are padded."""
        super().__init__(schema)
        self._handle, self._index, self._tokenizer = handle, index, tokenizer
        self._lengths: list[np.ndarray] = [np.zeros(0, np.int64)]

    def _write(self, batch: pa.RecordBatch) -> None:
        ids = without_padding(batch, self._tokenizer.padding_side == "left" and "doc_id" in self._schema.names)
        self._handle.write(narrow_ids(ids, self._tokenizer).data)
        self._lengths.append(batch.column("n_tokens").to_numpy().astype(np.int64))


class MegatronWriter(_FlatWriter):
    """Writes `.bin` and `.idx` as `IndexedDataset` of Megatron-LM reads them: a sequence per row, a document each."""

    def close(self) -> None:
        """Writes the index."""
        lengths = np.concatenate(self._lengths)
        dtype = self._tokenizer.token_dtype
        (code,) = (code for code, name in MEGATRON_DTYPES.items() if np.dtype(name) == dtype)
        self._index.write(_HEADER.pack(MEGATRON_MAGIC, MEGATRON_VERSION, code, lengths.size, lengths.size + 1))
        self._index.write(lengths.astype("<i4").data)
        self._index.write(((np.cumsum(lengths) - lengths) * dtype.itemsize).astype("<i8").data)
        self._index.write(np.arange(lengths.size + 1, dtype="<i8").data)


class MemmapWriter(_FlatWriter):
    """Writes `.ids.bin`, which `np.memmap` maps, and `.offsets.npy`: int64[n + 1], where each row begins, in ids."""

    def close(self) -> None:
        """Writes the offsets."""
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(self._lengths))]).astype("<i8")
        self._index.write(_npy_header(offsets.size))
        self._index.write(offsets.data)


def _npy_header(n: int) -> bytes:
    """Returns the header of an npy file of int64[n]."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (n,)})
    return file.getvalue()


def without_padding(batch: pa.RecordBatch, is_left: bool) -> np.ndarray:
    """Returns the tokens of all rows, one after another: the last `n_tokens` of each if `is_left`, else the first."""
    ids, offsets = ragged(batch.column("input_ids"))
    n_tokens = batch.column("n_tokens").to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    if np.array_equal(lengths, n_tokens):
        return ids
    starts = offsets[1:] - n_tokens if is_left else offsets[:-1]
    position = np.arange(ids.size) - np.repeat(starts, lengths)
    return ids[(position >= 0) & (position < np.repeat(n_tokens, lengths))]


def read_megatron(handle: BinaryIO, index: BinaryIO, name: str, first_row: int = 0) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a shard of `MegatronWriter` from `first_row` on; holds its index and 8 MiB of ids.

    Yields:
      doc_id, always empty, input_ids, n_tokens, as in `schemas.TOKENS`.

    Raises:
      ValueError: if the files are not such a shard.
    """
    yield from _read_ids(handle, *megatron_rows(index.read(), name), name, first_row)


def megatron_rows(data: bytes | memoryview, name: str) -> tuple[np.dtype, np.ndarray]:
    """Returns the type of ids, and int64[n + 1], where each row begins, of the index of `MegatronWriter`.

    Raises:
      ValueError: if it is not such an index.
    """
    n_bytes = memoryview(data).nbytes
    if n_bytes < _HEADER.size:
        raise ValueError(f"{name}: its index of {n_bytes} bytes is shorter than a header")
    magic, version, code, n_rows, n_ends = _HEADER.unpack_from(data)
    if (magic, version) != (MEGATRON_MAGIC, MEGATRON_VERSION) or code not in MEGATRON_DTYPES:
        raise ValueError(f"{name}: its index is not one of Megatron's, version {MEGATRON_VERSION}, of integers")
    if n_bytes != _HEADER.size + 12 * n_rows + 8 * n_ends or n_ends != n_rows + 1:
        raise ValueError(f"{name}: its index of {n_bytes} bytes is not one of {n_rows} rows, a document each")
    at = _HEADER.size
    lengths = np.frombuffer(data, "<i4", n_rows, at).astype(np.int64)
    pointers = np.frombuffer(data, "<i8", n_rows, at + 4 * n_rows)
    documents = np.frombuffer(data, "<i8", n_ends, at + 12 * n_rows)
    dtype = np.dtype(MEGATRON_DTYPES[code])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    if (lengths < 0).any() or not np.array_equal(pointers, offsets[:-1] * dtype.itemsize):
        raise ValueError(f"{name}: rows do not follow one another in its index")
    if not np.array_equal(documents, np.arange(n_ends)):
        raise ValueError(f"{name}: rows are not a document each in its index")
    return dtype, offsets


def read_memmap(handle: BinaryIO, index: BinaryIO, name: str, first_row: int = 0) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a shard of `MemmapWriter`; see `read_megatron`."""
    n_bytes = handle.seek(0, io.SEEK_END)
    handle.seek(0)
    yield from _read_ids(handle, *memmap_rows(index.read(), n_bytes, name), name, first_row)


def memmap_rows(data: bytes | memoryview, n_bytes: int, name: str) -> tuple[np.dtype, np.ndarray]:
    """Returns the type of ids, and where each row begins; see `megatron_rows`.

    Args:
      data: the offsets.
      n_bytes: the size of the file of ids, which tells how wide they are.
      name: the name of the shard, for messages.
    """
    size = memoryview(data).nbytes
    # NumPy would parse the header as Python code; only the header that is written here has to be understood.
    n = (size - len(_npy_header(0))) // 8
    header = _npy_header(max(n, 0))
    if n < 1 or bytes(memoryview(data)[: len(header)]) != header or size != len(header) + 8 * n:
        raise ValueError(f"{name}: its offsets are not an npy file of int64[n + 1]")
    offsets = np.frombuffer(data, "<i8", n, len(header))
    if offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"{name}: its offsets do not ascend from 0")
    return np.dtype("<u2" if n_bytes == 2 * int(offsets[-1]) else "<i4"), offsets


def _read_ids(
    handle: BinaryIO, dtype: np.dtype, offsets: np.ndarray, name: str, first_row: int
) -> Iterator[pa.RecordBatch]:
    n_bytes = handle.seek(0, io.SEEK_END)
    if n_bytes != int(offsets[-1]) * dtype.itemsize:
        raise ValueError(f"{name}: {n_bytes} bytes, but its index says {offsets[-1]} ids of {dtype.itemsize}")
    offsets = offsets[min(first_row, offsets.size - 1) :]
    handle.seek(int(offsets[0]) * dtype.itemsize)
    for row, stop in stretches(np.diff(offsets), _READ_BYTES // dtype.itemsize, 1 << 16):
        data = handle.read(int(offsets[stop] - offsets[row]) * dtype.itemsize)
        yield make_rows(np.frombuffer(data, dtype), offsets[row : stop + 1] - offsets[row])
