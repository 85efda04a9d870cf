# SPDX-License-Identifier: Apache-2.0
"""The output folder: who may write into it, what the manifest says, and what is removed when."""

import dataclasses
import json
import tomllib
from pathlib import Path

import pytest

from pipeline import job_record, manifest
from pipeline.accounts import PieceCounts
from pipeline.config import Config
from pipeline.job_record import Job
from pipeline.ledger import BooksError, FileRecord, LedgerEntry
from pipeline.output_folder import prepare_output, publish
from pipeline.splits import Piece, Split
from pipeline.totals import check_inputs, identities
from pipeline.train_config import CountsConfig


def config_of(**sections):
    base = {"input": {"paths": ["a/*.jsonl"]}, "tokenizer": {"file": "vocab.txt"}, "output": {"path": "out"}}
    return Config.model_validate({name: base[name] | sections.get(name, {}) for name in base})


JOB = Job.of("tokenize", config_of(), "digest")


def pieces(*sizes, **changes):
    return tuple(
        dataclasses.replace(Piece(f"/c/{name}", name, n, "v", "jsonl", "none", 0, n), **changes) for name, n in sizes
    )


def read_of(split, n_bytes, n_rejected):
    """Yields what was read of each piece: all but the last to its end, the rejects at the end of the last."""
    for i, piece in enumerate(split.pieces):
        is_last = i == len(split.pieces) - 1
        n_read = n_bytes if is_last else piece.n_bytes
        n_bytes -= n_read
        n_bad = n_rejected if is_last else 0
        n_documents = (n_read - n_bad) // 10
        yield PieceCounts(
            n_records=n_documents + n_bad,
            n_documents=n_documents,
            rejected={"not_json": n_bad} if n_bad else None,
            n_bytes=n_read,
            n_document_bytes=10 * n_documents,
            n_rejected_bytes=n_bad,
            n_skipped_bytes=n_read - n_bad - 10 * n_documents,
            sha256=piece.name,
        )


def entry_of(split, n_bytes, n_rejected=0, suffix=".parquet", n_splits=2):
    """Returns the entry of a split of which every document has 10 bytes and 2 tokens, and every reject 1 byte."""
    n_documents = (n_bytes - n_rejected) // 10
    number = f"{split.index:05d}-of-{n_splits:05d}"
    return LedgerEntry(
        split_id=split.id,
        index=split.index,
        tokenizer="digest",
        pieces=split.pieces,
        n_records=n_documents + n_rejected,
        n_documents=n_documents,
        rejected={"not_json": n_rejected} if n_rejected else {},
        filtered={},
        n_bytes=n_bytes,
        n_document_bytes=10 * n_documents,
        n_rejected_bytes=n_rejected,
        n_filtered_bytes=0,
        n_skipped_bytes=n_bytes - n_rejected - 10 * n_documents,
        n_chars=5 * n_documents,
        n_words=n_documents,
        n_tokens=2 * n_documents,
        n_oov_tokens=0,
        inputs=tuple(read_of(split, n_bytes, n_rejected)),
        shard=FileRecord(f"tokens-{number}{suffix}", 99, "aa", n_documents, 2 * n_documents),
        rejects=FileRecord(f"rejected/rejects-{number}.parquet", 7, "bb", n_rejected) if n_rejected else None,
        statistics=FileRecord(f"_ledger/{split.id}.arrow", 3, "cc"),
    )


SPLITS = [Split(0, "0" * 16, pieces(("a", 100))), Split(1, "1" * 16, pieces(("b", 40), ("c", 13)))]
ENTRIES = [entry_of(SPLITS[0], 100), entry_of(SPLITS[1], 53, n_rejected=3)]


