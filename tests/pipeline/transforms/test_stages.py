# SPDX-License-Identifier: Apache-2.0
"""The steps that jobs are made of: exact contents, in every mode."""

import contextlib
import json
import threading
from collections import Counter

import apache_beam as beam
import cloudpickle
import pytest
from apache_beam.runners.runner import PipelineRunner
from apache_beam.testing.util import assert_that, equal_to

from tokenmill.pipeline.books import job_record, ledger
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.config.tokenizer import TokenizerConfig
from tokenmill.pipeline.config.training import CountsConfig, TrainConfig
from tokenmill.pipeline.counting import count
from tokenmill.pipeline.counting.finishing import PartitionCounts
from tokenmill.pipeline.counting.split_counts import SplitCounts
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.output import folders
from tokenmill.pipeline.running import progress
from tokenmill.pipeline.running.runners import choose_runner, open_runner
from tokenmill.pipeline.tokenizing.tokenize import tokenizer_info
from tokenmill.pipeline.training.train import Vocabulary
from tokenmill.pipeline.transforms import compiled
from tokenmill.pipeline.transforms.compiled import compiled_tokenizer
from tokenmill.pipeline.transforms.counting import CountSplits, MergeCounts, TrainVocabularies
from tokenmill.pipeline.transforms.stages import with_memory
from tokenmill.pipeline.transforms.tokenizing import TokenizeSplits
from tokenmill.tokenizer import Tokenizer


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
    return InputConfig(paths=[str(tiny_corpus / "*.jsonl")], split_bytes=100, on_damage="warn")


def splits_of(config: InputConfig) -> list[str]:
    splits = plan_splits(config, "salt")
    assert len(splits) > 2
    return [split.to_json() for split in splits]


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
            | "Splits" >> beam.Create([json.dumps([split, [json.loads(split)[1]]]) for split in splits])
            | TokenizeSplits(config.output.path, [config], len(splits), [beam.pvalue.AsSingleton(text)])
        )
        expected = sorted(json.loads(split)[1] for split in splits)
        assert_that(ids, equal_to([(0, *json.loads(split)[:2], "") for split in splits]))
    entries = [ledger.LedgerEntry.read(config.output.path, split_id) for split_id in expected]
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
    key = count.count_key(corpus, CountsConfig(), untrained, n_partitions=3)
    with running() as pipeline:
        counts = pipeline | beam.Create(splits_of(corpus)) | CountSplits(corpus, output, untrained, n_partitions=3)
        partitions = counts | MergeCounts(output, key, untrained, n_partitions=3)
        trained = partitions | TrainVocabularies(tokenizer, output)
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
            lines = [json.dumps([split, [json.loads(split)[1]]]) for split in splits]
            transform = TokenizeSplits(config.output.path, [config], len(splits), [tokenizer.to_str()])
            _ = pipeline | beam.Create(lines) | transform

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
    monkeypatch.setattr(compiled, "_KEPT_TOKENIZERS", 4)
    for i in range(10):
        compiled_tokenizer(from_str(text).to_str() + " " * i)
        assert compiled_tokenizer(text) is found[0]  # used more recently than the others
    assert len(compiled._compiled) == 4


def test_transforms_travel_small(corpus, tmp_path):
    config = make_config(corpus, tmp_path, file="v")
    for transform in (TokenizeSplits("out", [config], 3, ["{}"]), CountSplits(corpus, "out", "{}")):
        assert len(cloudpickle.dumps(transform)) < 3000


class DataflowRunner(PipelineRunner):
    pass


class OtherRunner(PipelineRunner):
    pass


def hints(runner):
    pipeline = beam.Pipeline(runner=OtherRunner())  # which checks no options of Google Cloud
    pipeline.runner = runner
    _ = pipeline | beam.Impulse() | "Big" >> with_memory(beam.Map(len), pipeline, "16GB")
    environments = pipeline.to_runner_api().components.environments.values()
    return [value for each in environments for value in each.resource_hints.values()]


def test_only_dataflow_is_asked_for_memory():
    assert hints(DataflowRunner()) == [b"16000000000"]
    assert hints(OtherRunner()) == []
