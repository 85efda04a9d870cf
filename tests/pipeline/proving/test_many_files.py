# SPDX-License-Identifier: Apache-2.0
"""A folder whose lists stand in files of their own: whoever reads it finds what is in one with a short manifest."""

import json
from pathlib import Path

import pytest

from tests.plain_job import PlainJob
from tokenmill.pipeline import filenames
from tokenmill.pipeline.books import lists, manifest
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.jobs import planning
from tokenmill.pipeline.jobs.finish import Folder, finish_output
from tokenmill.pipeline.looking import selecting
from tokenmill.pipeline.proving import replay, trace, verify
from tokenmill.pipeline.proving.from_input import verify_deep
from tokenmill.pipeline.reporting import page

TEXTS = [f"the mill grinds {n} text{'s' * (n % 3)} into a token" for n in range(19)]
SHAPES = {
    "rows": {},
    "packed": {"packing": {"length": 16}},
    "shuffled": {"shuffle": {"seed": 1, "shards": 3}},
    "formats": {"format": ["parquet", "mds"]},
}


@pytest.fixture
def vocab(tmp_path: Path, tiny_vocab: list[str]) -> Path:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(tiny_vocab))
    return path


@pytest.fixture(params=SHAPES)
def folders(tmp_path, vocab, monkeypatch, request):
    """Two folders of one job: with a short manifest, and with long lists of two records a row group."""
    output = {"output": dict(SHAPES[request.param])}
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "00001.jsonl").write_text("not json\n" + json.dumps({"id": "x", "text": "a mill"}))
    short = PlainJob(tmp_path, TEXTS, vocab, "short", **{"output": dict(output["output"])}).run()
    monkeypatch.setattr(lists, "MOST_RECORDS", 0)
    monkeypatch.setattr(lists, "ROWS", 2)
    return short, PlainJob(tmp_path, TEXTS, vocab, "long", **{"output": dict(output["output"])}).run()


def test_a_folder_with_long_lists_is_as_one_without(folders):
    outputs = [str(job.output) for job in folders]
    found = [manifest.read(output) for output in outputs]
    assert {kind: list(found[0][kind]) for kind in lists.SCHEMAS} == {
        kind: list(found[1][kind]) for kind in lists.SCHEMAS
    }
    assert {**page.gather(outputs[0]), "clock": None} == {**page.gather(outputs[1]), "clock": None}
    named = [{path.name: path.read_bytes() for path in job.output.rglob("*") if path.is_file()} for job in folders]
    assert {name for name in named[1] if named[0].get(name) != named[1][name]} == {
        "manifest.json", *(Path(each.file).name for each in lists.files_of_lists(found[1]))
    }  # fmt: skip
    shard = next(name for name in sorted(named[0]) if name.startswith("tokens-") and name.endswith("parquet"))
    assert trace.trace(outputs[0], shard, 0) == trace.trace(outputs[1], shard, 0)
    kept = [[(each.name, each.record) for each in selecting.find_shards(output)] for output in outputs]
    assert kept[0] == kept[1]
    for output in outputs:
        assert verify.verify(output).problems == []
        assert verify_deep(output, 1.0).problems == []


def test_it_can_be_replayed_and_finished_anew_with_a_short_manifest(folders, monkeypatch):
    short, job = folders
    assert replay.replay(job.config)["totals"]["rejected"] == {"not_json": 1}
    report = verify.verify(str(job.output))
    replay.verify_replay(str(job.output), report)
    assert report.problems == []
    monkeypatch.setattr(lists, "MOST_RECORDS", 1000)
    planning.prepare(job.plan, "resume")
    if not job.plan.shards():  # runs are gone
        finish_output(Folder(job.config, job.plan.job, PlannedSplits(job.plan.splits), job.tokenizer))
        assert not list(job.output.glob("_ledger/*.parquet"))
        assert (job.output / filenames.MANIFEST).read_bytes() == (short.output / filenames.MANIFEST).read_bytes()
    planning.prepare(job.plan, "overwrite")
    assert sorted(path.name for path in job.output.rglob("*") if path.is_file()) == [
        "job.json", "plan.jsonl", "tokenizer.json"
    ]  # fmt: skip


def test_a_list_that_is_not_as_it_was_written_is_named(folders):
    output = folders[1].output
    inputs = (output / "_ledger/inputs.parquet").read_bytes()
    for data, said in ((inputs, "not the list 'shards' as TokenMill writes it"), (b"PAR1 and so on", "not a list of")):
        (output / "_ledger/shards.parquet").write_bytes(data)
        with pytest.raises(ValueError, match=rf"_ledger/shards\.parquet: {said}"):
            list(manifest.read(str(output))["shards"])
