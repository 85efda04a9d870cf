# SPDX-License-Identifier: Apache-2.0
"""A forecast beside what the finished job counted: for a person, as a table, and for a program, as JSON.

Below the table are settings that the forecast suggests changing, by rules of its own and those of `reporting.advice`.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import manifest, parts
from tokenmill.pipeline.books.counts import flatten
from tokenmill.pipeline.books.reject_limits import RejectLimits
from tokenmill.pipeline.counting import counts
from tokenmill.pipeline.estimating.estimates import Estimate
from tokenmill.pipeline.estimating.forecast import Forecast
from tokenmill.pipeline.estimating.trial import OF_FOLDERS, bytes_of, named
from tokenmill.pipeline.input.readers import is_cut_by_bytes
from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.reporting.advice import Advice, of_cut, of_padding, of_unknown
from tokenmill.pipeline.reporting.stats import SHARES
from tokenmill.pipeline.running import clock
from tokenmill.pipeline.running.display import duration, megabytes
from tokenmill.pipeline.statistics.vocabulary import entries_for

FORMAT_VERSION = 1
"""Version of the JSON."""

TIME_BOUND = MEMORY_BOUND = 0.3
"""The relative error of time and memory: they depend on other work of the machine, and on when memory is returned."""

_NAMES = {
    "n_records": "records", "n_documents": "documents", "rejected": "rejected", "filtered": "filtered",
    "n_bytes": "input", "n_words": "words", "n_tokens": "tokens", "n_cut_tokens": "cut tokens",
    "n_oov_tokens": "unknown tokens", "shard_rows": "rows",
}  # fmt: skip

IDLE = 1.25
"""Workers count as idle if the job takes this many times as long as with evenly divided work."""
WORTH_SECONDS = 5
"""Shorter work is not worth a change of settings."""
SMALL_SHARD, MANY_SHARDS = 1 << 20, 1000
MUCH_PADDING, MUCH_REJECTED, MUCH_UNKNOWN = 0.3, 0.01, 0.001
_SMALLEST_SPLIT = 1 << 20


@dataclass(frozen=True)
class Told:
    """A forecast and everything that is reported with it."""

    forecast: Forecast
    seconds: Mapping[int, float]
    """By the number of workers; none if the job does not run here."""
    advice: Sequence[Advice]
    actual: Mapping[str, float] | None
    """What the finished job counted; None if there is none."""

    @classmethod
    def of(cls, forecast: Forecast, workers: int) -> "Told":
        """Returns a forecast with the times of up to so many workers; with 0 of none: the job does not run here."""
        numbers = [*(1 << k for k in range(workers.bit_length()) if 1 << k < workers), *([workers] if workers else [])]
        seconds = {n: forecast.work.seconds(forecast.start_seconds, n) for n in numbers}
        return cls(forecast, seconds, advise(forecast, max(1, workers)), outcome(forecast.plan))

    @property
    def bytes_in_memory(self) -> dict[int, int]:
        """The peak of memory by the number of workers."""
        return {workers: self.forecast.work.memory(workers) for workers in self.seconds}


def outcome(plan: JobPlan) -> Mapping[str, float] | None:
    """Returns the counts of the finished job under the names of the forecast; None if there is no such job.

    Bytes of a format are "bytes.<format>", the time is "seconds", if `clock.json` is there.

    Raises:
      OSError, ValueError: if a file of the folder cannot be read.
    """
    output = plan.config.output.path
    if parts.is_in_parts(output):
        finished = parts.read(output)
    elif storage.exists(storage.join(output, filenames.MANIFEST)):
        finished = manifest.read(output)
    else:
        return None
    if finished["job_digest"] != plan.job.digest:
        return None
    totals = finished["totals"]
    if not plan.tokenizes and counts.REPORT_NAME in {record["file"] for record in finished["files"]}:
        totals = counts.read_report(output)["totals"]
    actual: dict[str, float] = {**named(flatten(totals))}
    for part in finished.get("parts", ()):
        actual |= {f"{name}.{part['folder']}": part["totals"][name] for name in OF_FOLDERS}
    folders = map(manifest.read, parts.folders_of(output))
    written = itertools.chain(*(each[kind] for each in folders for kind in ("shards", "companions")))
    files = ((record["file"], record["n_bytes"]) for record in written)
    actual |= {f"bytes.{format_}": n for format_, n in bytes_of(plan.config.output, files).items()}
    if storage.exists(storage.join(output, filenames.CLOCK)):
        times = clock.read(output)
        actual |= {"seconds": times["seconds"], "workers": times["workers"]}
    return actual


def to_record(told: Told) -> dict[str, Any]:
    """Returns what `--json` prints."""
    forecast, sizes = told.forecast, told.forecast.work.split_bytes.tolist()
    return {
        "format_version": FORMAT_VERSION,
        "job": forecast.plan.name,
        "job_digest": forecast.plan.job.digest,
        "input": {
            "bytes": forecast.plan.n_bytes,
            "splits": len(sizes),
            "largest_split": max(sizes, default=0),
            "skew": _skew(sizes),
        },
        "sample": {"bytes": forecast.sample_bytes, "is_whole": forecast.is_whole, "notes": list(forecast.notes)},
        "totals": {name: asdict(each) for name, each in forecast.totals.items()},
        "share_of_padding": forecast.padding,
        "shards": forecast.n_shards,
        "shard_bytes": {name: asdict(each) for name, each in forecast.shard_bytes.items()},
        "seconds": {str(n): _within(each, TIME_BOUND) for n, each in told.seconds.items()},
        "peak_memory": {str(n): _within(each, MEMORY_BOUND) for n, each in told.bytes_in_memory.items()},
        "advice": [asdict(each) for each in told.advice],
        "actual": dict(told.actual) if told.actual is not None else None,
    }


def _within(number: float, bound: float) -> dict[str, float]:
    return {"value": number, "low": number * (1 - bound), "high": number * (1 + bound)}


def _skew(sizes: Sequence[int]) -> float:
    """Returns how many times the mean the largest split is; 1 without any."""
    return max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else 1.0


def render(told: Told) -> RenderableType:
    """Returns the table."""
    forecast, sizes = told.forecast, told.forecast.work.split_bytes.tolist()
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("", "planned", "at least", "at most", *(("done", "plan is off") if told.actual is not None else ())):
        table.add_column(name, justify="right" if name else "left", no_wrap=True, style=None if name else "bold")
    for row in _rows(told):
        table.add_row(*row)
    read = f"{megabytes(forecast.sample_bytes)} of the input were read, 1 byte of {forecast.factor:.1f}"
    if forecast.is_whole:
        read = f"all of the input was read, {megabytes(forecast.sample_bytes)}"
    if not forecast.plan.splits:
        read = "no input is read; nothing but the training is to be done"
    lines = [Text(f"{forecast.plan.name}: {read}", style="bold")]
    if sizes:
        splits = f"{len(sizes):,} {'split' if len(sizes) == 1 else 'splits'}"
        lines.append(Text(f"{splits}, the largest {megabytes(max(sizes))}, {_skew(sizes):.1f} times the mean"))
    notes = [Text(note, style="dim") for note in forecast.notes]
    return Group(*lines, table, *notes, *(Text(str(each), style="yellow") for each in told.advice))


def _rows(told: Told) -> Iterator[list[str]]:
    forecast, actual = told.forecast, told.actual

    def row(label: str, name: str, each: Estimate, tell: Callable[[int], str] = "{:,}".format) -> list[str]:
        bounds = ["exactly", ""] if each.is_exact else [tell(each.low), "?" if each.high is None else tell(each.high)]
        done = actual.get(name, 0) if actual is not None else None
        return [label, tell(each.value), *bounds, *([] if done is None else [tell(int(done)), _off(each.value, done)])]

    for name, label in _NAMES.items():
        if name in forecast.totals and (forecast.totals[name].value or name in ("n_documents", "rejected")):
            yield row(label, name, forecast.totals[name], megabytes if name == "n_bytes" else "{:,}".format)
            for part, each in forecast.of_kind(name):
                yield row(f"  {part.partition('.')[2]}", part, each)
    if forecast.padding is not None:
        yield ["padding", f"{forecast.padding:.1%}"]
    if forecast.plan.tokenizes:
        yield ["shards", f"{forecast.n_shards:,}"]
    for name, each in forecast.shard_bytes.items():
        yield row(name, f"bytes.{name}", each, megabytes)
    for n, seconds in told.seconds.items():
        cells = [f"time, {_workers(n)}", *map(duration, _within(seconds, TIME_BOUND).values())]
        if actual is not None and actual.get("workers") == n:
            cells += [duration(actual["seconds"]), _off(seconds, actual["seconds"])]
        yield cells
    for n, n_bytes in told.bytes_in_memory.items():
        yield [f"peak, {_workers(n)}", *map(megabytes, _within(n_bytes, MEMORY_BOUND).values())]


def _off(planned: float, done: float) -> str:
    if planned == done:
        return "not at all"
    return f"{planned / done - 1:+.1%}" if done else "more"


def _workers(n: int) -> str:
    return f"{n} {'worker' if n == 1 else 'workers'}"


def advise(forecast: Forecast, workers: int) -> list[Advice]:
    """Returns what to change, the worst first."""
    config, n_unknown = forecast.plan.config, np.array([n for _, n in forecast.unknown], np.int64)
    of = {"is_chat": config.input.is_chat}
    cut, text = (forecast.value(name) for name in ("n_cut_tokens", "n_text_tokens"))
    truncation, packing = config.tokenizer.truncation, config.output.packing
    given = [
        *(rule(forecast, workers) for rule in (_rejects, _idle, _tiny)),
        of_cut(cut, text, truncation.warn_above, **of) if truncation is not None else None,
        of_padding(forecast.padding, MUCH_PADDING, strategy=packing.strategy if packing is not None else None, **of),
        of_unknown(
            forecast.value("n_oov_tokens") / max(1, forecast.value("n_tokens")),
            MUCH_UNKNOWN,
            {f"{share:.0%}": entries_for(n_unknown, share) for share in SHARES},
            [character for character, _ in forecast.unknown],
        ),
    ]
    return [each for each in given if each is not None]


def _rejects(forecast: Forecast, _: int) -> Advice | None:
    rejected, records = forecast.value("rejected"), forecast.value("n_records")
    if not rejected:
        return None
    config = forecast.plan.config.input
    limits = RejectLimits.of(config)
    reasons = ", ".join(f"{name.partition('.')[2]} {each.value:,}" for name, each in forecast.of_kind("rejected"))
    if rejected == records:
        return Advice("input.text_field", f"every record would be rejected ({reasons}), and the job would fail")
    try:
        limits.check_all(records, {"": rejected}, 0, 0)
    except ValueError:
        of = f"{rejected:,} of {records:,} records would be rejected ({reasons})"
        name = "max_rejected" if (limits.max_rejected or rejected) < rejected else "max_rejected_fraction"
        return Advice(f"{limits.where}.{name}", f"{of}, more than the limit: the job would fail")
    of = f"{rejected / records:.1%} of records would be rejected"
    strictest = min(config.by_source.values(), key=lambda each: each.max_rejected_per_file)
    if strictest.on_damage == "fail" and rejected > strictest.max_rejected_per_file * records:
        why = f"{of} ({reasons}), of some files more than the limit: the job would fail"
        return Advice(f"{strictest.where}.max_rejected_per_file", why)
    return Advice("input", f"{of}: {reasons}") if rejected > MUCH_REJECTED * records else None


def _idle(forecast: Forecast, workers: int) -> Advice | None:
    work, plan = forecast.work, forecast.plan
    total = int(work.split_bytes.sum())
    if not total or (share := work.busiest(workers) * workers / total) < IDLE or work.split_seconds < WORTH_SECONDS:
        return None
    why = f"{len(work.split_bytes)} splits keep {workers} workers busy {1 / share:.0%} of the time"
    largest = plan.splits[int(work.split_bytes.argmax())]
    first, document = largest.pieces[0], plan.config.input.of(largest.source).document
    if len(largest.pieces) == 1 and not is_cut_by_bytes(first, document):
        return Advice("input.paths", f"{why}: {first.path!r} can only be read whole; write it as several files")
    fitting = 1 << (max(_SMALLEST_SPLIT, plan.n_bytes // (4 * workers)).bit_length() - 1)
    if fitting >= plan.config.input.split_bytes:
        return None
    return Advice("input.split_bytes", f"{why}; {fitting} would make enough of them")


def _tiny(forecast: Forecast, _: int) -> Advice | None:
    mean = forecast.plan.n_bytes // max(1, forecast.n_shards)
    if not forecast.plan.tokenizes or forecast.n_shards < MANY_SHARDS or mean >= SMALL_SHARD:
        return None
    setting = "input.split_bytes" if forecast.plan.config.output.shuffle is None else "output.shuffle.shards"
    return Advice(setting, f"there would be {forecast.n_shards:,} shards of {mean:,} bytes of input; make them larger")
