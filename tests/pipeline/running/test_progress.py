# SPDX-License-Identifier: Apache-2.0
"""Progress: what workers say, what the output folder says, and who is told to stop."""

import json
import threading
import time

import pytest

from tokenmill.pipeline.running import progress
from tokenmill.pipeline.running.progress import Cancelled, Progress, Snapshot, Stage, reporting_to
from tokenmill.pipeline.splits import Piece, Split

COUNT = Stage("counting", "_counts", {"a": 100, "b": 300})
TOKENIZE = Stage("tokenizing", "_ledger", {"a": 100, "b": 300})


def test_stage_of_splits_knows_what_is_compressed():
    def split(split_id, compression):
        piece = Piece("p", "p", 50, "v", "jsonl", compression, 0, 50)
        return Split(0, split_id, (piece, piece))

    stage = Stage.of("counting", "_counts", [split("x", "none"), split("y", "gzip")])
    assert stage == Stage("counting", "_counts", {"x": 100, "y": 100}, frozenset({"y"}))
    assert stage.n_bytes == 200


def test_batches_count_at_once_and_a_committed_split_counts_in_full():
    watched = Progress([COUNT, TOKENIZE])
    assert watched.snapshot() == Snapshot("counting", 0, 400)
    watched.advance("counting", "a", 40, 1, 0)
    watched.advance("counting", "a", 90, 1, 0)  # a record may reach past the end of the range
    assert watched.snapshot() == Snapshot("counting", 100, 400, 130, 0, 2)
    watched.finish("counting", "a")
    assert watched.snapshot() == Snapshot("counting", 100, 400, 130, 0, 2)
    watched.advance("tokenizing", "a", 10, 0, 7)
    assert watched.snapshot() == Snapshot("tokenizing", 10, 400, 10, 7, 0)
    assert watched.snapshot("counting") == Snapshot("counting", 100, 400, 130, 0, 2)


def test_a_split_committed_by_an_earlier_run_is_done_but_not_read():
    watched = Progress([TOKENIZE])
    watched.finish("tokenizing", "b")
    assert watched.snapshot() == Snapshot("tokenizing", 300, 400, 0, 0, 0)


def test_compressed_splits_are_estimated_from_those_that_are_done():
    watched = Progress([Stage("tokenizing", "_ledger", {"a": 100, "b": 300}, frozenset({"a", "b"}))])
    watched.advance("tokenizing", "a", 100, 0, 0)
    assert watched.snapshot().n_done == 30
    watched.advance("tokenizing", "a", 10_000, 0, 0)
    assert watched.snapshot().n_done == 95  # never all of it before it is committed
    watched.advance("tokenizing", "a", 9_900, 0, 0)
    watched.finish("tokenizing", "a")
    watched.advance("tokenizing", "b", 10_000, 0, 0)
    assert watched.snapshot().n_done == 100 + 50  # 200 times smaller, as the first was


def test_a_stage_with_a_measure_of_its_own_is_asked_whenever_somebody_looks():
    watched = Progress([COUNT])
    watched.enter("training")
    done = [0]
    watched.measure("training", "merges", 10, lambda: done[0])
    assert watched.snapshot() == Snapshot("training", 0, 10, unit="merges")
    done[0] = 7
    assert watched.snapshot() == Snapshot("training", 7, 10, unit="merges")


def test_stages_are_remembered_in_order_and_do_not_come_back():
    watched = Progress([COUNT, TOKENIZE])
    watched.enter("training")
    watched.finish("tokenizing", "a")
    watched.advance("counting", "b", 1, 0, 0)
    names, seconds = zip(*watched.lengths(time.monotonic() + 5), strict=True)
    assert names == ("counting", "training", "tokenizing")
    assert min(seconds) >= 0
    assert 5 <= seconds[-1] <= sum(seconds) < 60
    assert watched.snapshot().stage == "tokenizing"


def test_cancelling_stops_workers_at_their_next_batch():
    watched = Progress([COUNT])
    watched.advance("counting", "a", 1, 0, 0)
    watched.cancel()
    with pytest.raises(Cancelled):
        watched.advance("counting", "a", 1, 0, 0)


def test_workers_of_other_threads_see_who_watches():
    watched, seen = Progress(), []
    assert progress.current() is None
    with reporting_to(watched):
        thread = threading.Thread(target=lambda: seen.append(progress.current()))
        thread.start()
        thread.join()
    assert seen == [watched]
    assert progress.current() is None


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


def test_shards_of_a_shuffle_count_with_their_share_of_the_input(tmp_path):
    source = looking_at(tmp_path, [TOKENIZE, Stage("shuffling", "_ledger", {"c": 200, "d": 200})])
    (tmp_path / "_ledger").mkdir()
    (tmp_path / "_ledger/c.json").write_text(json.dumps({"shard_id": "c", "sums": {"n_tokens": 7}, "counts": {"": {}}}))
    source.refresh()
    assert source.snapshot() == Snapshot("shuffling", 200, 400, 200, 7, 0)
