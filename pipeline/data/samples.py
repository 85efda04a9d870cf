# SPDX-License-Identifier: Apache-2.0
"""`Samples`, the batches of one rank of a training run, whose state is four numbers that fit any other run.

rows in order     0 1 2 3 4 5 6 7 | 8 9 10 11 12 13 14 15 | ...      one step reads batch_size * world_size rows
rank 0 of 2       0   2   4   6   | 8   10    12    14    | ...      a rank reads every world_size-th of them
after one step    consumed = 8, on every rank: another world size or batch size goes on from there
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.data.order import Int64s, Order

STATE_VERSION = 1
_KEYS = {"version", "digest", "seed", "epoch", "consumed"}

_AHEAD = 8192
"""Places whose rows are computed at once: 30 ns each then, 1 us each for a batch of 64."""


Batch = TypeVar("Batch")


class Readable(Protocol):
    """What `Samples` needs of `rows.Rows`."""

    digest: str
    name: str
    schema: pa.Schema

    def __len__(self) -> int: ...
    def take(self, rows: Int64s) -> pa.RecordBatch: ...  # noqa: D102
    def order(self, seed: int | None, epoch: int = 0) -> Order: ...  # noqa: D102


class Samples:
    """The batches of one rank. Iterating reads from the current position to the end of the epoch, and then stops.

    Every row comes exactly once per epoch, on any number of ranks and in any size of batches, also where these change
    between `state_dict` and `load_state_dict`. The position counts the batches that were handed out on this rank and,
    as all ranks take the same steps, on all of them; rows that were only prefetched do not count.
    """

    def __init__(
        self,
        rows: Readable,
        batch_size: int,
        *,
        seed: int | None = 0,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        endless: bool = False,
        form: Literal["numpy", "arrow"] = "numpy",
        prefetch: int = 0,
    ) -> None:
        """Starts before the first row of epoch 0.

        Args:
          rows: the data.
          batch_size: the rows of a batch, on each rank.
          seed: of the order; None for the order in which rows are stored, in each epoch.
          rank: which of the data-parallel ranks this is. Ranks that hold parts of one replica of the model (tensor,
            pipeline, context parallel) have the same, and so read the same rows.
          world_size: how many data-parallel ranks there are.
          drop_last: leave out the last step of an epoch if there are not enough rows for it. Otherwise its batches are
            shorter, by ranks one row apart at most, and empty on some ranks if there are fewer rows than ranks.
          endless: never stop. All batches are full then: the last rows of an epoch come together with the first ones
            of the next, and none is left out.
          form: "numpy", a dict as `to_numpy` makes it, or "arrow", a `pa.RecordBatch`.
          prefetch: batches that are read ahead, by as many threads; 2 or 4 for Parquet or a store, 0 for local maps.

        Raises:
          ValueError: if a number is out of range, or there are no rows.
        """
        if not (0 <= rank < world_size and batch_size > 0):
            given = f"batch_size {batch_size}, rank {rank}, world_size {world_size}"
            raise ValueError(f"{given}: batch_size must be at least 1, and rank from 0 to world_size - 1")
        if not len(rows):
            raise ValueError(f"{rows.name} has no rows")
        if endless and drop_last:
            raise ValueError("endless batches are all full: drop_last has nothing to drop")
        self.rows, self.batch_size, self.seed = rows, batch_size, seed
        self.rank, self.world_size = rank, world_size
        self._drop_last, self._endless = drop_last, endless
        self._form = to_numpy if form == "numpy" else lambda batch: batch
        self._prefetch = prefetch
        self._position = 0  # rows consumed since the beginning of epoch 0
        rows.order(seed)  # checks the seed

    @property
    def epoch(self) -> int:
        """The epoch of the next row, from 0."""
        return self._position // len(self.rows)

    @property
    def consumed(self) -> int:
        """How many rows of this epoch all ranks together have read."""
        return self._position % len(self.rows)

    @property
    def n_dropped(self) -> int:
        """How many rows of every epoch are left out, with `drop_last`, if batches stay as they are."""
        return len(self.rows) % (self.batch_size * self.world_size) if self._drop_last else 0

    def __len__(self) -> int:
        """Returns the number of batches of a whole epoch; endless ones, too, rounded up."""
        step = self.batch_size * self.world_size
        return len(self.rows) // step if self._drop_last else -(-len(self.rows) // step)

    def __iter__(self) -> Iterator[Any]:
        """Yields batches from the current position on; whoever stops early goes on there with the next `iter`."""
        return self.counted(_ahead(self.steps(), lambda rows: self._form(self.rows.take(rows)), self._prefetch))

    def counted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yields batches that something has made of `steps`, and counts each when it is handed out."""
        end = (self.epoch + 1) * len(self.rows)
        for batch, position in zip(batches, self._ends(), strict=False):
            self._position = position
            yield batch
        self._position = end  # beyond what was dropped

    def _ends(self) -> Iterator[int]:
        """Yields the position behind each step."""
        position, step, n = self._position, self.batch_size * self.world_size, len(self.rows)
        end = (position // n + 1) * n
        while self._endless or position + (step if self._drop_last else 1) <= end:
            position = position + step if self._endless else min(position + step, end)
            yield position

    def steps(self) -> Iterator[Int64s]:
        """Yields the rows of each step of this rank, int64, from the current position on; reads nothing itself."""
        start, ends, n_steps = self._position, self._ends(), 1
        most = max(1, min(_AHEAD // self.batch_size, len(self.rows) // (self.batch_size * self.world_size)))
        while block := list(itertools.islice(ends, n_steps)):
            # The places of a rank are equally far apart, also from one step to the next.
            rows = self.rows_at(np.arange(start + self.rank, block[-1], self.world_size))
            for i in range(len(block)):
                yield rows[i * self.batch_size : (i + 1) * self.batch_size]
            start, n_steps = block[-1], min(2 * n_steps, most)  # few at first: the first batch should come at once

    def rows_at(self, places: Int64s) -> Int64s:
        """Returns the rows at some places, which are counted from the beginning of epoch 0; int64[n], as `places`."""
        epochs, within = np.divmod(places, len(self.rows))
        rows, by_epoch = np.empty_like(within), np.argsort(epochs, kind="stable")
        for which in np.split(by_epoch, np.flatnonzero(np.diff(epochs[by_epoch])) + 1) if by_epoch.size else ():
            rows[which] = self.rows.order(self.seed, int(epochs[which[0]]))(within[which])
        return rows

    def place(self, step: int, row: int) -> int:
        """Returns where a row of this rank's batch is, counted from the beginning of epoch 0; see `rows_at`.

        Args:
          step: counted from the current position, 0 for the next batch.
          row: of that batch.

        Raises:
          IndexError: if the batch has no such row.
        """
        n, size = len(self.rows), self.batch_size * self.world_size
        first, end, behind = self._position, (self.epoch + 1) * n, step
        left = (end - first) // size if self._drop_last else -(-(end - first) // size)
        if not self._endless and step >= left and len(self):
            epochs, behind = divmod(step - left, len(self))
            first, end = end + epochs * n, end + (epochs + 1) * n
        place = first + behind * size + row * self.world_size + self.rank
        if step < 0 or not 0 <= row < self.batch_size or not (self._endless or place < end):
            raise IndexError(f"step {step} has no row {row} on rank {self.rank} of {self.world_size}")
        return place

    def state_dict(self) -> dict[str, Any]:
        """Returns the state, plain JSON: which data, which seed, which epoch, and how many of its rows are consumed."""
        return {
            "version": STATE_VERSION,
            "digest": self.rows.digest,
            "seed": self.seed,
            "epoch": self.epoch,
            "consumed": self.consumed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state_dict` was called, on whatever rank of however many; takes over the seed.

        Raises:
          ValueError: if the state is not one of this version, or of other data; says which.
        """
        if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION or not state.keys() >= _KEYS:
            raise ValueError(f"not a state of version {STATE_VERSION} of TokenMill's reader: {str(state)[:200]}")
        if state["digest"] != self.rows.digest:
            raise ValueError(
                f"the state is of data with the digest {state['digest']}, but {self.rows.name} has {self.rows.digest}: "
                "open the folder, and the selection of its rows, that the state was saved with"
            )
        epoch, consumed, n = state["epoch"], state["consumed"], len(self.rows)
        if not (type(epoch) is int and type(consumed) is int and epoch >= 0 and 0 <= consumed <= n):
            raise ValueError(f"no place in {n:,} rows: epoch {epoch!r}, {consumed!r} consumed")
        if state["seed"] is not None and type(state["seed"]) is not int:
            raise ValueError(f"no seed: {state['seed']!r}")
        self.rows.order(state["seed"], epoch)
        self.seed, self._position = state["seed"], epoch * n + consumed


def _ahead(steps: Iterator[Int64s], read: Callable[[Int64s], Any], n_ahead: int) -> Iterator[Any]:
    """Yields what `read` makes of the rows of each step, in order, `n_ahead` of them read early by as many threads."""
    if not n_ahead:
        yield from map(read, steps)
        return
    with ThreadPoolExecutor(n_ahead) as pool:
        waiting: deque[Future[Any]] = deque()
        try:
            for rows in steps:
                waiting.append(pool.submit(read, rows))
                if len(waiting) > n_ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # also when nobody wants the rest
            for future in waiting:
                future.cancel()


def to_numpy(batch: pa.RecordBatch) -> dict[str, Any]:
    """Returns the columns of a batch.

    Returns:
      An array for each column of numbers; for lists of numbers an array of two dimensions if all are equally long, else
      a list of arrays; a list of Python's values for any other column.
    """
    made: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if is_number(column.type):
            made[name] = column.to_numpy(zero_copy_only=False)
        elif not pa.types.is_large_list(column.type) or not is_number(column.type.value_type):
            made[name] = column.to_pylist()
        else:
            values, offsets = column.values.to_numpy(zero_copy_only=False), column.offsets.to_numpy()
            sizes = np.diff(offsets)
            is_even = sizes.size > 0 and bool((sizes == sizes[0]).all())
            made[name] = values.reshape(sizes.size, -1) if is_even else np.split(values, offsets[1:-1])[: sizes.size]
    return made


def is_number(type_: pa.DataType) -> bool:
    """Returns whether NumPy has such numbers, or bools."""
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_))
