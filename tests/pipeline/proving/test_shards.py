# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a shuffled output is found, before the job ends or by `verify`."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline import shuffling as shuffled
from tokenmill.pipeline.books import ledger, manifest
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.output.placement import Marks, RowForm
from tokenmill.pipeline.proving import shards
from tokenmill.pipeline.proving.from_input import verify_deep
from tokenmill.pipeline.proving.verify import verify
from tokenmill.pipeline.tokenizing.tokenize import merge_planned


def test_shards_of_other_runs_are_not_finished(make_shuffled, tmp_path):
    job = make_shuffled()
    job.prepare()
    entries = job.tokenize()
    job.merge(entries, job.planned[:3])
    with pytest.raises(BooksError, match="has not been merged"):
        job.finish()
    half = ledger.runs_of(entries[0])
    merge_planned(job.planned[3], [half], job.config, job.tokenizer)
    with pytest.raises(BooksError, match="n_documents of all splits 300 != of all shards"):
        job.finish()
    assert not (job.output / "manifest.json").exists()


def _longest_ids(path):
    with pa.ipc.open_file(path) as file:
        return max(file.read_all()["input_ids"].to_pylist(), key=len)


def test_a_damaged_run_is_an_error_or_does_not_balance(make_shuffled):
    job = make_shuffled()
    job.prepare()
    entries = job.tokenize()
    path = job.output / entries[1].shard.file
    data = bytearray(path.read_bytes())
    ids = np.array(_longest_ids(path), np.int32).tobytes()
    data[data.index(ids)] ^= 1
    path.write_bytes(data)
    job.merge(entries)
    with pytest.raises(BooksError, match="tokens of all splits"):
        job.finish()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="damaged"):
        job.merge(entries, [shuffled.PlannedShard(0, 1, "f" * 16, 0, "")])


def _rewrite(job, change, n=1, keys=None):
    """Changes the rows of a shard and makes every record agree with its bytes: a mistake, not damage."""
    entry = ledger.ShardEntry.read(str(job.output), job.planned[n].id)
    path = job.output / entry.shard.file
    before = path.read_bytes()
    table = pq.read_table(path)
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), path)
    keys_path = job.output / entry.keys.file
    keys_before = keys_path.read_bytes()
    if keys is not None:
        keys_path.write_bytes(keys(np.frombuffer(keys_before, "<u8").copy()).tobytes())
    changes = {}
    for file in (entry.shard, entry.keys):
        found = ledger.describe(str(job.output), file.file)
        changes[file.sha256] = (found.sha256, file.n_bytes, found.n_bytes)
    for name in (f"_ledger/{entry.shard_id}.json", "manifest.json"):
        text = (job.output / name).read_text()
        for old, (new, _, _) in changes.items():
            text = text.replace(old, new)
        record = json.loads(text)
        listed = record["shards"] if "shards" in record else [record["shard"], record["keys"]]
        for file in listed:
            for new, old_size, new_size in changes.values():
                if file["sha256"] == new:
                    file["n_bytes"] = new_size
                    if "totals" in record:
                        record["totals"]["shard_bytes"] += new_size - old_size
        if "digest" in record:
            record["digest"] = manifest.digest(record)
        (job.output / name).write_bytes(ledger.to_json(record))
    assert before != path.read_bytes() or keys is not None


def _swapped(table):
    order = np.arange(table.num_rows)
    order[[10, 11]] = order[[11, 10]]
    return table.take(pa.array(order))


def with_column(table, i, values):
    return table.set_column(i, table.schema.field(i), pa.array(values, table.schema.field(i).type))


def test_verify_finds_rows_that_have_changed_places(make_shuffled):
    job = make_shuffled()
    job.run()
    _rewrite(job, lambda table: table)
    assert verify(str(job.output)).problems == []
    _rewrite(job, _swapped)
    problems = verify(str(job.output)).problems
    assert [problem.partition(":")[0] for problem in problems] == ["tokens-00001-of-00004.parquet"] * 2
    assert "documents/documents-00001-of-00004.parquet lists" in problems[0]
    assert "tokens are not those of the keys in this order" in problems[1]


def test_verify_finds_rows_that_are_not_in_order_though_their_keys_move_with_them(make_shuffled):
    job = make_shuffled()
    job.run()

    def swap_keys(keys):
        keys[[10, 11]] = keys[[11, 10]]
        return keys

    _rewrite(job, _swapped, keys=swap_keys)
    problem = verify(str(job.output)).problems[0]
    assert "of document 11 is not in the order of the shuffle" in problem


