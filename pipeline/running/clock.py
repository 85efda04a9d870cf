# SPDX-License-Identifier: Apache-2.0
"""Times of a job. They depend on the clock and the machine, and are therefore in no other file of an output.

Workers write a file for each split into `_clock/`. When the job is done, `gather` makes one `clock.json` from them,
which no manifest lists and no digest covers.
"""

import array
import contextlib
import datetime
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, TypeAdapter

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import json_files
from tokenmill.pipeline.books.json_files import Count, Seconds
from tokenmill.pipeline.splits import Split

FORMAT_VERSION = 2

BINS = 30
"""The number of points of the throughput over time."""

SLOWEST = 10
"""So many splits are listed by name: those that took longest."""


@dataclass(frozen=True)
class SplitTime:
    """When one split was done, by which worker, and how much it was."""

    split: str
    index: int
    source: str
    """The name of its first file."""
    started: float
    """Seconds since 1970, by the worker's clock."""
    ended: float
    cpu_seconds: float
    n_bytes: int
    n_tokens: int
    host: str
    worker: str
    """The process and thread on that host."""


class Stopwatch:
    """Measures the time of one split from its construction on; use it in the thread that does the work."""

    def __init__(self, output: str, split: Split) -> None:
        """Starts."""
        self._output, self._split = output, split
        self._wall, self._cpu = time.time(), time.thread_time()

    def stop(self, n_bytes: int, n_tokens: int) -> None:
        """Writes the time of the split, which is committed; that the file cannot be written is no error."""
        host, worker = socket.gethostname(), f"{os.getpid()}-{threading.get_native_id()}"
        source, cpu_seconds = self._split.pieces[0].name, time.thread_time() - self._cpu
        read = (n_bytes, n_tokens, host, worker)
        times = SplitTime(self._split.id, self._split.index, source, self._wall, time.time(), cpu_seconds, *read)
        path = storage.join(self._output, filenames.CLOCKS, f"{times.split}.json")
        # If the worker dies here, `gather` ignores the incomplete file; nothing else reads it.
        with contextlib.suppress(OSError), storage.create(path) as handle:
            handle.write(json.dumps(asdict(times)).encode())


def gather(
    output: str,
    n_splits: int,
    started: float,
    stages: Sequence[tuple[str, float]],
    seconds: float,
    config: Mapping[str, Any] | None = None,
) -> None:
    """Writes `clock.json` of a finished job, and removes the files of its splits.

    Holds 40 bytes for each split, the names of their files, and `SLOWEST` records.

    Args:
      started: when the job began, in seconds since 1970. Splits done by earlier, stopped runs count in all sums, but
        not in the throughput, since the pauses between runs are unknown.
      config: the config of the job as plain JSON, without defaults, but with its paths, which no digest covers.

    Raises:
      OSError: if a file cannot be read or written.
    """
    folder = storage.join(output, filenames.CLOCKS)
    times_of, workers = array.array("d"), set()
    slowest: list[SplitTime] = []
    for name in storage.list_files(folder):
        with storage.open_read(storage.join(folder, name)) as handle:
            times = _read(handle.read())
        if times is None:
            continue
        times_of.extend((times.started, times.ended, times.cpu_seconds, times.n_bytes, times.n_tokens))
        workers.add((times.host, times.worker))
        slowest = sorted([*slowest, times], key=lambda each: (each.started - each.ended, each.index))[:SLOWEST]
    table = np.frombuffer(times_of, np.float64).reshape(-1, 5)
    lengths, is_earlier = table[:, 1] - table[:, 0], table[:, 1] < started
    speeds = table[:, 3] / np.maximum(lengths, 1e-9)
    usual = float(np.median(speeds)) if speeds.size else 0.0
    when = datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds")
    found = {
        "format_version": FORMAT_VERSION,
        "started": when,
        "seconds": seconds,
        "config": config,
        "stages": [{"stage": name, "seconds": each} for name, each in stages],
        "hosts": len({host for host, _ in workers}),
        "workers": len(workers),
        "splits": {"planned": n_splits, "timed": len(table), "earlier": int(is_earlier.sum())},
        "worker_seconds": float(lengths.sum()),
        "cpu_seconds": float(table[:, 2].sum()),
        "seconds_of_splits": {f"p{p}": float(np.percentile(lengths, p)) for p in (50, 95, 100)} if len(table) else {},
        "bytes_per_second_of_splits": usual,
        "throughput": _throughput(table[~is_earlier]),
        "slowest": [_told(times, usual) for times in slowest],
    }
    storage.write_atomic(storage.join(output, filenames.CLOCK), json.dumps(found, indent=1).encode() + b"\n")
    storage.delete_tree(folder)


