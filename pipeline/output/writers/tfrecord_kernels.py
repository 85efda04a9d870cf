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

The writing kernels trust their inputs; `output.writers.tfrecord` checks them. The parsing kernels trust nothing, since
they read files.

Source: `tensorflow/core/lib/io/record_writer.cc` and `tensorflow/core/example/{example,feature}.proto`. CRC-32C is that
of RFC 3720, eight bytes at a time after Kounavis and Berry (2005), "Novel Table Lookup-Based Algorithms for
High-Performance CRC Generation". Its reference implementations are in `tests/pipeline/output/writers/test_tfrecord.py`.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64

FRAME_BYTES = 16
"""Bytes of a record besides its data: the length, its checksum, the data's checksum."""

SLACK_BYTES = 8
"""Bytes past the end of the records that `write_records` may overwrite."""

NO_PADDING, PADDING_RIGHT, PADDING_LEFT = 0, 1, 2
"""Where padding is in a row; without padding there are no `input_mask` and `segment_ids`."""

FINE, BAD_LENGTH_CRC, BAD_DATA_CRC, NOT_AN_EXAMPLE, BAD_ID, BAD_MASK, BAD_LOSS_MASK = range(7)
"""What is wrong with a record, if anything; returned by `frame_records`, `parse_records` and `read_ids`."""


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
_DOC_ID = np.frombuffer(b"doc_id", np.uint8)
_DOCUMENT = np.frombuffer(b"document", np.uint8)
_WINDOW = np.frombuffer(b"window", np.uint8)
_INPUT_IDS = np.frombuffer(b"input_ids", np.uint8)
_INPUT_MASK = np.frombuffer(b"input_mask", np.uint8)
_LOSS_MASK = np.frombuffer(b"loss_mask", np.uint8)
_SEGMENT_IDS = np.frombuffer(b"segment_ids", np.uint8)
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
def _varint_bytes(value: int) -> int:
    n = 1
    while value >= 128:
        value >>= 7
        n += 1
    return n


@kernel_part
def _put_varint(out: np.ndarray, at: int, value: int) -> int:
    while value >= 128:
        out[at] = (value & 127) | 128
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


@kernel_part
def _put_fixed(out: np.ndarray, at: int, value: int, n_bytes: int) -> int:
    for k in range(n_bytes):
        out[at + k] = (value >> (8 * k)) & 0xFF
    return at + n_bytes


@kernel_part
def _list_bytes(n_packed: int) -> int:
    """Bytes of a list message whose only field holds `n_packed` bytes; an empty packed field is left out."""
    return 1 + _varint_bytes(n_packed) + n_packed if n_packed > 0 else 0


@kernel_part
def _entry_bytes(n_key: int, n_list: int) -> int:
    """Bytes of a `map<string, Feature>` entry, tag and length included, whose list message takes `n_list` bytes."""
    n_feature = 1 + _varint_bytes(n_list) + n_list
    n_entry = 2 + n_key + 1 + _varint_bytes(n_feature) + n_feature
    return 1 + _varint_bytes(n_entry) + n_entry


@kernel_part
def _put_entry_head(out: np.ndarray, at: int, key: np.ndarray, feature_tag: int, n_list: int) -> int:
    """Writes the part of a map entry before its list message at `out[at]`; returns where the list message goes.

    key: uint8[n_key]. The caller guarantees room: `measure_records` has counted every byte.
    """
    n_feature = 1 + _varint_bytes(n_list) + n_list
    out[at] = 0x0A  # Features.feature
    at = _put_varint(out, at + 1, 2 + key.size + 1 + _varint_bytes(n_feature) + n_feature)
    out[at] = 0x0A  # key
    at = _put_varint(out, at + 1, key.size)
    for k in range(key.size):
        out[at + k] = key[k]
    at += key.size
    out[at] = 0x12  # value
    at = _put_varint(out, at + 1, n_feature)
    out[at] = feature_tag
    return _put_varint(out, at + 1, n_list)


@kernel_part
def _put_list_head(out: np.ndarray, at: int, key: np.ndarray, n_packed: int) -> int:
    """Writes the part of a feature of integers before these at `out[at]`; returns where their `n_packed` bytes go."""
    at = _put_entry_head(out, at, key, 0x1A, _list_bytes(n_packed))
    if n_packed == 0:
        return at
    out[at] = 0x0A  # Int64List.value, packed
    return _put_varint(out, at + 1, n_packed)


