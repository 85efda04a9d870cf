# SPDX-License-Identifier: Apache-2.0
"""Shuffled jobs through the command line: the same bytes in every mode, however they are cut, killed and resumed."""

import json
import os
import signal

import pyarrow.parquet as pq
import pytest

from tests.killing import run_killed
from tokenmill.pipeline.shuffling import passes
from tokenmill.pipeline.shuffling.passes import plan_passes

N_SHARDS = 5


@pytest.fixture
def sections(corpus, tiny_vocab_file, tmp_path):
    def make(name="out", split_bytes=6000, **output):
        shuffle = {"seed": 7, "shards": N_SHARDS}
        return {
            "input": {"paths": [str(corpus / "*")], "split_bytes": split_bytes},
            "tokenizer": {"file": str(tiny_vocab_file), "max_unknown_fraction": 1.0},
            "output": {"path": str(tmp_path / name / "out"), "shuffle": shuffle, **output},
        }

    return make


def shards(job):
    return {name: data for name, data in job.files().items() if name.startswith("tokens-")}


def test_shards_are_the_same_bytes_in_every_mode_and_however_the_input_is_cut(make_job, sections):
    reference = make_job("reference", **sections("reference"))
    assert reference.run("tokenize", "--mode", "inline") == 0
    assert reference.run("verify", "--deep") == 0
    files = reference.files()
    assert len(shards(reference)) == N_SHARDS
    assert len(reference.rows()) == 360
    assert not (reference.output / "_runs").exists()
    for name, arguments in (
        ("threads", ["--workers", "2", "--mode", "threads"]),
        ("repeated", ["--workers", "1", "--", "--direct_runner_bundle_repeat=1"]),
        ("processes", ["--workers", "2", "--mode", "processes"]),
    ):
        job = make_job(name, **sections(name))
        assert job.run("tokenize", *arguments) == 0
        assert job.files() == files, name
    for split_bytes in (1500, 1 << 25):
        job = make_job(f"cut-{split_bytes}", **sections(f"cut-{split_bytes}", split_bytes))
        assert job.run("tokenize", "--workers", "2") == 0
        assert shards(job) == shards(reference)
    other = make_job("other", **sections("other", shuffle={"seed": 8, "shards": N_SHARDS}))
    assert other.run("tokenize", "--workers", "1") == 0
    ids, others = ([row["doc_id"] for row in job.rows()] for job in (reference, other))
    assert ids != others
    assert sorted(ids) == sorted(others)


def test_a_vocabulary_is_trained_and_what_it_makes_is_shuffled_and_packed(make_job, sections):
    found = []
    for split_bytes in (3000, 50_000):
        name = f"cut-{split_bytes}"
        packing = {"length": 32, "separator": "[SEP]"}
        job = make_job(name, **sections(name, split_bytes, packing=packing, format=["parquet", "megatron"]))
        arguments = ["--set", "tokenizer.file=null", "--set", "tokenizer.train.vocab_size=300", "--workers", "2"]
        assert job.run("run", *arguments) == 0
        assert job.run("verify", *arguments[:4]) == 0
        found.append(shards(job))
    assert found[0] == found[1]
    assert len(found[0]) == 3 * N_SHARDS


def test_runs_that_are_left_behind_the_manifest_are_removed_by_whoever_comes_next(make_job, sections):
    job = make_job("job", **sections("job", 12_000))
    assert job.run("tokenize", "--workers", "1") == 0
    files = job.files()
    (job.output / "_runs").mkdir()
    (job.output / "_runs/0123456789abcdef.run").write_bytes(b"left")
    assert job.run("verify") == 0
    assert job.run("tokenize", "--resume", "--workers", "1") == 0
    assert job.files() == files
    assert not (job.output / "_runs").exists()


