# SPDX-License-Identifier: Apache-2.0
"""Runs a job in a temporary folder: the job itself, by its own graph. What it counted is in its ledger.

    plan of a job, some splits --sampled--> plan of a trial --run--> ledger --TrialBooks--> numbers, also of excerpts

So there is no second implementation to keep up to date, and everything that a job counts is counted for a sample.
"""

import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import parts
from tokenmill.pipeline.books.counts import Counts, flatten, sum_of
from tokenmill.pipeline.books.ledger import Entry, LedgerEntry, ShardEntry, SplitEntry, Written
from tokenmill.pipeline.config.input import NO_LIMITS
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.counting.finishing import totals_of
from tokenmill.pipeline.estimating.estimates import Unit
from tokenmill.pipeline.estimating.sample import Excerpt
from tokenmill.pipeline.jobs import planning
from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.reporting.stats import packed
from tokenmill.pipeline.running import progress
from tokenmill.pipeline.running.runners import RunnerSettings, open_runner
from tokenmill.pipeline.splits import Splits
from tokenmill.pipeline.statistics.tally import Statistics

INLINE = RunnerSettings(None, "inline", 1)
OF_FOLDERS = ("n_documents", "n_tokens")
"""What is counted for each folder of a job with several, too, as `n_tokens.lang=zh`."""
_OF_TEXT = ("n_records", "n_documents", "rejected", "filtered", "n_bytes", "n_chars", "n_words")
_OF_TOKENIZER = ("n_text_tokens", "n_special_tokens", "n_added_tokens", "n_cut_tokens", "n_tokens", "n_oov_tokens")