@kernel_part
def _features_bytes(
    n_doc_id: int, n_packed: int, n_row: int, padding: int, masked: bool, document: int, window: int
) -> int:
    n_bytes = _entry_bytes(_DOC_ID.size, 1 + _varint_bytes(n_doc_id) + n_doc_id)
    n_bytes += _entry_bytes(_INPUT_IDS.size, _list_bytes(n_packed))
    if padding != NO_PADDING:
        n_bytes += _entry_bytes(_INPUT_MASK.size, _list_bytes(n_row))
        n_bytes += _entry_bytes(_SEGMENT_IDS.size, _list_bytes(n_row))
    if masked:
        n_bytes += _entry_bytes(_LOSS_MASK.size, _list_bytes(n_row))
    if document >= 0:
        n_bytes += _entry_bytes(_DOCUMENT.size, _list_bytes(_varint_bytes(document)))
        n_bytes += _entry_bytes(_WINDOW.size, _list_bytes(_varint_bytes(window)))
    return n_bytes


@kernel_part
def _put_number(out: np.ndarray, at: int, key: np.ndarray, number: int) -> int:
    """Writes a feature of one integer at `out[at]`, as `_put_entry_head`; returns the position after it."""
    return _put_varint(out, _put_list_head(out, at, key, _varint_bytes(number)), number)


@kernel
def measure_records(
    ids: np.ndarray,
    offsets: np.ndarray,
    doc_offsets: np.ndarray,
    padding: int,
    masked: bool,
    numbers: np.ndarray,
    n_packed: np.ndarray,
    n_record: np.ndarray,
) -> None:
    """Computes how many bytes each row's record takes.

    Args:
      ids: int32[>= offsets[-1]], none negative.
      offsets: int64[n + 1], where each row starts in `ids`.
      doc_offsets: int64[n + 1], where each row's document id starts, in bytes.
      padding: NO_PADDING, PADDING_RIGHT or PADDING_LEFT.
      masked: whether rows have the feature `loss_mask`.
      numbers: int64[n, 2], the features `document` and `window`; -1 for none.
      n_packed: int64[n], filled with the bytes of each row's ids as varints.
      n_record: int64[n], filled with the bytes of each record, frame included.
    """
    for row in range(n_packed.size):
        n = offsets[row + 1] - offsets[row]
        for i in range(offsets[row], offsets[row + 1]):
            x = ids[i]
            n += (x >= 1 << 7) + (x >= 1 << 14) + (x >= 1 << 21) + (x >= 1 << 28)
        n_packed[row] = n
        n_row = offsets[row + 1] - offsets[row]
        n_doc_id = doc_offsets[row + 1] - doc_offsets[row]
        n_features = _features_bytes(n_doc_id, n, n_row, padding, masked, numbers[row, 0], numbers[row, 1])
        n_record[row] = FRAME_BYTES + 1 + _varint_bytes(n_features) + n_features


