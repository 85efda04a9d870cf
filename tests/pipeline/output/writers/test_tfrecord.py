# SPDX-License-Identifier: Apache-2.0
"""TFRecord shards: the bytes, against reference implementations written here, and what is read of other bytes."""

import io
import itertools
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plain_job import token_rows
from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.output.writers import tfrecord
from tokenmill.pipeline.output.writers import tfrecord_kernels as kernels
from tokenmill.pipeline.output.writers.base import TokenizerInfo
from tokenmill.pipeline.output.writers.formats import open_writer, read_rows


def shard(batches, padding_side=None, compression="none", schema=schemas.TOKENS):
    handle = io.BytesIO()
    output = OutputConfig(path="out", format="tfrecord", compression=compression)
    writer = open_writer(handle, output, TokenizerInfo("d", 100, padding_side=padding_side), schema=schema)
    for batch in batches:
        writer.write(batch)
    writer.close()
    assert not handle.closed
    return handle.getvalue()


# The reference implementations: a bit at a time, a byte at a time.


def slow_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def slow_masked(data):
    crc = slow_crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def message(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def int64_feature(values):
    return message(3, message(1, b"".join(map(varint, values))) if values else b"")


def slow_record(doc_id, ids, mask=None, trained=None):
    features = {"doc_id": message(1, message(1, doc_id.encode())), "input_ids": int64_feature(ids)}
    if mask is not None:
        features |= {"input_mask": int64_feature(mask), "segment_ids": int64_feature([0] * len(ids))}
    if trained is not None:
        features["loss_mask"] = int64_feature([int(each) for each in trained])
    entries = [message(1, message(1, key.encode()) + message(2, features[key])) for key in sorted(features)]
    data = message(1, b"".join(entries))
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", slow_masked(length)) + data + struct.pack("<I", slow_masked(data))


EDGES = [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, (1 << 28) - 1, 1 << 28, (1 << 31) - 1]
ids_lists = st.lists(
    st.one_of(st.integers(0, (1 << 31) - 1), st.sampled_from(EDGES), st.integers(0, 30_000)), max_size=40
)
documents = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), ids_lists), max_size=8)


@given(st.binary(max_size=70), st.integers(0, 9), st.integers(0, 9))
def test_crc32c_of_any_span(data, before, after):
    padded = np.frombuffer(bytearray(b"x" * before + data + b"y" * after), np.uint8)
    assert kernels.crc32c(padded, before, before + len(data)) == slow_crc32c(data)
    assert kernels.masked_crc32c(padded, before, before + len(data)) == slow_masked(data)


@given(documents)
def test_bytes_are_those_of_the_reference_implementation(rows):
    batch = token_rows([ids for _, ids in rows], doc_ids=[doc_id for doc_id, _ in rows])
    assert shard([batch]) == b"".join(slow_record(doc_id, ids) for doc_id, ids in rows)


@given(documents, st.randoms(use_true_random=False), st.integers(0, 2), st.booleans())
def test_conversations_have_a_loss_mask(rows, random, skip, padded):
    trained = [[random.random() < 0.5 for _ in ids] for _, ids in rows]
    batch = token_rows([ids for _, ids in rows], doc_ids=[doc_id for doc_id, _ in rows])
    masks = pa.array(trained, schemas.LOSS_MASK.type)
    batch = pa.record_batch([*batch.columns, masks], schema=pa.schema([*schemas.TOKENS, schemas.LOSS_MASK])).slice(skip)
    data = shard([batch], schema=batch.schema, padding_side="right" if padded else None)
    kept = list(zip(rows, trained, strict=True))[skip:]
    assert data == b"".join(
        slow_record(doc_id, ids, mask=[1] * len(ids) if padded else None, trained=mask) for (doc_id, ids), mask in kept
    )
    found = [row for read in read_rows(io.BytesIO(data), "x.tfrecord") for row in read.to_pylist()]
    assert [(row["input_ids"], row["loss_mask"]) for row in found] == [(ids, mask) for (_, ids), mask in kept]


@pytest.mark.parametrize("mask", [[True], [True, False, True], [2, 0]])
def test_a_loss_mask_that_is_none_is_refused(mask):
    data = slow_record("a", [5, 6], trained=mask)
    with pytest.raises(ValueError, match="loss_mask does not have a 0 or 1 for each id"):
        list(read_rows(io.BytesIO(data), "x.tfrecord"))
    mixed = slow_record("a", [5, 6], trained=[True, False]) + slow_record("b", [5])
    with pytest.raises(ValueError, match=r"not a tf\.train\.Example with the features"):
        list(read_rows(io.BytesIO(mixed), "x.tfrecord"))


