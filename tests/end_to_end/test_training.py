# SPDX-License-Identifier: Apache-2.0
"""Vocabularies of every model from the command line: the same bytes however they are counted, or one clear message."""

import json
import random
import re
import shutil

import pytest

from tokenmill.pipeline.counting import partitions
from tokenmill.pipeline.counting.counts import open_counts
from tokenmill.tokenizer import Tokenizer

MODELS = {
    "wordpiece": {"vocab_size": [220, 300], "min_frequency": 1},
    "bpe": {"vocab_size": [220, 300], "byte_fallback": False, "min_frequency": 1},
    "byte_level_bpe": {"vocab_size": [300, 350], "pre_tokenizer": "o200k_base"},
    "unigram": {"vocab_size": [120, 135], "character_coverage": 1.0},
    "wordlevel": {"vocab_size": [20, 60]},
    "char": {"vocab_size": [20, 60]},
}


def sections(corpus, train, **more):
    return {"input": {"paths": [str(corpus / "*.jsonl")]}, "tokenizer": {"train": train}} | more


def results(job):
    """The vocabularies and the counts; not the manifest, which names files and sizes of the input."""
    return {name: data for name, data in job.files().items() if name.startswith("vocab/") or name.endswith(".parquet")}


@pytest.fixture
def shuffled(corpus, tmp_path):
    """The same documents in another order, spread over files of other sizes."""
    lines = [line for name in ("a.jsonl", "d.jsonl") for line in (corpus / name).read_bytes().splitlines(True)]
    random.Random(3).shuffle(lines)
    folder = tmp_path / "shuffled"
    folder.mkdir()
    for i, (start, stop) in enumerate(((0, 11), (11, 90), (90, len(lines)))):
        (folder / f"{i}.jsonl").write_bytes(b"".join(lines[start:stop]))
    return folder


@pytest.mark.parametrize("model", MODELS)
def test_the_same_vocabularies_from_any_order_split_and_worker(corpus, shuffled, make_job, model):
    train = {"model": model} | MODELS[model]
    reference = make_job("reference", **sections(corpus, train))
    assert reference.run("train", "--mode", "inline") == 0
    assert reference.run("verify") == 0
    expected = results(reference)
    for size in MODELS[model]["vocab_size"]:
        tokenizer = Tokenizer.from_str(expected[f"vocab/{size}/tokenizer.json"].decode())
        assert 0 < tokenizer.n_ids <= size
        record = json.loads(expected[f"vocab/{size}/training.json"])
        assert (record["model"], record["vocab_size"]) == (model, tokenizer.n_ids)
        assert record["tokenizer_digest"] == tokenizer.digest
        assert record["coverage"][-1] == {"share": 1.0, "top_words": record["n_distinct_words"]}
    other = make_job("other", **sections(shuffled, train))
    # Processes take seconds to start; which model is trained is all the same to them.
    mode = "processes" if model == "bpe" else "threads"
    assert other.run("train", "--workers", "2", "--mode", mode, "--set", "input.split_bytes=700") == 0
    assert results(other) == expected
    # Every size of several is what it is alone.
    size = MODELS[model]["vocab_size"][0]
    alone = make_job("alone", **sections(corpus, train | {"vocab_size": size}))
    assert alone.run("train", "--mode", "inline") == 0
    assert results(alone)["vocab/tokenizer.json"] == expected[f"vocab/{size}/tokenizer.json"]


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"model": "char", "vocab_size": 3}, "20.0% of the characters that vocab was trained on are unknown"),
        ({"model": "char", "min_frequency": 99}, "100.0% of the characters that vocab was"),
        ({"model": "wordpiece", "vocab_size": 99, "limit_alphabet": 1}, "25.0% of the characters that vocab was"),
        ({"model": "wordlevel", "min_frequency": 99}, "100.0% of the words that vocab was"),
        ({"model": "wordlevel", "vocab_size": 2}, "50.0% of the words that vocab was"),
        ({"model": "wordlevel", "vocab_size": 9}, ""),
        ({"model": "char", "vocab_size": 300, "byte_fallback": True}, ""),
    ],
)
def test_a_job_that_only_trains_says_what_its_vocabulary_lacks(make_job, tmp_path, capsys, train, said):
    (tmp_path / "a.txt").write_text("aaab aaab bbba abbb\n" * 10 if train["model"] == "wordlevel" else "aaab\n" * 10)
    job = make_job("job", input={"paths": [str(tmp_path / "a.txt")]}, tokenizer={"train": train})
    assert job.run("train", "--mode", "inline") == 0
    err = capsys.readouterr().err
    assert ("are unknown to it" in err) == bool(said)
    assert f"about {said}" in err or not said


