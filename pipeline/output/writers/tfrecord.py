# SPDX-License-Identifier: Apache-2.0
"""TFRecord shards of `tf.train.Example`, without TensorFlow; `tfrecord_kernels` describes the bytes."""

import gzip as gzip_module
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Literal, cast

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.sums_kernels import copy_rows
from tokenmill.pipeline.columns import children, stretches
from tokenmill.pipeline.output.writers import tfrecord_kernels as kernels
from tokenmill.pipeline.output.writers.base import check_schema

_BUFFER_BYTES = 8 << 20
_MAX_EXAMPLE_BYTES = (1 << 31) - 1  # what protobuf parsers accept
_PADDING = {None: kernels.NO_PADDING, "right": kernels.PADDING_RIGHT, "left": kernels.PADDING_LEFT}
_BAD_DOC_ID = -1
_PROBLEMS = {
    _BAD_DOC_ID: "the doc_id is not UTF-8",
    kernels.BAD_LENGTH_CRC: "the checksum of the record's length is wrong",
    kernels.BAD_DATA_CRC: "the checksum of the record is wrong",
    kernels.NOT_AN_EXAMPLE: "not a tf.train.Example with the features doc_id and input_ids",
    kernels.BAD_ID: "an id in input_ids is not an int32",
    kernels.BAD_LOSS_MASK: "loss_mask does not have a 0 or 1 for each id",
    kernels.BAD_MASK: "input_mask is not one run of ones beside one run of zeros, or segment_ids are not all 0",
}


class TFRecordWriter:
    """Writes one TFRecord shard; holds the records of one batch, at most 8 MiB and one row at a time."""

    def __init__(
        self,
        handle: BinaryIO,
        *,
        padding_side: Literal["right", "left"] | None = None,
        gzip: bool = False,
        schema: pa.Schema = schemas.TOKENS,
    ) -> None:
        """Starts a shard.

        Args:
          handle: open for writing; stays open.
          padding_side: where rows are padded; records then have `input_mask` and `segment_ids`, too. None: not padded.
          gzip: whether to compress the file as a whole, with level 6.
          schema: the schema of the rows: `schemas.TOKENS`, also with `schemas.LOSS_MASK`, or that of windows.
        """
        self.n_rows = 0
        self._schema = schema
        self.n_tokens = 0
        self._padding = _PADDING[padding_side]
        # Without a name and a time, its bytes depend on the data alone.
        self._gzip = gzip_module.GzipFile("", "wb", 6, handle, mtime=0) if gzip else None
        self._stream = self._gzip or handle

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends rows of the schema.

        Raises:
          TypeError: if the batch has another schema.
          ValueError: if an id is negative, or a row too long for an Example (2 GiB).
        """
        check_schema(batch, self._schema)
        n_rows = batch.num_rows
        if n_rows == 0:
            return
        doc_offsets, doc_ids = children(batch.column(0))
        doc_bytes = doc_ids.to_numpy()
        offsets = batch.column(1).offsets.to_numpy()
        ids = batch.column(1).values.to_numpy()
        n_tokens = batch.column(2).to_numpy()
        if offsets[-1] > offsets[0] and ids[offsets[0] : offsets[-1]].min() < 0:
            raise ValueError(f"ids must not be negative, got {ids[offsets[0] : offsets[-1]].min()}")

        numbers = np.full((n_rows, 2), -1, np.int64)
        for i, name in enumerate(schemas.WINDOWS.names):
            if name in self._schema.names:
                numbers[:, i] = batch.column(name).to_numpy()
        n_packed = np.empty(n_rows, np.int64)
        n_record = np.empty(n_rows, np.int64)
        masked, mask = schemas.LOSS_MASK.name in self._schema.names, np.zeros(0, np.uint8)
        if masked:
            mask = np.zeros(offsets[-1], np.uint8)  # indexed as the ids
            mask[offsets[0] :] = batch.column(schemas.LOSS_MASK.name).flatten().cast(pa.uint8()).to_numpy()
        kernels.measure_records(ids, offsets, doc_offsets, self._padding, masked, numbers, n_packed, n_record)
        if n_record.max() > _MAX_EXAMPLE_BYTES:
            row = int(n_record.argmax())
            raise ValueError(
                f"document {batch.column(0)[row].as_py()!r} takes {n_record[row]} bytes as a tf.train.Example, which "
                f"must stay under {_MAX_EXAMPLE_BYTES}; turn truncation on or write Parquet"
            )
        for start, stop in stretches(n_record, _BUFFER_BYTES):
            n_bytes = int(n_record[start:stop].sum())
            out = np.empty(n_bytes + kernels.SLACK_BYTES, np.uint8)
            kernels.write_records(
                ids,
                offsets[start : stop + 1],
                doc_bytes,
                doc_offsets[start : stop + 1],
                n_tokens[start:stop],
                self._padding,
                masked,
                mask,
                numbers[start:stop],
                n_packed[start:stop],
                n_record[start:stop],
                out,
            )
            self._stream.write(out[:n_bytes].data)
            self.n_rows += stop - start
            self.n_tokens += int(n_tokens[start:stop].sum(dtype=np.int64))

    def close(self) -> None:
        """Writes the end of the gzip member, where there is one."""
        if self._gzip is not None:
            self._gzip.close()


def read_tfrecord(handle: BinaryIO, name: str, *, gzipped: bool = False) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a shard and checks every checksum; holds 8 MiB of records, or one record if that is longer.

    Yields:
      Batches of doc_id, input_ids, n_tokens, as in `schemas.TOKENS`, `schemas.LOSS_MASK` if rows are conversations, and
      `schemas.WINDOWS` if rows are windows; a TFRecord shard stores nothing else.

    Raises:
      ValueError: if a checksum is wrong, the file ends within a record, or a record is not one that `TFRecordWriter`
        writes. The message names the file and the byte, in the decompressed file, where the record starts.
    """
    stream = cast(BinaryIO, gzip_module.GzipFile(fileobj=handle, mode="rb")) if gzipped else handle
    buffer = np.empty(_BUFFER_BYTES, np.uint8)
    starts = np.empty(1 << 16, np.int64)
    stops = np.empty(1 << 16, np.int64)
    base = 0  # where in the file the buffer begins
    filled = 0
    ended = False
    while True:
        if not ended:
            data = _read(stream, buffer.size - filled, name)
            ended = not data
            buffer[filled : filled + len(data)] = np.frombuffer(data, np.uint8)
            filled += len(data)
        n_rows, stop, problem = kernels.frame_records(buffer, 0, filled, starts, stops)
        if n_rows:
            yield _parse(buffer, starts[:n_rows], stops[:n_rows], name, base)
        if problem != kernels.FINE:
            raise ValueError(f"{name}, byte {base + stop}: {_PROBLEMS[problem]}")
        if n_rows == 0:
            if ended and filled:
                raise ValueError(f"{name}, byte {base}: the file ends within a record")
            if ended:
                return
            if filled == buffer.size:
                buffer = np.concatenate([buffer, np.empty_like(buffer)])
        buffer[: filled - stop] = buffer[stop:filled].copy()
        filled -= stop
        base += stop


