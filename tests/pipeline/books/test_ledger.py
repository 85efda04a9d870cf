# SPDX-License-Identifier: Apache-2.0
"""The ledger: names, entries, and what counts as committed."""

import dataclasses
import hashlib
import json
import os

import pytest

from tests.ledger_entries import PIECE, SPLIT, commit, committed, entry_of
from tokenmill.pipeline import filenames
from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.books.counts import nest
from tokenmill.pipeline.books.ledger import FileRecord, LedgerEntry
from tokenmill.pipeline.books.sums import Run, SortedRuns, Sums
from tokenmill.pipeline.splits import Split


def test_names():
    assert filenames.shard_name(0, 12, ".parquet") == "tokens-00000-of-00012.parquet"
    assert filenames.shard_name(123_456, 1_000_000, ".tfrecord.gz") == "tokens-0123456-of-1000000.tfrecord.gz"
    assert filenames.rejects_name(3, 12) == "rejected/rejects-00003-of-00012.parquet"


def test_an_entry_survives_its_json():
    entry = entry_of()
    assert LedgerEntry.from_json(entry.to_json()) == entry
    assert LedgerEntry.from_json(entry.to_json()).to_json() == entry.to_json()
    without = entry_of(rejects=None, rejected={}, n_records=3)
    assert LedgerEntry.from_json(without.to_json()) == without


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"{}", b'{"format_version": 1}', b"\xff"])
def test_other_json_is_not_an_entry(data):
    with pytest.raises(ValueError):  # noqa: PT011  # several messages; the class is the contract
        LedgerEntry.from_json(data)


def test_an_entry_of_another_format_is_refused():
    fields = json.loads(entry_of().to_json())
    with pytest.raises(ValueError, match="ledger entry of format 99, but this TokenMill reads 5"):
        LedgerEntry.from_json(json.dumps(fields | {"format_version": 99}).encode())


def test_runs_of_no_pieces_are_refused():
    entry = entry_of(runs=SortedRuns((Run(5, 100, 0, 1),), Sums(5, 9, 0, 1 << 63, 7)))
    assert LedgerEntry.from_json(entry.to_json()) == entry
    fields = json.loads(entry.to_json())
    fields["runs"]["runs"][0][3] = 0
    with pytest.raises(ValueError, match=r"runs.runs.0.3: Input should be greater than or equal to 1, found 0"):
        LedgerEntry.from_json(json.dumps(fields).encode())


def test_an_entry_of_the_format_before_is_read():
    runs = SortedRuns((), Sums(5, 9, 0, 1 << 63, 7))
    entry = entry_of(**{"packing": {"n_sequences": 2}, "chat": {"lost:tool_calls": 1}, "runs": runs})
    fields = json.loads(entry.to_json())
    fields["runs"] = {"runs": [[5, 0, 40, 80, 120]], "sums": runs.sums.to_record()}
    numbers = {"windows": None, "has_field": {}, "filtered": {}, **nest(fields.pop("counts")[""])}
    before = json.dumps({**fields, **numbers, "format_version": 4}).encode()
    assert LedgerEntry.from_json(before) == entry


def test_json_is_sorted_and_survives_file_names_that_are_not_utf8():
    assert ledger.to_json({"b": 1, "a": ["é"]}) == '{\n "a": [\n  "é"\n ],\n "b": 1\n}\n'.encode()
    name = os.fsdecode(b"bad-\xff.jsonl")
    assert json.loads(ledger.to_json({"name": name})) == {"name": name}


def test_json_comes_in_pieces_of_the_same_bytes(monkeypatch):
    value = {"files": [{"name": f"é{i}", "n": i} for i in range(50)], "none": None}
    monkeypatch.setattr(ledger, "_TOKENS", 7)
    pieces = list(ledger.json_pieces(value))
    assert len(pieces) > 20
    text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
    assert b"".join(pieces) == text.encode() == ledger.to_json(value)


@pytest.mark.parametrize(
    "changes",
    [
        {"split": Split(1, SPLIT.id, SPLIT.pieces)},
        {"split": Split(2, "f" * 16, SPLIT.pieces)},
        {"split": Split(2, SPLIT.id, (dataclasses.replace(PIECE, version="100-8"),))},
        {"n_splits": 5},
        {"suffix": ".tfrecord"},
        {"tokenizer": "other"},
    ],
)
def test_entries_of_another_plan_do_not_count(tmp_path, changes):
    commit(str(tmp_path))
    assert committed(str(tmp_path)) is not None
    assert committed(str(tmp_path), **changes) is None


@pytest.mark.parametrize(
    "name",
    ["tokens-00002-of-00004.parquet", "rejected/rejects-00002-of-00004.parquet", "_ledger/0123456789abcdef.arrow"],
)
@pytest.mark.parametrize("damage", ["gone", "longer", "other"])
def test_damaged_files_do_not_count(tmp_path, name, damage):
    commit(str(tmp_path))
    path = tmp_path / name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data + b"x" if damage == "longer" else data[:-1] + b"?")
    assert committed(str(tmp_path)) is None


@pytest.mark.parametrize("data", [b"", b"{}", b"\0" * 50])
def test_a_damaged_entry_does_not_count(tmp_path, data):
    commit(str(tmp_path))
    (tmp_path / "_ledger/0123456789abcdef.json").write_bytes(data)
    assert committed(str(tmp_path)) is None


def test_describe_reads_back_what_was_written(tmp_path):
    data = os.urandom(3 << 20)
    (tmp_path / "big").write_bytes(data)
    assert ledger.describe(str(tmp_path), "big") == FileRecord("big", len(data), hashlib.sha256(data).hexdigest())
    assert ledger.problem(str(tmp_path), ledger.describe(str(tmp_path), "big")) is None
