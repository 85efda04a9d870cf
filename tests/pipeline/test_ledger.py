# SPDX-License-Identifier: Apache-2.0
"""The ledger: entries, the commit protocol, and what counts as committed."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import balance, ledger, storage
from pipeline.accounts import PieceCounts
from pipeline.ledger import BooksError, FileRecord, LedgerEntry
from pipeline.splits import Piece, Split
from pipeline.staging import StagedFile, Staging
from pipeline.statistics import Statistics

PIECE = Piece("/corpus/a.jsonl", "a.jsonl", 100, "100-7", "jsonl", "none", 0, 100)
SPLIT = Split(2, "0123456789abcdef", (PIECE,))
READ = PieceCounts(
    n_records=5,
    n_documents=3,
    rejected={"not_json": 2},
    n_bytes=100,
    n_document_bytes=70,
    n_rejected_bytes=25,
    n_skipped_bytes=5,
    sha256="aa",
)


def entry_of(**changes):
    """Returns an entry that balances: 3 documents, 2 rejects, 100 bytes, 9 tokens."""
    entry = LedgerEntry(
        split_id=SPLIT.id,
        index=2,
        tokenizer="t",
        pieces=SPLIT.pieces,
        n_records=5,
        n_documents=3,
        rejected={"not_json": 2},
        filtered={},
        n_bytes=100,
        n_document_bytes=70,
        n_rejected_bytes=25,
        n_filtered_bytes=0,
        n_skipped_bytes=5,
        n_chars=50,
        n_words=8,
        n_tokens=9,
        n_oov_tokens=1,
        inputs=(READ,),
        shard=FileRecord("tokens-00002-of-00004.parquet", 5, hashlib.sha256(b"shard").hexdigest(), 3, 9),
        rejects=FileRecord("rejected/rejects-00002-of-00004.parquet", 7, hashlib.sha256(b"rejects").hexdigest(), 2),
        statistics=FileRecord("_ledger/0123456789abcdef.arrow", 2, hashlib.sha256(b"st").hexdigest()),
    )
    return dataclasses.replace(entry, **changes)


def commit(output, entry=None):
    """Commits an entry with files as `entry_of` records them."""
    with Staging(output, SPLIT.id) as staging:
        for name, data, rows, tokens in [
            ("tokens-00002-of-00004.parquet", b"shard", 3, 9),
            ("rejected/rejects-00002-of-00004.parquet", b"rejects", 2, None),
            ("_ledger/0123456789abcdef.arrow", b"st", None, None),
        ]:
            file = staging.create(name)
            file.write(data)
            file.finish(rows, tokens)
        staging.commit(entry or entry_of())


def committed(output, **changes):
    arguments = {"split": SPLIT, "n_splits": 4, "suffix": ".parquet", "tokenizer": "t"} | changes
    return ledger.load_committed(output, arguments.pop("split"), **arguments)


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)


def test_names():
    assert ledger.shard_name(0, 12, ".parquet") == "tokens-00000-of-00012.parquet"
    assert ledger.shard_name(123_456, 1_000_000, ".tfrecord.gz") == "tokens-0123456-of-1000000.tfrecord.gz"
    assert ledger.rejects_name(3, 12) == "rejected/rejects-00003-of-00012.parquet"


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
    with pytest.raises(ValueError, match="ledger entry of format 99, this TokenMill reads 2"):
        LedgerEntry.from_json(json.dumps(fields | {"format_version": 99}).encode())


def test_json_is_sorted_and_survives_file_names_that_are_not_utf8():
    assert ledger.to_json({"b": 1, "a": ["é"]}) == '{\n "a": [\n  "é"\n ],\n "b": 1\n}\n'.encode()
    name = os.fsdecode(b"bad-\xff.jsonl")
    assert json.loads(ledger.to_json({"name": name})) == {"name": name}


def test_staged_files_know_their_size_and_digest(tmp_path):
    file = StagedFile("a.bin", str(tmp_path / "staged"))
    assert file.write(b"abc") == 3
    file.write(memoryview(np.arange(3, dtype=np.int32)))  # a buffer whose length is not its bytes
    assert file.tell() == 15
    record = file.finish(rows=4, tokens=5)
    data = b"abc" + np.arange(3, dtype=np.int32).tobytes()
    assert record == FileRecord("a.bin", 15, hashlib.sha256(data).hexdigest(), 4, 5)
    assert (tmp_path / "staged").read_bytes() == data


def test_staged_files_take_what_pyarrow_writes(tmp_path):
    file = StagedFile("a.parquet", str(tmp_path / "staged"))
    pq.write_table(pa.table({"a": [1, 2]}), file)
    file.finish()
    assert pq.read_table(tmp_path / "staged").to_pydict() == {"a": [1, 2]}


def test_commit_gives_final_names_and_leaves_nothing_behind(tmp_path):
    output = str(tmp_path / "out")
    commit(output)
    assert files_below(output) == [
        "_ledger/0123456789abcdef.arrow",
        "_ledger/0123456789abcdef.json",
        "rejected/rejects-00002-of-00004.parquet",
        "tokens-00002-of-00004.parquet",
    ]
    assert os.listdir(tmp_path / "out" / "_tmp") == []
    assert committed(output) == entry_of()


def test_a_second_attempt_changes_nothing(tmp_path):
    output = str(tmp_path / "out")
    commit(output)
    before = {name: (tmp_path / "out" / name).read_bytes() for name in files_below(output)}
    commit(output)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in files_below(output)} == before


def test_the_entry_comes_last(tmp_path, monkeypatch):
    """Whatever rename fails, there is no entry, and the next attempt succeeds."""
    rename = storage.rename
    for n_before_failure in range(4):
        output = str(tmp_path / f"out{n_before_failure}")
        calls = []

        def fail(source, destination, calls=calls, allowed=n_before_failure):
            if len(calls) == allowed:
                raise OSError("disk full")
            calls.append(destination)
            rename(source, destination)

        monkeypatch.setattr(storage, "rename", fail)
        with pytest.raises(OSError, match="disk full"):
            commit(output)
        monkeypatch.setattr(storage, "rename", rename)
        assert committed(output) is None
        assert os.listdir(os.path.join(output, "_tmp")) == []
        commit(output)
        assert committed(output) == entry_of()


def test_an_error_while_writing_leaves_nothing(tmp_path):
    output = str(tmp_path / "out")

    def fail():
        with Staging(output, SPLIT.id) as staging:
            staging.create("tokens-00002-of-00004.parquet").write(b"half")
            raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        fail()
    assert files_below(output) == []


def test_a_writer_left_in_the_middle_may_still_write_its_end(tmp_path):
    with Staging(str(tmp_path), SPLIT.id) as staging:
        file = staging.create("a.parquet")
        writer = pq.ParquetWriter(file, pa.schema([("a", pa.int64())]))
        writer.write_table(pa.table({"a": [1]}))
    writer.close()  # as its finalizer does
    assert files_below(tmp_path) == []


def test_two_attempts_never_share_a_file(tmp_path):
    with Staging(str(tmp_path), SPLIT.id) as one, Staging(str(tmp_path), SPLIT.id) as two:
        a, b = one.create("x"), two.create("x")
        a.write(b"one")
        b.write(b"two")
        a.finish()
        b.finish()
        assert [Path(file.path).read_bytes() for file in (a, b)] == [b"one", b"two"]


def test_what_does_not_balance_is_not_committed(tmp_path):
    output = str(tmp_path / "out")
    with pytest.raises(BooksError):
        commit(output, entry_of(n_records=6))
    assert files_below(output) == []


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_records": 6}, r"records read 6 != documents \+ rejected \+ filtered 5"),
        ({"filtered": {"short": 1}}, r"records read 5 != documents \+ rejected \+ filtered 6"),
        ({"n_bytes": 99}, r"bytes read 99 != bytes of documents \+ rejected \+ filtered \+ skipped 100"),
        ({"n_skipped_bytes": 4}, "bytes read 100 != .* 99"),
        ({"n_filtered_bytes": 1}, "bytes read 100 != .* 101"),
        ({"n_tokens": 10}, "tokens of the shard 9 != tokens 10"),
        ({"rejects": None}, "rows of rejects 0 != rejected 2"),
        ({"shard": dataclasses.replace(entry_of().shard, rows=2)}, "rows of the shard 2 != documents 3"),
    ],
)
def test_every_identity_is_checked(changes, message):
    balance.check_balance(entry_of())
    with pytest.raises(BooksError, match=f"split 0123456789abcdef: {message}"):
        balance.check_balance(entry_of(**changes))


def counted(n_documents=3, n_chars=50, n_words=8, rows=((2, 3, 4), (2, 2, 2), (2, 2, 1))):
    statistics = Statistics(5, 1)
    ids = np.array([i for row in rows for i in row], np.int32)
    offsets = np.array([0, *np.cumsum([len(row) for row in rows])])
    statistics.update(pa.array(["x" * n_chars] + [""] * (len(rows) - 1)), ids, offsets[:-1], offsets[1:])
    statistics.n_words = n_words
    return statistics


def test_entries_are_checked_against_statistics():
    balance.check_balance(entry_of(), counted())
    for statistics, message in [
        (counted(rows=((2,) * 8, (1,))), "documents counted 2 != documents 3"),
        (counted(n_chars=49), "characters counted 49 != characters 50"),
        (counted(n_words=7), "words counted 7 != words 8"),
        (counted(rows=((2,) * 8, (1,), (2,))), "tokens counted 10 != tokens 9"),
        (counted(rows=((2,) * 7, (1,), (1,))), "unknown tokens counted 2 != unknown tokens 1"),
    ]:
        with pytest.raises(BooksError, match=message):
            balance.check_balance(entry_of(), statistics)
    for name, message in [
        ("token_counts", "sum of the tokens' counts 10 != tokens 9"),
        ("length_counts", "sum of the lengths' counts 4 != documents 3"),
    ]:
        statistics = counted()
        getattr(statistics, name)[2] += 1
        with pytest.raises(BooksError, match=message):
            balance.check_balance(entry_of(), statistics)
    statistics = counted()
    statistics.token_counts[:2] = [1, 0]
    with pytest.raises(BooksError, match="count of the unknown token 0 != unknown tokens 1"):
        balance.check_balance(entry_of(), statistics)
    statistics = counted()
    statistics.n_oov_words = 3
    with pytest.raises(BooksError, match="sum of the unknown words' counts 0 != unknown words 3"):
        balance.check_balance(entry_of(), statistics)


def test_a_balance_names_all_that_is_wrong():
    with pytest.raises(BooksError) as raised:
        balance.check_balance(entry_of(n_records=6, n_bytes=99))
    assert [line.partition(" != ")[0].partition(": ")[2] for line in str(raised.value).splitlines()] == [
        "records read 6",
        "bytes read 99",
        "n_records 6",
        "n_bytes 99",
    ]


def test_the_books_of_a_file_must_balance_and_be_the_split_s():
    lost = dataclasses.replace(READ, n_documents=2)
    with pytest.raises(BooksError, match=r"'a\.jsonl': records read 5 != documents \+ rejected \+ filtered 4"):
        balance.check_balance(entry_of(inputs=(lost,)))
    with pytest.raises(BooksError, match=r"rejected .* != sum over its files"):
        balance.check_balance(entry_of(inputs=(dataclasses.replace(READ, rejected={"not_object": 2}),)))
    with pytest.raises(BooksError, match="0 inputs are counted, of 1 pieces"):
        balance.check_balance(entry_of(inputs=()))


def test_describe_reads_back_what_was_written(tmp_path):
    data = os.urandom(3 << 20)
    (tmp_path / "big").write_bytes(data)
    assert ledger.describe(str(tmp_path), "big") == FileRecord("big", len(data), hashlib.sha256(data).hexdigest())
    assert ledger.problem(str(tmp_path), ledger.describe(str(tmp_path), "big")) is None
