# SPDX-License-Identifier: Apache-2.0
"""Batches of a rank: every row once per epoch, in one order, whatever is changed when a run is resumed."""

import json
import random
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.data import Rows, Samples


class Numbers(Rows):
    """Rows that are their own numbers."""

    def __init__(self, n: int, digest: str = "d") -> None:
        self.n, self.digest, self.name, self.schema = n, digest, "numbers", pa.schema([("row", pa.int64())])

    def __len__(self) -> int:
        return self.n

    def with_columns(self, columns: object) -> "Numbers":
        return self

    def take(self, rows):
        return pa.record_batch([pa.array(self.checked(rows))], schema=self.schema)


class Cluster:
    """A training run on some ranks, whose steps are what all of them read."""

    def __init__(self, n: int | Rows, world_size: int, batch_size: int, state: dict | None = None, **options) -> None:
        rows, options = Numbers(n) if isinstance(n, int) else n, {"seed": 3, **options}
        self.ranks = [Samples(rows, batch_size, rank=r, world_size=world_size, **options) for r in range(world_size)]
        for rank in self.ranks:
            if state is not None:
                rank.load_state_dict(json.loads(json.dumps(state)))

    def steps(self) -> Iterator[list[int]]:
        """Yields the rows of a step in the global order: the first of each rank, the second of each rank, and so on."""
        for batches in zip(*self.ranks, strict=True):
            rows = [batch["row"].tolist() for batch in batches]
            assert {len(each) for each in rows} <= {len(rows[0]), len(rows[0]) - 1}
            yield [each[i] for i in range(len(rows[0])) for each in rows if i < len(each)]

    def state(self) -> dict:
        """Returns the state, which is the same on all ranks."""
        (state,) = {json.dumps(rank.state_dict()) for rank in self.ranks}
        return json.loads(state)


def undisturbed(n: int, epochs: int, seed: int | None = 3) -> list[int]:
    return np.concatenate([Numbers(n).order(seed, epoch)(np.arange(n)) for epoch in range(epochs)]).tolist()


def test_a_run_that_is_killed_200_times_reads_what_an_undisturbed_one_does() -> None:
    chance, n, epochs = random.Random(58), 9_973, 4
    read: list[int] = []
    state, n_kills = None, 0
    while len(read) < epochs * n:
        world_size, batch_size = chance.randint(1, 64), chance.randint(1, 9)
        run = Cluster(n, world_size, batch_size, state, prefetch=3 * (world_size < 6))
        n_steps = chance.randint(0, max(1, 2 * epochs * n // (200 * world_size * batch_size)))
        for _, rows in zip(range(n_steps), run.steps(), strict=False):
            read += rows
        state = run.state()
        n_kills += 1
    assert n_kills >= 200
    whole = undisturbed(n, len(read) // n + 1)
    assert read == whole[: len(read)]
    for epoch in range(epochs):
        assert sorted(read[epoch * n : (epoch + 1) * n]) == list(range(n))


def test_all_ways_to_read_and_resume_up_to_twelve_rows() -> None:
    n_runs = 0
    for n in range(1, 13):
        whole = undisturbed(n, 2)
        for world_size in range(1, n + 2):
            for batch_size in range(1, n // world_size + 2):
                first = Cluster(n, world_size, batch_size)
                read: list[int] = []
                for rows in first.steps():
                    read += rows
                    state = first.state()
                    assert state["epoch"] * n + state["consumed"] == len(read)
                    for other in {1, 2, 3, n, world_size + 1}:
                        second = Cluster(n, other, 1 + (len(read) + other) % 3, state)
                        rest = [row for rows in second.steps() for row in rows]
                        rest += [row for rows in second.steps() for row in rows] if len(read) < n else []
                        assert read + rest == whole
                        n_runs += 1
                assert read == whole[:n]
    assert n_runs > 1000


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(1, 7), st.integers(1, 6), st.integers(0, 6), st.booleans()), max_size=12),
)
def test_a_change_at_any_step_loses_nothing(n: int, runs: list[tuple[int, int, int, bool]]) -> None:
    read: list[int] = []
    state = None
    for world_size, batch_size, n_steps, endless in runs:
        run = Cluster(n, world_size, batch_size, state, endless=endless)
        for _, rows in zip(range(n_steps), run.steps(), strict=False):
            assert not endless or len(rows) == world_size * batch_size
            read += rows
        state = run.state()
    assert read == undisturbed(n, len(read) // n + 1)[: len(read)]


@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 5))
def test_dropped_rows_are_counted_and_come_in_the_next_epoch(n: int, world_size: int, batch_size: int) -> None:
    run = Cluster(n, world_size, batch_size, drop_last=True)
    for epoch in range(2):
        steps = list(run.steps())
        assert [len(rows) for rows in steps] == [world_size * batch_size] * len(run.ranks[0])
        assert sum(map(len, steps)) == n - run.ranks[0].n_dropped
        read = [row for rows in steps for row in rows]
        assert read == Numbers(n).order(3, epoch)(np.arange(n)).tolist()[: len(read)]
        assert (run.ranks[0].epoch, run.ranks[0].consumed) == (epoch + 1, 0)