@kernel
def write_records(
    ids: np.ndarray,
    offsets: np.ndarray,
    doc_bytes: np.ndarray,
    doc_offsets: np.ndarray,
    n_tokens: np.ndarray,
    padding: int,
    masked: bool,
    mask: np.ndarray,
    numbers: np.ndarray,
    n_packed: np.ndarray,
    n_record: np.ndarray,
    out: np.ndarray,
) -> None:
    """Writes one framed record per row.

    Args:
      ids: int32[>= offsets[-1]], none negative.
      offsets: int64[n + 1], where each row starts in `ids`.
      doc_bytes: uint8[>= doc_offsets[-1]], the document ids.
      doc_offsets: int64[n + 1], where each row's document id starts.
      n_tokens: int32[n], tokens of each row before padding.
      padding: NO_PADDING, PADDING_RIGHT or PADDING_LEFT.
      masked: as `measure_records` was given it.
      mask: uint8[>= offsets[-1]], 1 for ids that are trained, else 0; any size if `masked` is false.
      numbers: int64[n, 2] as `measure_records` was given it.
      n_packed: int64[n] as `measure_records` filled it.
      n_record: int64[n] as `measure_records` filled it.
      out: uint8[sum(n_record) + SLACK_BYTES], filled.
    """
    start = 0
    for row in range(n_packed.size):
        n_data = n_record[row] - FRAME_BYTES
        at = _put_fixed(out, start, n_data, 8)
        at = _put_fixed(out, at, masked_crc32c(out, start, start + 8), 4)
        n_doc_id = doc_offsets[row + 1] - doc_offsets[row]
        n_row = offsets[row + 1] - offsets[row]

        out[at] = 0x0A  # Example.features
        document, window = numbers[row, 0], numbers[row, 1]
        n_features = _features_bytes(n_doc_id, n_packed[row], n_row, padding, masked, document, window)
        at = _put_varint(out, at + 1, n_features)
        at = _put_entry_head(out, at, _DOC_ID, 0x0A, 1 + _varint_bytes(n_doc_id) + n_doc_id)
        out[at] = 0x0A  # BytesList.value
        at = _put_varint(out, at + 1, n_doc_id)
        for i in range(doc_offsets[row], doc_offsets[row + 1]):
            out[at] = doc_bytes[i]
            at += 1
        if document >= 0:
            at = _put_number(out, at, _DOCUMENT, document)

        at = _put_list_head(out, at, _INPUT_IDS, n_packed[row])
        for i in range(offsets[row], offsets[row + 1]):
            # Without branches: all five bytes are written and the next id overwrites those not needed. Lengths of
            # neighbouring ids are as good as random, and a mispredicted branch costs more than four stores.
            x = ids[i]
            out[at] = (x & 127) | ((x >= 1 << 7) << 7)
            out[at + 1] = ((x >> 7) & 127) | ((x >= 1 << 14) << 7)
            out[at + 2] = ((x >> 14) & 127) | ((x >= 1 << 21) << 7)
            out[at + 3] = ((x >> 21) & 127) | ((x >= 1 << 28) << 7)
            out[at + 4] = x >> 28
            at += 1 + (x >= 1 << 7) + (x >= 1 << 14) + (x >= 1 << 21) + (x >= 1 << 28)

        if padding != NO_PADDING:
            first = n_row - n_tokens[row] if padding == PADDING_LEFT else 0
            at = _put_list_head(out, at, _INPUT_MASK, n_row)
            for i in range(n_row):
                out[at + i] = first <= i < first + n_tokens[row]
            at += n_row
        if masked:
            at = _put_list_head(out, at, _LOSS_MASK, n_row)
            for i in range(n_row):
                out[at + i] = mask[offsets[row] + i]
            at += n_row
        if padding != NO_PADDING:
            at = _put_list_head(out, at, _SEGMENT_IDS, n_row)
            for i in range(n_row):
                out[at + i] = 0
            at += n_row
        if document >= 0:
            at = _put_number(out, at, _WINDOW, window)

        start = _put_fixed(out, at, masked_crc32c(out, start + 12, at), 4)


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


