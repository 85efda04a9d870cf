# SPDX-License-Identifier: Apache-2.0
"""What `tokenmill plan --graph` prints: the steps of a job, as a reader of `transforms/` finds them."""

import json

import pytest

from tokenmill.pipeline import cli
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs.planning import plan_job
from tokenmill.pipeline.tokenizing import steps
from tokenmill.pipeline.transforms import outline

SHUFFLED = [
    *["ReadSplits -> Page, SplitRuns", "Normalize -> Page", "Encode -> Page", "Count -> Page"],
    "SortRuns -> SplitRuns",
    "AllSplits -> SplitRuns   from FindCommitted, SortRuns",
    "MergeShards -> Done",
]


def made(tiny_corpus, **output):
    config = {"input": {"paths": [str(tiny_corpus / "*.jsonl")]}, "tokenizer": {"train": {"vocab_size": 60}}}
    return Config.model_validate({**config, "output": {"path": str(tiny_corpus / "out"), **output}})


def test_the_design_draws_the_graph_of_a_job(tiny_corpus, repository, monkeypatch):
    monkeypatch.setattr(steps, "STEPS", steps.BUILT_IN)
    drawn = "\n".join(outline.outline(plan_job("run", made(tiny_corpus))))
    assert f"```text\n{drawn}\n```" in (repository / "docs/explanation/design.md").read_text(encoding="utf-8")


def test_a_shuffle_is_seen(tiny_corpus):
    lines = outline.outline(plan_job("run", made(tiny_corpus, shuffle={})))
    steps = [line[2:] for line in lines if line[:2] == "  "]
    places = [steps.index(each) for each in SHUFFLED]
    assert places == sorted(places)


@pytest.mark.parametrize("job", ["count", "train", "run"])
def test_plan_prints_it_and_tries_nothing(job, tiny_corpus, tmp_path, capsys):
    config = tmp_path / "job.json"
    config.write_text(json.dumps(made(tiny_corpus).model_dump(mode="json", exclude_unset=True)))
    assert cli.main(["plan", str(config), "--job", job, "--graph"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "CountCorpus -> str"
    assert printed == outline.outline(plan_job(job, made(tiny_corpus)))
