# SPDX-License-Identifier: Apache-2.0
"""Kernels that turn a batch of token rows into framed `tf.train.Example` records, and back.

A record on disk is `u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data`, all of it
little-endian.
The data is a `tf.train.Example` with its features in the order of their names, as deterministic serializers write them:

    doc_id       bytes_list   the document's id
    document     int64_list   the document's number in the shard         only where rows are windows of documents
    input_ids    int64_list   the row, padding included
    input_mask   int64_list   1 for a token, 0 for padding       only when padding is on
    loss_mask    int64_list   1 for a trained token, 0 for others           only where rows are conversations
    segment_ids  int64_list   0: a row is one segment            only when padding is on
    window       int64_list   the row's number in its document           only where rows are windows of documents

The writing kernels trust their inputs; `output.writers.tfrecord` checks and measures them. The parsing kernels trust
nothing, since they read files.

Source: `tensorflow/core/lib/io/record_writer.cc` and `tensorflow/core/example/{example,feature}.proto`. CRC-32C is that
of RFC 3720, eight bytes at a time after Kounavis and Berry (2005), "Novel Table Lookup-Based Algorithms for
High-Performance CRC Generation". Its reference implementations are in `tests/pipeline/output/writers/test_tfrecord.py`.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64

FRAME_BYTES = 16
"""Bytes of a record besides its data: the length, its checksum, the data's checksum."""

SLACK_BYTES = 8
"""Bytes past the end of a list that `put_varints` may overwrite."""

TEXT, NUMBERS = 0x0A, 0x1A
"""Kinds of features, by the first byte of a `Feature`: a `bytes_list` of one string, and an `int64_list`."""

FINE, BAD_LENGTH_CRC, BAD_DATA_CRC, NOT_AN_EXAMPLE, BAD_ID, BAD_MASK, BAD_LOSS_MASK = range(7)
"""What is wrong with a record, if anything."""


def _crc_tables() -> np.ndarray:
    """Returns uint32[8, 256]: table k advances a CRC-32C by one byte that k more bytes follow."""
    tables = np.zeros((8, 256), np.uint32)
    crcs = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crcs = np.where(crcs & 1, (crcs >> 1) ^ np.uint32(0x82F63B78), crcs >> 1).astype(np.uint32)
    tables[0] = crcs
    for k in range(1, 8):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0][tables[k - 1] & 0xFF]
    return tables


_CRC = _crc_tables()
_MASK_DELTA = 0xA282EAD8


@kernel
def crc32c(data: np.ndarray, start: int, stop: int) -> int:
    """Returns the CRC-32C of `data[start:stop]` as int64; data: uint8[n]."""
    crc = np.uint64(0xFFFFFFFF)
    i = start
    while i + 8 <= stop:
        x = crc ^ load_u64(data, i)
        crc = np.uint64(
            _CRC[7, x & np.uint64(0xFF)]
            ^ _CRC[6, (x >> np.uint64(8)) & np.uint64(0xFF)]
            ^ _CRC[5, (x >> np.uint64(16)) & np.uint64(0xFF)]
            ^ _CRC[4, (x >> np.uint64(24)) & np.uint64(0xFF)]
            ^ _CRC[3, (x >> np.uint64(32)) & np.uint64(0xFF)]
            ^ _CRC[2, (x >> np.uint64(40)) & np.uint64(0xFF)]
            ^ _CRC[1, (x >> np.uint64(48)) & np.uint64(0xFF)]
            ^ _CRC[0, x >> np.uint64(56)]
        )
        i += 8
    while i < stop:
        crc = np.uint64(_CRC[0, (crc ^ np.uint64(data[i])) & np.uint64(0xFF)]) ^ (crc >> np.uint64(8))
        i += 1
    return np.int64(crc ^ np.uint64(0xFFFFFFFF))


@kernel
def masked_crc32c(data: np.ndarray, start: int, stop: int) -> int:
    """Returns the CRC-32C of `data[start:stop]` as TFRecord stores it: rotated right by 15 bits, plus a constant.

    data: uint8[n].
    """
    crc = crc32c(data, start, stop)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


@kernel_part
def _put_length(out: np.ndarray, at: int, tag: int, length: int) -> int:
    """Writes the head of a field of `length` bytes at `out[at]`; returns the position after it."""
    out[at] = tag
    at += 1
    while length >= 128:
        out[at] = length & 127 | 128
        length >>= 7
        at += 1
    out[at] = length
    return at + 1


