# SPDX-License-Identifier: Apache-2.0
"""Packing as an index: the rows of a job that packs, of any settings, and what is refused."""

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenmill.data
from tests.plain_job import PlainJob
from tokenmill.data import Rows, pack
from tokenmill.pipeline import schemas
from tokenmill.pipeline.output import arranging
from tokenmill.pipeline.output.placement import Marks, RowForm

STRATEGIES = ["concatenate", "no_split", "best_fit"]
TEXTS = [
    " ".join("the mill grinds text a texts".split()[(i * 7 + j) % 6] for j in range(i * 5 % 23)) for i in range(41)
]
PAD, SEP = 0, 3


@pytest.fixture(scope="module")
def vocab(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the mill grinds text a ##s".split()]))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("jobs")


def job(folder: Path, vocab: Path, name: str, split_bytes: int, **output) -> Path:
    paths = [str(folder / "corpus/*.jsonl")]
    return PlainJob(
        folder, TEXTS, vocab, name, input={"paths": paths, "split_bytes": split_bytes}, output=output
    ).run().output  # fmt: skip


@pytest.fixture(scope="module")
def documents(folder, vocab) -> dict[int, Path]:
    formats = ["parquet", "memmap"]
    return {size: job(folder, vocab, f"documents-{size}", size, format=formats) for size in (900, 1 << 20)}


@pytest.mark.parametrize("split_bytes", [900, 1 << 20])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_are_those_of_a_job_that_packs(folder, vocab, documents, tmp_path, strategy, split_bytes) -> None:
    settings = {"length": 16, "strategy": strategy, "boundaries": ["cu_seqlens", "positions", "segment_ids"]}
    settings |= {"separator": "[SEP]"} if split_bytes == 900 else {"incomplete": "short"}
    expected = tokenmill.data.open(job(folder, vocab, f"{strategy}-{split_bytes}", split_bytes, packing=settings))
    source = tokenmill.data.open(documents[split_bytes], format="memmap")
    packed = pack(source, tmp_path / "index", **settings)
    assert len(expected.files) == len(source.files) == (1 if split_bytes > 900 else len(expected.files)) > 0
    assert packed.schema.names == expected.schema.names
    ours, theirs = packed[:], expected[:]
    for name in set(packed.schema.names) - {"documents"}:
        assert ours[name].equals(theirs[name]), name
    shard = expected.starts.searchsorted(np.arange(len(expected)), "right") - 1
    numbered = [
        [int(source.starts[s]) + n for n in row] for s, row in zip(shard, theirs["documents"].to_pylist(), strict=True)
    ]
    assert ours["documents"].to_pylist() == numbered
    chosen = np.random.default_rng(2).integers(0, len(packed), 50)
    assert packed[chosen].equals(ours.take(pa.array(chosen)))
    assert packed.with_columns(["n_tokens"])[chosen]["n_tokens"].equals(ours["n_tokens"].take(pa.array(chosen)))
    assert f"in {len(packed)} sequences of 16 by {strategy}" in repr(packed)
    counts = packed.record["counts"]
    assert packed.n_tokens == counts["n_tokens"] + counts["n_separators"] == expected.n_tokens


class Ids(Rows):
    """Documents of given sizes, whose ids say where they come from, and of which every third is not trained."""

    def __init__(self, sizes, columns=None) -> None:
        self.sizes_of_rows = sizes
        ids = [[100 * i + j + 10 for j in range(n)] for i, n in enumerate(sizes)]
        mask = [[each % 3 > 0 for each in row] for row in ids]
        self.batch = pa.record_batch(
            [
                pa.array([""] * len(sizes)),
                pa.array(ids, schemas.TOKENS.field("input_ids").type),
                pa.array(sizes, pa.int32()),
                pa.array([0] * len(sizes), pa.int32()),
                pa.array(mask, schemas.LOSS_MASK.type),
            ],
            schema=pa.schema([*schemas.TOKENS, schemas.LOSS_MASK]),
        ).select(columns or [*schemas.TOKENS.names, "loss_mask"])
        self.name, self.digest, self.schema = "ids", str(sizes), self.batch.schema

    def __len__(self) -> int:
        return self.batch.num_rows

    def take(self, rows):
        return self.batch.take(pa.array(self.checked(rows)))

    def with_columns(self, columns):
        return Ids(self.sizes_of_rows, columns)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=40),
    st.sampled_from(STRATEGIES),
    st.integers(1, 15),
    st.booleans(),
    st.booleans(),
    st.integers(1, 90),
)
def test_any_documents_are_placed_as_by_the_writer(documents, sizes, strategy, length, separates, pads, window) -> None:
    tokenizer = str(documents[900] / "vocab/tokenizer.json")
    form = RowForm(Marks(), strategy, length, 0, SEP if separates else None, PAD if pads else None, length * pads)
    rows = Ids(sizes)
    writer = arranging.Arranger(form, rows.schema, ["cu_seqlens"], window)
    expected = [row for batch in (*writer.add(rows.batch), *writer.rest()) for row in batch.to_pylist()]
    settings = {"separator": "[SEP]" if separates else None, "incomplete": "pad" if pads else "short"}
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(arranging, "WINDOW_TOKENS", window)
        packed = pack(rows, folder, tokenizer=tokenizer, length=length, strategy=strategy, **settings)
        assert packed[:].to_pylist() == expected
    counts = packed.record["counts"]
    assert {name: counts[name] for name in counts if name in writer.counts} == {
        name: n for name, n in writer.counts.items() if name in counts
    }


