# SPDX-License-Identifier: Apache-2.0
"""A job's progress on the screen: a live bar per stage on a terminal, a line every few seconds elsewhere.

Times and rates are for the screen only: nothing here is ever written to a file.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from tokenmill.pipeline.running.progress import Snapshot, Source

if TYPE_CHECKING:
    import rich.progress

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
    if not snapshot.n_planned:
        return f"{snapshot.stage}, {clock(seconds)} so far" if round(seconds) else f"{snapshot.stage} ..."
    if snapshot.unit != "bytes":
        return f"{snapshot.stage}, {_done(snapshot)}, {clock(seconds)} so far"
    percent = 100 * snapshot.n_done // snapshot.n_planned
    parts = [f"{snapshot.stage} {percent}% of {megabytes(snapshot.n_planned)}"]
    if rates.are_known:
        parts.append(f"{rates.per_second('n_bytes') / 1e6:.1f} MB/s")
        if snapshot.n_tokens:
            parts.append(f"{short_number(rates.per_second('n_tokens'))} tokens/s")
    if snapshot.n_bytes:
        parts.append(f"{snapshot.n_rejected} rejected")
    left = rates.seconds_left()
    if left is not None and snapshot.n_done < snapshot.n_planned:
        parts.append(f"{clock(left)} left")
    return ", ".join(parts)


def _done(snapshot: Snapshot) -> str:
    return f"{snapshot.n_done:,} of {snapshot.n_planned:,} {snapshot.unit}"


def describe_end(snapshot: Snapshot, seconds: float) -> str:
    """Returns one line on a stage that has ended, or in which the job ended, after `seconds`."""
    parts = [f"{snapshot.stage} took {duration(seconds)}"]
    if snapshot.n_planned and snapshot.unit == "bytes":
        parts.append(f"{100 * snapshot.n_done // snapshot.n_planned}% of {megabytes(snapshot.n_planned)}")
    elif snapshot.n_planned:
        parts.append(_done(snapshot))
    return ", ".join([*parts, *_mean_speeds(snapshot, seconds)])


def _mean_speeds(snapshot: Snapshot, seconds: float) -> list[str]:
    if not snapshot.n_bytes:
        return []
    speeds = []
    if seconds >= _MEASURABLE_SECONDS:
        speeds.append(f"{snapshot.n_bytes / 1e6 / seconds:.1f} MB/s")
        if snapshot.n_tokens:
            speeds.append(f"{short_number(snapshot.n_tokens / seconds)} tokens/s")
    return [*speeds, f"{snapshot.n_rejected} rejected"]


@contextlib.contextmanager
def show(source: Source, stream: TextIO, *, line_seconds: float = LINE_SECONDS) -> Iterator[None]:
    """Shows a job's progress on `stream` while the block runs: a bar on a terminal, lines elsewhere."""
    run = _show_bar if stream.isatty() else _show_lines
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(source, stream, stop, line_seconds), name=_THREAD_NAME, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _show_lines(source: Source, stream: TextIO, stop: threading.Event, line_seconds: float) -> None:
    """Writes a line whenever the job enters or leaves a stage, and every `line_seconds`."""
    n_over, rates, next_line = 0, Rates(), 0.0
    while True:
        is_last = stop.wait(_BAR_SECONDS if next_line else 0)
        if is_last:
            source.refresh()
        now, entered = time.monotonic(), source.entered()
        for name, seconds in _over(entered, n_over, now, is_last):
            _write_line(describe_end(source.snapshot(name), seconds), stream)
            n_over, rates, next_line = n_over + 1, Rates(), 0.0
        if is_last:
            return
        stage, since = entered[-1]
        snapshot = source.snapshot(stage)
        rates.add(now, snapshot)
        if now >= next_line:
            _write_line(describe(snapshot, rates, now - since), stream)
            next_line = now + line_seconds


def _over(entered: Sequence[tuple[str, float]], n_known: int, now: float, is_last: bool) -> Iterator[tuple[str, float]]:
    """Yields the stages that have ended, except the first `n_known`, and how many seconds each took."""
    ends = [*(since for _, since in entered[1:]), now]
    n_over = len(entered) if is_last else len(entered) - 1
    for (name, since), end in list(zip(entered, ends, strict=True))[n_known:n_over]:
        yield name, end - since


def _write_line(line: str, stream: TextIO) -> None:
    print(f"tokenmill: {line}", file=stream, flush=True)


def _show_bar(source: Source, stream: TextIO, stop: threading.Event, _: float) -> None:
    """Draws a bar per stage, the finished ones above the running one."""
    from rich import progress as bars

    from tokenmill.pipeline.running.terminal import Terminal

    columns = (
        bars.SpinnerColumn(finished_text="✓"),
        bars.TextColumn("{task.description:<10}", markup=False),
        bars.BarColumn(bar_width=None),
        bars.TaskProgressColumn(),
        bars.TextColumn("{task.fields[details]}", markup=False),
    )
    rates = Rates()
    tasks: dict[str, bars.TaskID] = {}
    n_over = 0
    with bars.Progress(*columns, console=Terminal(stream), expand=True) as bar:
        while True:
            is_last = stop.wait(_BAR_SECONDS if tasks else 0)
            if is_last:
                source.refresh()
            now, entered = time.monotonic(), source.entered()
            for name, _ in entered[len(tasks) :]:
                tasks[name] = bar.add_task(name, total=source.snapshot(name).n_planned or None, details="")
                rates = Rates()
            for name, seconds in _over(entered, n_over, now, is_last):
                _end_bar(bar, tasks[name], source.snapshot(name), seconds)
                n_over += 1
            if is_last:
                return
            stage, since = entered[-1]
            snapshot = source.snapshot(stage)
            rates.add(now, snapshot)
            details = _details(snapshot, rates, now - since)
            bar.update(tasks[stage], total=snapshot.n_planned or None, completed=snapshot.n_done, details=details)


def _end_bar(bar: "rich.progress.Progress", task: "rich.progress.TaskID", snapshot: Snapshot, seconds: float) -> None:
    details = "  ".join([*_mean_speeds(snapshot, seconds), duration(seconds)])
    # A stage without a measure is shown as complete; one with a measure shows how far it really came.
    total, done = (snapshot.n_planned, snapshot.n_done) if snapshot.n_planned else (1, 1)
    bar.update(task, total=total, completed=done, details=details)


def _details(snapshot: Snapshot, rates: Rates, seconds: float) -> str:
    if not snapshot.n_bytes:
        done = f"{_done(snapshot)}  " if snapshot.n_planned and snapshot.unit != "bytes" else ""
        return f"{done}{clock(seconds) if round(seconds) else ''}"
    left = rates.seconds_left()
    details = [f"{rates.per_second('n_bytes') / 1e6:.1f} MB/s"]
    if snapshot.n_tokens:
        details.append(f"{short_number(rates.per_second('n_tokens'))} tokens/s")
    details.append(f"{snapshot.n_rejected} rejected")
    return "  ".join([*details, *([f"{clock(left)} left"] if left is not None else [])])


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
