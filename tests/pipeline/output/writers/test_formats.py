# SPDX-License-Identifier: Apache-2.0
"""Arrow, MDS, Megatron and memory maps, each read as its published layout says; and times that JSON has not."""

import contextlib
import io
import itertools
import json
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plain_job import token_rows
from tests.reference import mds
from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.output.writers.base import TokenizerInfo, json_texts, spell_nanoseconds
from tokenmill.pipeline.output.writers.formats import index_name, open_writer, read_rows
from tokenmill.pipeline.output.writers.mds import columns_of

NARROW = TokenizerInfo(digest="d" * 64, vocab_size=65_499)
WIDE = TokenizerInfo(digest="d" * 64, vocab_size=65_500)
ROWS = [[5, 1, 65_498], [], [7], list(range(300)), [1, 1]]
SUFFIX = {"arrow": ".arrow", "mds": ".mds", "megatron": ".bin", "memmap": ".ids.bin"}
FORMATS = sorted(SUFFIX)


def shard(format_, batches, info=NARROW, schema=schemas.TOKENS):
    """Returns (rows, index), the bytes of the files of a shard."""
    handle, index = io.BytesIO(), io.BytesIO()
    writer = open_writer(handle, OutputConfig(path="o", format=format_), info, index=index, schema=schema)
    for batch in batches:
        writer.write(batch)
    writer.close()
    assert writer.n_rows == sum(batch.num_rows for batch in batches)
    return handle.getvalue(), index.getvalue()


def back(format_, files, first_row=0):
    name = f"x{SUFFIX[format_]}"
    return list(read_rows(io.BytesIO(files[0]), name, first_row, io.BytesIO(files[1]) if index_name(name) else None))


def read_indexed_dataset(data, index):
    """Returns (sequences, document indices) as Megatron-LM's IndexedDataset lays them out."""
    assert index[:9] == b"MMIDIDX\x00\x00"
    (version,) = struct.unpack_from("<Q", index, 9)
    assert version == 1
    dtype = {1: np.uint8, 4: np.int32, 8: np.uint16}[index[17]]
    n_sequences, n_documents = struct.unpack_from("<QQ", index, 18)
    lengths = np.frombuffer(index, np.int32, n_sequences, 34)
    pointers = np.frombuffer(index, np.int64, n_sequences, 34 + 4 * n_sequences)
    documents = np.frombuffer(index, np.int64, n_documents, 34 + 12 * n_sequences)
    assert len(index) == 34 + 12 * n_sequences + 8 * n_documents
    return [
        np.frombuffer(data, dtype, n, at).tolist() for n, at in zip(lengths.tolist(), pointers.tolist(), strict=True)
    ], documents.tolist()


@pytest.mark.parametrize(("info", "n_bytes"), [(NARROW, 2), (WIDE, 4)])
def test_megatron_is_an_indexed_dataset(info, n_bytes):
    data, index = shard("megatron", [token_rows(ROWS)], info)
    sequences, documents = read_indexed_dataset(data, index)
    assert sequences == ROWS
    assert documents == list(range(len(ROWS) + 1))
    assert len(data) == n_bytes * sum(map(len, ROWS))


@pytest.mark.parametrize(("info", "dtype"), [(NARROW, "<u2"), (WIDE, "<i4")])
def test_a_memory_map_is_mapped_by_numpy(tmp_path, info, dtype):
    data, index = shard("memmap", [token_rows(ROWS)], info)
    (tmp_path / "x.ids.bin").write_bytes(data)
    (tmp_path / "x.offsets.npy").write_bytes(index)
    ids = np.memmap(tmp_path / "x.ids.bin", dtype=dtype, mode="r")
    offsets = np.load(tmp_path / "x.offsets.npy", allow_pickle=False)
    assert offsets.dtype == np.int64
    assert [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)] == ROWS


rows_of_ids = st.lists(st.lists(st.integers(0, 65_498), max_size=8), max_size=20)


