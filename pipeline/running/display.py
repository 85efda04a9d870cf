# SPDX-License-Identifier: Apache-2.0
"""A job's progress on the screen: a live bar per stage on a terminal, a line every few seconds elsewhere.

Times and rates are for the screen only: nothing here is ever written to a file.
"""

import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self, TextIO

from tokenmill.pipeline.running.progress import Progress, Snapshot
from tokenmill.tokenizer.compiling.waiting import waiting

LINE_SECONDS = 5.0
"""Seconds between lines if there is no terminal."""

_BAR_SECONDS = 0.2
_WINDOW_SECONDS = 10.0
_MEASURABLE_SECONDS = 0.05
_THREAD_NAME = "tokenmill-progress"


@dataclass
class Rates:
    """Speeds over the last seconds, from snapshots."""

    _samples: deque[tuple[float, Snapshot]] = field(default_factory=deque)

    def add(self, now: float, snapshot: Snapshot) -> None:
        """Adds the snapshot of the moment `now`, in seconds."""
        if self._samples and self._samples[-1][1].stage != snapshot.stage:
            self._samples.clear()
        self._samples.append((now, snapshot))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW_SECONDS:
            self._samples.popleft()

    @property
    def are_known(self) -> bool:
        """Whether enough time has passed to measure anything."""
        return len(self._samples) > 1

    def per_second(self, name: str) -> float:
        """Returns how much the field `name` of snapshots grows per second."""
        if not self.are_known:
            return 0.0
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        return (getattr(last, name) - getattr(first, name)) / max(end - start, 1e-9)

    def seconds_left(self) -> float | None:
        """Returns the seconds until the stage is done at this speed; None if that is not known."""
        speed = self.per_second("n_done")
        if not self._samples or speed <= 0:
            return None
        last = self._samples[-1][1]
        return (last.n_planned - last.n_done) / speed


def describe(snapshot: Snapshot, rates: Rates, seconds: float = 0.0) -> str:
    """Returns one line for a log: the stage, how much is done, how fast, and how long it will still take.

    For a stage without a measure, the line says how long it has taken so far.
    """
    parts = [*_share(snapshot), *_details(snapshot, rates, seconds)]
    if not parts:
        return f"{snapshot.stage} ..."
    return f"{snapshot.stage}{' ' if _share(snapshot) else ', '}{', '.join(parts)}"


def _share(snapshot: Snapshot) -> list[str]:
    if not snapshot.n_planned or snapshot.unit != "bytes":
        return []
    return [f"{100 * snapshot.n_done // snapshot.n_planned}% of {megabytes(snapshot.n_planned)}"]


def _counted(snapshot: Snapshot) -> list[str]:
    if snapshot.unit == "bytes" or not (snapshot.n_planned or snapshot.n_done):
        return []
    of = f" of {snapshot.n_planned:,}" if snapshot.n_planned else ""
    return [f"{snapshot.n_done:,}{of} {snapshot.unit}"]


def _details(snapshot: Snapshot, rates: Rates, seconds: float) -> list[str]:
    """Returns what is said of a stage besides its name and its share of bytes, in which it has been for `seconds`."""
    pause = ["waiting for kernels"] if waiting.is_on else []
    if not _share(snapshot):
        return [*_counted(snapshot), *pause, *([f"{clock(seconds)} so far"] if round(seconds) else [])]
    parts = _speeds(rates.per_second("n_bytes"), rates.per_second("n_tokens")) if rates.are_known else []
    if snapshot.n_bytes:
        parts.append(f"{snapshot.n_rejected} rejected")
    parts += pause
    left = rates.seconds_left()
    return [*parts, *([f"{clock(left)} left"] if left is not None and snapshot.n_done < snapshot.n_planned else [])]


def _speeds(n_bytes: float, n_tokens: float) -> list[str]:
    return [f"{n_bytes / 1e6:.1f} MB/s", *([f"{short_number(n_tokens)} tokens/s"] if n_tokens else [])]


def describe_end(snapshot: Snapshot, seconds: float) -> str:
    """Returns one line on a stage that has ended, or in which the job ended, after `seconds`."""
    took = f"{snapshot.stage} took {duration(seconds)}"
    return ", ".join([took, *_share(snapshot), *_counted(snapshot), *_mean_speeds(snapshot, seconds)])


def _mean_speeds(snapshot: Snapshot, seconds: float) -> list[str]:
    if not snapshot.n_bytes:
        return []
    is_measured = seconds >= _MEASURABLE_SECONDS
    speeds = _speeds(snapshot.n_bytes / seconds, snapshot.n_tokens / seconds) if is_measured else []
    return [*speeds, f"{snapshot.n_rejected} rejected"]


def seen(stream: TextIO) -> TextIO:
    """Returns where to show what is no warning: in a notebook, where stderr is red, stdout in its place."""
    return sys.stdout if type(stream).__module__.startswith("ipykernel.") else stream


