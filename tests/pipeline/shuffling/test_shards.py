# SPDX-License-Identifier: Apache-2.0
"""The global shuffle of a job: complete, in the order of the keys, the same however it is cut."""

import numpy as np
import pytest

from tests.shuffled_job import N_DOCUMENTS
from tokenmill.pipeline import shuffling as shuffled
from tokenmill.pipeline.books import ledger, manifest
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.proving.verify import verify
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.ragged import Ragged


def test_documents_are_in_the_order_of_their_keys_and_all_there(make_shuffled):
    job = make_shuffled()
    shards = job.run()
    expected = job.expected()
    assert [row["doc_id"] for row in job.rows()] == [doc_id for _, doc_id in expected]
    assert len(expected) == N_DOCUMENTS
    keys = np.concatenate([np.fromfile(job.output / shard.keys.file, "<u8") for shard in shards])
    assert keys.tolist() == [key for key, _ in expected]
    assert all(row["n_tokens"] == len(row["input_ids"]) for row in job.rows())
    assert verify(str(job.output)).problems == []
    assert not (job.output / "_runs").exists()


@pytest.mark.parametrize(
    "packing", [None, {"length": 16, "separator": "[SEP]"}, {"length": 16, "strategy": "best_fit"}]
)
def test_shards_do_not_depend_on_how_the_input_is_cut(make_shuffled, packing):
    output = {"packing": packing} if packing else {}
    found = []
    for split_bytes in (500, 3000, 1 << 25):
        job = make_shuffled(f"cut-{split_bytes}", split_bytes=split_bytes, format=["parquet", "memmap"], **output)
        job.run()
        found.append(job.shards())
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 3 * 4


def test_a_document_that_is_given_up_does_not_shift_the_keys_of_others(make_shuffled, monkeypatch):
    encode = Tokenizer.encode_bare
    job = make_shuffled()
    text = next(read_split(job.splits[0], job.config.input)).documents["text"][17]

    def encode_or_give_up(self, texts, *rest):
        if isinstance(texts, Ragged):
            data = texts.values[texts.offsets[0] : texts.offsets[-1]].tobytes()
            if text.as_buffer().to_pybytes() in data:
                raise MemoryError
        return encode(self, texts, *rest)

    monkeypatch.setattr(Tokenizer, "encode_bare", encode_or_give_up)
    job.run()
    ids = [row["doc_id"] for row in job.rows()]
    n_given_up = N_DOCUMENTS - len(ids)
    assert 0 < n_given_up < N_DOCUMENTS / 2
    assert ids == [doc_id for _, doc_id in job.expected() if doc_id in set(ids)]
    assert verify(str(job.output)).problems == []
    assert sum(manifest.read(str(job.output))["totals"]["rejected"].values()) == n_given_up + 1


def test_the_number_of_shards_follows_the_bytes_of_the_input_unless_it_is_given(make_shuffled, monkeypatch):
    monkeypatch.setattr(shuffled, "SHARD_BYTES", 4000)
    n_bytes = sum(path.stat().st_size for path in make_shuffled().output.parent.glob("*.jsonl"))
    for split_bytes in (700, 1 << 20):
        job = make_shuffled(f"cut-{split_bytes}", split_bytes=split_bytes, shuffle={})
        assert len(job.planned) == -(-n_bytes // 4000)
    assert len(make_shuffled(shuffle={"shards": 7}).planned) == 7


def test_more_shards_than_documents_and_no_documents_at_all(make_shuffled, tmp_path):
    job = make_shuffled(shuffle={"shards": N_DOCUMENTS + 100})
    job.run()
    assert len(job.rows()) == N_DOCUMENTS
    assert verify(str(job.output)).problems == []
    (tmp_path / "empty.jsonl").write_text("")
    empty = make_shuffled("none", paths=("empty.jsonl",), format=["parquet", "memmap"])
    empty.run()
    assert empty.rows() == []
    assert verify(str(empty.output)).problems == []


def test_an_entry_of_a_shard_is_read_back_or_refused(make_shuffled):
    (shard, *_) = make_shuffled().run()
    assert ledger.ShardEntry.from_json(shard.to_json()) == shard
    for data in (b"{}", b"[]", b"x", shard.to_json().replace(b'"sums"', b'"sum"')):
        with pytest.raises(ValueError, match=r"."):
            ledger.ShardEntry.from_json(data)
