# SPDX-License-Identifier: Apache-2.0
"""Progress of a job: what its workers have done, wherever they run.

A `Progress` gives a `Snapshot`, which `display.show` draws. Workers in this process report every batch to it, and it
can tell them to stop. What workers elsewhere have done it sees in the output folder, a split at a time.
"""

import contextlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tokenmill.pipeline import storage
from tokenmill.pipeline.books.counts import nest
from tokenmill.pipeline.books.reject_limits import RejectLimits
from tokenmill.pipeline.splits import Split

_POLL_SECONDS = 1.0
_REMOTE_POLL_SECONDS = 10.0
# The usual compression ratio of text; replaced by that of this job's own files as soon as one is done.
_USUAL_RATIO = 0.3


class Amount(NamedTuple):
    """What was done of a batch, of a split, or in all."""

    n_bytes: int = 0
    """Bytes read."""
    n_records: int = 0
    """Records read, including rejected and filtered ones."""
    n_rejected: int = 0
    n_filtered: int = 0
    n_tokens: int = 0

    def plus(self, other: "Amount") -> "Amount":
        """Returns the sum of both."""
        return Amount(*(a + b for a, b in zip(self, other, strict=True)))


OnBatch = Callable[[Amount], None]
"""Called after each batch. An exception from it, such as `Cancelled`, stops the work."""


class Cancelled(Exception):  # noqa: N818  # a request, not an error
    """Raised in workers of this process when the job is to stop."""


@dataclass(frozen=True)
class Stage:
    """A part of a job whose amount of work is known. Several stages may read the same splits."""

    name: str
    folder: str
    """The folder, inside the output folder, in which each finished split has a file `<id>.json`."""
    splits: Mapping[str, int]
    """Planned bytes of each split, by its id."""
    estimated: frozenset[str] = frozenset()
    """Splits of compressed files: their planned bytes are compressed bytes, so the share that is done is estimated."""

    @property
    def n_bytes(self) -> int:
        """Planned bytes of all splits."""
        return sum(self.splits.values())

    @classmethod
    def of(cls, name: str, folder: str, splits: Iterable[Split]) -> "Stage":
        """Returns the stage that reads `splits`."""
        sizes: dict[str, int] = {}
        estimated: set[str] = set()
        for split in splits:
            sizes[split.id] = split.n_bytes
            if any(not (piece.has_rows or piece.is_read_as_stored) for piece in split.pieces):
                estimated.add(split.id)
        return cls(name, folder, sizes, frozenset(estimated))


@dataclass(frozen=True)
class Snapshot:
    """The progress of a job at one moment."""

    stage: str
    """The name of the current stage."""
    n_done: int = 0
    """How many of the stage's planned bytes, or other units, are done; a stage without a measure has 0 of 0."""
    n_planned: int = 0
    n_bytes: int = 0
    """Bytes read by this run in this stage, decompressed."""
    n_tokens: int = 0
    n_rejected: int = 0
    unit: str = "bytes"
    """The unit of `n_done` and `n_planned`."""