@kernel
def measure_varints(values: np.ndarray, offsets: np.ndarray, n_bytes: np.ndarray) -> None:
    """Computes how many bytes each row takes as varints.

    Args:
      values: int32 or int64[>= offsets[-1]], from 0 to 2**35 - 1.
      offsets: int64[n + 1], where each row starts in `values`.
      n_bytes: int64[n], filled.
    """
    for row in range(n_bytes.size):
        n = offsets[row + 1] - offsets[row]
        for i in range(offsets[row], offsets[row + 1]):
            x = values[i]
            n += (x >= 1 << 7) + (x >= 1 << 14) + (x >= 1 << 21) + (x >= 1 << 28)
        n_bytes[row] = n


@kernel
def begin_records(
    starts: np.ndarray, stops: np.ndarray, n_features: np.ndarray, at: np.ndarray, out: np.ndarray
) -> None:
    """Writes the heads of records, without checksums.

    Args:
      starts, stops: int64[n], where each record begins and ends in `out`.
      n_features: int64[n], the bytes of its features.
      at: int64[n], filled with where the features begin.
      out: uint8 with room for all records, filled.
    """
    for row in range(starts.size):
        for k in range(8):
            out[starts[row] + k] = (stops[row] - starts[row] - FRAME_BYTES) >> 8 * k & 0xFF
        at[row] = _put_length(out, starts[row] + 12, 0x0A, n_features[row])


@kernel
def begin_entries(name: np.ndarray, kind: int, sizes: np.ndarray, at: np.ndarray, out: np.ndarray) -> None:
    """Writes all of a feature but its values, which come next.

    Args:
      name: uint8[n], its name.
      kind: TEXT or NUMBERS.
      sizes: int64[4, n], the bytes of its entry in each record, of the `Feature`, of the list in it, and of the values.
      at: int64[n], where it begins in each record; changed to where its values begin.
      out: uint8 with room for all records, filled.
    """
    for row in range(at.size):
        o = _put_length(out, at[row], 0x0A, sizes[0, row])
        o = _put_length(out, o, 0x0A, name.size)
        for k in range(name.size):
            out[o + k] = name[k]
        o = _put_length(out, o + name.size, 0x12, sizes[1, row])
        o = _put_length(out, o, kind, sizes[2, row])
        at[row] = _put_length(out, o, 0x0A, sizes[3, row]) if sizes[2, row] > 0 else o


@kernel
def put_varints(values: np.ndarray, offsets: np.ndarray, at: np.ndarray, out: np.ndarray) -> None:
    """Writes rows of numbers as varints.

    Args:
      values, offsets: see `measure_varints`.
      at: int64[n], where each row begins in `out`.
      out: uint8 with room for the rows, and SLACK_BYTES after the last one; filled.
    """
    for row in range(at.size):
        o = at[row]
        for i in range(offsets[row], offsets[row + 1]):
            # Without branches: all five bytes are written and the next number overwrites those not needed. Lengths of
            # neighbouring ids are as good as random, and a mispredicted branch costs more than four stores.
            x = values[i]
            out[o] = (x & 127) | ((x >= 1 << 7) << 7)
            out[o + 1] = ((x >> 7) & 127) | ((x >= 1 << 14) << 7)
            out[o + 2] = ((x >> 14) & 127) | ((x >= 1 << 21) << 7)
            out[o + 3] = ((x >> 21) & 127) | ((x >= 1 << 28) << 7)
            out[o + 4] = x >> 28
            o += 1 + (x >= 1 << 7) + (x >= 1 << 14) + (x >= 1 << 21) + (x >= 1 << 28)


@kernel
def end_records(starts: np.ndarray, stops: np.ndarray, out: np.ndarray) -> None:
    """Writes the checksums of records, whose last four bytes are those of the data's.

    Args:
      starts, stops: int64[n], where each record begins and ends in `out`; out: uint8[n_bytes], changed.
    """
    for row in range(starts.size):
        for first, stop in ((starts[row], starts[row] + 8), (starts[row] + 12, stops[row] - 4)):
            crc = masked_crc32c(out, first, stop)
            for k in range(4):
                out[stop + k] = crc >> 8 * k & 0xFF


@kernel_part
def _get_fixed(data: np.ndarray, at: int, n_bytes: int) -> int:
    value = np.uint64(0)
    for k in range(n_bytes):
        value |= np.uint64(data[at + k]) << np.uint64(8 * k)
    return np.int64(value)


@kernel_part
def _get_varint(data: np.ndarray, at: int, stop: int) -> tuple[int, int]:
    """Returns (value, position after it); the position is -1 when no varint below 2**35 ends before `stop`."""
    value = 0
    for k in range(5):
        if at + k >= stop:
            break
        value |= (np.int64(data[at + k]) & 127) << (7 * k)
        if data[at + k] < 128:
            return value, at + k + 1
    return 0, -1