@contextlib.contextmanager
def show(source: Progress, stream: TextIO, *, line_seconds: float = LINE_SECONDS, after: float = 0.0) -> Iterator[None]:
    """Shows a job's progress on `stream` while the block runs: a bar on a terminal, lines elsewhere.

    In a notebook it is one line that changes.

    Args:
      after: seconds; a block that takes less shows nothing.
    """
    stop = threading.Event()
    arguments = (source, stream, stop, line_seconds, after)
    thread = threading.Thread(target=_show, args=arguments, name=_THREAD_NAME, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _show(source: Progress, stream: TextIO, stop: threading.Event, line_seconds: float, after: float) -> None:
    if after and stop.wait(after):
        return
    place = seen(stream)
    lines = _Lines(stream, line_seconds) if place is stream else _Line(place)
    with _Bars(stream) if stream.isatty() else lines as view:
        n_over, rates, is_last = 0, Rates(), stop.is_set()
        while True:
            if is_last:
                source.refresh()
            now = time.monotonic()
            *ended, running = source.lengths(now)
            for stage, seconds in [*ended, *([running] if is_last else [])][n_over:]:
                view.end(source.snapshot(stage), seconds)
            if is_last:
                return
            n_over, snapshot = len(ended), source.snapshot(running[0])
            rates.add(now, snapshot)
            view.go_on(snapshot, rates, now, running[1])
            is_last = stop.wait(_BAR_SECONDS)


class _Lines(contextlib.nullcontext["_Lines"]):
    """Writes a line whenever the job enters or leaves a stage, and every few seconds."""

    def __init__(self, stream: TextIO, line_seconds: float) -> None:
        super().__init__(self)
        self._stream, self._line_seconds, self._next_line = stream, line_seconds, 0.0

    def end(self, snapshot: Snapshot, seconds: float) -> None:
        """Writes how a stage has ended."""
        self._write(describe_end(snapshot, seconds))
        self._next_line = 0.0

    def go_on(self, snapshot: Snapshot, rates: Rates, now: float, seconds: float) -> None:
        """Writes where the job is, if the last line is old."""
        if now >= self._next_line:
            self._write(describe(snapshot, rates, seconds))
            self._next_line = now + self._line_seconds

    def _write(self, line: str) -> None:
        print(f"tokenmill: {line}", file=self._stream, flush=True)


class _Line(_Lines):
    """Writes the same over and over into one line."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream, 1.0)
        self._width = 0

    def __exit__(self, *_: object) -> None:
        print(file=self._stream, flush=True)

    def _write(self, line: str) -> None:
        print(f"\r{line:{self._width}}", end="", file=self._stream, flush=True)
        self._width = len(line)


class _Bars(contextlib.AbstractContextManager["_Bars"]):
    """Draws a bar per stage, the finished ones above the running one."""

    def __init__(self, stream: TextIO) -> None:
        from rich import progress as bars

        from tokenmill.pipeline.running.terminal import Terminal

        columns = (
            bars.SpinnerColumn(finished_text="✓"),
            bars.TextColumn("{task.description:<10}", markup=False),
            bars.BarColumn(bar_width=None),
            bars.TaskProgressColumn(),
            bars.TextColumn("{task.fields[details]}", markup=False),
        )
        self._bars = bars.Progress(*columns, console=Terminal(stream), expand=True)
        self._tasks: dict[str, bars.TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def end(self, snapshot: Snapshot, seconds: float) -> None:
        """Completes the bar of a stage without a measure; one with a measure shows how far it really came."""
        total, done = (snapshot.n_planned, snapshot.n_done) if snapshot.n_planned else (1, 1)
        self._draw(snapshot.stage, total, done, [*_mean_speeds(snapshot, seconds), duration(seconds)])

    def go_on(self, snapshot: Snapshot, rates: Rates, now: float, seconds: float) -> None:
        """Draws the bar of the running stage."""
        details = _details(snapshot, rates, seconds)
        self._draw(snapshot.stage, snapshot.n_planned or None, snapshot.n_done, details)

    def _draw(self, stage: str, total: int | None, n_done: int, details: Sequence[str]) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=None, details="")
        self._bars.update(self._tasks[stage], total=total, completed=n_done, details="  ".join(details))


def megabytes(n_bytes: float) -> str:
    """Returns `n_bytes` for a person: decimal units, as disks and networks are measured.

    >>> megabytes(1_234_567)
    '1.2 MB'
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes:.0f} B"


def short_number(number: float) -> str:
    """Returns a number of at most five characters.

    >>> short_number(12_345_678)
    '12.3M'
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"


def clock(seconds: float) -> str:
    """Returns a duration as hours, minutes and seconds.

    >>> clock(3725)
    '1:02:05'
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def duration(seconds: float) -> str:
    """Returns a duration in tenths of seconds, or from a minute on as `clock` does.

    >>> duration(3.21), duration(75)
    ('3.2 s', '1:15')
    """
    return f"{seconds:.1f} s" if seconds < 60 else clock(seconds)