def test_verify_finds_a_removed_row_and_another_document(make_shuffled):
    job = make_shuffled()
    job.run()
    _rewrite(job, lambda table: table.slice(1))
    assert any("rows, recorded" in problem for problem in verify(str(job.output)).problems)
    other = make_shuffled("other")
    other.run()
    _rewrite(other, lambda table: with_column(table, 0, ["x", *table["doc_id"].to_pylist()[1:]]))
    problems = [problem for problem in verify(str(other.output)).problems if "doc_id of row 0 is 'x'" in problem]
    assert len(problems) == 1


def test_verify_finds_a_swap_of_packed_documents(make_shuffled):
    job = make_shuffled(packing={"length": 8, "strategy": "no_split"})
    job.run()
    table = pq.read_table(job.output / "tokens-00001-of-00004.parquet")
    whole = [i for i, ids in enumerate(table["documents"].to_pylist()) if len(ids) == 1]
    same = {}
    for row in whole:
        same.setdefault(table["n_tokens"][row].as_py(), []).append(row)
    ids = table["input_ids"].to_pylist()
    one, other = next((a, b) for rows in same.values() for a in rows for b in rows if ids[a] != ids[b])
    ids[one], ids[other] = ids[other], ids[one]
    _rewrite(job, lambda table: with_column(table, 0, ids))
    (problem,) = verify(str(job.output)).problems
    assert "tokens are not those of the keys in this order" in problem


def test_verify_finds_shards_and_splits_that_do_not_belong_together(make_shuffled):
    job = make_shuffled()
    shards = job.run()
    path = job.output / f"_ledger/{shards[0].shard_id}.json"
    record = json.loads(path.read_text())
    path.write_bytes(ledger.to_json(record | {"runs": "0" * 64}))
    assert verify(str(job.output)).problems == []  # as earlier versions wrote it
    split = job.output / f"_ledger/{job.splits[0].id}.json"
    entry = json.loads(split.read_text())
    entry["runs"]["sums"]["tokens"] = "0" * 16
    split.write_bytes(ledger.to_json(entry))
    assert any("tokens of all splits" in problem for problem in verify(str(job.output)).problems)
    (Path(job.output) / f"_ledger/{shards[1].shard_id}.json").unlink()
    assert any("missing, or not a ledger entry" in problem for problem in verify(str(job.output)).problems)


def test_verify_deep_finds_documents_that_are_not_those_of_the_input(make_shuffled):
    job = make_shuffled()
    job.run()
    assert verify_deep(str(job.output), 1.0).problems == []
    path = job.output / f"_ledger/{job.splits[1].id}.json"
    entry = json.loads(path.read_text())
    entry["runs"]["sums"]["doc_ids"] = "0" * 16
    path.write_bytes(ledger.to_json(entry))
    (problem,) = verify_deep(str(job.output), 1.0).problems
    assert problem.startswith(f"split {job.splits[1].id}: its documents have the sums")


@pytest.mark.parametrize("pads_left", [False, True])
@pytest.mark.parametrize(
    ("ids", "n_tokens", "wrong"),
    [
        ([[1, 2, 0], [0, 0, 0], [1, 2, 3]], [2, 0, 3], None),
        ([[1, 2, 0], [1, 2, 3]], [2, 4], "n_tokens must be between 0 and 3"),
        ([[1, 2, 0], [0, 0, 0]], [2, -1], "n_tokens must be between 0 and 3"),
        ([[1, 2, 0], [1, 2, 3]], [2, 2], "must be the padding token 0"),
        ([[1, 2, 0], [1, 2]], [2, 2], "rows must have 3 ids, padding included"),
    ],
)
def test_rows_that_are_not_padded_as_they_say_are_refused(ids, n_tokens, wrong, pads_left):
    rows = pa.array([row[::-1] if pads_left else row for row in ids], pa.large_list(pa.int32()))
    batch = pa.record_batch({"input_ids": rows, "n_tokens": pa.array(n_tokens, pa.int32())})
    form = RowForm(Marks(), pad_id=0, padded=3, pads_left=pads_left)
    if wrong is not None:
        with pytest.raises(ValueError, match=rf"^shard: .*{wrong}"):
            shards._token_spans(batch, form, "shard")
        return
    values, starts, stops = shards._token_spans(batch, form, "shard")
    found = [values[start:stop].tolist() for start, stop in zip(starts, stops, strict=True)]
    assert found == [[2, 1] if pads_left else [1, 2], [], [3, 2, 1] if pads_left else [1, 2, 3]]