@kernel_part
def _get_message(data: np.ndarray, at: int, stop: int, tag: int) -> tuple[int, int]:
    """Returns (start, end) of the length-delimited field at `at`; (-1, -1) when there is none with this tag."""
    if at < 0 or at >= stop or data[at] != tag:
        return -1, -1
    length, start = _get_varint(data, at + 1, stop)
    if start < 0 or start + length > stop:
        return -1, -1
    return start, start + length


@kernel_part
def _equals(data: np.ndarray, start: int, stop: int, key: np.ndarray) -> bool:
    if stop - start != key.size:
        return False
    equal = True
    for k in range(key.size):
        equal &= data[start + k] == key[k]
    return equal


@kernel_part
def _list_span(data: np.ndarray, start: int, stop: int, feature_tag: int) -> tuple[int, int]:
    """Returns the span of the values in the Feature `data[start:stop]`: packed integers, or one string of bytes."""
    first, last = _get_message(data, start, stop, feature_tag)
    if last != stop:
        return -1, -1
    if first == last:
        return first, last
    first, end = _get_message(data, first, last, 0x0A)
    if end != last:
        return -1, -1
    return first, end


@kernel
def frame_records(
    data: np.ndarray, start: int, stop: int, starts: np.ndarray, stops: np.ndarray
) -> tuple[int, int, int]:
    """Finds complete records in `data[start:stop]` and checks their checksums.

    Args:
      data: uint8[>= stop].
      start: where the first record begins.
      stop: end of what has been read so far; a record that reaches beyond it is left for the next call.
      starts: int64[k], filled with where the data of each record starts; k bounds how many records are taken.
      stops: int64[k], filled with where the data of each record ends.

    Returns:
      (records found, position after the last of them, FINE or what is wrong with the record at that position).
    """
    n = 0
    while n < starts.size and start + 12 <= stop:
        if masked_crc32c(data, start, start + 8) != _get_fixed(data, start + 8, 4):
            return n, start, BAD_LENGTH_CRC
        length = _get_fixed(data, start, 8)
        if length < 0 or length > stop - start - FRAME_BYTES:
            break
        end = start + 12 + length
        if masked_crc32c(data, start + 12, end) != _get_fixed(data, end, 4):
            return n, start, BAD_DATA_CRC
        starts[n] = start + 12
        stops[n] = end
        start = end + 4
        n += 1
    return n, start, FINE


@kernel
def find_features(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray, names: np.ndarray, bounds: np.ndarray, kinds: np.ndarray,
    spans: np.ndarray,
) -> int:  # fmt: skip
    """Finds the values of features in the data of each record, which must have no other features.

    Args:
      data: uint8[>= stops[-1]].
      starts: int64[n], where the data of each record starts.
      stops: int64[n], where it ends.
      names: uint8[n_bytes], bounds: int64[k + 1], kinds: int64[k]: the features, their names one after another.
      spans: int64[k, 2, n], filled with where the values of each feature start and stop; -1 for a feature that is not
        there.

    Returns:
      The index of the first record that is NOT_AN_EXAMPLE of these features, or n.
    """
    for row in range(starts.size):
        for f in range(kinds.size):
            spans[f, 0, row] = spans[f, 1, row] = -1
        at, end = _get_message(data, starts[row], stops[row], 0x0A)
        if end != stops[row]:
            return row
        while at < end:
            entry_start, entry_stop = _get_message(data, at, end, 0x0A)
            key_start, key_stop = _get_message(data, entry_start, entry_stop, 0x0A)
            start, stop = _get_message(data, key_stop, entry_stop, 0x12)
            if stop < 0 or stop != entry_stop:
                return row
            at = entry_stop
            f = 0
            while f < kinds.size and not _equals(data, key_start, key_stop, names[bounds[f] : bounds[f + 1]]):
                f += 1
            if f == kinds.size:
                return row
            first, last = _list_span(data, start, stop, kinds[f])
            if last < 0:
                return row
            spans[f, 0, row], spans[f, 1, row] = first, last
    return starts.size


@kernel
def read_varints(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray, most: int, values: np.ndarray, offsets: np.ndarray
) -> int:
    """Decodes the varints of each row.

    Args:
      data: uint8[>= stops[-1]].
      starts, stops: int64[n], where each row begins and ends.
      most: the largest number to take.
      values: int32 or int64[sum of stops - starts], filled.
      offsets: int64[n + 1], filled with where each row begins in `values`.

    Returns:
      The index of the first row that has something else, or n.
    """
    n = 0
    for row in range(starts.size):
        offsets[row] = n
        at = starts[row]
        while at < stops[row]:
            value, at = _get_varint(data, at, stops[row])
            if at < 0 or value > most:
                return row
            values[n] = value
            n += 1
    offsets[starts.size] = n
    return starts.size