def write(folder, *names):
    for name in names:
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def names_in(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def test_version_is_that_of_the_project(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert project["version"] == job_record.VERSION


# The job.


@pytest.mark.parametrize(
    "sections",
    [
        {"input": {"paths": ["/elsewhere/b/*.jsonl", "c"]}},
        {"output": {"path": "s3://b/o"}},
        {"tokenizer": {"file": "x"}},
    ],
)
def test_a_job_does_not_depend_on_places(sections):
    assert Job.of("tokenize", config_of(**sections), "digest").digest == JOB.digest


@pytest.mark.parametrize(
    "sections",
    [
        {"input": {"text_field": "body"}},
        {"input": {"split_bytes": 7}},
        {"output": {"format": "tfrecord"}},
        {"output": {"row_group_tokens": 7}},
        {"tokenizer": {"add_special_tokens": True}},
        {"tokenizer": {"truncation": {"max_length": 7}}},
    ],
)
def test_a_job_depends_on_all_else(sections):
    assert Job.of("tokenize", config_of(**sections), "digest").digest != JOB.digest
    assert Job.of("run", config_of(), "digest").digest != JOB.digest
    assert Job.of("tokenize", config_of(), "other").digest != JOB.digest


def test_a_job_depends_on_the_order_of_sources():
    sources = {"a": "a*", "other": "*"}
    counts = (CountsConfig(by=["source"], sources=each) for each in (sources, dict(reversed(sources.items()))))
    config, turned = (config_of().model_copy(update={"counts": each}) for each in counts)
    assert Job.of("count", config, None).digest != Job.of("count", turned, None).digest


def test_the_library_that_compresses_counts_only_where_it_is_used():
    def versions(**output):
        return Job.of("tokenize", config_of(output=output), None).parts["versions"]

    assert set(versions()) == {"pyarrow", "tokenmill"}
    assert set(versions(format="tfrecord", compression="gzip")) == {"pyarrow", "tokenmill", "zlib"}


# Preparing.


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


def test_new_refuses_results(tmp_path):
    output = str(tmp_path)
    prepare_output(output, JOB, "new")
    with pytest.raises(ValueError, match="holds the unfinished results of the same job; resume or overwrite"):
        prepare_output(output, JOB, "new")
    write(tmp_path, "manifest.json")
    with pytest.raises(ValueError, match="holds the complete results of another job"):
        prepare_output(output, Job.of("run", config_of(), None), "new")


def test_resume_takes_the_same_job_only_and_says_what_differs(tmp_path):
    output = str(tmp_path)
    prepare_output(output, JOB, "new", n_splits=2, suffix=".parquet")
    write(tmp_path, "tokens-00000-of-00002.parquet", "manifest.json", "stats.json", "_tmp/x/half")
    other = Job.of("tokenize", config_of(input={"text_field": "body"}), "new digest")
    with pytest.raises(ValueError, match="differs in") as raised:
        prepare_output(output, other, "resume")
    assert "config.input.text_field: 'text' there, 'body' now" in str(raised.value)
    assert "tokenizer: 'digest' there, 'new digest' now" in str(raised.value)
    assert "manifest.json" in names_in(tmp_path)

    prepare_output(output, JOB, "resume", n_splits=3, suffix=".parquet")
    assert names_in(tmp_path) == ["_ledger/job.json", "tokens-00000-of-00002.parquet"]
    assert [plan["n_splits"] for plan in json.loads((tmp_path / "_ledger/job.json").read_text())["plans"]] == [2, 3]


def test_overwrite_removes_what_is_ours_and_nothing_else(tmp_path):
    output = str(tmp_path)
    prepare_output(output, JOB, "new", n_splits=2, suffix=".tfrecord")
    ours = [
        "_counts/x.arrow",
        f"_ledger/{'0' * 16}.arrow",
        f"_ledger/{'0' * 16}.json",
        "_ledger/plan.jsonl",
        "_tmp/x/half",
        "counts/counts-00003-of-00016.parquet",
        "counts/counts.json",
        "manifest.json",
        "rejected/rejects-00001-of-00002.parquet",
        "stats.json",
        "tokens-00000-of-00002.tfrecord",
        "vocab/token_counts.parquet",
        "vocab/tokenizer.json",
        "vocab/vocab.txt",
    ]
    foreign = [
        "counts/mine.txt",
        "notes.txt",
        "rejected/rejects-00001-of-00003.parquet",
        "tokens-00000-of-00002.parquet",
        "tokens-00000-of-00003.tfrecord",
        "tokens-00002-of-00002.tfrecord",
        "vocab/mine.txt",
    ]
    write(tmp_path, *ours, *foreign)
    other = Job.of("run", config_of(), None)
    prepare_output(output, other, "overwrite")
    assert names_in(tmp_path) == sorted(["_ledger/job.json", *foreign])
    assert json.loads((tmp_path / "_ledger/job.json").read_text())["digest"] == other.digest


def test_a_damaged_record_of_a_job_is_named(tmp_path):
    write(tmp_path, "_ledger/job.json")
    with pytest.raises(ValueError, match=r"job\.json' cannot be read as TokenMill's record of a job"):
        prepare_output(str(tmp_path), JOB, "resume")


# Building and publishing.


def built():
    files = [FileRecord("vocab/vocab.txt", 5, "dd"), FileRecord("stats.json", 6, "ee")]
    return manifest.build(JOB, SPLITS, ENTRIES, tokenizer={"digest": "digest"}, files=files)


def test_the_manifest_says_what_was_made_of_what():
    found = built()
    assert [{**each, "read": each["read"]["n_bytes"]} for each in found["inputs"]] == [
        {"name": n, "n_bytes": b, "format": "jsonl", "sha256": n, "read": b}
        for n, b in [("a", 100), ("b", 40), ("c", 13)]
    ]
    assert found["inputs"][2]["read"] == {
        "n_records": 4,
        "n_documents": 1,
        "rejected": {"not_json": 3},
        "n_bytes": 13,
        "n_document_bytes": 10,
        "n_rejected_bytes": 3,
    }
    assert found["shards"][1] == {
        "file": "tokens-00001-of-00002.parquet",
        "n_bytes": 99,
        "rows": 5,
        "sha256": "aa",
        "split": "1" * 16,
        "tokens": 10,
    }
    assert [record["file"] for record in found["rejects"]] == ["rejected/rejects-00001-of-00002.parquet"]
    assert [record["file"] for record in found["files"]] == ["stats.json", "vocab/vocab.txt"]
    assert found["tokenizer"] == {"digest": "digest"}
    assert found["totals"] == {
        "filtered": {},
        "n_bytes": 153,
        "n_chars": 75,
        "n_document_bytes": 150,
        "n_documents": 15,
        "n_filtered_bytes": 0,
        "n_oov_tokens": 0,
        "n_records": 18,
        "n_rejected_bytes": 3,
        "n_skipped_bytes": 0,
        "n_splits": 2,
        "n_tokens": 30,
        "n_words": 15,
        "reject_bytes": 7,
        "reject_rows": 3,
        "rejected": {"not_json": 3},
        "shard_bytes": 198,
        "shard_rows": 15,
        "shard_tokens": 30,
    }
    for line in found["balance"]:
        assert sum(line["left"].values()) == sum(line["right"].values())


def test_the_manifest_says_nothing_of_places():
    elsewhere = [
        dataclasses.replace(
            entry,
            pieces=tuple(dataclasses.replace(p, path=f"/other{p.path}", version="other") for p in entry.pieces),
        )
        for entry in ENTRIES
    ]
    splits = [dataclasses.replace(s, pieces=e.pieces) for s, e in zip(SPLITS, elsewhere, strict=True)]
    files = [FileRecord("stats.json", 6, "ee"), FileRecord("vocab/vocab.txt", 5, "dd")]
    job = Job.of("tokenize", config_of(output={"path": "/other"}), "digest")
    assert manifest.build(job, splits, elsewhere, tokenizer={"digest": "digest"}, files=files) == built()


def test_books_that_do_not_balance_make_no_manifest():
    def build(splits=SPLITS, entries=ENTRIES):
        return manifest.build(JOB, splits, entries)

    with pytest.raises(BooksError, match=r"split 0{16}: records read"):
        build(entries=[dataclasses.replace(ENTRIES[0], n_records=99), ENTRIES[1]])
    with pytest.raises(BooksError, match="2 splits were planned, but the ledger's 1 entries"):
        build(entries=ENTRIES[:1])
    with pytest.raises(BooksError, match="are not theirs"):
        build(entries=ENTRIES[::-1])
    changed = dataclasses.replace(SPLITS[0], pieces=pieces(("a", 100), version="w"))
    with pytest.raises(BooksError, match="are not theirs"):
        build(splits=[changed, SPLITS[1]])


def test_totals_that_do_not_balance_are_refused():
    totals = built()["totals"]
    identities(totals)
    for name in ("n_records", "n_bytes", "shard_rows", "shard_tokens", "reject_rows"):
        with pytest.raises(BooksError, match=name):
            identities(totals | {name: totals[name] + 1})


def test_every_byte_of_a_cut_file_is_read_once():
    def cut(*n_read):
        ranges = [(0, 40), (40, 80), (80, 100)]
        splits = [
            Split(i, str(i) * 16, (dataclasses.replace(pieces(("big", 100))[0], start=start, stop=stop),))
            for i, (start, stop) in enumerate(ranges)
        ]
        check_inputs([entry_of(split, n) for split, n in zip(splits, n_read, strict=True)])

    cut(40, 40, 20)
    cut(57, 33, 10)  # a record belongs to the range it begins in
    for n_read, total in [((40, 40, 19), 99), ((40, 41, 20), 101)]:
        with pytest.raises(BooksError, match=f"'/c/big': {total} bytes read of 100"):
            cut(*n_read)


def test_files_that_share_a_split_are_checked_one_by_one():
    first = Split(0, "0" * 16, pieces(("a", 30), ("b", 20)))
    second = Split(1, "1" * 16, pieces(("c", 10)))
    check_inputs([entry_of(first, 50), entry_of(second, 10)])
    with pytest.raises(BooksError) as raised:
        check_inputs([entry_of(first, 49), entry_of(second, 11)])
    assert str(raised.value).splitlines() == ["'/c/b': 19 bytes read of 20", "'/c/c': 11 bytes read of 10"]


def test_the_books_of_a_file_balance():
    entry = entry_of(Split(0, "0" * 16, pieces(("a", 30))), 30)
    wrong = dataclasses.replace(entry, inputs=(dataclasses.replace(entry.inputs[0], filtered={"short": 1}),))
    with pytest.raises(BooksError, match=r"^'/c/a': records read 3 != documents \+ rejected \+ filtered 4$"):
        check_inputs([wrong])


@pytest.mark.parametrize("changes", [{"compression": "gzip"}, {"format": "parquet"}])
def test_files_whose_bytes_are_not_known_are_not_checked(changes):
    check_inputs([entry_of(Split(0, "0" * 16, pieces(("a", 30), **changes)), 77)])


def test_publishing_removes_what_earlier_plans_left(tmp_path):
    output = str(tmp_path)
    prepare_output(output, JOB, "new", n_splits=5, suffix=".parquet")
    prepare_output(output, JOB, "resume", n_splits=2, suffix=".parquet")
    current = [record["file"] for record in (*built()["shards"], *built()["rejects"])]
    ledger = [f"_ledger/{split.id}.{kind}" for split in SPLITS for kind in ("json", "arrow")]
    stale = [
        f"_ledger/{'2' * 16}.arrow",
        f"_ledger/{'2' * 16}.json",
        "rejected/rejects-00000-of-00002.parquet",
        "rejected/rejects-00004-of-00005.parquet",
        "tokens-00000-of-00005.parquet",
        "tokens-00004-of-00005.parquet",
        "_tmp/x/half",
    ]
    foreign = ["notes.txt", "tokens-00000-of-00007.parquet", "_ledger/mine.txt", "vocab/mine.txt"]
    write(tmp_path, *current, *ledger, *stale, *foreign)
    publish(output, JOB, SPLITS, built(), suffix=".parquet")
    assert names_in(tmp_path) == sorted([*current, *ledger, *foreign, "manifest.json", "_ledger/job.json"])
    assert manifest.read(output) == json.loads(json.dumps(built()))
    assert [plan["n_splits"] for plan in json.loads((tmp_path / "_ledger/job.json").read_text())["plans"]] == [2]


def test_reading_says_why_there_is_no_manifest(tmp_path):
    with pytest.raises(ValueError, match=r"holds no manifest\.json$"):
        manifest.read(str(tmp_path))
    prepare_output(str(tmp_path), JOB, "new")
    with pytest.raises(ValueError, match="its job has not finished"):
        manifest.read(str(tmp_path))
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(ValueError, match=f"is not a manifest of format {manifest.FORMAT_VERSION}"):
        manifest.read(str(tmp_path))
    (tmp_path / "manifest.json").write_text('{"format_version": 1}')
    with pytest.raises(ValueError, match="has format 1, this TokenMill reads 2: use the"):
        manifest.read(str(tmp_path))
