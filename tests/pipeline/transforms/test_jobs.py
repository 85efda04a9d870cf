# SPDX-License-Identifier: Apache-2.0
"""Jobs as graphs: what each leaves behind, what crosses the runner, and what a second run does."""

import apache_beam as beam
import pytest

from tokenmill.pipeline.books import manifest
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.config.tokenizer import TokenizerConfig, TrainConfig
from tokenmill.pipeline.jobs.planning import plan_job, prepare
from tokenmill.pipeline.proving.verify import verify
from tokenmill.pipeline.running.runners import choose_runner, open_runner
from tokenmill.pipeline.tokenizing import tokenize
from tokenmill.pipeline.transforms import jobs, publishing
from tokenmill.tokenizer import Tokenizer


@pytest.fixture
def config(tiny_corpus, tiny_vocab_file, tmp_path):
    return Config(
        input=InputConfig(paths=[str(tiny_corpus / "*.jsonl")], split_bytes=100),
        tokenizer=TokenizerConfig(file=str(tiny_vocab_file), oov="contain"),
        output=OutputConfig(path=str(tmp_path / "out")),
    )


@pytest.fixture
def training(config):
    return config.model_copy(update={"tokenizer": TokenizerConfig(train=TrainConfig(vocab_size=60, min_frequency=1))})


def execute(name, config, mode="new", beam_args=()):
    plan = plan_job(name, config)
    prepare(plan, mode)
    with open_runner(choose_runner(beam_args, mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        jobs.build(pipeline, plan)
        pipeline.run()
    return manifest.read(config.output.path)


def final_names(config, tmp_path):
    paths = (path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if not str(path).startswith("_"))


COUNTS = [
    "counts/alphabet.parquet",
    "counts/counts.json",
    *(f"counts/counts-{p:05d}-of-00016.parquet" for p in range(16)),
]


def test_other_formats_of_a_tokenizer_are_written_where_they_are_asked_for(config, training, tiny_vocab_file, tmp_path):
    def asks(config, *formats):
        return config.model_copy(update={"output": OutputConfig(path=str(tmp_path / "out"), vocabulary=[*formats])})

    before = execute("tokenize", config)
    asked = asks(config, "vocab.txt")
    found = execute("tokenize", asked, "resume")  # no byte of a shard depends on it
    assert (tmp_path / "out/vocab/vocab.txt").read_bytes() == tiny_vocab_file.read_bytes()
    assert [record["file"] for record in found["files"] if record not in before["files"]] == ["vocab/vocab.txt"]
    assert verify(config.output.path).problems == []
    with pytest.raises(ValueError, match=r"output.vocabulary: vocab.json: vocab.json cannot hold .*WordPiece"):
        plan_job("tokenize", asks(config, "vocab.txt", "vocab.json"))
    execute("train", asks(training), "overwrite")
    assert final_names(config, tmp_path) == sorted(
        [*COUNTS, "manifest.json", "vocab/tokenizer.json", "vocab/training.json"]
    )


@pytest.mark.parametrize("changes", [{}, {"shuffle": {}}])
def test_beam_may_check_every_element_by_its_type(changes, training, tmp_path):
    """It failed in `_call`, whose annotation Beam cannot check, and is what a Beam user looks for wrong types with.

    ALL_REQUIRED wants a type of every step, which Beam's own combines and outputs with tags do not have.
    """
    output = OutputConfig.model_validate({"path": str(tmp_path / "out"), **changes})
    checks = ["--runtime_type_check", "--type_check_strictness=ALL_REQUIRED"]
    execute("run", training.model_copy(update={"output": output}), beam_args=checks)
    assert verify(training.output.path).problems == []


def test_books_that_do_not_balance_fail_the_job(config, monkeypatch, tmp_path):
    plan = plan_job("tokenize", config)
    prepare(plan, "new")
    tokenizer = plan.tokenizer.to_str()
    for split in plan.splits:
        tokenize.tokenize_split(split, config, Tokenizer.from_str(tokenizer), len(plan.splits))
    folders = {"": (config, plan.job)}
    with pytest.raises(BooksError, match="4 splits were planned, and 3 are done"):
        publishing._finish_tokenizing(3, [], [], None, folders, config, plan.job, None, tokenizer)
    assert not (tmp_path / "out/manifest.json").exists()
    publishing._finish_tokenizing(4, [], [], None, folders, config, plan.job, None, tokenizer)
    assert (tmp_path / "out/manifest.json").exists()


def test_a_graph_stays_small_and_holds_no_splits(training, tiny_corpus):
    many = training.model_copy(update={"input": InputConfig(paths=[str(tiny_corpus / "*.jsonl")], split_bytes=1)})

    def size(config):
        plan = plan_job("run", config)
        with open_runner(choose_runner([], mode="inline")) as (runner, options):
            pipeline = beam.Pipeline(runner=runner, options=options)
            jobs.build(pipeline, plan)
            return len(plan.splits), pipeline.to_runner_api().ByteSize()

    (few_splits, small), (many_splits, large) = size(training), size(many)
    assert many_splits > 50 * few_splits
    # The ledger of many is added up in parts. A split in the graph would take some hundred bytes.
    assert large < small + 12_000
    assert 100 * many_splits > 12_000
