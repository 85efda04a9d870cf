# SPDX-License-Identifier: Apache-2.0
"""The steps that jobs are made of: what flows between them, who is told of it, and what a runner must not do."""

import contextlib

import apache_beam as beam
import cloudpickle
import pytest
from apache_beam.coders.typecoders import registry
from apache_beam.runners.runner import PipelineRunner

from tokenmill.pipeline.books.sums import Run, SplitRuns
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.config.tokenizer import TokenizerConfig
from tokenmill.pipeline.counting.count import Counting
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.jobs import planning
from tokenmill.pipeline.running import progress
from tokenmill.pipeline.running.runners import choose_runner, open_runner
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing.pages import Page, SplitBooks, Work
from tokenmill.pipeline.tokenizing.steps import STEPS, Normalize
from tokenmill.pipeline.transforms import tokenizing
from tokenmill.pipeline.transforms.counting import CountSplits
from tokenmill.pipeline.transforms.elements import Done, LineCoder
from tokenmill.pipeline.transforms.stages import with_memory
from tokenmill.pipeline.transforms.tokenizing import (
    FindCommitted,
    ReadPages,
    ReadSplits,
    StepFn,
    TokenizeCorpus,
)
from tokenmill.tokenizer import Tokenizer


@contextlib.contextmanager
def running(mode="inline"):
    """A pipeline that runs when the block ends."""
    with open_runner(choose_runner((), mode=mode, workers=1 if mode == "inline" else 2)) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        yield pipeline
        pipeline.run()


@pytest.fixture
def tokenizer(tiny_vocab):
    return Tokenizer.for_bert(tiny_vocab, oov="contain")


@pytest.fixture
def corpus(tiny_corpus):
    with (tiny_corpus / "b.jsonl").open("a") as file:
        file.write('{"text": 3}\nnot json\n')
    return InputConfig(paths=[str(tiny_corpus / "*.jsonl")], split_bytes=100, on_damage="warn")


def splits_of(config: InputConfig) -> list[Split]:
    splits = [*plan_splits(config, "salt")]
    assert len(splits) > 2
    return splits


def planned(corpus, vocab, output) -> planning.JobPlan:
    """The plan of a job that tokenizes, with its folder prepared."""
    tokenizer = TokenizerConfig(file=str(vocab), oov="contain")
    plan = planning.plan_job(
        "tokenize", Config(input=corpus, tokenizer=tokenizer, output=OutputConfig(path=str(output)))
    )
    planning.prepare(plan, "new")
    assert len(plan.splits) > 2
    return plan


def test_a_runner_that_cuts_the_steps_of_a_split_apart_is_told_so(corpus, tiny_vocab_file, tmp_path, monkeypatch):
    class Cutting(beam.PTransform):
        def expand(self, begin):
            outputs = ReadSplits.expand(self, begin)
            return outputs._replace(pages=outputs.pages | beam.Reshuffle())

    plan = planned(corpus, tiny_vocab_file, tmp_path / "out")
    cutting = type("Cutting", (ReadSplits,), {"expand": Cutting.expand})
    monkeypatch.setattr(tokenizing, "ReadSplits", cutting)
    with pytest.raises(RuntimeError, match="this runner does not fuse the steps"), running() as pipeline:
        _ = pipeline | TokenizeCorpus(plan, [plan.tokenizer.to_str()])
    assert list((tmp_path / "out").glob("tokens-*")) == []


def pages_of(plan, numbers):
    """The first page of the first split, under other numbers."""
    split = plan.splits[0]
    work = Work(split, plan.config, plan.tokenizer, len(plan.splits))
    batch, books = next(read_split(split, plan.config.input)), SplitBooks(work)
    return [Page(number, batch, work, books) for number in numbers]


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ([0, 2], "page 2 of split .* comes where page 1 is next"),
        ([1], "page 1 of split .* comes where page 0 is next"),
        ([0, 1, 1], "page 1 of split .* comes where page 2 is next"),
        ([0, 1], "a bundle ends within split"),
    ],
)
def test_pages_out_of_order_fail(numbers, problem, corpus, tiny_vocab_file, tmp_path):
    plan = planned(corpus, tiny_vocab_file, tmp_path / "out")
    fn = StepFn(Normalize)

    def bundle():
        fn.start_bundle()
        for page in pages_of(plan, numbers):
            assert len([*fn.process(page)]) == 1
        fn.finish_bundle()

    with pytest.raises(RuntimeError, match=f"Normalize: {problem}"):
        bundle()


def test_what_flows_is_sent_as_it_is(corpus, tiny_vocab_file, tmp_path):
    for value in (
        splits_of(corpus)[0],
        Done(1, 3, "0123456789abcdef"),
        SplitRuns("a", 1, "b", (Run(2, 3, 4, 5, 6, 7),)),
    ):
        coder = registry.get_coder(type(value))
        assert isinstance(coder, LineCoder)
        assert coder.decode(coder.encode(value)) == value
    (page,) = pages_of(planned(corpus, tiny_vocab_file, tmp_path / "out"), [0])
    with pytest.raises(RuntimeError, match="a Page is sent from one worker to another"):
        registry.get_coder(Page).encode(page)


def test_workers_tell_who_watches_and_stop_when_told(corpus, tiny_vocab_file, tmp_path):
    plan = planned(corpus, tiny_vocab_file, tmp_path / "out")
    (stage,) = plan.stages()

    def tokenize():
        with running("threads") as pipeline:
            _ = pipeline | TokenizeCorpus(plan, [plan.tokenizer.to_str()])

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


def test_steps_travel_small(corpus, tiny_vocab_file, tmp_path):
    plan = planned(corpus, tiny_vocab_file, tmp_path / "out")
    counting = CountSplits(Counting(corpus, "out", "{}"))
    for step in (FindCommitted(plan), ReadPages("out"), *(StepFn(step) for step in STEPS), counting):
        assert len(cloudpickle.dumps(step)) < 3000


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
