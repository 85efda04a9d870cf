# SPDX-License-Identifier: Apache-2.0
"""Planning: what a job will do is known, and what is wrong is said, before anything is written."""

import gzip
import json

import pytest

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.config.tokenizer import TokenizerConfig, TrainConfig
from tokenmill.pipeline.jobs.planning import plan_job, prepare, read_plan


@pytest.fixture
def config(tiny_corpus, tiny_vocab_file, tmp_path):
    return Config(
        input=InputConfig(paths=[str(tiny_corpus / "*.jsonl")], split_bytes=60),
        tokenizer=TokenizerConfig(file=str(tiny_vocab_file)),
        output=OutputConfig(path=str(tmp_path / "out")),
    )


def test_everything_that_is_missing_is_named_at_once(config, tmp_path):
    config = config.model_copy(
        update={
            "input": InputConfig(paths=[str(tmp_path / "none*.jsonl"), str(tmp_path / "vocab.txt"), "/no/such"]),
            "tokenizer": TokenizerConfig(file=str(tmp_path / "missing.json")),
        }
    )
    with pytest.raises((ValueError, OSError)) as caught:
        plan_job("run", config)
    message = str(caught.value)
    for name in ("none*.jsonl", "/no/such", "missing.json", "tokenizer.file", "input.paths"):
        assert name in message


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe"])
def test_a_file_that_is_no_tokenizer(config, tiny_vocab_file, content):
    tiny_vocab_file.write_bytes(content)
    with pytest.raises(ValueError, match=r"tokenizer\.file: "):
        plan_job("tokenize", config)


@pytest.mark.parametrize("model, fits", [("wordpiece", "vocab.txt"), ("byte_level_bpe", "vocab.tiktoken")])
def test_what_a_trained_vocabulary_cannot_do_is_said_before_it_is_trained(config, model, fits):
    train = TrainConfig(model=model, vocab_size=300, hard_vocab_limit=None)
    config = config.model_copy(update={"tokenizer": TokenizerConfig(train=train)})

    def plan(name, **output):
        return plan_job(name, config.model_copy(update={"output": OutputConfig(path=config.output.path, **output)}))

    for name in ("run", "train"):
        plan(name, vocabulary=[fits])
        with pytest.raises(ValueError, match=r"output\.vocabulary: tokenizer\.model: sentencepiece cannot hold"):
            plan(name, vocabulary=["tokenizer.model"])
    plan("train", fim={})
    with pytest.raises(ValueError, match=r"output\.fim\.prefix: the tokenizer has none of"):
        plan("run", fim={})


def test_prepared_plans_come_back_with_the_largest_first(config):
    plan = plan_job("tokenize", config)
    prepare(plan, "new")
    found = [*read_plan(plan.plan_path)]
    assert sorted(found, key=lambda split: split.index) == plan.splits
    sizes = [split.n_bytes for split in found]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 1


def test_a_compressed_file_counts_by_its_text(config, tmp_path):
    line = json.dumps({"text": "the mill"}) + "\n"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(line * 100)
    data = gzip.compress((line * 100 + "".join(json.dumps({"text": str(i**9)}) + "\n" for i in range(120))).encode())
    assert len(data) < 1500 < 4 * len(data)
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(data)
    given = config.model_copy(update={"input": InputConfig(paths=[str(tmp_path / "in" / "*")], split_bytes=1500)})
    plan = plan_job("tokenize", given)
    prepare(plan, "new")
    first = next(read_plan(plan.plan_path))
    assert [piece.name for piece in first.pieces] == ["b.jsonl.gz"]


def test_half_written_files_of_a_killed_run_are_removed(config, tmp_path):
    plan = plan_job("tokenize", config)
    prepare(plan, "new")
    for folder in ("", "vocab", "_ledger", "counts"):
        (tmp_path / "out" / folder).mkdir(exist_ok=True)
        (tmp_path / "out" / folder / f"stats.json.{'0f' * 16}.tmp").write_text("half")
        (tmp_path / "out" / folder / "notes.tmp").write_text("not ours")
    prepare(plan, "resume")
    left = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.tmp"))
    assert left == ["_ledger/notes.tmp", "counts/notes.tmp", "notes.tmp", "vocab/notes.tmp"]