def test_a_unigram_that_cannot_be_so_large_says_what_to_write_in_the_config(make_job, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("aaab aaab bbba\n" * 10)
    train = {"model": "unigram", "vocab_size": 4096}
    job = make_job("job", input={"paths": [str(tmp_path / "a.txt")]}, tokenizer={"train": train})
    assert job.run("train", "--mode", "inline") == 1
    failed, *more = [line for line in capsys.readouterr().err.splitlines() if "failed:" in line or "--resume" in line]
    assert "failed: tokenizer.train.vocab_size: 4096: is too high, as the words give " in failed
    assert "tokenizer.train.hard_vocab_limit: false; then start with --overwrite" in failed
    assert more == []


def test_counts_are_counted_once_and_trained_on_often(corpus, make_job, capsys):
    counted = make_job("counted", **sections(corpus, {"model": "bpe"}))
    assert counted.run("count", "--mode", "inline") == 0
    shutil.copytree(counted.output / "counts", counted.output.parent / "kept/counts")
    given = str(counted.output.parent / "kept")
    for model in ("bpe", "char"):  # whose words are the same
        train = {"model": model, "vocab_size": 220}
        direct = make_job(f"direct-{model}", **sections(corpus, train))
        assert direct.run("train", "--mode", "inline") == 0
        job = make_job(f"given-{model}", tokenizer={"train": train | {"counts": given}})
        assert job.run("train", "--mode", "inline") == 0
        assert f"train: the counts in {given}, 1 worker" in capsys.readouterr().err
        assert job.run("verify") == 0
        names = [name for name in direct.files() if name.startswith("vocab/")]
        assert {name: job.files()[name] for name in names} == {name: direct.files()[name] for name in names}
        assert not any(name.startswith("counts/") for name in job.files())
        # Where the counts lie does not matter, what is in them does.
        assert job.manifest()["config"]["tokenizer"]["train"].get("counts") is None
        assert job.manifest()["counts"] == json.loads(job.files()["vocab/training.json"])["counts_digest"]
    both = make_job("both", **sections(corpus, {"model": "bpe", "vocab_size": 220, "counts": given}))
    assert both.run("run", "--mode", "inline") == 0
    assert both.run("verify") == 0
    trained = (counted.output.parents[1] / "direct-bpe/out/vocab/tokenizer.json").read_bytes()
    assert both.files()["vocab/tokenizer.json"] == trained


def test_more_partitions_of_counts_give_the_same_vocabulary_and_shards(corpus, make_job, monkeypatch):
    train = {"model": "wordpiece", "vocab_size": 220}
    few = make_job("few", **sections(corpus, train))
    assert few.run("run", "--mode", "inline", "--set", "counts.max_words=200") == 0
    monkeypatch.setattr(partitions, "PARTITION_BYTES", 200)
    many = make_job("many", **sections(corpus, train))
    arguments = "--mode", "inline", "--set", "counts.max_words=200"
    assert many.run("run", *arguments) == 0
    assert len(list(many.output.glob("counts/counts-*.parquet"))) > 16
    loaded = [open_counts(str(job.output)).load() for job in (few, many)]
    assert loaded[0].equals(loaded[1])
    chosen = [
        {name: data for name, data in job.files().items() if name.startswith(("tokens-", "vocab/tok", "stats"))}
        for job in (few, many)
    ]
    assert chosen[0] == chosen[1]
    assert many.run("verify", *arguments[2:4]) == 0


def test_a_vocabulary_for_each_source(corpus, make_job):
    train = {"vocab_size": [180, 200]}
    parts = {"by": "source", "train": True}
    labels = {"by": ["source"], "sources": {"first/1": "a*", "rest": "*"}}
    job = make_job("by", **sections(corpus, train, counts=labels), output={"parts": parts})
    assert job.run("train", "--mode", "inline") == 0
    assert job.run("verify") == 0
    for folder, name in (("first%2F1", "a"), ("rest", "d")):
        single = {"input": {"paths": [str(corpus / f"{name}.jsonl")]}, "tokenizer": {"train": train}}
        alone = make_job(name, **single)
        assert alone.run("train", "--mode", "inline") == 0
        for size in (180, 200):
            assert job.files()[f"vocab/{folder}/{size}/tokenizer.json"] == alone.files()[f"vocab/{size}/tokenizer.json"]
    assert json.loads(job.files()["vocab/rest/180/training.json"])["label"] == "rest"
    # The next job in the folder takes the old vocabularies away.
    assert job.run("train", "--mode", "inline", "--overwrite", "--set", "tokenizer.train.vocab_size=200") == 0
    assert sorted(name for name in job.files() if name.startswith("vocab/rest/")) == [
        f"vocab/rest/{name}" for name in ("tokenizer.json", "training.json", "vocab.txt")
    ]


@pytest.mark.parametrize("text", ["", "   \n"])
def test_no_text_at_all(make_job, tmp_path, capsys, text):
    (tmp_path / "a.txt").write_text(text)
    job = make_job("job", input={"paths": [str(tmp_path / "a.txt")]}, tokenizer={"train": {}})
    assert job.run("train", "--mode", "inline") == 1
    assert "failed: there are no words to train on: the input holds no text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["tokenizer.lowercase=false"], r"holds counts of other words \(normalizer .*true.*, not .*false"),
        (
            ["tokenizer.train.pre_tokenizer=whitespace"],
            r"holds counts of other words \(pre_tokenizer bert, not whitespace\)",
        ),
        (["output.parts={by: source, train: true}"], r"output\.parts\.by: .* holds no counts by source; count with"),
        (["tokenizer.train.counts=/no/such/folder"], "'/no/such/folder' holds no finished word counts"),
    ],
)
def test_counts_that_do_not_suit(corpus, make_job, capsys, settings, message):
    counted = make_job("counted", **sections(corpus, {}))
    assert counted.run("count", "--mode", "inline") == 0
    job = make_job("job", tokenizer={"train": {"vocab_size": 200, "counts": str(counted.output)}})
    arguments = [argument for setting in settings for argument in ("--set", setting)]
    assert job.run("train", "--mode", "inline", *arguments) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not job.output.exists()
