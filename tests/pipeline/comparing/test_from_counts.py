# SPDX-License-Identifier: Apache-2.0
"""A comparison on counts: the numbers of the texts without the texts, or a refusal that says what to do."""

import json

import pytest

from tests.recounting import n_tokens
from tokenmill.pipeline import cli
from tokenmill.pipeline.comparing import corpora
from tokenmill.pipeline.comparing.comparison import load
from tokenmill.pipeline.comparing.corpora import Corpus
from tokenmill.pipeline.config.tokenizer import TokenizerConfig
from tokenmill.pipeline.counting.counts import open_counts
from tokenmill.pipeline.training.tokenizers import counting_tokenizer
from tokenmill.tokenizer import BPETrainer, UnigramTrainer, WordPieceTrainer

TEXTS = {
    "a": ["the mill  grinds the text\n\ninto tokens, 12 times!", "  玫瑰花 the mill's", ""],
    "b": ["die Mühle mahlt\tdie Mühle", "привет, мир!  "],
}
SIZES = {"byte_level": (260, 280), "wordpiece": (45, 60), "unigram": (30, 45)}
KINDS = {
    "byte_level": {"model": "byte_level_bpe", "pre_tokenizer": "gpt2"},
    "wordpiece": {"model": "wordpiece"},
    "unigram": {"model": "unigram"},
}


def train(kind, size):
    """Returns a tokenizer with the words that a job of this kind counts."""
    blank = counting_tokenizer(TokenizerConfig.model_validate({"train": {**KINDS[kind], "vocab_size": 300}}))
    trainers = {"byte_level": BPETrainer, "wordpiece": WordPieceTrainer, "unigram": UnigramTrainer}
    options = {"hard_vocab_limit": False} if kind == "unigram" else {"byte_level": True} if kind == "byte_level" else {}
    # One text is not shown to it, so that there are unknown characters.
    texts = [text for found in TEXTS.values() for text in found[:1]]
    return blank.train_from_iterator(texts, trainers[kind](vocab_size=size, **options))


@pytest.fixture
def counted(tmp_path):
    """Returns a function that writes TEXTS and counts them: the folder, and the files."""
    (tmp_path / "in").mkdir()
    for name, texts in TEXTS.items():
        (tmp_path / f"in/{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    def count(kind, **counts):
        config = {
            "input": {"paths": [str(tmp_path / "in/*.jsonl")]},
            "counts": {"by": ["source"], **counts},
            "tokenizer": {"train": {**KINDS[kind], "vocab_size": 300}},
            "output": {"path": str(tmp_path / "counts")},
        }
        (tmp_path / "job.yaml").write_text(json.dumps(config))
        assert cli.main(["count", str(tmp_path / "job.yaml"), "--workers", "1"]) == 0
        return open_counts(str(tmp_path / "counts"))

    return count


def saved(tmp_path, kind):
    paths = []
    for size in SIZES[kind]:
        paths.append(str(tmp_path / f"{size}.json"))
        train(kind, size).save(paths[-1])
    return load(paths)


@pytest.mark.parametrize("kind", KINDS)
def test_counts_give_what_the_texts_give(tmp_path, counted, kind):
    artifact, candidates = counted(kind), saved(tmp_path, kind)
    on_counts = corpora.compare_counts(candidates, artifact)
    on_texts = corpora.compare_texts(candidates, Corpus([str(tmp_path / "in")]))
    texts_of = {row["name"]: row for row in on_texts["source"]}
    assert {row["name"] for row in on_counts["source"]} == set(texts_of) == {"a.jsonl", "b.jsonl"}
    for row, other in ((on_counts["all"], on_texts["all"]), *((r, texts_of[r["name"]]) for r in on_counts["source"])):
        assert [row[n] for n in ("documents", "bytes", "characters")] == [
            other[n] for n in ("documents", "bytes", "characters")
        ]
        for label, measures in row["by"].items():
            for name in ("tokens", "bytes_per_token", "tokens_per_megabyte", "unknown"):
                assert measures[name] == other["by"][label][name]
    for mine, other in zip(on_counts["tokenizers"], on_texts["tokenizers"], strict=True):
        assert mine == {name: value for name, value in other.items() if name != "gini"}
    assert all("bytes_per_token_interval" not in measures for measures in on_counts["all"]["by"].values())


def test_words_and_scripts_are_those_of_a_recount(tmp_path, counted):
    artifact, candidates = counted("wordpiece"), saved(tmp_path, "wordpiece")
    report = corpora.compare_counts(candidates, artifact)
    words = {row["word"].decode(): row["count"] for row in artifact.load().to_pylist()}
    assert report["all"]["words"] == sum(words.values())
    for each in candidates:
        unknown = each.tokenizer.unk_token_id
        rows = {word: each.tokenizer.encode(word, add_special_tokens=False).ids for word in words}
        kept = sum(n for word, n in words.items() if len(rows[word]) == 1 and unknown not in rows[word])
        assert report["all"]["by"][each.label]["strr"] == kept / sum(words.values())
        tokens = {row["name"]: row["by"][each.label]["tokens"] for row in report["script"]}
        cyrillic = {word: n for word, n in words.items() if word in ("привет", "мир", "при", "вет")}
        assert tokens["Cyrillic"] == sum(n * n_tokens(each.tokenizer, word) for word, n in cyrillic.items())
        assert sum(tokens.values()) == report["all"]["by"][each.label]["tokens"]


def test_tokenizers_with_other_words_are_refused_by_name(tmp_path, counted):
    artifact = counted("byte_level")
    train("byte_level", 260).save(tmp_path / "good.json")
    train("wordpiece", 60).save(tmp_path / "bad.json")
    candidates = load([str(tmp_path / "good.json"), str(tmp_path / "bad.json")])
    with pytest.raises(ValueError, match=r"(?s)have other words than were counted.*or count again") as raised:
        corpora.compare_counts(candidates, artifact)
    assert "bad.json: normalizer " in str(raised.value)
    assert "good.json" not in str(raised.value)
