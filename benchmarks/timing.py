# SPDX-License-Identifier: Apache-2.0
"""Measurements: interleaved rounds, median and spread; wall-clock and memory of whole processes."""

import dataclasses
import resource
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import psutil


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds per call, one sample per round."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the samples, in seconds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """(largest - smallest) / median."""
        return (max(self.seconds) - min(self.seconds)) / self.median

    def times_faster_than(self, other: "Timing") -> float:
        """Returns how many times longer `other` takes, by medians; below 1 if it is faster."""
        return other.median / self.median


def interleave(
    functions: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    at_least_seconds: float = 0.2,
    once: Collection[str] = (),
) -> dict[str, Timing]:
    """Times every function once per round, in turn, so that a slow moment of the machine hits all of them.

    Args:
      functions: what to call, by name; each is expected to be warm.
      rounds: samples per function.
      at_least_seconds: a sample repeats a short call until this much time has passed, and is the mean of those calls.
      once: names whose samples are single calls, however short.
    """
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            n_calls, started = 0, time.perf_counter()
            while True:
                function()
                n_calls += 1
                elapsed = time.perf_counter() - started
                if name in once or elapsed >= at_least_seconds:
                    break
            samples[name].append(elapsed / n_calls)
    return {name: Timing(tuple(seconds)) for name, seconds in samples.items()}


def interleave_first_calls(
    prepare: Mapping[str, Callable[[], Callable[[], object]]], *, rounds: int
) -> dict[str, Timing]:
    """Times one call of what each function returns, once per round, in turn; the functions themselves are not timed."""
    samples: dict[str, list[float]] = {name: [] for name in prepare}
    for _ in range(rounds):
        for name, make in prepare.items():
            function = make()
            started = time.perf_counter()
            function()
            samples[name].append(time.perf_counter() - started)
    return {name: Timing(tuple(seconds)) for name, seconds in samples.items()}


@dataclasses.dataclass(frozen=True)
class ProcessRun:
    """Time and memory of a command."""

    seconds: float
    """Wall-clock time from before the interpreter starts until it has ended."""
    processor_seconds: float
    """Processor time, on all cores, of the process and all its descendants that have ended."""
    largest_process_bytes: int
    """Peak resident memory of the largest process of the tree."""
    all_processes_bytes: int
    """Peak of the sum over all processes of the tree; shared pages count once for each process."""


def run_process(
    command: Sequence[str], *, environment: Mapping[str, str], log: Path, every: float = 0.05
) -> ProcessRun:
    """Runs a command to its end, sampling the memory of it and all its descendants.

    Raises:
      RuntimeError: if it fails, with the end of its output.
    """
    with log.open("wb") as output:
        started = time.perf_counter()
        process = subprocess.Popen(command, env=dict(environment), stdout=output, stderr=subprocess.STDOUT)
        tree = psutil.Process(process.pid)
        peaks = [0, 0]
        done = threading.Event()

        def watch() -> None:
            while not done.wait(every):
                sizes = [_resident_bytes(member) for member in _members(tree)]
                peaks[0] = max(peaks[0], *sizes)
                peaks[1] = max(peaks[1], sum(sizes))

        watcher = threading.Thread(target=watch)
        watcher.start()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        code = process.wait()
        seconds = time.perf_counter() - started
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        done.set()
        watcher.join()
    if code != 0:
        tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise RuntimeError(f"{' '.join(command[:4])} ... ended with exit code {code}:\n{tail}")
    processor_seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return ProcessRun(seconds, processor_seconds, peaks[0], peaks[1])


def _members(tree: psutil.Process) -> list[psutil.Process]:
    try:
        return [tree, *tree.children(recursive=True)]
    except psutil.NoSuchProcess:
        return [tree]


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0
