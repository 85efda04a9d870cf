# SPDX-License-Identifier: Apache-2.0
"""The sample of a split: which documents are in it, and what is counted of them."""

import pyarrow as pa

from tokenmill.pipeline.reporting import stats_file
from tokenmill.pipeline.statistics import sample
from tokenmill.pipeline.statistics.sample import COUNTED, SAMPLE_BYTES, Sample
from tokenmill.tokenizer import BPETrainer, Tokenizer

TRAINING = ["the mill grinds the text into tokens", "unaffable the tokens", "玫瑰花"] * 3
TOKENIZERS = {
    "lower-cased words": Tokenizer.for_bert(["[PAD]", "[UNK]", "the", "token", "##s", "un", "##able", "玫", ","]),
    "bytes": Tokenizer.untrained("none", "gpt2", byte_level=True).train_from_iterator(
        TRAINING, BPETrainer(vocab_size=300)
    ),
    "NFKC": Tokenizer.untrained("nfkc", "gpt2", byte_level=True).train_from_iterator(
        TRAINING, BPETrainer(vocab_size=300)
    ),
}


def totals(sample):
    counts = dict.fromkeys(COUNTED, 0)
    counts |= {name: int(numbers.sum()) for name, numbers in sample.counts()[1].items()}
    return counts


def chosen(n_documents, size, n_planned, n_batch):
    """Returns the numbers of the documents that are sampled."""
    rows = pa.array([f"{i:06d}".ljust(size) for i in range(n_documents)])
    numbers = pa.array(range(n_documents))
    ids = pa.array([[1]] * n_documents, pa.large_list(pa.int32()))
    found = Sample(TOKENIZERS["bytes"], n_planned, has_spans=False)
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


def test_a_long_document_is_not_sampled(monkeypatch):
    monkeypatch.setattr(sample, "MAX_DOCUMENT_BYTES", 30)
    assert chosen(5, 30, 1, 2) == [0, 1, 2, 3, 4]
    assert chosen(5, 31, 1, 2) == []


def test_tokens_of_spans_are_no_text():
    tokenizer = TOKENIZERS["lower-cased words"].with_special_tokens(["<url>"])
    found = Sample(tokenizer, 1, has_spans=True)
    found.add(pa.array(["the  the"]), pa.array([[2, tokenizer.token_to_id("<url>"), 2]], pa.large_list(pa.int32())))
    assert stats_file.Sample.of(totals(found)).documents_round_trip_but_for_spaces == 1
