# SPDX-License-Identifier: Apache-2.0
"""Mapped shards without a token, and tokens at the ends of documents: what readers and `verify` find of them."""

import numpy as np
import pytest

from tests.plain_job import PlainJob
from tokenmill.pipeline.jobs import planning
from tokenmill.pipeline.proving.from_input import verify_deep
from tokenmill.pipeline.proving.verify import verify
from tokenmill.pipeline.tokenizing.tokenize import tokenize_split


@pytest.mark.parametrize("shuffle", [None, {"shards": 3}])
@pytest.mark.parametrize("formats_", [["megatron", "memmap"], ["parquet", "megatron"]])
def test_readers_find_no_mapped_shard_without_a_token(tmp_path, tiny_vocab_file, formats_, shuffle):
    texts = ["the mill", *[""] * 11]  # of three files, or of shards, most have no token

    def make():
        return PlainJob(tmp_path, texts, tiny_vocab_file, output={"format": formats_, "shuffle": shuffle})

    job = make().run()
    data = sorted(job.output.glob("tokens-*.bin"))
    assert [np.memmap(path, np.uint16).size for path in data] == [2] * (len(formats_) - formats_.count("parquet"))
    assert len(list(job.output.glob("tokens-*.idx"))) == 1
    found = job.json("manifest.json")
    records = [*found["shards"], *found["companions"]]
    assert {record["file"] for record in records if record["file"].startswith("_empty/")} == {
        f"_empty/{path.name}" for path in (job.output / "_empty").iterdir()
    }
    assert len(list((job.output / "_empty").glob("*.idx"))) == (1 if shuffle is None else 2)
    assert verify(str(job.output)).problems == []
    assert verify_deep(str(job.output), 1).problems == []
    before = {path: path.stat().st_mtime_ns for path in job.output.rglob("tokens-*")}
    resumed = make()
    planning.prepare(resumed.plan, "resume")
    if shuffle is None:
        for split in resumed.plan.splits:
            tokenize_split(split, resumed.config, resumed.tokenizer, len(resumed.plan.splits))
    assert {path: path.stat().st_mtime_ns for path in job.output.rglob("tokens-*")} == before
    planning.prepare(make().plan, "overwrite")
    assert not list(job.output.rglob("tokens-*"))


TEXTS = ["the mill grinds text " * (i % 5) for i in range(20)]
ENDS = {"prepend": "[MASK]", "append": "[PAD]"}


@pytest.fixture
def make(tmp_path, tiny_vocab_file):
    return lambda name="out", **sections: PlainJob(tmp_path, TEXTS, tiny_vocab_file, name, **sections)


def problems(job):
    return [*verify(str(job.output)).problems, *verify_deep(str(job.output), 1).problems]


def test_verify_finds_a_document_that_does_not_end_so(make):
    job = make(output=ENDS).run()
    forged = job.output / "manifest.json"
    forged.write_text(forged.read_text().replace('"append": [\n   0\n  ]', '"append": [\n   1\n  ]'))
    assert any("of document 0 must be 1, is 0" in problem for problem in verify(str(job.output)).problems)


def test_packing_without_an_end_of_documents_warns_before_work(make):
    (warning,) = make(output={"packing": {"length": 8}}).plan.warnings
    assert "no token says where one ends" in warning
    assert make(output={"packing": {"length": 8, "separator": "[SEP]"}}).plan.warnings == ()
    assert make(output={"packing": {"length": 8}, "append": "[SEP]"}).plan.warnings == ()
    assert make(output={"packing": {"length": 8}}, tokenizer={"add_special_tokens": True}).plan.warnings == ()
    assert make().plan.warnings == ()
