# SPDX-License-Identifier: Apache-2.0
"""Output folders that somebody else has written: no command leaves them, follows a link, waits, or raises."""

import contextlib
import dataclasses
import json
import os
import shutil

import pyarrow as pa
import pytest

from tests.plain_job import PlainJob
from tokenmill.pipeline import cli, storage
from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.output import folders
from tokenmill.pipeline.proving import trace
from tokenmill.pipeline.proving.report import check_unchanged
from tokenmill.pipeline.reporting import page
from tokenmill.pipeline.splits import Piece
from tokenmill.pipeline.statistics.tally import STATISTICS, Statistics

TEXTS = ["the mill grinds text", "", "a mill", "mill mill", "grinds", "the text"]


@pytest.fixture(scope="module")
def job(tmp_path_factory, tiny_vocab):
    folder = tmp_path_factory.mktemp("job")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tiny_vocab))
    return PlainJob(folder, TEXTS, folder / "vocab.txt").run()


@pytest.fixture
def output(job, tmp_path):
    """A copy of a finished output, beside the output of somebody else."""
    shutil.copytree(job.output, tmp_path / "out")
    shutil.copytree(job.output, tmp_path / "victim")
    (tmp_path / "victim" / "notes.txt").write_text("not yours")
    return tmp_path / "out"


def contents(folder):
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def set_json(output, name, change):
    path = output / name
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def overwrite(job, output):
    """Prepares the folder as `--overwrite` does."""
    folders.prepare_output(str(output), job.plan.job, "overwrite", n_splits=2, suffix=".parquet")


NAMES = [
    *(
        "../victim", "../victim/notes.txt", ".", "..", "", "a/../b", "vocab/../../victim/tokenizer.json", "\0",
        "x" * 5000,
    ),
    *("/etc/passwd", "/dev/zero", "http://127.0.0.1:9/x", "s3://bucket/x", ".hidden", "notes.txt", "manifest.json/"),
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_a_record_is_one_that_we_give(job, output, name, capsys):
    before = contents(output.parent / "victim")
    set_json(output, "manifest.json", lambda found: found["files"][0].update(file=name))
    assert cli.main(["verify", str(output)]) == 1
    said = capsys.readouterr().out
    assert "files.0.file" in said
    assert "is no name that TokenMill gives to a file" in said
    overwrite(job, output)
    assert contents(output.parent / "victim") == before


@pytest.mark.parametrize("name", [*NAMES, "Victim", "lang=../x", "tokenizer=/x", "vocab", "train/", "train\n"])
def test_overwrite_deletes_in_no_folder_but_those_of_a_job_with_several(job, output, name):
    before = contents(output.parent)
    set_json(output, "_ledger/job.json", lambda found: found["parts"].update(folders={name: None}))
    changed = contents(output.parent)
    with pytest.raises(ValueError, match="is no name of a folder such as"):
        overwrite(job, output)
    assert contents(output.parent) == changed
    assert {*changed} == {*before}


def test_overwrite_leaves_a_part_that_has_no_record_of_a_job(job, output):
    shutil.copytree(output, output / "train")
    (output / "train/_ledger/job.json").unlink()
    before = contents(output / "train")
    set_json(output, "_ledger/job.json", lambda found: found["parts"].update(folders={"train": None}))
    overwrite(job, output)
    assert contents(output / "train") == before


@pytest.mark.parametrize("name", ["../victim", "..", "lang=zh/../../victim", "/tmp"])
def test_report_and_verify_go_into_no_other_folder(output, name, capsys):
    before = contents(output.parent)
    part = {"folder": name, "tokenizer": {"digest": "", "vocab_size": 1}, "job_digest": ""}
    totals = dict.fromkeys(["n_records", "n_documents", "n_bytes", "n_tokens", "n_oov_tokens"], 0)
    totals |= {"rejected": {}, "filtered": {}}
    part |= {"totals": totals, "manifest": {"file": "lang=zh/manifest.json", "n_bytes": 1, "sha256": ""}}
    found = {"format_version": 1, "job": "run", "job_digest": "", "versions": {}, "totals": totals, "balance": []}
    (output / "parts.json").write_text(json.dumps({**found, "parts": [part], "files": []}))
    assert cli.main(["report", str(output)]) == 2
    assert "parts.0.folder" in capsys.readouterr().err
    assert cli.main(["verify", str(output)]) == 1
    (output / "parts.json").unlink()
    assert contents(output.parent) == before


@pytest.mark.parametrize("place", ["_ledger", "vocab", "documents", "_tmp", "_runs", "_counts", "_clock", "replay"])
def test_overwrite_follows_no_link(job, output, place):
    before = contents(output.parent / "victim")
    if (output / place).exists():
        shutil.rmtree(output / place)
    (output / place).symlink_to(output.parent / "victim" / place if place in ("_ledger", "vocab") else "../victim")
    with pytest.raises(ValueError, match="is a link, which is not followed"):
        overwrite(job, output)
    assert contents(output.parent / "victim") == before


def test_overwrite_leaves_what_is_not_of_a_job_in_a_replay(job, output):
    shutil.copytree(output, output / "replay")
    (output / "replay" / "notes.txt").write_text("mine")
    overwrite(job, output)
    left = sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())
    assert left == ["_ledger/job.json", "replay/notes.txt"]