class Watch(progress.Progress):
    """The progress of a trial, with the moments at which its splits began and ended."""

    def __init__(self, plan: JobPlan) -> None:
        """Starts at zero."""
        super().__init__(plan.stages())
        self._sizes = {stage.name: stage.splits for stage in plan.stages()}
        self._moments: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
        self.memory, self.total_seconds = 0, 0.0
        """Bytes by which the memory of the process grew, at its peak: what a worker takes. How long the trial took."""

    def enter(self, stage: str) -> None:
        """Notes the moment; called when a split begins."""
        super().enter(stage)
        self._moments[stage].append((0, time.perf_counter(), time.thread_time()))

    def finish(self, stage: str, split_id: str) -> None:
        """Notes the moment, and what was planned of the split."""
        super().finish(stage, split_id)
        self._moments[stage].append((self._sizes[stage].get(split_id, 0), time.perf_counter(), time.thread_time()))

    def pace(self, *, of_processor: bool = False) -> float:
        """Returns the seconds for each planned byte, of all stages that read the input together.

        They are those of the second half of the splits of each: the first ones have more new words.

        Args:
          of_processor: whether these are seconds of the processor, which other programs do not lengthen.
        """
        total = 0.0
        for stage in (planning.COUNTING_STAGE, planning.TOKENIZING_STAGE):
            moments = self._moments[stage]
            later = moments[len(moments) // 4 * 2 :] if len(moments) > 2 else moments
            if later:
                seconds = later[-1][1 + of_processor] - later[0][1 + of_processor]
                total += seconds / max(1, sum(n_bytes for n_bytes, *_ in later))
        return total

    @property
    def start_seconds(self) -> float:
        """How long the trial took without its work, if its workers live in this process; else with it."""
        times = [[now for _, now, _ in self._moments[name]] for name in self._sizes]
        at_work = sum(max(each) - min(each) for each in times if each)
        return self.total_seconds - at_work - self.seconds(planning.MERGING_STAGE, planning.TRAINING_STAGE)

    def seconds(self, *stages: str) -> float:
        """Returns how long the trial was in some stages, after it has ended."""
        return sum(seconds for name, seconds in self.lengths(time.monotonic()) if name in stages)


def run(plan: JobPlan, settings: RunnerSettings = INLINE, *, publishes: bool = False) -> Watch:
    """Runs a job, whose folder must be temporary.

    Args:
      plan: of the job.
      settings: where it runs.
      publishes: whether its last step finishes the folder; the books of a sample would miss the rest of its files.

    Raises:
      Exception: whatever the job raises.
    """
    import apache_beam as beam

    from tokenmill.pipeline.transforms import jobs

    started, at_first = time.perf_counter(), _memory_now()
    planning.prepare(plan, "new")
    watch = Watch(plan)
    with open_runner(settings) as (runner, options), progress.reporting_to(watch):
        pipeline = beam.Pipeline(runner=runner, options=options)
        add = jobs.build if publishes else jobs.work
        add(pipeline, plan)
        pipeline.run().wait_until_finish()
        watch.enter(planning.FINISHING_STAGE)
    watch.memory, watch.total_seconds = max(0, peak_memory() - at_first), time.perf_counter() - started
    return watch


@contextmanager
def sampled(plan: JobPlan, splits: Splits, *, shards: int = 0) -> Iterator[JobPlan]:
    """Gives the plan of a trial: its folder is temporary, and no number of rejects or unknown tokens stops it.

    Args:
      plan: of the job.
      splits: the splits to try; those of the plan, if it is to be tried as a whole.
      shards: how many a shuffle has, if these are not those of the job.
    """
    with tempfile.TemporaryDirectory(prefix="tokenmill-plan-") as folder:
        yield _moved(plan, splits, str(Path(folder) / "out"), shards)


def _moved(plan: JobPlan, splits: Splits, path: str, shards: int) -> JobPlan:
    config = plan.config
    output, tokenizer = config.output.model_copy(update={"path": path}), config.tokenizer
    if shards and output.shuffle is not None:
        output = output.model_copy(update={"shuffle": output.shuffle.model_copy(update={"shards": shards})})
    if tokenizer.train is not None and plan.counts_given is None and splits is not plan.splits:
        # A sample may have too few words for a vocabulary that the whole input gives.
        train = tokenizer.train.model_copy(update={"hard_vocab_limit": False})
        tokenizer = tokenizer.model_copy(update={"train": train})
    section = config.input.with_all(**NO_LIMITS)
    config = config.model_copy(update={"input": section, "output": output, "tokenizer": tokenizer})
    parts: Mapping[str, JobPlan] = {
        name: _moved(part, splits, storage.join(path, name), shards) for name, part in plan.parts.items()
    }
    return replace(plan, config=config, splits=splits, parts=parts, is_sample=splits is not plan.splits)


_Kind = TypeVar("_Kind", bound=Entry)


@dataclass(frozen=True)
class TrialBooks:
    """What a trial counted: the entries of the splits of each folder, and those of all shards."""

    plan: JobPlan
    entries: Mapping[str, Sequence[SplitEntry]]
    shards: Sequence[Written]

    @classmethod
    def read(cls, plan: JobPlan) -> "TrialBooks":
        """Reads the ledger of a job that has run and is not published."""
        if not plan.tokenizes:
            counting = plan.counting()
            ids = (split.id for split in plan.splits)
            return cls(plan, {"": [*_read(SplitEntry, counting.splits, ids)]} if counting is not None else {}, ())
        entries, shards = dict[str, list[LedgerEntry]](), list[Written]()
        for i, (name, each) in enumerate(plan.folders.items()):
            output = each.config.output.path
            ids = (split.of_folder(i, each.job.digest).id for split in plan.splits)
            entries[name] = [*_read(LedgerEntry, output, ids)]
            merged = _read(ShardEntry, output, (shard.id for shard in each.shards()))
            shards += entries[name] if plan.config.output.shuffle is None else merged
        return cls(plan, entries, shards)

    @cached_property
    def totals(self) -> dict[str, int]:
        """All numbers that a forecast estimates, by its names; none if the job reads no input."""
        folders = {}
        for name, entries in self.entries.items():
            sums = Counts()
            for entry in entries:
                sums.add(_numbers(entry))
            folders[name] = sums.groups[""]
        if not self.plan.tokenizes:
            return _together(folders)
        files = [entry.shard for entry in self.shards]
        rows, tokens = (sum(getattr(file, name) or 0 for file in files) for name in ("rows", "tokens"))
        return {**_together(folders), "shard_rows": rows, "shard_tokens": tokens}

    @property
    def n_bytes(self) -> dict[str, int]:
        """Bytes of shards by format, index files included."""
        files = (file for entry in self.shards for file in (entry.shard, *entry.companions))
        return bytes_of(self.plan.config.output, ((file.file, file.n_bytes) for file in files)) if self.shards else {}

    @property
    def rows_are_documents(self) -> bool:
        """Whether each row of a shard is a document: there is no packing, and there are no windows."""
        return self.plan.config.output.packing is None and not any(entry.of("windows") for entry in self.shards)

    @property
    def padding(self) -> float | None:
        """The share of padding in rows, from 0 to 1; None if rows are not padded."""
        config, totals = self.plan.config, self.totals
        if (padding := config.tokenizer.padding) is not None and self.shards:
            return 1 - totals["shard_tokens"] / max(1, totals["shard_rows"] * padding.length)
        if config.output.packing is None or not self.shards:
            return None
        counts: Counter[str] = Counter()
        for entry in self.shards:
            counts.update(entry.of("packing") or {})
        return packed(counts).share_of_padding or 0.0

    def read_unknown(self) -> tuple[tuple[str, int], ...]:
        """Reads the unknown characters and how often they occur, the most frequent first."""
        sums: Counter[str] = Counter()
        for name, entries in self.entries.items():
            output = self.plan.folders[name].config.output.path
            for entry in (each for each in entries if isinstance(each, LedgerEntry)):
                with storage.open_read(storage.join(output, entry.statistics.file)) as handle:
                    code_points, counts = Statistics.from_bytes(handle.read()).oov_chars()
                sums.update(dict(zip(map(chr, code_points.tolist()), counts.tolist(), strict=True)))
        return tuple(sorted(sums.items(), key=lambda each: (-each[1], each[0])))

    def units(self, excerpts: Sequence[Excerpt]) -> list[Unit]:
        """Returns what was counted of each excerpt, given all of the trial in order.

        A job that only counts words has a split for each: its ledger does not say how many words each piece has.
        """
        inputs = {name: chain.from_iterable(each.inputs for each in its) for name, its in self.entries.items()}
        splits, of = (_numbers(entry) for entry in self.entries.get("", ())), self.totals
        n_around = sum(of.get(name, 0) for name in ("n_special_tokens", "n_added_tokens")) // max(1, of["n_documents"])
        units = []
        for excerpt in excerpts:
            n, is_cut = len(excerpt.read), excerpt.is_cut_by_bytes
            if self.plan.tokenizes:
                counts = _together({name: sum_of([*islice(pieces, n)]) for name, pieces in inputs.items()})
                made = counts["n_text_tokens"] + n_around * counts["n_documents"]
                counts["n_cut_tokens"] = max(0, made - counts["n_tokens"])
            else:
                counts = _together({"": next(splits) if n else {}})
            n_planned = excerpt.n_planned(counts.get("n_bytes", 0), counts.get("n_records", 0))
            units.append(Unit(n_planned, excerpt.n_bytes if is_cut else n_planned, counts, excerpt.stands_for))
        return units


def _numbers(entry: SplitEntry) -> Mapping[str, int]:
    """Returns the numbers of a split, over all of its documents."""
    return entry.counts[""] if isinstance(entry, LedgerEntry) else flatten(totals_of(entry.counts))


def named(numbers: Mapping[str, int]) -> dict[str, int]:
    """Returns numbers under the names of a forecast: "rejected:not_json" as "rejected.not_json", and "rejected"."""
    kinds = ("rejected", "filtered")
    sums = {kind: sum(n for name, n in numbers.items() if name.startswith(f"{kind}:")) for kind in kinds}
    return {**{name.replace(":", "."): n for name, n in numbers.items()}, **sums}


def bytes_of(output: OutputConfig, files: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Returns the bytes of shards by format, index files included, from the names and bytes of their files."""
    format_of = {suffix: name for name in output.formats for suffix in formats.suffixes(output, name)}
    sums = dict.fromkeys(map(str, output.formats), 0)
    for name, n_bytes in files:
        sums[format_of[f".{name.partition('.')[2]}"]] += n_bytes
    return sums


def _together(folders: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Returns the numbers that a forecast estimates, of all folders and some of each, from those of each."""
    numbers = [*folders.values()]
    if not numbers:
        return {}
    sums = named(parts.together(numbers) if len(numbers) > 1 else numbers[0])
    counts = {name: n for name, n in sums.items() if name.partition(".")[0] in (*_OF_TEXT, *_OF_TOKENIZER)}
    if len(numbers) > 1:
        counts |= {f"{name}.{folder}": its.get(name, 0) for folder, its in folders.items() for name in OF_FOLDERS}
    return counts


def _read(kind: type[_Kind], output: str, ids: Iterable[str]) -> Iterator[_Kind]:
    for each in ids:
        entry = kind.read(output, each)
        assert entry is not None, f"{each} was not committed"
        yield entry


def _memory_now() -> int:
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
