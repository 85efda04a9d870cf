# SPDX-License-Identifier: Apache-2.0
"""Parquet shards: bytes, row groups, metadata, memory, and files that are none."""

import io
import itertools
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plain_job import token_rows
from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.output.writers import parquet
from tokenmill.pipeline.output.writers.base import TokenizerInfo
from tokenmill.pipeline.output.writers.formats import open_writer, read_rows

INFO = TokenizerInfo(digest="d" * 64, vocab_size=30_000, special_ids={"[UNK]": 1, "[PAD]": 0})


def shard(batches, **output):
    handle = io.BytesIO()
    writer = open_writer(handle, OutputConfig(path="out", **output), INFO)
    for batch in batches:
        writer.write(batch)
    writer.close()
    assert not handle.closed
    return handle.getvalue()


def group_rows(data):
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


ROWS = [[5, 1, 70_000], [], [7], list(range(40)), [1, 1]]


@given(
    lengths=st.lists(st.integers(0, 12), max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=6),
    row_group_tokens=st.integers(1, 20),
)
def test_bytes_do_not_depend_on_batches(lengths, cuts, row_group_tokens):
    batch = token_rows([list(range(n)) for n in lengths])
    bounds = sorted({0, len(lengths), *(min(cut, len(lengths)) for cut in cuts)})
    pieces = [batch.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    whole = shard([batch], row_group_tokens=row_group_tokens)
    assert shard(pieces, row_group_tokens=row_group_tokens) == whole

    # The rule, in plain Python: a group closes when the next row would take it past the limit.
    groups, n_tokens = [], 0
    for n in lengths:
        if not groups or (n_tokens + n > row_group_tokens and groups[-1] > 0):
            groups.append(0)
            n_tokens = 0
        groups[-1] += 1
        n_tokens += n
    assert group_rows(whole) == groups


def test_huggingface_metadata_is_what_datasets_writes_itself(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "doc_id": datasets.Value("string"),
            "input_ids": datasets.List(datasets.Value("int32")),
            "n_tokens": datasets.Value("int32"),
            "n_oov": datasets.Value("int32"),
        }
    )
    theirs = datasets.Dataset.from_dict({name: [] for name in features}, features=features)
    theirs.to_parquet(tmp_path / "theirs.parquet")
    ours = pq.read_schema(io.BytesIO(shard([])))
    assert json.loads(ours.metadata[b"huggingface"]) == json.loads(
        pq.read_schema(tmp_path / "theirs.parquet").metadata[b"huggingface"]
    )


def test_other_schemas_are_refused():
    batch = token_rows(ROWS)
    narrow = batch.set_column(1, "input_ids", batch.column(1).cast(parquet.stored_schema(schemas.TOKENS).types[1]))
    with pytest.raises(TypeError, match="a shard takes rows of"):
        shard([narrow])


def test_a_damaged_file_is_named():
    data = shard([token_rows(ROWS)])
    with pytest.raises(ValueError, match=r"x\.parquet: not a whole Parquet file"):
        list(read_rows(io.BytesIO(data[:-3]), "x.parquet"))
    other = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), other)
    with pytest.raises(ValueError, match=r"x\.parquet: columns must be"):
        list(read_rows(other, "x.parquet"))
    with pytest.raises(ValueError, match="its name must end in"):
        read_rows(io.BytesIO(data), "x.csv")


def test_memory_does_not_grow_with_the_shard():
    class Nowhere(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            return len(data)

    writer = open_writer(Nowhere(), OutputConfig(path="out", row_group_tokens=1 << 18), INFO)
    batch = token_rows([list(range(1000))] * 100)
    before = pa.total_allocated_bytes()
    peak = 0
    for _ in range(60):
        writer.write(batch)
        peak = max(peak, pa.total_allocated_bytes() - before)
    writer.close()
    assert peak < 12 << 20  # 24 MB of ids went through