@pytest.mark.parametrize(
    "name", ["manifest.json", "stats.json", "vocab/tokenizer.json", "tokens-00000-of-00001.parquet"]
)
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_only_regular_files_are_read(output, name, kind, capsys):
    path = output / name
    path = path if path.exists() else sorted(output.glob("tokens-*"))[0]
    path.unlink()
    if kind == "link":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    for command in (["verify", str(output)], ["report", str(output)], ["trace", str(output), "0"]):
        assert cli.main(command) in ((1, 2) if command[0] == "verify" else (0, 2))
        printed = capsys.readouterr()
        if command[0] == "verify":
            assert "which is not followed" in printed.out + printed.err


def test_no_more_is_read_than_the_recorded_size(output):
    record = ledger.describe(str(output), "stats.json")
    with open(output / "stats.json", "r+b") as file:
        file.truncate(1 << 40)
    assert ledger.problem(str(output), record) == (f"stats.json: at least {1 << 20} bytes, recorded {record.n_bytes}")


def test_join_leads_nowhere_else(tmp_path):
    assert storage.join(str(tmp_path), "a/b", "c") == str(tmp_path / "a" / "b" / "c")
    assert storage.join("s3://bucket/x/", "a/b") == "s3://bucket/x/a/b"
    for base in (str(tmp_path), "s3://bucket/x"):
        for name in ("", ".", "..", "a/..", "a//b", "/a", "a/", "a\0", "s3://other/x"):
            with pytest.raises(ValueError, match="is no path below a folder"):
                storage.join(base, name)


PIECE = Piece("", "a.jsonl", 3, "", "jsonl", "none", 0, 3)


def test_an_input_of_a_ledger_is_literal_regular_and_unchanged(tmp_path, monkeypatch):
    def refused(path, version="1-1", named=()):
        with pytest.raises(ValueError, match=r"is not|has changed") as found:
            check_unchanged(dataclasses.replace(PIECE, path=str(path), version=version), str(tmp_path), named)
        return str(found.value)

    def unreachable(*_):
        raise AssertionError("a store was asked")

    monkeypatch.setattr(storage, "_open_store", unreachable)
    (tmp_path / "a.jsonl").write_text("abc")
    os.mkfifo(tmp_path / "pipe")
    assert "is not there any more" in refused(tmp_path / "*.jsonl")
    assert "is not there any more" in refused(tmp_path / "pipe")
    assert "is not there any more" in refused("/dev/zero")
    assert "is not there any more" in refused(tmp_path)
    assert "has changed since" in refused(tmp_path / "a.jsonl")
    for url in ("http://127.0.0.1:9/x", "https://x/y", "s3://bucket/x"):
        assert "is not read: only the ledger names a store" in refused(url)
    with pytest.raises(AssertionError, match="a store was asked"):
        refused("s3://bucket/x", named=["s3://bucket/*.jsonl"])
    version = storage.find(str(tmp_path / "a.jsonl")).version
    check_unchanged(dataclasses.replace(PIECE, path=str(tmp_path / "a.jsonl"), version=version), "out")


