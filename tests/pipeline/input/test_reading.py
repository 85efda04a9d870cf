# SPDX-License-Identifier: Apache-2.0
"""Samples by hash: nested, the same however the corpus is cut, and in the books."""

import json

import numpy as np
import pytest

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.hashing import SAMPLING, SHUFFLING, document_keys
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits

N = 4000


@pytest.fixture
def corpus(tmp_path):
    for name in "ab":
        lines = [json.dumps({"id": f"{name}{i}", "text": f"text {i}"}) for i in range(N // 2)]
        lines[10] = "not json"
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "*.jsonl")


def read(corpus, **section):
    config = InputConfig(paths=[corpus], **section)
    return [batch for split in plan_splits(config, "") for batch in read_split(split, config, 3000)]


def kept(corpus, **section):
    return [doc_id for batch in read(corpus, **section) for doc_id in batch.documents.column("doc_id").to_pylist()]


def test_a_smaller_sample_is_part_of_a_larger_one(corpus):
    everything = kept(corpus)
    samples = [kept(corpus, sample=fraction) for fraction in (0.01, 0.1, 0.5, 1.0)]
    for small, large in zip(samples, [*samples[1:], everything], strict=True):
        assert set(small) <= set(large)
        assert len(small) <= len(large)
    assert samples[-1] == everything
    for sample, fraction in zip(samples, (0.01, 0.1, 0.5), strict=False):
        expected = fraction * N
        assert abs(len(sample) - expected) < 5 * expected**0.5
        assert sample == [doc_id for doc_id in everything if doc_id in set(sample)]


def test_what_is_left_out_is_counted_and_rejects_are_not(corpus):
    batches = read(corpus, sample=0.3)
    n_filtered = sum((batch.counts.filtered or {}).get("sample", 0) for batch in batches)
    n_rejected = sum(batch.rejects.num_rows for batch in batches if batch.rejects is not None)
    n_kept = sum(batch.documents.num_rows for batch in batches)
    assert n_rejected == 2
    assert n_filtered > 0
    for batch in batches:
        n_bytes = sum(batch.documents.column("n_bytes").to_pylist())
        n_bytes += batch.counts.n_filtered_bytes + batch.n_skipped_bytes
        if batch.rejects is not None:
            n_bytes += sum(batch.rejects.column("n_bytes").to_pylist())
        assert n_bytes == batch.n_bytes
    assert n_filtered + n_rejected + n_kept == sum(batch.n_records for batch in batches) == N


def test_keys_are_fixed_for_all_time(corpus):
    # Files that hold samples and shuffles outlive this version: these numbers must never change.
    config = InputConfig(paths=[corpus])
    documents = next(read_split(plan_splits(config, "")[0], config)).documents.slice(0, 2)
    assert document_keys(SAMPLING, 0, ["a.jsonl", "b.jsonl"], documents).tolist() == KEYS
    other = document_keys(SHUFFLING, 0, ["a.jsonl", "b.jsonl"], documents)
    assert not np.isin(other, KEYS).any()


KEYS = [44068578551422342, 498123650985161116]


def test_files_of_one_name_in_two_folders_are_sampled_and_shuffled_independently(tmp_path):
    for folder in ("en", "de"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train-00000.txt").write_text("".join(f"{folder} {i:04d}\n" for i in range(N // 2)))
    config = InputConfig(paths=[str(tmp_path / folder / "*.txt") for folder in ("en", "de")], sample=0.5)
    (split,) = plan_splits(config, "")
    names = [piece.name for piece in split.pieces]
    assert names == ["de/train-00000.txt", "en/train-00000.txt"]
    batches = [batch.documents for batch in read_split(split, config.model_copy(update={"sample": None}))]
    ids = [doc_id for batch in batches for doc_id in batch.column("doc_id").to_pylist()]
    assert len(set(ids)) == N
    keys = np.concatenate([document_keys(SHUFFLING, 0, names, batch) for batch in batches])
    order = np.argsort(keys)
    pairs = np.abs(np.diff(order)) == N // 2  # the same line of the other file
    assert pairs.sum() < 10
    texts = [text for batch in read_split(split, config) for text in batch.documents.column("text").to_pylist()]
    one, two = ({text[3:] for text in texts if text.startswith(folder)} for folder in ("en", "de"))
    assert abs(len(one & two) - N / 8) < 5 * (N / 8) ** 0.5
