# SPDX-License-Identifier: Apache-2.0
"""The ledger: names, entries, and what counts as committed."""

import dataclasses
import json

import pytest

from tests.ledger_entries import PIECE, SPLIT, commit, committed, entry_of
from tokenmill.pipeline.books.counts import nest
from tokenmill.pipeline.books.ledger import LedgerEntry
from tokenmill.pipeline.books.sums import SortedRuns, Sums
from tokenmill.pipeline.splits import Split


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"{}", b'{"format_version": 1}', b"\xff"])
def test_other_json_is_not_an_entry(data):
    with pytest.raises(ValueError):  # noqa: PT011  # several messages; the class is the contract
        LedgerEntry.from_json(data)


def test_an_entry_of_another_format_is_refused():
    fields = json.loads(entry_of().to_json())
    with pytest.raises(ValueError, match="ledger entry of format 99, but this TokenMill reads 5"):
        LedgerEntry.from_json(json.dumps(fields | {"format_version": 99}).encode())


def test_an_entry_of_the_format_before_is_read():
    runs = SortedRuns((), Sums(5, 9, 0, 1 << 63, 7))
    entry = entry_of(**{"packing": {"n_sequences": 2}, "chat": {"lost:tool_calls": 1}, "runs": runs})
    fields = json.loads(entry.to_json())
    fields["runs"] = {"runs": [[5, 0, 40, 80, 120]], "sums": runs.sums.to_record()}
    numbers = {"windows": None, "has_field": {}, "filtered": {}, **nest(fields.pop("counts")[""])}
    before = json.dumps({**fields, **numbers, "format_version": 4}).encode()
    assert LedgerEntry.from_json(before) == entry


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