class Labelled(Ids):
    """The same documents with labels."""

    def __init__(self, sizes, columns=None) -> None:
        super().__init__(sizes)
        self.batch = schemas.labelled(self.batch)
        self.batch = self.batch.select(columns or self.batch.schema.names)
        self.schema = self.batch.schema

    def with_columns(self, columns):
        return Labelled(self.sizes_of_rows, columns)


def test_labels_go_with_their_tokens(documents, tmp_path) -> None:
    settings = {"tokenizer": str(documents[900] / "vocab/tokenizer.json"), "length": 8, "separator": "[SEP]"}
    packed = pack(Labelled([3, 0, 9, 20, 1]), tmp_path / "labels", **settings)
    assert packed[:].equals(schemas.labelled(pack(Ids([3, 0, 9, 20, 1]), tmp_path / "masks", **settings)[:]))
    n_trained = sum(int(sizes.sum()) for sizes in packed.sizes(trained=True))
    assert 0 < n_trained == sum(label >= 0 for row in packed[:]["labels"].to_pylist() for label in row)


def test_documents_are_packed_in_the_order_of_a_seed(documents, tmp_path) -> None:
    source = tokenmill.data.open(documents[900], columns=["input_ids"])
    packed = pack(source, tmp_path / "index", length=16, seed=5, incomplete="short")
    shuffled = source[source.order(5)(np.arange(len(source)))]["input_ids"]
    assert packed[:]["input_ids"].values.equals(shuffled.flatten())
    assert packed.digest != pack(source, tmp_path / "other", length=16, seed=6, incomplete="short").digest


def test_a_packing_is_opened_mixed_and_pickled_as_other_rows(documents, tmp_path) -> None:
    packed = pack(documents[900], tmp_path / "packed", length=16, strategy="best_fit")
    again = tokenmill.data.open(packed.name, columns=["input_ids"])
    pickled = pickle.dumps(again)
    assert len(pickled) < 2000
    assert pickle.loads(pickled)[3:7].equals(again[3:7])
    assert again[[]].num_rows == 0
    mixture = tokenmill.data.mix(
        {"packed": {"path": packed.name, "epochs": 2}, "rest": {"path": documents[1 << 20], "tokens": 20}}
    ).write(tmp_path / "mixture")
    read = tokenmill.data.open(mixture.name, columns=["input_ids"])[:]["input_ids"].to_pylist()
    rows = packed[:]["input_ids"].to_pylist()
    assert sorted(row for row in read if len(row) == 16 and row in rows) == sorted(2 * rows)
    whole = (tmp_path / "packed/pieces.bin").read_bytes()
    (tmp_path / "packed/pieces.bin").write_bytes(whole[:-4])
    with pytest.raises(ValueError, match=r"(?s)source 'packed' cannot be opened: .*pieces.bin: cut short"):
        tokenmill.data.open(mixture.name)


def test_what_cannot_be_packed_is_refused(folder, vocab, documents, tmp_path) -> None:
    packing = {"length": 16, "separator": "[SEP]"}
    packed = job(folder, vocab, "packed", 1 << 20, packing=packing)
    with pytest.raises(ValueError, match="is packed or padded: pack the output of a job that does neither"):
        pack(packed, tmp_path / "index", length=16)
    with pytest.raises(ValueError, match=r"packing.separator: '<eos>': the tokenizer has no such token"):
        pack(documents[900], tmp_path / "index", length=16, separator="<eos>")
    with pytest.raises(ValueError, match="strategy"):
        pack(documents[900], tmp_path / "index", length=16, strategy="worst_fit")
    with pytest.raises(ValueError, match=r"ids is no output of a job: name its tokenizer.json"):
        pack(Ids([3]), tmp_path / "index", length=16)
    index = pack(documents[900], tmp_path / "index", **packing)
    with pytest.raises(ValueError, match="has no column 'labels', only input_ids, n_tokens, documents, cu_seqlens"):
        index.with_columns(["labels"])
    with pytest.raises(ValueError, match="its source 'documents' has the digest"):
        tokenmill.data.open(index.name, sources={"documents": documents[1 << 20]})