def test_fewer_rows_than_ranks_give_empty_batches_and_no_rank_waits_for_another() -> None:
    ranks = [list(Samples(Numbers(3), 2, rank=rank, world_size=8)) for rank in range(8)]
    assert [[batch["row"].size for batch in batches] for batches in ranks] == [[1]] * 3 + [[0]] * 5


def test_an_early_break_goes_on_where_it_stopped() -> None:
    samples = Samples(Numbers(10), 2, seed=None, prefetch=4)
    for batch in samples:
        if batch["row"][0] == 4:
            break
    assert samples.consumed == 6  # not what was read ahead
    assert [batch["row"].tolist() for batch in samples] == [[6, 7], [8, 9]]
    assert len(list(samples)) == 5
    assert samples.epoch == 2


def test_ranks_of_one_replica_read_the_same_rows() -> None:
    one, other = (list(Samples(Numbers(20), 3, rank=1, world_size=2)) for _ in range(2))
    assert all(np.array_equal(a["row"], b["row"]) for a, b in zip(one, other, strict=True))


def test_resuming_takes_no_time_however_far_the_run_was() -> None:
    n = 10**12
    samples = Samples(Numbers(n), 8, rank=5, world_size=64)
    state = {**samples.state_dict(), "epoch": 1, "consumed": 10**9}
    times = []
    for _ in range(5):
        start = time.process_time()
        samples.load_state_dict(state)
        times.append(time.process_time() - start)
    assert min(times) < 1e-3
    batch = next(iter(samples))["row"]
    assert batch.tolist() == Numbers(n).order(0, 1)(10**9 + 5 + 64 * np.arange(8)).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "not a state of version 1"),
        ({"digest": "e"}, "the state is of data with the digest e, but numbers has d"),
        ({"consumed": 11}, "no place in 10 rows: epoch 0, 11 consumed"),
        ({"consumed": -1}, "no place in 10 rows"),
        ({"epoch": "1"}, "no place in 10 rows: epoch '1'"),
        ({"seed": "x"}, "no seed: 'x'"),
        ({"seed": -1}, "seed -1"),
    ],
)
def test_a_state_of_something_else_is_refused(change: dict, message: str) -> None:
    samples = Samples(Numbers(10), 2)
    with pytest.raises(ValueError, match=message):
        samples.load_state_dict({**samples.state_dict(), **change})
    assert samples.consumed == 0


def test_options_that_have_no_meaning_are_refused() -> None:
    for options in ({"batch_size": 0}, {"rank": 1}, {"world_size": 0}, {"rank": -1}, {"seed": -1}):
        with pytest.raises(ValueError, match=r"batch_size must be at least 1, and rank from 0 to|no order of"):
            Samples(Numbers(5), **{"batch_size": 1, **options})
    with pytest.raises(ValueError, match="has no rows"):
        Samples(Numbers(0), 1)
    with pytest.raises(ValueError, match="nothing to drop"):
        Samples(Numbers(5), 1, endless=True, drop_last=True)
    with pytest.raises(ValueError, match="not a state of version 1"):
        Samples(Numbers(5), 1).load_state_dict({"version": 1})
