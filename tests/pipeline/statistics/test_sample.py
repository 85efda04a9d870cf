# SPDX-License-Identifier: Apache-2.0
"""The sample of a split: which documents are in it, and what is counted of them."""

import pyarrow as pa

from tokenmill.pipeline.statistics import sample
from tokenmill.pipeline.statistics.sample import SAMPLE_BYTES, Sample
from tokenmill.tokenizer import Tokenizer

TOKENIZER = Tokenizer.for_bert(["[PAD]", "[UNK]"])


def chosen(n_documents, size, n_planned, n_batch):
    """Returns the numbers of the documents that are sampled."""
    rows = pa.array([f"{i:06d}".ljust(size) for i in range(n_documents)])
    numbers = pa.array(range(n_documents))
    ids = pa.array([[1]] * n_documents, pa.large_list(pa.int32()))
    found = Sample(TOKENIZER, n_planned, has_spans=False)
    kept = []
    for start in range(0, n_documents, n_batch):
        part = slice(start, start + n_batch)
        if found.add(rows[part], ids[part], numbers[part]):
            kept += found.counts()[0][0].to_pylist()
    return [*kept, *(column for columns in found.counts()[0] for column in columns.to_pylist())]


def test_a_small_split_is_sampled_whole_and_a_large_one_in_part(monkeypatch):
    assert chosen(500, 20, SAMPLE_BYTES, 7) == list(range(500))
    of_large = chosen(50_000, 20, 10 * SAMPLE_BYTES, 999)
    assert 4500 < len(of_large) < 5500
    assert of_large == chosen(50_000, 20, 10 * SAMPLE_BYTES, 50_000), "batches make no difference"
    monkeypatch.setattr(sample, "_PENDING_BYTES", 1000)
    assert of_large == chosen(50_000, 20, 10 * SAMPLE_BYTES, 999), "nor does looking at them early"
