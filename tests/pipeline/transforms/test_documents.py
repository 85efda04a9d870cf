# SPDX-License-Identifier: Apache-2.0
"""Transforms: the pieces put together by hand, and the steps the jobs are made of; exact contents, every mode."""

import contextlib
import json
import threading
from collections import Counter

import apache_beam as beam
import cloudpickle
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to

from pipeline import schemas
from pipeline.books import job_record, ledger
from pipeline.config.input import InputConfig
from pipeline.config.job import Config
from pipeline.config.output import OutputConfig
from pipeline.config.tokenizer import TokenizerConfig
from pipeline.config.training import CountsConfig, TrainConfig
from pipeline.counting import count
from pipeline.counting.finishing import PartitionCounts
from pipeline.counting.split_counts import SplitCounts
from pipeline.input.splitting import plan_splits
from pipeline.output import folders
from pipeline.running import progress
from pipeline.running.runners import choose_runner, open_runner
from pipeline.tokenizing.tokenize import tokenizer_info
from pipeline.training.train import Vocabulary
from pipeline.transforms import compiled
from pipeline.transforms.compiled import compiled_tokenizer
from pipeline.transforms.counting import CountSplits, MergeCounts
from pipeline.transforms.documents import (
    CountWords,
    NormalizeDocuments,
    ReadDocuments,
    TokenizeDocuments,
    normalize_documents,
    tokenize_documents,
)
from pipeline.transforms.tokenizing import TokenizeSplits
from pipeline.transforms.training import TrainVocabulary
from tokenizer import Tokenizer


def save_to(path):
    """Keeps elements in a file: checks are pickled, so a list would stay empty."""
    return lambda found: path.write_text(json.dumps(list(found)))


@contextlib.contextmanager
def running(mode="inline", *beam_args):
    """A pipeline that runs when the block ends; its counters are in `.counters` after that."""
    settings = choose_runner(beam_args, mode=mode, workers=1 if mode == "inline" else 2)
    with open_runner(settings) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        yield pipeline
        result = pipeline.run()
        pipeline.counters = Counter(
            {
                (counter.key.metric.namespace.rpartition(".")[2], counter.key.metric.name): counter.committed
                for counter in result.metrics().query()["counters"]
            }
        )


@pytest.fixture
def tokenizer(tiny_vocab):
    return Tokenizer.for_bert(tiny_vocab, oov="contain")


@pytest.fixture
def corpus(tiny_corpus):
    with (tiny_corpus / "b.jsonl").open("a") as file:
        file.write('{"text": 3}\nnot json\n')
    return InputConfig(paths=[str(tiny_corpus / "*.jsonl")], split_bytes=100)


def splits_of(config: InputConfig) -> list[str]:
    splits = plan_splits(config, "salt")
    assert len(splits) > 2
    return [split.to_json() for split in splits]


def rows_are(expected):
    """Checks the rows of all batches, whatever their order and batching."""

    def check(batches):
        found = [row for batch in batches for row in batch.to_pylist()]
        key = json.dumps
        assert sorted(found, key=key) == sorted(expected, key=key), found

    return check


@pytest.mark.parametrize("mode", ["inline", "threads", "processes"])
def test_pieces_put_together_by_hand(mode, corpus, tokenizer):
    with running(mode) as pipeline:
        vocabulary = pipeline | "Tokenizer" >> beam.Create([tokenizer.to_str()])
        read = pipeline | "Splits" >> beam.Create(splits_of(corpus)) | ReadDocuments(corpus)
        tokens = read.documents | TokenizeDocuments(beam.pvalue.AsSingleton(vocabulary))
        expected = [
            {"doc_id": "doc-0", "input_ids": [5, 7, 8, 9, 18], "n_tokens": 5, "n_oov": 0},
            {"doc_id": "doc-1", "input_ids": [11, 13, 17, 11, 13, 19], "n_tokens": 6, "n_oov": 0},
            {"doc_id": "doc-2", "input_ids": [], "n_tokens": 0, "n_oov": 0},
            {"doc_id": "doc-3", "input_ids": [12, 15, 16], "n_tokens": 3, "n_oov": 0},
            {"doc_id": "doc-4", "input_ids": [20, 21, 22, 24, 1, 25, 23], "n_tokens": 7, "n_oov": 1},
            {"doc_id": "doc-5", "input_ids": [6, 7], "n_tokens": 2, "n_oov": 0},
            {"doc_id": "doc-6", "input_ids": [9, 10, 11, 13, 18], "n_tokens": 5, "n_oov": 0},
        ]
        assert_that(tokens, rows_are(expected), label="Tokens")
        reasons = read.rejects | beam.Map(lambda batch: batch.select(["reason"]))
        expected = [{"reason": "not_json"}, {"reason": "not_string"}]
        assert_that(reasons, rows_are(expected), label="Rejects")
    counters = pipeline.counters
    assert counters["ReadDocuments", "documents-out"] == counters["TokenizeDocuments", "documents-in"] == 7
    assert counters["ReadDocuments", "documents-rejected"] == 2
    assert counters["ReadDocuments", "bytes-in"] == sum(plan.n_bytes for plan in plan_splits(corpus, ""))
    assert counters["TokenizeDocuments", "tokens-out"] == 28