@given(documents, st.lists(st.integers(0, 8), max_size=3), st.sampled_from(["none", "gzip"]))
def test_bytes_do_not_depend_on_batches(rows, cuts, compression):
    batch = token_rows([ids for _, ids in rows], doc_ids=[doc_id for doc_id, _ in rows])
    bounds = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    pieces = [batch.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    assert shard(pieces, compression=compression) == shard([batch], compression=compression)


def test_records_span_buffers_when_written_and_read(monkeypatch):
    monkeypatch.setattr(tfrecord, "_BUFFER_BYTES", 64)
    rows = [[i] * (i % 90) for i in range(200)]
    data = shard([token_rows(rows)])
    assert data == b"".join(slow_record(f"a.jsonl:{i}", row) for i, row in enumerate(rows))
    found = [
        row for batch in read_rows(io.BytesIO(data), "x.tfrecord") for row in batch.column("input_ids").to_pylist()
    ]
    assert found == rows


def test_what_cannot_be_written_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="ids must not be negative, got -3"):
        shard([token_rows([[1], [-3]])])
    with pytest.raises(TypeError, match="a shard takes rows of"):
        shard([token_rows([[1]]).drop_columns(["n_oov"])])
    monkeypatch.setattr(tfrecord, "_MAX_EXAMPLE_BYTES", 100)
    with pytest.raises(ValueError, match=r"document 'a\.jsonl:1' takes \d+ bytes as a tf\.train\.Example"):
        shard([token_rows([[1], [1] * 99])])


def read(data, name="x.tfrecord"):
    return [row for batch in read_rows(io.BytesIO(data), name) for row in batch.to_pylist()]


def test_every_flipped_bit_is_found():
    data = shard([token_rows([[1, 2]])])
    for i in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[i] ^= 1 << bit
            with pytest.raises(ValueError, match=r"x\.tfrecord, byte 0: the checksum of the record"):
                read(bytes(damaged))


def test_every_truncation_is_found():
    data = shard([token_rows([[1, 2], [3]])])
    first = len(slow_record("a.jsonl:0", [1, 2]))
    for n in range(1, len(data)):
        if n != first:
            with pytest.raises(
                ValueError, match=rf"x\.tfrecord, byte {0 if n < first else first}: the file ends within"
            ):
                read(data[:n])
    packed = shard([token_rows([[1, 2], [3]])], compression="gzip")
    for n in range(1, len(packed)):
        with pytest.raises(ValueError, match="not a whole gzip file"):
            read(packed[:n], "x.tfrecord.gz")


def frame(data):
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", slow_masked(length)) + data + struct.pack("<I", slow_masked(data))


def example(**features):
    return message(1, b"".join(message(1, message(1, k.encode()) + message(2, v)) for k, v in features.items()))


DOC_ID = message(1, message(1, b"d"))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not a tf.train.Example"),
        (b"\x0a", "not a tf.train.Example"),
        (b"\x0a\x7f", "not a tf.train.Example"),
        (example(doc_id=DOC_ID), "not a tf.train.Example"),
        (example(doc_id=DOC_ID, input_ids=DOC_ID), "not a tf.train.Example"),
        (example(doc_id=DOC_ID, input_ids=int64_feature([1]), other=int64_feature([1])), "not a tf.train.Example"),
        (example(doc_id=DOC_ID, input_ids=int64_feature([1]), input_mask=int64_feature([1])), "not a tf.train.Example"),
        (example(doc_id=DOC_ID, input_ids=int64_feature([1])) + b"\0", "not a tf.train.Example"),
        (example(doc_id=DOC_ID, input_ids=int64_feature([1 << 31])), "an id in input_ids is not an int32"),
        (example(doc_id=DOC_ID, input_ids=int64_feature([1 << 63])), "an id in input_ids is not an int32"),
        (example(doc_id=DOC_ID, input_ids=message(3, message(1, b"\x81"))), "an id in input_ids is not an int32"),
        (example(doc_id=message(1, message(1, b"\xff")), input_ids=int64_feature([1])), "the doc_id is not UTF-8"),
        *(
            (
                example(
                    doc_id=DOC_ID,
                    input_ids=int64_feature([1, 2, 3]),
                    input_mask=int64_feature(mask),
                    segment_ids=int64_feature(segments),
                ),
                "input_mask is not one run of ones",
            )
            for mask, segments in [
                ([1, 1], [0, 0, 0]),
                ([1, 1, 1], [0, 0]),
                ([1, 0, 1], [0, 0, 0]),
                ([1, 2, 0], [0, 0, 0]),
                ([1, 1, 0], [0, 1, 0]),
            ]
        ),
    ],
)
def test_records_of_others_are_refused(data, problem):
    first = slow_record("a", [1], mask=[1] if b"segment_ids" in data else None)
    with pytest.raises(ValueError, match=rf"^x\.tfrecord, byte {len(first)}: {problem}"):
        read(first + frame(data))


@given(st.binary(max_size=60))
def test_any_bytes_in_a_record_are_read_or_refused(data):
    try:
        rows = read(frame(data))
    except ValueError:
        return
    assert len(rows) == 1
