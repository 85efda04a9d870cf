# SPDX-License-Identifier: Apache-2.0
"""What `tokenmill plan --graph` prints: the steps of a job, as a reader of `transforms/` finds them."""

import json

import pytest

from tokenmill.pipeline import cli
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs.planning import plan_job
from tokenmill.pipeline.transforms import outline

RUN = ["CountCorpus -> str", "TrainVocabulary -> list[Vocabulary]", "Tokenizer -> str"]
STEPS = ["ReadSplits -> Page, Done", "Normalize -> Page", "Encode -> Page", "Count -> Page", "WriteShards -> Done"]
SHUFFLED = [
    *STEPS[:-1],
    "SortRuns -> SplitRuns",
    "AllSplits -> SplitRuns   from FindCommitted, SortRuns",
    "MergeShards -> Done",
]


def made(tiny_corpus, **output):
    config = {"input": {"paths": [str(tiny_corpus / "*.jsonl")]}, "tokenizer": {"train": {"vocab_size": 60}}}
    return Config.model_validate({**config, "output": {"path": str(tiny_corpus / "out"), **output}})


def test_a_job_is_four_composites_and_its_steps_are_one_after_another(tiny_corpus):
    lines = outline.outline(plan_job("run", made(tiny_corpus)))
    assert [line for line in lines if line[0] != " "] == [*RUN, "TokenizeCorpus -> Done", "Publish -> str"]
    inside = lines[lines.index("TokenizeCorpus -> Done") : lines.index("Publish -> str")]
    assert [line[2:] for line in inside if line[2] != " "][1:] == [
        *STEPS,
        "AllSplits -> Done   from FindCommitted, WriteShards",
    ]
    assert "    FindCommitted -> Done, Todo   with Tokenizer" in inside


def test_a_shuffle_is_seen(tiny_corpus):
    lines = outline.outline(plan_job("run", made(tiny_corpus, shuffle={})))
    steps = [line[2:] for line in lines if line[:2] == "  "]
    places = [steps.index(each.replace("Page, Done", "Page, SplitRuns")) for each in SHUFFLED]
    assert places == sorted(places)


@pytest.mark.parametrize("job", ["count", "train", "run"])
def test_plan_prints_it_and_tries_nothing(job, tiny_corpus, tmp_path, capsys):
    config = tmp_path / "job.json"
    config.write_text(json.dumps(made(tiny_corpus).model_dump(mode="json", exclude_unset=True)))
    assert cli.main(["plan", str(config), "--job", job, "--graph"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "CountCorpus -> str"
    assert printed == outline.outline(plan_job(job, made(tiny_corpus)))