@pytest.mark.parametrize("format_", FORMATS)
@given(rows=rows_of_ids, cuts=st.lists(st.integers(0, 20), max_size=4))
def test_bytes_do_not_depend_on_batches(format_, rows, cuts):
    batch = token_rows(rows)
    edges = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    pieces = [batch.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    whole = shard(format_, [batch])
    assert shard(format_, pieces) == whole
    assert [row["input_ids"] for part in back(format_, whole) for row in part.to_pylist()] == rows


@given(rows=st.lists(st.lists(st.integers(0, 65_498), max_size=300), max_size=6))
def test_samples_of_mds_are_those_of_the_reference_implementation(rows):
    batch = token_rows(rows)
    (data, _) = shard("mds", [batch])
    columns = list(columns_of(schemas.TOKENS, NARROW))
    expected = [
        mds.encode_sample(
            columns,
            {"doc_id": row["doc_id"], "n_tokens": row["n_tokens"], "tokens": np.array(row["input_ids"], "<u2")},
        )
        for row in batch.to_pylist()
    ]
    offsets = np.frombuffer(data, np.uint32, len(rows) + 1, 4)
    assert [data[a:b] for a, b in itertools.pairwise(offsets)] == expected


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("format_", ["megatron", "memmap"])
def test_formats_with_an_index_keep_no_padding(format_, side):
    info = TokenizerInfo(digest="d", vocab_size=65_499, padding_side=side)
    padded = [[0] * 3 + row if side == "left" else row + [0] * 3 for row in ROWS]
    batch = token_rows(padded, [*map(len, ROWS)])
    found = [row["input_ids"] for part in back(format_, shard(format_, [batch], info)) for row in part.to_pylist()]
    assert found == ROWS


@pytest.mark.parametrize("format_", ["mds", "megatron", "memmap"])
@pytest.mark.parametrize("wrong", [-1, 65_499])
def test_an_id_that_is_not_in_the_vocabulary_is_refused(format_, wrong):
    with pytest.raises(ValueError, match=f"id {wrong} is not in the vocabulary of 65499 tokens"):
        shard(format_, [token_rows([[1, wrong]])])


@pytest.mark.parametrize("format_", FORMATS)
def test_what_is_cut_off_is_not_read(format_):
    files = shard(format_, [token_rows(ROWS)])
    for which in (0, 1):
        for n in range(0, len(files[which]), max(1, len(files[which]) // 40)):
            damaged = [files[0], files[1]]
            damaged[which] = damaged[which][:n]
            with pytest.raises(ValueError, match="x"):
                back(format_, damaged)


@pytest.mark.parametrize("format_", FORMATS)
def test_damaged_bytes_never_crash_a_reader(format_):
    files = shard(format_, [token_rows(ROWS)])
    rng = np.random.default_rng(1)
    for _ in range(150):
        damaged = [bytearray(files[0]), bytearray(files[1])]
        which = damaged[int(rng.integers(2))] or damaged[0]
        which[int(rng.integers(len(which)))] ^= int(rng.integers(1, 256))
        with contextlib.suppress(ValueError):
            back(format_, [bytes(file) for file in damaged])


NS = pa.timestamp("ns")
MOMENT = 1_700_000_000_123_456_789
SPELLED = "2023-11-14 22:13:20.123456789"


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (NS, MOMENT, SPELLED),
        (pa.timestamp("ns", "UTC"), MOMENT, f"{SPELLED}Z"),
        (pa.duration("ns"), 1500, "1500"),
        (pa.time64("ns"), 1500, "00:00:00.000001500"),
        (pa.list_(NS), [MOMENT, None], [SPELLED, None]),
        (pa.list_(NS, 1), [MOMENT], [SPELLED]),
        (pa.struct([("a", pa.large_list(NS)), ("b", pa.int8())]), {"a": [MOMENT], "b": 1}, {"a": [SPELLED], "b": 1}),
        (pa.map_(pa.string(), NS), [("k", MOMENT)], [("k", SPELLED)]),
    ],
    ids=str,
)
def test_times_of_nanoseconds_are_spelled(type_, value, expected):
    column = pa.array([value, None], type_)
    batch = pa.record_batch([column, pa.array([b"x", None])], names=["t", "b"])
    assert spell_nanoseconds(batch).to_pylist() == [{"t": expected, "b": b"x"}, {"t": None, "b": None}]
    assert [json.loads(text) for text in json_texts(column).to_pylist()] == [json.loads(json.dumps(expected)), None]


def test_other_times_are_iso_8601():
    assert json_texts(pa.array([1500], pa.timestamp("us"))).to_pylist() == ['"1970-01-01T00:00:00.001500"']