def test_a_trace_globs_no_path(job, output):
    for entry in (path for path in (output / "_ledger").glob("*.json") if len(path.stem) == 16):
        set_json(
            output, f"_ledger/{entry.name}", lambda found: [piece.update(path="/**/*") for piece in found["pieces"]]
        )
    (document,) = trace.trace(str(output), min(path.name for path in output.glob("tokens-*")), 0)["documents"]
    assert document["why_no_text"] == "'/**/*' is not there any more, so it cannot be read again"


def fields_of(value, path=()):
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(min(len(value), 2)) if isinstance(value, list) else ():
        yield from fields_of(value[key], (*path, key))


@pytest.mark.parametrize("name", ["manifest.json", "stats.json"])
@pytest.mark.parametrize("value", ["x", None, {}, 10**30], ids=repr)
def test_a_report_of_any_json_is_a_page_or_says_file_and_key(output, name, value):
    before = (output / name).read_text()
    for path in fields_of(json.loads(before)):
        found = json.loads(before)
        at = found
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        (output / name).write_text(json.dumps(found))
        with contextlib.suppress(ValueError):  # any other error would be a traceback
            page.render(page.read_report(str(output)))


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "1", "[" * 100_000, '{"a": 1' + "0" * 5000 + "}", '{"a": NaN}', "\xff"]
)
@pytest.mark.parametrize("name", ["manifest.json", "stats.json", "_ledger/job.json"])
def test_what_is_no_json_of_ours_is_named(job, output, name, text, capsys):
    (output / name).write_bytes(text.encode("latin-1"))
    if name == "_ledger/job.json":
        with pytest.raises(ValueError, match="cannot be read as TokenMill's record of a job"):
            overwrite(job, output)
    else:
        assert cli.main(["verify", str(output)]) == 1
        assert cli.main(["report", str(output)]) == 2
    printed = capsys.readouterr()
    assert "Traceback" not in printed.out + printed.err


def row_of(output):
    path = next(iter(sorted((output / "_ledger").glob("*.arrow"))))
    return path, Statistics.from_bytes(path.read_bytes()).to_arrow().to_pylist()[0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"vocab_size": 1 << 40}, "statistics of"),
        ({"vocab_size": -1}, "statistics of"),
        ({"token_ids": [1 << 30], "token_counts": [1]}, "token_ids of statistics do not ascend"),
        ({"token_ids": [-1], "token_counts": [1]}, "token_ids of statistics do not ascend"),
        ({"token_ids": [2, 1], "token_counts": [1, 1]}, "token_ids of statistics do not ascend"),
        ({"token_ids": [1], "token_counts": [-1]}, "token_counts of statistics are negative"),
        ({"token_ids": [1], "token_counts": []}, "are not as many"),
        ({"token_ids": [None], "token_counts": [1]}, "some are null"),
        ({"length_buckets": [1 << 20], "length_counts": [1]}, "length_buckets of statistics do not ascend"),
        ({"oov_chars": [0x110000], "oov_char_counts": [1]}, "oov_chars of statistics do not ascend"),
    ],
)
def test_statistics_are_checked_before_a_kernel_sees_them(output, changed, said):
    _, row = row_of(output)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, STATISTICS) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([row | changed], schema=STATISTICS))
    with pytest.raises(ValueError, match=said):
        Statistics.from_bytes(sink.getvalue().to_pybytes())


def test_changed_bytes_of_statistics_are_an_error_or_statistics(output):
    path, _ = row_of(output)
    data = path.read_bytes()
    for at in range(0, len(data), 3):
        for value in (255, data[at] ^ 1):
            mutant = bytearray(data)
            mutant[at] = value
            with contextlib.suppress(ValueError):
                found = Statistics.from_bytes(bytes(mutant))
                found.merge(found)


@pytest.mark.parametrize("unk_id", [1 << 30, 5])
def test_an_unknown_token_outside_the_vocabulary_reaches_no_kernel(unk_id):
    with pytest.raises(ValueError, match=r"the unknown token .* is not in a vocabulary of 5 tokens"):
        Statistics(5, unk_id)