def test_rejected_records_are_replayed_into_shuffled_shards(make_job, tiny_vocab_file, tmp_path):
    lines = [json.dumps({"id": f"{i}", "text": "the mill " * (40 if i % 3 else 1)}) for i in range(60)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, "not json"]))
    job = make_job(
        "job",
        input={
            "paths": [str(tmp_path / "a.jsonl")],
            "max_document_bytes": 100,
            "split_bytes": 3000,
            "on_damage": "warn",
        },
        tokenizer={"file": str(tiny_vocab_file)},
        output={"path": str(tmp_path / "job/out"), "shuffle": {"shards": 2}},
    )
    assert job.run("tokenize", "--workers", "1") == 0
    assert job.run("replay", "--set", "input.max_document_bytes=100000") == 0
    assert job.run("verify", "--deep") == 0
    tables = [pq.read_table(path) for path in sorted(job.output.glob("replay/tokens-*.parquet"))]
    ids = [int(doc_id) for table in tables for doc_id in table["doc_id"].to_pylist()]
    assert sorted(ids) == [i for i in range(60) if i % 3]
    assert ids != sorted(ids)


def test_sources_of_spans_and_languages_stay_with_their_documents(make_job, sections, tmp_path):
    texts = [f"the mill grinds, see http://a.b/{i}" if i % 2 else "Привет, мир: это проверка" for i in range(50)]
    (tmp_path / "a.jsonl").write_text(
        "\n".join(json.dumps({"id": f"{i}", "text": each}) for i, each in enumerate(texts))
    )
    given = sections("job", 300, format=["parquet", "arrow"])
    given["input"]["paths"] = [str(tmp_path / "a.jsonl")]
    spans = [{"token": "[URL]", "find": "url", "keep_source": True}]
    job = make_job("job", **given, spans=spans, languages={"threshold": 0})
    arguments = ["--set", "tokenizer.file=null", "--set", "tokenizer.train.vocab_size=50", "--workers", "1"]
    assert job.run("run", *arguments) == 0
    assert job.run("verify", *arguments[:4]) == 0
    for row in job.rows():
        i = int(row["doc_id"])
        assert row["span_sources"] == ([f"http://a.b/{i}"] if i % 2 else [])
        assert (row["lang"] == "ru") == (i % 2 == 0)
        assert row["lang_confidence"] >= 0
        assert row["lang_mixed"] is False


def test_passes_give_the_same_bytes_and_survive_kills(make_job, sections, monkeypatch):
    once = make_job("once", **sections("once", 1200, shuffle={"seed": 7, "shards": N_SHARDS, "run_bytes": 4000}))
    assert once.run("tokenize", "--workers", "1") == 0
    few = "from tokenmill.pipeline.shuffling.passes import plan_passes\nplan_passes.__kwdefaults__['fan_in'] = 3\n"
    monkeypatch.setitem(plan_passes.__kwdefaults__, "fan_in", 3)
    merged = []
    original = passes.merge_range
    monkeypatch.setattr(passes, "merge_range", lambda *args, **kwargs: merged.append(1) or original(*args, **kwargs))
    given = sections("passes", 1200, shuffle={"seed": 7, "shards": N_SHARDS, "run_bytes": 4000})
    job = make_job("passes", **given)
    n_splits = json.loads((once.output / "manifest.json").read_text())["totals"]["n_splits"]
    assert n_splits > 27, "at least three passes"
    n_merged = []
    for n_renames in (170, 70):  # in the first pass, in the last one
        code = run_killed(n_renames, "tokenize", str(job.config), "--resume", "--workers", "1", before=few)
        assert code == -signal.SIGKILL
        n_merged.append(len(list(job.output.glob("_runs/*.json"))))
    assert 0 < n_merged[0] < n_merged[1]
    assert job.run("tokenize", "--resume", "--workers", "2") == 0
    assert merged, "the rest was merged"
    assert job.files() == once.files()
    assert job.run("verify", "--deep") == 0
    assert not (job.output / "_runs").exists()


def test_a_file_that_changes_before_a_job_goes_on_is_in_all_shards(make_job, sections, corpus):
    job = make_job("job", **sections("job"))
    assert job.run("tokenize", "--workers", "1") == 0
    before = shards(job)
    (job.output / "manifest.json").unlink()  # all shards are merged, but the job has not ended
    changed = corpus / "a.jsonl"
    changed.write_bytes(changed.read_bytes().replace(b"o", b"a"))  # of the same size
    os.utime(changed, (2_000_000_000, 2_000_000_000))
    assert job.run("tokenize", "--workers", "1", "--resume") == 0
    anew = make_job("anew", **sections("anew"))
    assert anew.run("tokenize", "--workers", "1") == 0
    assert job.files() == anew.files()
    assert shards(job) != before
