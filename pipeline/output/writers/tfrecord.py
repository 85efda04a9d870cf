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
from tokenmill.pipeline.output.writers.base import ShardWriter, skip_rows

_BUFFER_BYTES = 8 << 20
_MAX_EXAMPLE_BYTES = (1 << 31) - 1  # what protobuf parsers accept
_MOST_NUMBER = (1 << 35) - 1  # what the kernels write
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
_FEATURES = ("doc_id", "document", "input_ids", "input_mask", "loss_mask", "segment_ids", "window")
_KINDS = {name: kernels.TEXT if name == "doc_id" else kernels.NUMBERS for name in _FEATURES}
_NAMES = {name: np.frombuffer(name.encode(), np.uint8) for name in _FEATURES}
_SEVENS = 1 << np.arange(7, 63, 7)

_Rows = tuple[np.ndarray, np.ndarray]
"""Values of rows, and int64[n + 1], where each begins and the last ends. Values of uint8 are stored as they are."""


class TFRecordWriter(ShardWriter):
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
        super().__init__(schema)
        self._padding_side = padding_side
        # Without a name and a time, its bytes depend on the data alone.
        self._gzip = gzip_module.GzipFile("", "wb", 6, handle, mtime=0) if gzip else None
        self._stream = self._gzip or handle

    def _write(self, batch: pa.RecordBatch) -> None:
        n_rows = batch.num_rows
        features = self._features(batch)
        n_features, sizes = np.zeros(n_rows, np.int64), {}
        for name, (values, offsets) in features.items():
            n_bytes = np.diff(offsets)
            if values.dtype != np.uint8:
                kernels.measure_varints(values, offsets, n_bytes)
            lists = np.where((n_bytes > 0) | (_KINDS[name] == kernels.TEXT), _field_bytes(n_bytes), 0)
            contents = _field_bytes(lists)
            entries = 2 + len(name) + _field_bytes(contents)
            n_features += _field_bytes(entries)
            sizes[name] = np.stack([entries, contents, lists, n_bytes])
        n_record = kernels.FRAME_BYTES + _field_bytes(n_features)
        if n_record.max() > _MAX_EXAMPLE_BYTES:
            row = int(n_record.argmax())
            raise ValueError(
                f"document {batch.column(0)[row].as_py()!r} takes {n_record[row]} bytes as a tf.train.Example, which "
                f"must stay under {_MAX_EXAMPLE_BYTES}; turn truncation on or write Parquet"
            )
        for start, stop in stretches(n_record, _BUFFER_BYTES):
            ends = np.cumsum(n_record[start:stop])
            starts = ends - n_record[start:stop]
            out, at = np.empty(ends[-1] + kernels.SLACK_BYTES, np.uint8), np.empty_like(ends)
            kernels.begin_records(starts, ends, n_features[start:stop], at, out)
            for name, (values, offsets) in features.items():
                of_rows = sizes[name][:, start:stop].copy()
                kernels.begin_entries(_NAMES[name], _KINDS[name], of_rows, at, out)
                if values.dtype == np.uint8:
                    copy_rows(values, offsets[start:stop], offsets[start + 1 : stop + 1], at, out)
                else:
                    kernels.put_varints(values, offsets[start : stop + 1], at, out)
                at += of_rows[-1]
            kernels.end_records(starts, ends, out)
            self._stream.write(out[: ends[-1]].data)

    def _features(self, batch: pa.RecordBatch) -> dict[str, _Rows]:
        """Returns the features of rows, in the order of their names."""
        offsets, ids = batch.column(1).offsets.to_numpy(), batch.column(1).values.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        if last > first and ids[first:last].min() < 0:
            raise ValueError(f"ids must not be negative, got {ids[first:last].min()}")
        doc_offsets, doc_ids = children(batch.column(0))
        found = {"doc_id": (doc_ids.to_numpy(), doc_offsets), "input_ids": (ids, offsets)}
        for name in (name for name in schemas.WINDOWS.names if name in self._schema.names):
            numbers = batch.column(name).to_numpy().astype(np.int64)
            found[name] = _read_only(numbers), np.arange(batch.num_rows + 1)
        if schemas.LOSS_MASK.name in self._schema.names:
            mask = batch.column(schemas.LOSS_MASK.name).flatten().cast(pa.uint8()).to_numpy()
            found[schemas.LOSS_MASK.name] = _read_only(mask), offsets - first
        if self._padding_side is not None:
            n_tokens, is_left = batch.column(2).to_numpy(), np.full(batch.num_rows, self._padding_side == "left")
            found["input_mask"] = _read_only(_input_mask(np.diff(offsets), n_tokens, is_left)), offsets - first
            found["segment_ids"] = _read_only(np.zeros(last - first, np.uint8)), offsets - first
        return dict(sorted(found.items()))

    def close(self) -> None:
        """Writes the end of the gzip member, where there is one."""
        if self._gzip is not None:
            self._gzip.close()