def _read(stream: BinaryIO, n_bytes: int, name: str) -> bytes:
    try:
        return stream.read(n_bytes)
    except (EOFError, gzip_module.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{name}: not a whole gzip file: {error}") from error


def _parse(buffer: np.ndarray, starts: np.ndarray, stops: np.ndarray, name: str, base: int) -> pa.RecordBatch:
    """Returns the rows of records whose frames were checked; the buffer begins at byte `base` of the file `name`."""

    def check(row: int, problem: int) -> None:
        if problem != kernels.FINE:
            raise ValueError(f"{name}, byte {base + starts[row] - 12}: {_PROBLEMS[problem]}")

    n_rows = starts.size
    spans = np.empty((n_rows, 8), np.int64)
    n_ids = np.empty(n_rows, np.int64)
    numbers = np.empty((n_rows, 2), np.int64)
    check(*kernels.parse_records(buffer, starts, stops, spans, n_ids, numbers))
    is_window = numbers[:, 0] >= 0
    is_masked = spans[:, 7] >= 0
    for is_kind in (is_window, is_masked):
        if is_kind.any() and not is_kind.all():
            check(int(np.argmin(is_kind)), kernels.NOT_AN_EXAMPLE)

    offsets = np.concatenate(([0], np.cumsum(n_ids)))
    ids = np.empty(offsets[-1], np.int32)
    n_tokens = np.empty(n_rows, np.int32)
    check(*kernels.read_ids(buffer, spans, offsets, ids, n_tokens))

    doc_offsets = np.concatenate(([0], np.cumsum(spans[:, 1] - spans[:, 0])))
    doc_bytes = np.empty(doc_offsets[-1], np.uint8)
    copy_rows(buffer, *spans.T[:2].copy(), doc_offsets[:-1], doc_bytes)
    doc_ids = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), n_rows, [None, pa.py_buffer(doc_offsets), pa.py_buffer(doc_bytes)]
    )
    try:
        doc_ids = doc_ids.cast(pa.large_string()).cast(pa.string())
    except pa.ArrowInvalid:
        for row in range(n_rows):
            check(row, kernels.FINE if _is_utf8(doc_ids[row].as_py()) else _BAD_DOC_ID)
    rows = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids), type=schemas.TOKENS.field(1).type)
    columns, fields = [doc_ids, rows, pa.array(n_tokens)], list(schemas.TOKENS)[:3]
    if n_rows and is_masked.all():
        mask = np.empty(offsets[-1], np.uint8)
        copy_rows(buffer, *spans.T[6:].copy(), offsets[:-1], mask)
        type_ = schemas.LOSS_MASK.type
        columns.append(pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(mask.view(np.bool_)), type=type_))
        fields.append(schemas.LOSS_MASK)
    if n_rows and is_window.all():
        columns += [pa.array(numbers[:, i]).cast(field.type) for i, field in enumerate(schemas.WINDOWS)]
        fields += schemas.WINDOWS
    return pa.record_batch(columns, schema=pa.schema(fields))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
