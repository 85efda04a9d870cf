# SPDX-License-Identifier: Apache-2.0
"""The output folder: who may write into it, and what is removed when."""

import json

import pytest

from tests.finished_splits import JOB, SPLITS, built, config_of, names_in, write
from tokenmill.pipeline.books import manifest
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.output.folders import prepare_output, publish


@pytest.mark.parametrize("mode", ["new", "resume", "overwrite"])
def test_an_absent_or_empty_folder_is_fine(tmp_path, mode):
    prepare_output(str(tmp_path / "absent" / "deep"), JOB, mode)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".hidden").write_text("")
    prepare_output(str(tmp_path / "empty"), JOB, mode, n_splits=3, suffix=".parquet")
    assert names_in(tmp_path / "absent") == ["deep/_ledger/job.json"]
    assert json.loads((tmp_path / "empty/_ledger/job.json").read_text()) == {
        "digest": JOB.digest,
        "parts": JOB.parts,
        "plans": [{"n_splits": 3, "suffix": ".parquet"}],
    }


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json", "vocab/vocab.txt", "rejected/x"])
@pytest.mark.parametrize("mode", ["new", "resume"])
def test_foreign_files_are_refused_and_left(tmp_path, mode, name):
    write(tmp_path, name)
    with pytest.raises(ValueError, match=rf"holds files that TokenMill has no record of \('{name}'\)"):
        prepare_output(str(tmp_path), JOB, mode)
    assert names_in(tmp_path) == [name]


def test_overwrite_leaves_foreign_files_but_does_not_write_over_them(tmp_path):
    write(tmp_path, "notes.txt")
    prepare_output(str(tmp_path), JOB, "overwrite")
    assert names_in(tmp_path) == ["_ledger/job.json", "notes.txt"]
    for name in ("manifest.json", "stats.json", "tokens-00000-of-00001.parquet", "vocab/tokenizer.json"):
        write(tmp_path / "other", name)
        with pytest.raises(ValueError, match=f"no record of \\('{name}'"):
            prepare_output(str(tmp_path / "other"), JOB, "overwrite")
        (tmp_path / "other" / name).unlink()


@pytest.mark.parametrize("last", ["manifest.json", "parts.json"])
def test_new_refuses_results(tmp_path, last):
    output = str(tmp_path)
    prepare_output(output, JOB, "new")
    with pytest.raises(ValueError, match="holds the unfinished results of the same job; go on with them by --resume"):
        prepare_output(output, JOB, "new")
    write(tmp_path, last)
    with pytest.raises(ValueError, match="holds the complete results of the same job"):
        prepare_output(output, JOB, "new")
    with pytest.raises(
        ValueError,
        match=r"results of a job that differs in job: 'tokenize' there, 'run' now; .*--overwrite, or",
    ):
        prepare_output(output, Job.of("run", config_of(), None), "new")


def test_resume_takes_the_same_job_only_and_says_what_differs(tmp_path):
    output = str(tmp_path)
    prepare_output(output, JOB, "new", n_splits=2, suffix=".parquet")
    write(tmp_path, "tokens-00000-of-00002.parquet", "manifest.json", "stats.json", "_tmp/x/half")
    other = Job.of("tokenize", config_of(input={"text_field": "body"}), "new digest")
    with pytest.raises(ValueError, match="differs in") as raised:
        prepare_output(output, other, "resume")
    assert "input.text_field: 'text' there, 'body' now" in str(raised.value)
    assert "tokenizer: 'digest' there, 'new digest' now" in str(raised.value)
    assert "manifest.json" in names_in(tmp_path)

    prepare_output(output, JOB, "resume", n_splits=3, suffix=".parquet")
    assert names_in(tmp_path) == ["_ledger/job.json", "tokens-00000-of-00002.parquet"]
    assert [plan["n_splits"] for plan in json.loads((tmp_path / "_ledger/job.json").read_text())["plans"]] == [2, 3]


def test_overwrite_removes_what_is_ours_and_nothing_else(tmp_path):
    output = str(tmp_path)
    prepare_output(output, JOB, "new", n_splits=2, suffix=".tfrecord")
    ours = [
        "_counts/splits/_runs/x.arrow", f"_ledger/{'0' * 16}.arrow", f"_ledger/{'0' * 16}.json", "_ledger/plan.jsonl",
        "_tmp/x/half", "counts/counts-00003-of-00016.parquet", "counts/counts.json", "manifest.json",
        "rejected/rejects-00001-of-00002.parquet", "stats.json", "tokens-00000-of-00002.tfrecord",
        "vocab/token_counts.parquet", "vocab/tokenizer.json", "vocab/vocab.txt",
    ]  # fmt: skip
    foreign = [
        "counts/mine.txt", "notes.txt", "rejected/rejects-00001-of-00003.parquet", "tokens-00000-of-00002.parquet",
        "tokens-00000-of-00003.tfrecord", "tokens-00002-of-00002.tfrecord", "vocab/mine.txt",
    ]  # fmt: skip
    write(tmp_path, *ours, *foreign)
    other = Job.of("run", config_of(), None)
    (tmp_path / "link").symlink_to("vocab")
    for read in ("", "counts", "vocab/", "vocab/vocab.txt", "x/../link"):
        with pytest.raises(ValueError, match=r"--overwrite would remove '.*', which this job reads"):
            prepare_output(output, other, "overwrite", reads=[f"{output}/{read}"])
    (tmp_path / "link").unlink()
    prepare_output(output, other, "overwrite", reads=[f"{output}/vocab/mine.txt", f"{output}/no/vocab"])
    assert names_in(tmp_path) == sorted(["_ledger/job.json", *foreign])
    assert json.loads((tmp_path / "_ledger/job.json").read_text())["digest"] == other.digest


def test_publishing_removes_what_earlier_plans_left(tmp_path):
    output = str(tmp_path)
    prepare_output(output, JOB, "new", n_splits=5, suffix=".parquet")
    prepare_output(output, JOB, "resume", n_splits=2, suffix=".parquet")
    current = [record["file"] for record in (*built()["shards"], *built()["rejects"])]
    ledger = [f"_ledger/{split.id}.{kind}" for split in SPLITS for kind in ("json", "arrow")]
    stale = [
        f"_ledger/{'2' * 16}.arrow", f"_ledger/{'2' * 16}.json", "rejected/rejects-00000-of-00002.parquet",
        "rejected/rejects-00004-of-00005.parquet", "tokens-00000-of-00005.parquet", "tokens-00004-of-00005.parquet",
        "_tmp/x/half",
    ]  # fmt: skip
    foreign = ["notes.txt", "tokens-00000-of-00007.parquet", "_ledger/mine.txt", "vocab/mine.txt"]
    write(tmp_path, *current, *ledger, *stale, *foreign)
    publish(output, JOB, built(), suffix=".parquet")
    assert names_in(tmp_path) == sorted([*current, *ledger, *foreign, "manifest.json", "_ledger/job.json"])
    assert manifest.read(output) == json.loads(json.dumps(built()))
    assert [plan["n_splits"] for plan in json.loads((tmp_path / "_ledger/job.json").read_text())["plans"]] == [2]