@kernel_part
def _get_number(data: np.ndarray, start: int, stop: int) -> int:
    """Returns the only value in the Feature `data[start:stop]`; -1 if it does not have exactly one."""
    first, last = _list_span(data, start, stop, 0x1A)
    if last < 0:
        return -1
    value, end = _get_varint(data, first, last)
    return value if end == last else -1


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
def parse_records(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray, spans: np.ndarray, n_ids: np.ndarray, numbers: np.ndarray
) -> tuple[int, int]:
    """Finds the features in the data of each record; anything but what `write_records` writes is refused.

    Args:
      data: uint8[>= stops[-1]].
      starts: int64[n], where the data of each record starts.
      stops: int64[n], where it ends.
      spans: int64[n, 8], filled with start and stop of the document id, of the packed ids, of `input_mask` and of
        `loss_mask`; a record without a mask has -1 and -1 there.
      n_ids: int64[n], filled with how many ids each row has.
      numbers: int64[n, 2], filled with the features `document` and `window`; -1 where there are none.

    Returns:
      (index of the first bad record or n, what is wrong with it or FINE).
    """
    for row in range(starts.size):
        numbers[row, 0] = numbers[row, 1] = -1
        for k in range(8):
            spans[row, k] = -1
        segments_start, segments_stop = -1, -1
        at, end = _get_message(data, starts[row], stops[row], 0x0A)
        if end != stops[row]:
            return row, NOT_AN_EXAMPLE
        while at < end:
            entry_start, entry_stop = _get_message(data, at, end, 0x0A)
            key_start, key_stop = _get_message(data, entry_start, entry_stop, 0x0A)
            start, stop = _get_message(data, key_stop, entry_stop, 0x12)
            if stop < 0 or stop != entry_stop:
                return row, NOT_AN_EXAMPLE
            at = entry_stop
            if _equals(data, key_start, key_stop, _DOC_ID):
                spans[row, 0], spans[row, 1] = _list_span(data, start, stop, 0x0A)
            elif _equals(data, key_start, key_stop, _INPUT_IDS):
                spans[row, 2], spans[row, 3] = _list_span(data, start, stop, 0x1A)
            elif _equals(data, key_start, key_stop, _INPUT_MASK):
                spans[row, 4], spans[row, 5] = _list_span(data, start, stop, 0x1A)
            elif _equals(data, key_start, key_stop, _LOSS_MASK):
                spans[row, 6], spans[row, 7] = _list_span(data, start, stop, 0x1A)
                if spans[row, 7] < 0:
                    return row, NOT_AN_EXAMPLE
            elif _equals(data, key_start, key_stop, _SEGMENT_IDS):
                segments_start, segments_stop = _list_span(data, start, stop, 0x1A)
            elif _equals(data, key_start, key_stop, _DOCUMENT):
                numbers[row, 0] = _get_number(data, start, stop)
                if numbers[row, 0] < 0:
                    return row, NOT_AN_EXAMPLE
            elif _equals(data, key_start, key_stop, _WINDOW):
                numbers[row, 1] = _get_number(data, start, stop)
                if numbers[row, 1] < 0:
                    return row, NOT_AN_EXAMPLE
            else:
                return row, NOT_AN_EXAMPLE
        if spans[row, 1] < 0 or spans[row, 3] < 0 or (spans[row, 5] < 0) != (segments_stop < 0):
            return row, NOT_AN_EXAMPLE
        if (numbers[row, 0] < 0) != (numbers[row, 1] < 0):
            return row, NOT_AN_EXAMPLE

        n = 0
        for i in range(spans[row, 2], spans[row, 3]):
            n += data[i] < 128
        n_ids[row] = n
        if spans[row, 7] >= 0:
            if spans[row, 7] - spans[row, 6] != n:
                return row, BAD_LOSS_MASK
            for i in range(spans[row, 6], spans[row, 7]):
                if data[i] > 1:
                    return row, BAD_LOSS_MASK
        if spans[row, 5] >= 0:
            if spans[row, 5] - spans[row, 4] != n or segments_stop - segments_start != n:
                return row, BAD_MASK
            changes = 0
            for i in range(n):
                here = data[spans[row, 4] + i]
                if here > 1 or data[segments_start + i] != 0:
                    return row, BAD_MASK
                changes += i > 0 and here != data[spans[row, 4] + i - 1]
            if changes > 1:
                return row, BAD_MASK
    return starts.size, FINE


@kernel
def read_ids(
    data: np.ndarray, spans: np.ndarray, offsets: np.ndarray, ids: np.ndarray, n_tokens: np.ndarray
) -> tuple[int, int]:
    """Decodes the ids of records that `parse_records` found fine.

    Args:
      data: as in `parse_records`.
      spans: as `parse_records` filled it.
      offsets: int64[n + 1], where each row starts in `ids`.
      ids: int32[offsets[-1]], filled.
      n_tokens: int32[n], filled with the tokens of each row: those under the mask, or all without one.

    Returns:
      (index of the first bad record or n, BAD_ID or FINE); an id that does not fit in 31 bits is bad.
    """
    for row in range(n_tokens.size):
        at, stop = spans[row, 2], spans[row, 3]
        for i in range(offsets[row], offsets[row + 1]):
            value, at = _get_varint(data, at, stop)
            if at < 0 or value > 0x7FFFFFFF:
                return row, BAD_ID
            ids[i] = value
        if at != stop:
            return row, BAD_ID
        if spans[row, 5] < 0:
            n_tokens[row] = offsets[row + 1] - offsets[row]
        else:
            n = 0
            for i in range(spans[row, 4], spans[row, 5]):
                n += data[i]
            n_tokens[row] = n
    return n_tokens.size, FINE