def test_count_words(corpus):
    untrained = Tokenizer.untrained_bert().to_str()

    def check(batches):
        assert all(batch.schema.equals(schemas.WORD_COUNTS) for batch in batches)
        words = [row for batch in batches for row in batch.to_pylist()]
        for batch in batches:
            column = batch.column("word").to_pylist()
            assert column == sorted(column)
        assert {row["word"].decode(): row["count"] for row in words} == {
            "the": 1,
            "mill": 2,
            "grinds": 1,
            "text": 2,
            ".": 2,
            "tokens": 3,
            ",": 1,
            "!": 1,
            "unaffable": 1,
            **dict.fromkeys("玫瑰花", 1),
            "3ⰻ7": 1,
            "朵": 1,
            "a": 1,
            "into": 1,
        }
        assert len(words) == 16

    with running("threads") as pipeline:
        read = pipeline | beam.Create(splits_of(corpus)) | ReadDocuments(corpus)
        assert_that(read.documents | CountWords(untrained, n_partitions=3), check)
    assert pipeline.counters["CountWords", "documents-in"] == 7
    assert pipeline.counters["CountWords", "words-out"] == 16


def test_count_words_in_bounded_memory(corpus, monkeypatch):
    monkeypatch.setattr(count, "MAX_COUNTER_BYTES", 0)
    with running() as pipeline:
        read = pipeline | beam.Create(splits_of(corpus)) | ReadDocuments(corpus)
        counts = read.documents | CountWords(Tokenizer.untrained_bert().to_str())
        totals = counts | beam.Map(lambda batch: sum(batch.column("count").to_pylist())) | beam.CombineGlobally(sum)
        assert_that(totals, equal_to([21]))


def test_normalize_documents(tokenizer):
    batch = pa.record_batch(
        [["a", "b"], ["Naïve  Bär", "字x"], pa.array([0, 0], pa.int32()), [0, 10], [10, 5]], schema=schemas.DOCUMENTS
    )

    def check(batches):
        (found,) = batches
        assert found.column("text").to_pylist() == ["naive  bar", " 字 x"]
        assert found.drop_columns("text").equals(batch.drop_columns("text"))
        assert found.schema.equals(schemas.DOCUMENTS)

    with running("threads") as pipeline:
        # The reshuffle makes the batch cross the runner.
        documents = pipeline | beam.Create([batch]).with_output_types(pa.RecordBatch) | beam.Reshuffle()
        assert_that(documents | NormalizeDocuments(tokenizer.to_str()), check)
    assert pipeline.counters["NormalizeDocuments", "documents-in"] == 2


def test_without_a_normalizer_text_stays(tiny_vocab):
    plain = Tokenizer(model=Tokenizer.for_bert(tiny_vocab).model)
    batch = pa.record_batch([["a"], ["Ä"], pa.array([0], pa.int32()), [0], [2]], schema=schemas.DOCUMENTS)
    assert normalize_documents(batch, plain).equals(batch)


def test_tokens_of_padded_and_framed_rows(tokenizer):
    texts = ["the mill Ⰻ", "", "text text text text text"]
    batch = pa.record_batch(
        [["a", "b", "c"], texts, pa.array([0] * 3, pa.int32()), [0] * 3, [0] * 3], schema=schemas.DOCUMENTS
    )
    for side in ("right", "left"):
        tokenizer.enable_truncation(5)
        tokenizer.enable_padding(length=6, direction=side)
        rows = tokenize_documents(batch.slice(0), tokenizer, add_special_tokens=True).to_pylist()
        assert [(row["n_tokens"], row["n_oov"], len(row["input_ids"])) for row in rows] == [
            (5, 1, 6),
            (2, 0, 6),
            (5, 0, 6),
        ]
        assert [row["doc_id"] for row in rows] == ["a", "b", "c"]
    tokenizer.no_padding()
    assert tokenize_documents(batch.slice(1, 1), tokenizer).to_pylist() == [
        {"doc_id": "b", "input_ids": [], "n_tokens": 0, "n_oov": 0}
    ]
    assert tokenize_documents(batch.slice(0, 0), tokenizer).num_rows == 0


def make_config(corpus, output, **tokenizer) -> Config:
    return Config(input=corpus, tokenizer=TokenizerConfig(**tokenizer), output=OutputConfig(path=str(output)))


