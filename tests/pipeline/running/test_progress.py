# SPDX-License-Identifier: Apache-2.0
"""Progress: what workers say, what the output folder says, and who is told to stop."""

import json

from tokenmill.pipeline.running.progress import Amount, Progress, Snapshot, Stage

COUNT = Stage("counting", "_counts", {"a": 100, "b": 300})
TOKENIZE = Stage("tokenizing", "_ledger", {"a": 100, "b": 300})


def test_batches_count_at_once_and_a_committed_split_counts_in_full():
    watched = Progress([COUNT, TOKENIZE])
    assert watched.snapshot() == Snapshot("counting", 0, 400)
    watched.advance("counting", "a", Amount(40, n_rejected=1))
    watched.advance("counting", "a", Amount(90, n_rejected=1))  # a record may reach past the end of the range
    assert watched.snapshot() == Snapshot("counting", 100, 400, 130, 0, 2)
    watched.finish("counting", "a")
    assert watched.snapshot() == Snapshot("counting", 100, 400, 130, 0, 2)
    watched.advance("tokenizing", "a", Amount(10, n_tokens=7))
    assert watched.snapshot() == Snapshot("tokenizing", 10, 400, 10, 7, 0)
    assert watched.snapshot("counting") == Snapshot("counting", 100, 400, 130, 0, 2)


def test_compressed_splits_are_estimated_from_those_that_are_done():
    watched = Progress([Stage("tokenizing", "_ledger", {"a": 100, "b": 300}, frozenset({"a", "b"}))])
    watched.advance("tokenizing", "a", Amount(100))
    assert watched.snapshot().n_done == 30
    watched.advance("tokenizing", "a", Amount(10_000))
    assert watched.snapshot().n_done == 95  # never all of it before it is committed
    watched.advance("tokenizing", "a", Amount(9_900))
    watched.finish("tokenizing", "a")
    watched.advance("tokenizing", "b", Amount(10_000))
    assert watched.snapshot().n_done == 100 + 50  # 200 times smaller, as the first was


def looking_at(folder, stages):
    watched = Progress(stages)
    watched.look_at(str(folder))
    return watched


def test_folder_says_what_is_done_whoever_did_it(tmp_path):
    def commit(folder, split_id, **entry):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{split_id}.json").write_text(json.dumps(entry))

    commit("_counts", "a", totals={"n_bytes": 100, "rejected": {}})
    source = looking_at(tmp_path, [COUNT, TOKENIZE])
    assert source.snapshot() == Snapshot("counting", 100, 400)  # of an earlier run: done, but not read by this one
    commit("_counts", "b", totals={"n_bytes": 290, "rejected": {"x": 1}})
    commit("_ledger", "job")
    commit("_ledger", "0123456789abcdef", n_bytes=1)  # of another plan
    assert source.snapshot().n_done == 100  # not every call reads the folder
    source.refresh()
    assert source.snapshot() == Snapshot("counting", 400, 400, 290, 0, 1)
    commit("_ledger", "a", counts={"": {"n_bytes": 90, "n_tokens": 20, "rejected:x": 2, "rejected:y": 1}})
    (tmp_path / "_ledger/a.arrow").write_bytes(b"")
    source.refresh()
    assert source.snapshot() == Snapshot("tokenizing", 100, 400, 90, 20, 3)
    (tmp_path / "_counts/a.json").unlink()
    assert source.snapshot("counting").n_done == 400  # tidied up, not undone
    (tmp_path / "_ledger/b.json").write_text("half a")
    source.refresh()
    assert source.snapshot() == Snapshot("tokenizing", 400, 400, 90, 20, 3)
    assert looking_at(tmp_path / "none", []).snapshot() == Snapshot("starting")
