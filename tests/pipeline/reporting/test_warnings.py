# SPDX-License-Identifier: Apache-2.0
"""What truncation takes is in the books, and whoever loses much is told."""

import pytest

from tests.plain_job import PlainJob
from tokenmill import JobError, run
from tokenmill.pipeline.reporting.summary import summarize, warnings

TEXTS = ["the mill grinds text " * (i % 5) for i in range(20)]


@pytest.fixture
def make(tmp_path, tiny_vocab_file):
    return lambda name="out", **sections: PlainJob(tmp_path, TEXTS, tiny_vocab_file, name, **sections)


def test_the_summary_says_what_was_cut_and_a_threshold_warns(make, render):
    job = make(tokenizer={"truncation": {"max_length": 4}}).run()
    assert "cut 96 60.000% of the 160 tokens of the text, from 12 documents" in render(summarize(str(job.output), 1.0))
    (line,) = warnings(str(job.output), job.config)
    assert line.startswith(
        "tokenizer.truncation: 60 % of the tokens, 96 of 160, are cut off, and in no row; overflow: rows"
    )
    for threshold, n_warnings in ((0.6, 0), (0.59, 1), (1, 0), (0, 1)):
        other = make(tokenizer={"truncation": {"max_length": 4, "warn_above": threshold}})
        assert len(warnings(str(job.output), other.config)) == n_warnings
        assert other.plan.job.digest == job.plan.job.digest  # a finished job may be looked at with another threshold


@pytest.fixture
def render():
    from rich.console import Console

    def text(renderable) -> str:
        console = Console(width=200)
        with console.capture() as captured:
            console.print(renderable)
        return " ".join(captured.get().split())

    return text


@pytest.mark.parametrize(
    ("text", "n_warnings", "fails"),
    [("the mill " * 99 + "щ", 0, False), ("the щ", 1, False), ("the щ щ", 1, True), ("щ", 1, True), ("", 0, False)],
)
def test_a_vocabulary_that_does_not_fit_the_text_is_told_or_refused(tmp_path, tiny_vocab_file, text, n_warnings, fails):
    def make(name, **tokenizer):
        options = {"max_unknown_fraction": 0.5, **tokenizer}
        return PlainJob(tmp_path, [text] * 8, tiny_vocab_file, name, tokenizer=options)

    if fails:
        with pytest.raises(ValueError, match=r"tokens \(.*%\) are unknown.* larger tokenizer.max_unknown_fraction"):
            make("refused").run()
        assert not (tmp_path / "refused" / "manifest.json").exists()
    accepted = make("accepted", max_unknown_fraction=1)
    assert accepted.plan.job.digest == make("other").plan.job.digest  # so a job can be resumed with another limit
    told = warnings(str(accepted.run().output), accepted.config)
    assert len([line for line in told if "are unknown, because the vocabulary lacks much" in line]) == n_warnings


def test_a_trained_vocabulary_that_knows_nothing_is_refused_with_what_to_change(tmp_path):
    (tmp_path / "a.txt").write_text("one two three four five\n" * 3)
    config = {
        "input": {"paths": [str(tmp_path / "a.txt")]},
        "tokenizer": {"train": {"model": "wordlevel", "vocab_size": 20, "min_frequency": 4}},
        "output": {"path": str(tmp_path / "out"), "report": False},
    }
    with pytest.raises(
        JobError, match=r"15 of 15 tokens \(100.0%\) are unknown.*or lower tokenizer.train.min_frequency"
    ):
        run(config, mode="inline")
    config["tokenizer"]["max_unknown_fraction"] = 1.0
    assert run(config, mode="inline", resume=True).totals["n_oov_tokens"] == 15
