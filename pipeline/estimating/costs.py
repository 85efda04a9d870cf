# SPDX-License-Identifier: Apache-2.0
"""The time and memory of a job on this machine, estimated from what its parts took in a trial.

    seconds(n workers) = start + training + (merging / n + pace * bytes of the busiest worker) (1 + CONTENTION (n - 1))

The start is measured by a job of the same config over a page of text, Beam, tokenizer, vocabulary and report included.
The pace is that of the second half of the trial, when the tokenizer has met the usual words. Which splits a worker gets
follows from the plan. Workers beyond the cores of the machine bring nothing.
"""

import importlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill.pipeline.config.job import Config, JobName
from tokenmill.pipeline.estimating import rehearsal
from tokenmill.pipeline.running.runners import RunnerSettings, available_cores

CONTENTION = 0.09
"""How much each further worker slows all workers down, as a fraction: two threads do 1.84 times the work of one."""

START_SECONDS = 2.0
"""The start, where it could not be measured."""
_SLOW_START = 5.0

TIME_BOUND = 0.3
MEMORY_BOUND = 0.3
"""The relative error of time and memory: they depend on other work of the machine, and on when memory is returned."""


@dataclass(frozen=True)
class Work:
    """The work of a job, as far as its time and memory depend on it."""

    split_bytes: npt.NDArray[np.int64]
    """int64[n]: planned bytes of the splits, in order."""
    pace: float
    """Seconds for each planned byte."""
    merge_seconds: float
    """The time for merging counts, or the runs of a shuffle, which is also divided among workers."""
    train_seconds: float
    worker_bytes: int
    """The memory that a worker takes."""
    other_bytes: int
    """The other memory of the process."""

    @property
    def split_seconds(self) -> float:
        """The time for all splits with one worker."""
        return self.pace * int(self.split_bytes.sum())

    def seconds(self, start_seconds: float, workers: int) -> float:
        """Returns how long the job takes."""
        at_once = min(workers, available_cores())
        slower = 1 + CONTENTION * (at_once - 1)
        busiest = max(self.pace * self.busiest(workers), self.split_seconds / at_once)
        return start_seconds + self.train_seconds + (busiest + self.merge_seconds / at_once) * slower

    def busiest(self, workers: int) -> int:
        """Returns the bytes that the busiest worker has to read; splits are dealt out in turn, the largest first."""
        ordered = np.sort(self.split_bytes)[::-1]
        return max(int(ordered[first::workers].sum()) for first in range(workers))

    def memory(self, workers: int) -> int:
        """Returns the peak of all processes together, in bytes: every worker holds one batch and one row group."""
        return self.other_bytes + min(workers, max(1, len(self.split_bytes))) * self.worker_bytes


def measure_start(name: JobName, config: Config, settings: RunnerSettings) -> float:
    """Returns the seconds of a job over a page of text, imports of Beam included.

    Raises:
      Exception: whatever the job raises for such a text.
    """
    started = time.perf_counter()
    importlib.import_module("tokenmill.pipeline.transforms.jobs")
    importing = time.perf_counter() - started
    seconds = _SLOW_START + 1
    for _ in range(2):
        if seconds > _SLOW_START:  # the first time, kernels may have been compiled
            started = time.perf_counter()
            rehearsal.rehearse(name, config, settings)
            seconds = time.perf_counter() - started
    return importing + seconds


def memory_now() -> int:
    """Returns the memory that this process has, in bytes; its peak where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return peak_memory()


def peak_memory() -> int:
    """Returns the most memory that this process has had, in bytes; 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