class Progress:
    """What the workers of a job have done. Safe to use from several threads."""

    def __init__(self, stages: Iterable[Stage] = (), limits: RejectLimits | None = None) -> None:
        """Starts at zero.

        Args:
          stages: the stages whose amount of work is known, in the order in which they run.
          limits: for the rejected records of all splits of a stage together.
        """
        self._limits = limits
        self._stages = {stage.name: stage for stage in stages}
        self._lock = threading.Lock()
        self._stage = next(iter(self._stages), "starting")
        self._entered = {self._stage: time.monotonic()}
        self._running: dict[tuple[str, str], Amount] = {}
        self._done: dict[str, set[str]] = {name: set() for name in self._stages}
        self._totals: defaultdict[str, Amount] = defaultdict(Amount)
        self._n_estimated = [0, 0]
        self._measures: dict[str, tuple[str, int, Callable[[], int]]] = {}
        self._cancelled = threading.Event()
        self._output: str | None = None
        self._next_look = 0.0

    def look_at(self, output: str) -> None:
        """Looks at the output folder from now on, for the splits that workers elsewhere have done.

        Those that are done already do not count as work of this run.
        """
        self._output = output
        self._done = {stage.name: self._finished(output, stage) for stage in self._stages.values()}

    def enter(self, stage: str) -> None:
        """Records that the job enters a stage."""
        with self._lock:
            self._enter(stage)

    def advance(self, stage: str, split_id: str, done: Amount) -> None:
        """Adds a batch of a split.

        Raises:
          Cancelled: if the job is to stop; the split must not be committed.
          ValueError: if more records were rejected, in all splits together, than the limits allow.
        """
        if self._cancelled.is_set():
            raise Cancelled("the job was stopped")
        total = self._count(stage, split_id, done)
        if self._limits is not None:
            self._limits.check(total.n_records, total.n_rejected)

    def _count(self, stage: str, split_id: str, done: Amount) -> Amount:
        """Adds a batch of a split; returns the sum of the stage."""
        with self._lock:
            self._enter(stage)
            self._running[stage, split_id] = self._running.get((stage, split_id), Amount()).plus(done)
            self._totals[stage] = self._totals[stage].plus(done)
            return self._totals[stage]

    def finish(self, stage: str, split_id: str) -> None:
        """Records that a split is committed, by this run or an earlier one."""
        with self._lock:
            self._enter(stage)
            self._done.setdefault(stage, set()).add(split_id)
            read = self._running.pop((stage, split_id), None)
            known = self._stages.get(stage)
            if read is not None and known is not None and split_id in known.estimated:
                self._n_estimated[0] += known.splits[split_id]
                self._n_estimated[1] += read.n_bytes

    def measure(self, stage: str, unit: str, n_planned: int, n_done: Callable[[], int]) -> None:
        """Records how a stage that does not read splits is measured from now on.

        Args:
          n_done: says how many of them are done, whenever it is called.
        """
        with self._lock:
            self._measures[stage] = unit, n_planned, n_done

    def cancel(self) -> None:
        """Makes every later `advance` raise `Cancelled`."""
        self._cancelled.set()

    def snapshot(self, stage: str | None = None) -> Snapshot:
        """Returns how far the job is now, in its current stage or in `stage`.

        Looks at the folder, if there is one, at most every second, every ten where it is remote.
        """
        if self._output is not None and time.monotonic() >= self._next_look:
            self.refresh()
        with self._lock:
            name = stage or self._stage
            total = self._totals[name]
            known = self._stages.get(name)
            if name in self._measures:
                unit, n_planned, count = self._measures[name]
                return Snapshot(name, count(), n_planned, unit=unit)
            if known is None:
                return Snapshot(name, 0, 0, total.n_bytes, total.n_tokens, total.n_rejected)
            order = list(self._stages)
            if self._output is not None and self._stage in order and order.index(name) < order.index(self._stage):
                # The stage has ended, and its files may have been removed before they were looked at.
                return Snapshot(name, known.n_bytes, known.n_bytes, total.n_bytes, total.n_tokens, total.n_rejected)
            n_done = sum(known.splits.get(split_id, 0) for split_id in self._done[name])
            for (stage_of, split_id), counts in self._running.items():
                if stage_of == name:
                    n_done += self._share(known, split_id, counts.n_bytes)
            return Snapshot(name, n_done, known.n_bytes, total.n_bytes, total.n_tokens, total.n_rejected)

    def lengths(self, now: float) -> list[tuple[str, float]]:
        """Returns the stages the job has been in, in order, and the seconds it was in each, the last one until `now`.

        The job is in a stage until it enters the next; `now` is of `time.monotonic`.
        """
        with self._lock:
            starts = [*self._entered.values(), now]
            return [(name, end - since) for name, since, end in zip(self._entered, starts, starts[1:], strict=False)]

    def refresh(self) -> None:
        """Looks at the output folder now, if there is one; where workers report, all answers are of the moment."""
        if self._output is None:
            return
        seconds = _REMOTE_POLL_SECONDS if storage.is_remote(self._output) else _POLL_SECONDS
        self._next_look = time.monotonic() + seconds
        for stage in self._stages.values():
            for split_id in self._finished(self._output, stage) - self._done[stage.name]:
                self._count(stage.name, split_id, self._read(self._output, stage, split_id))
                self.finish(stage.name, split_id)

    def _enter(self, stage: str) -> None:
        if stage not in self._entered:  # a late report from an earlier stage does not go back to it
            self._entered[stage] = time.monotonic()
            self._stage = stage

    def _share(self, stage: Stage, split_id: str, n_read: int) -> int:
        planned = stage.splits.get(split_id, 0)
        if split_id not in stage.estimated:
            return min(n_read, planned)
        n_stored, n_text = self._n_estimated
        ratio = n_stored / n_text if n_text else _USUAL_RATIO
        return min(int(n_read * ratio), planned * 95 // 100)

    @staticmethod
    def _finished(output: str, stage: Stage) -> set[str]:
        names = storage.list_files(storage.join(output, stage.folder))
        return {name.removesuffix(".json") for name in names if name.endswith(".json")} & stage.splits.keys()

    @staticmethod
    def _read(output: str, stage: Stage, split_id: str) -> Amount:
        """Returns the bytes, rejected records and tokens of a split."""
        path = storage.join(output, stage.folder, f"{split_id}.json")
        # Another attempt may be replacing the file, or the job may have removed it; it is only a number on the screen.
        with (
            contextlib.suppress(OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError),
            storage.open_read(path) as handle,
        ):
            entry = json.loads(handle.read())
            numbers = entry.get("totals", entry.get("sums")) or nest(entry["counts"][""])
            n_bytes = numbers.get("n_bytes", stage.splits[split_id])  # a shard of a shuffle reads no input
            n_rejected = sum(numbers.get("rejected", {}).values())
            return Amount(n_bytes, n_rejected=n_rejected, n_tokens=numbers.get("n_tokens", 0))
        return Amount()


# The last one is in effect. A global list, because threads that did not enter the block must see it, too.
_reporting: list[Progress] = []


def current() -> Progress | None:
    """Returns the progress that workers of this process report to; None if there is none, as in other processes."""
    return _reporting[-1] if _reporting else None


@contextlib.contextmanager
def reporting_to(progress: Progress) -> Iterator[None]:
    """Makes workers of this process report to `progress`, whatever their thread."""
    _reporting.append(progress)
    try:
        yield
    finally:
        _reporting.remove(progress)