def read_tfrecord(handle: BinaryIO, name: str, first_row: int = 0) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a shard from `first_row` on, and checks every checksum.

    Holds 8 MiB of records, or one record if that is longer. A name that ends in ".gz" says that it is compressed.

    Yields:
      Batches of doc_id, input_ids, n_tokens, as in `schemas.TOKENS`, `schemas.LOSS_MASK` if rows are conversations, and
      `schemas.WINDOWS` if rows are windows; a TFRecord shard stores nothing else.

    Raises:
      ValueError: if a checksum is wrong, the file ends within a record, or a record is not one that `TFRecordWriter`
        writes. The message names the file and the byte, in the decompressed file, where the record starts.
    """
    stream = handle
    if name.endswith(".gz"):
        stream = cast(BinaryIO, gzip_module.GzipFile(fileobj=handle, mode="rb"))
    yield from skip_rows(_read_records(stream, name), first_row)


def _read_records(stream: BinaryIO, name: str) -> Iterator[pa.RecordBatch]:
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
    records = _Records(buffer, starts, stops, name, base)
    ids, offsets = records.numbers("input_ids", (1 << 31) - 1, np.int32, kernels.BAD_ID)
    n_tokens = np.diff(offsets)
    if records.has("input_mask"):
        n_tokens = records.read_padding(offsets)
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids), type=schemas.TOKENS.field(1).type)
    columns, fields = [records.doc_ids(), lists, pa.array(n_tokens.astype(np.int32))], list(schemas.TOKENS)[:3]
    if records.has("loss_mask"):
        trained = records.mask("loss_mask", offsets, 1, kernels.BAD_LOSS_MASK).view(np.bool_)
        type_ = schemas.LOSS_MASK.type
        columns.append(pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(trained), type=type_))
        fields.append(schemas.LOSS_MASK)
    for field in schemas.WINDOWS if records.has("window") else ():
        values, firsts = records.numbers(field.name, _MOST_NUMBER, np.int64, kernels.NOT_AN_EXAMPLE)
        records.check(np.diff(firsts) != 1, kernels.NOT_AN_EXAMPLE)
        columns.append(pa.array(values).cast(field.type))
        fields.append(field)
    return pa.record_batch(columns, schema=pa.schema(fields))


class _Records:
    """Records whose frames were checked, and where the features of each are; arguments as of `_parse`."""

    def __init__(self, buffer: np.ndarray, starts: np.ndarray, stops: np.ndarray, name: str, base: int) -> None:
        self._buffer, self._starts, self._name, self._base = buffer, starts, name, base
        self._rows = np.arange(starts.size)
        bounds = np.cumsum([0, *map(len, _FEATURES)])
        spans = np.empty((len(_FEATURES), 2, starts.size), np.int64)
        names, kinds = np.concatenate(list(_NAMES.values())), np.array(list(_KINDS.values()))
        n_read = kernels.find_features(buffer, starts, stops, names, bounds, kinds, spans)
        self.check(self._rows == n_read, kernels.NOT_AN_EXAMPLE)
        self._spans = dict(zip(_FEATURES, spans, strict=True))
        has = {feature: span[1] >= 0 for feature, span in self._spans.items()}
        for feature, other in (("input_mask", "segment_ids"), ("document", "window")):
            self.check(has[feature] != has[other], kernels.NOT_AN_EXAMPLE)
        self.check(~(has["doc_id"] & has["input_ids"]), kernels.NOT_AN_EXAMPLE)
        for is_there in has.values():
            self.check(is_there != is_there[0], kernels.NOT_AN_EXAMPLE)
        self._has = has

    def check(self, is_wrong: np.ndarray, problem: int) -> None:
        """Raises a ValueError that names the first record which is wrong; bool[n_rows]."""
        if is_wrong.any():
            at = self._base + self._starts[int(is_wrong.argmax())] - 12
            raise ValueError(f"{self._name}, byte {at}: {_PROBLEMS[problem]}")

    def has(self, feature: str) -> bool:
        """Returns whether the records have a feature: all of them, or none."""
        return bool(self._has[feature].all())

    def numbers(self, feature: str, most: int, dtype: type, problem: int) -> _Rows:
        """Returns the numbers of a feature of all records, each from 0 to `most`, and int64[n_rows + 1] offsets."""
        begins, ends = self._spans[feature]
        values: np.ndarray = np.empty(int((ends - begins).sum()), dtype)
        offsets = np.empty(self._rows.size + 1, np.int64)
        self.check(self._rows == kernels.read_varints(self._buffer, begins, ends, most, values, offsets), problem)
        return values[: offsets[-1]], offsets

    def _copied(self, feature: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the bytes of a feature of all records, and int64[n_rows + 1] offsets."""
        begins, ends = self._spans[feature]
        offsets = np.concatenate(([0], np.cumsum(ends - begins)))
        values = np.empty(offsets[-1], np.uint8)
        copy_rows(self._buffer, begins, ends, offsets[:-1], values)
        return values, offsets

    def mask(self, feature: str, offsets: np.ndarray, most: int, problem: int) -> np.ndarray:
        """Returns uint8[offsets[-1]], a byte from 0 to `most` for each token; `offsets` are those of the ids."""
        begins, ends = self._spans[feature]
        self.check(ends - begins != np.diff(offsets), problem)
        values, _ = self._copied(feature)
        if values.max(initial=0) > most:
            self.check(_row_sums(values > most, offsets) > 0, problem)
        return values

    def read_padding(self, offsets: np.ndarray) -> np.ndarray:
        """Returns int64[n_rows], how many of the ids of each record are no padding, which is on one side only."""
        is_token = self.mask("input_mask", offsets, 1, kernels.BAD_MASK)
        self.mask("segment_ids", offsets, 0, kernels.BAD_MASK)
        filled = np.flatnonzero(np.diff(offsets))
        is_left = np.zeros(self._rows.size, np.bool_)
        is_left[filled] = is_token[offsets[filled]] == 0
        n_tokens = _row_sums(is_token, offsets)
        is_other = is_token != _input_mask(np.diff(offsets), n_tokens, is_left)
        if is_other.any():
            self.check(_row_sums(is_other, offsets) > 0, kernels.BAD_MASK)
        return n_tokens

    def doc_ids(self) -> pa.StringArray:
        """Returns the ids of the documents."""
        data, offsets = self._copied("doc_id")
        doc_ids = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), self._rows.size, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        try:
            return doc_ids.cast(pa.large_string()).cast(pa.string())
        except pa.ArrowInvalid:
            self.check(np.array([not _is_utf8(doc_id) for doc_id in doc_ids.to_pylist()]), _BAD_DOC_ID)
            raise


def _row_sums(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns int64[n_rows], the sum of the values of each row."""
    sums = np.zeros(offsets.size - 1, np.int64)
    filled = np.flatnonzero(np.diff(offsets))
    sums[filled] = np.add.reduceat(values, offsets[filled], dtype=np.int64)
    return sums


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _read_only(values: np.ndarray) -> np.ndarray:
    values.flags.writeable = False  # so that one compiled version serves buffers of all owners
    return values


def _input_mask(n_ids: np.ndarray, n_tokens: np.ndarray, is_left: np.ndarray) -> np.ndarray:
    """Returns uint8[sum of n_ids], 1 for the tokens of each row, 0 for its padding, which may be on its left."""
    first = np.where(is_left, n_ids - n_tokens, n_tokens)
    sides, sizes = np.stack([~is_left, is_left], 1), np.stack([first, n_ids - first], 1)
    return np.repeat(sides.ravel(), sizes.ravel()).view(np.uint8)


def _field_bytes(lengths: np.ndarray) -> np.ndarray:
    """Returns the bytes of fields of a message with their heads, int64[n]."""
    return lengths + 2 + np.searchsorted(_SEVENS, lengths, side="right")