def _read(data: bytes) -> SplitTime | None:
    """Returns the time of a split; None where the file is not one, for example of another version."""
    try:
        return json_files.check(json_files.load(data), _SPLIT, "not the time of a split")
    except (ValueError, RecursionError):
        return None


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True)


class _Stage(_Shape):
    stage: str
    seconds: Seconds


class _Splits(_Shape):
    planned: Count
    timed: Count
    earlier: Count


class _Lengths(_Shape):
    p50: Seconds
    p95: Seconds
    p100: Seconds


class _Nothing(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Point(_Shape):
    second: Seconds
    bytes_per_second: Seconds
    tokens_per_second: Seconds


class _Slow(_Shape):
    split: str
    index: Count
    source: str
    host: str
    n_bytes: Count
    n_tokens: Count
    seconds: Seconds
    cpu_seconds: Seconds
    speed: Seconds | None


class _Clock(_Shape):
    """The shape of `clock.json`."""

    started: str
    seconds: Seconds
    config: dict[str, Any] | None = None
    stages: list[_Stage]
    hosts: Count
    workers: Count
    splits: _Splits
    worker_seconds: Seconds
    cpu_seconds: Seconds
    seconds_of_splits: _Lengths | _Nothing
    throughput: list[_Point]
    slowest: list[_Slow]


_SPLIT, _CLOCK = TypeAdapter(SplitTime), TypeAdapter(_Clock)


def read(output: str) -> dict[str, Any]:
    """Returns `clock.json` of a folder.

    Raises:
      ValueError: if it is not as `gather` writes it; OSError: if it cannot be read.
    """
    found: dict[str, Any] = json_files.read(output, filenames.CLOCK, _CLOCK)
    return found


def _told(times: SplitTime, usual: float) -> Mapping[str, Any]:
    seconds = times.ended - times.started
    speed = times.n_bytes / max(seconds, 1e-9)
    return {
        **{name: getattr(times, name) for name in ("split", "index", "source", "host", "n_bytes", "n_tokens")},
        "seconds": seconds,
        "cpu_seconds": times.cpu_seconds,
        "speed": speed / usual if usual else None,  # as a multiple of the median
    }


def _throughput(table: npt.NDArray[np.float64]) -> list[dict[str, float]]:
    """Returns bytes and tokens of `BINS` intervals of equal length, as if each split had gone at a constant rate."""
    if not len(table):
        return []
    begin, end = table[:, 0].min(), table[:, 1].max()
    edges = np.linspace(begin, end, BINS + 1)
    width = (end - begin) / BINS
    if not width:
        return []
    lengths = np.maximum(table[:, 1] - table[:, 0], 1e-9)
    points = []
    for left, right in itertools.pairwise(edges):
        shares = np.clip(np.minimum(table[:, 1], right) - np.maximum(table[:, 0], left), 0, None) / lengths
        points.append(
            {
                "second": float(right - begin),
                "bytes_per_second": float(shares @ table[:, 3] / width),
                "tokens_per_second": float(shares @ table[:, 4] / width),
            }
        )
    return points