@pytest.mark.parametrize(
    ("mode", "beam_args"),
    [("inline", ()), ("threads", ("--direct_runner_bundle_repeat=1",))],
)
def test_tokenize_splits(mode, beam_args, corpus, tokenizer, tmp_path):
    splits = splits_of(corpus)
    config = make_config(corpus, tmp_path / "out")
    folders.prepare_output(config.output.path, job_record.Job.of("tokenize", config, None), "new")
    with running(mode, *beam_args) as pipeline:
        text = pipeline | "Tokenizer" >> beam.Create([tokenizer.to_str()])
        ids = (
            pipeline
            | "Splits" >> beam.Create(splits)
            | TokenizeSplits(config, len(splits), beam.pvalue.AsSingleton(text))
        )
        expected = sorted(json.loads(split)[1] for split in splits)
        assert_that(ids, equal_to(expected))
    entries = [ledger.read_entry(config.output.path, split_id) for split_id in expected]
    assert sum(entry.n_tokens for entry in entries) == 28
    assert {entry.tokenizer for entry in entries} == {tokenizer_info(tokenizer).digest}
    counters = pipeline.counters
    if not beam_args:
        assert counters["TokenizeSplits", "tokens-out"] == 28
        assert counters["TokenizeSplits", "documents-in"] == 7
        assert counters["TokenizeSplits", "documents-rejected"] == 2
        assert counters["TokenizeSplits", "bytes-in"] == sum(entry.n_bytes for entry in entries)
    assert counters["TokenizeSplits", "splits-done"] == len(splits)


def test_count_merge_and_train(corpus, tmp_path):
    tokenizer = TokenizerConfig(train=TrainConfig(vocab_size=60, min_frequency=1), oov="char", lowercase=True)
    output = str(tmp_path)
    untrained = Tokenizer.untrained_bert().to_str()
    key = count.count_key(corpus, CountsConfig(), untrained)
    with running() as pipeline:
        counts = pipeline | beam.Create(splits_of(corpus)) | CountSplits(corpus, output, untrained, n_partitions=3)
        partitions = counts | MergeCounts(output, key, untrained, n_partitions=3)
        trained = partitions | TrainVocabulary(tokenizer, output)
        for name, found in (("counts", counts), ("partitions", partitions), ("trained", trained)):
            assert_that(found, save_to(tmp_path / f"{name}.json"), label=name)
    counts, (partitions,), (trained,) = (
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("counts", "partitions", "trained")
    )
    assert {SplitCounts.from_json(text).counter for text in counts} == {key}
    files = [PartitionCounts.from_json(text).file.file for text in partitions]
    assert files == [f"counts/counts-{p:05d}-of-00003.parquet" for p in range(3)]
    (trained,) = (Vocabulary.from_json(text).tokenizer_json for text in trained)
    vocab = Tokenizer.from_str(trained).get_vocab()
    assert {"tokens", "mill", "[UNK]", "玫"} <= vocab.keys()
    assert json.loads(trained)["normalizer"]["lowercase"] is True
    assert pipeline.counters["CountSplits", "documents-in"] == 7
    assert pipeline.counters["MergeCounts", "words-out"] == 16


def test_workers_tell_who_watches_and_stop_when_told(corpus, tokenizer, tmp_path):
    splits = splits_of(corpus)
    config = make_config(corpus, tmp_path / "out")
    folders.prepare_output(config.output.path, job_record.Job.of("tokenize", config, None), "new")
    stage = progress.Stage.of("tokenizing", "_ledger", plan_splits(corpus, "salt"))

    def tokenize():
        with running("threads") as pipeline:
            _ = pipeline | beam.Create(splits) | TokenizeSplits(config, len(splits), tokenizer.to_str())

    watched = progress.Progress([stage])
    watched.cancel()
    with progress.reporting_to(watched), pytest.raises(RuntimeError, match="the job was stopped"):
        tokenize()
    assert list((tmp_path / "out").glob("tokens-*")) == []

    watched = progress.Progress([stage])
    with progress.reporting_to(watched):
        tokenize()
    snapshot = watched.snapshot()
    assert (snapshot.stage, snapshot.n_tokens, snapshot.n_rejected) == ("tokenizing", 28, 2)
    assert snapshot.n_done == snapshot.n_planned == stage.n_bytes


def test_a_tokenizer_is_compiled_once_for_all_threads(tokenizer, monkeypatch):
    built = []
    from_str = Tokenizer.from_str
    monkeypatch.setattr(compiled.Tokenizer, "from_str", lambda text: built.append(1) or from_str(text))
    text = tokenizer.to_str(pretty=True)
    found = []
    threads = [threading.Thread(target=lambda: found.append(compiled_tokenizer(text))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert len({id(one) for one in found}) == 1
    for i in range(10):
        compiled_tokenizer(from_str(text).to_str() + " " * i)
    assert len(compiled._compiled) <= compiled._KEPT_TOKENIZERS


def test_transforms_travel_small(corpus, tmp_path):
    config = make_config(corpus, tmp_path, file="v")
    for transform in (TokenizeSplits(config, 3, "{}"), ReadDocuments(corpus), CountSplits(corpus, "out", "{}")):
        assert len(cloudpickle.dumps(transform)) < 3000
