# SPDX-License-Identifier: Apache-2.0
"""Does a job's own work on some splits, in a temporary folder, and reads what it counted from its ledger.

So there is no second implementation to keep up to date, and everything that a job counts is counted for the sample.
"""

import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenmill.pipeline.books import parts
from tokenmill.pipeline.books.counts import Counts, nest, sum_of
from tokenmill.pipeline.books.ledger import LedgerEntry, Written, runs_of
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.config.input import NO_LIMITS
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.counting import finishing
from tokenmill.pipeline.counting.count import Counting, count_split
from tokenmill.pipeline.estimating.estimates import Unit, spread
from tokenmill.pipeline.estimating.sample import Excerpt, TrialSplit
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.shuffling import PlannedShard
from tokenmill.pipeline.tokenizing import pages
from tokenmill.pipeline.tokenizing.tokenize import merge_planned, tokenize_folders
from tokenmill.tokenizer import Tokenizer

OF_FOLDERS = ("n_documents", "n_tokens")
"""What is counted for each folder of a job with several, too, as `n_tokens.lang=zh`."""
OF_UNREADABLE = ("n_records", "rejected", "rejected.unreadable_file")
AROUND_TEXT = ("n_special_tokens", "n_added_tokens")


@dataclass
class Trial:
    """What was done, and how long it took."""

    units: list[Unit] = field(default_factory=list)
    """One for each excerpt, in the order of the corpus."""
    entries: dict[str, list[LedgerEntry]] = field(default_factory=dict)
    """Of each folder; of a job with one folder, its name is empty."""
    shards: list[Written] = field(default_factory=list)
    """The entries with shards: of all folders, those of merged shards if the job shuffles."""
    pace: float = 0.0
    """Seconds for each planned byte, in the second half of the splits: the first ones have more new words."""
    merge_seconds: float = 0.0
    """The time for merging shards, or counts."""
    memory: int = 0
    """Bytes by which the memory of the process grew, at its peak: what a worker takes."""

    def do(
        self, splits: Sequence[TrialSplit], work: Callable[[TrialSplit], list[Unit]], merge: Callable[[], None]
    ) -> None:
        """Does the work of each split, which returns its units, merges the results, and measures both."""
        at_first, seconds, planned = _memory_now(), [0.0], [0.0]
        for split in splits:
            started = time.perf_counter()
            units = work(split)
            seconds.append(time.perf_counter() - started)
            planned.append(sum(unit.n_planned for unit in units))
            self.units += units
        later = 1 + len(splits) // 2
        self.pace = sum(seconds[later:]) / max(1.0, sum(planned[later:]))
        started = time.perf_counter()
        merge()
        self.merge_seconds = time.perf_counter() - started
        self.memory = peak_memory() - at_first


@contextmanager
def temporary(config: Config) -> Iterator[Config]:
    """Gives the config of a trial: its output folder is temporary, and no number of rejects stops it."""
    with tempfile.TemporaryDirectory(prefix="tokenmill-plan-") as folder:
        output = config.output.model_copy(update={"path": str(Path(folder) / "out")})
        yield config.model_copy(update={"input": config.input.with_all(**NO_LIMITS), "output": output})


def tokenize(
    splits: Sequence[TrialSplit],
    folders: Mapping[str, tuple[Config, Tokenizer]],
    shards: Mapping[str, Sequence[PlannedShard]],
) -> Trial:
    """Tokenizes splits and writes their shards.

    Args:
      splits: of the sample.
      folders: the config of each folder in the trial, and its tokenizer, as workers have it.
      shards: of each folder, to merge, if the job shuffles.
    """
    trial = Trial(entries={folder: [] for folder in folders})
    output = next(iter(folders.values()))[0].output

    def work(split: TrialSplit) -> list[Unit]:
        works = [pages.Work(split.split, *each, len(splits), folder=i) for i, each in enumerate(folders.values())]
        made = dict(zip(folders, tokenize_folders(works, limits=split.limits), strict=True))
        for folder, entry in made.items():
            trial.entries[folder].append(entry)
        units = _units(split, made)
        if output.shuffle is None:
            trial.shards += made.values()
            _spread_files(units, [*made.values()], output)
        return units

    def merge() -> None:
        for folder, planned in shards.items():
            runs = [runs_of(entry) for entry in trial.entries[folder]]
            trial.shards += [merge_planned(shard, runs, *folders[folder]) for shard in planned]

    trial.do(splits, work, merge)
    if shards:
        _spread_files(trial.units, trial.shards, output)
    return trial


def count_words(splits: Sequence[TrialSplit], config: Config, counting_json: str) -> Trial:
    """Counts the words of splits, each of one excerpt."""
    trial, tokenizer, books = Trial(), Tokenizer.from_str(counting_json), Counts()
    of = Counting(config.input, config.output.path, counting_json, config.counts, config.text)
    runs: list[SplitRuns] = []

    def work(split: TrialSplit) -> list[Unit]:
        entry = count_split(split.split, of, tokenizer, read=functools.partial(read_split, limits=split.limits))
        books.add_groups(entry.counts)
        runs.append(runs_of(entry))
        return [_unit(split.excerpts[0], _flat(finishing.totals_of(entry.counts)))]

    def merge() -> None:
        for partition in range(of.n_partitions):
            finishing.merge_partition(partition, runs, of)
        finishing.write_artifact(of, books.groups)

    trial.do(splits, work, merge)
    return trial


def _unit(excerpt: Excerpt, counts: dict[str, float]) -> Unit:
    """Returns what was counted for an excerpt, without the files that a plan of a sample knows to be unreadable.

    the forecast adds all of those.
    """
    n_planned = excerpt.n_planned(int(counts["n_bytes"]), int(counts["n_records"]))
    unreadable = [piece for piece in excerpt.pieces if piece.problem and excerpt.stands_for is not None]
    for name in OF_UNREADABLE if unreadable else ():
        counts[name] -= len(unreadable)
    counts["n_bytes"] -= sum(piece.stop - piece.start for piece in unreadable)
    return Unit(n_planned, excerpt.n_bytes if excerpt.is_cut_by_bytes else n_planned, counts, excerpt.stands_for)


def _units(split: TrialSplit, entries: Mapping[str, LedgerEntry]) -> list[Unit]:
    """Returns a unit for each excerpt, with what the ledger says of its pieces and, in shares, of the whole split."""
    units: list[Unit] = []
    first = 0
    for excerpt in split.excerpts:
        stop = first + len(excerpt.pieces)
        each = {folder: sum_of(entry.inputs[first:stop]) for folder, entry in entries.items()}
        counts = _flat(nest(parts.together([*each.values()]) if len(each) > 1 else each[""]))
        if len(each) > 1:
            counts |= {f"{name}.{folder}": numbers[name] for folder, numbers in each.items() for name in OF_FOLDERS}
        units.append(_unit(excerpt, counts))
        first = stop
    names = ("n_words", "n_special_tokens", "n_added_tokens", "n_cut_tokens", "n_documents")
    total = {name: sum(entry[name] for entry in entries.values()) for name in names}
    n_around = (total["n_special_tokens"] + total["n_added_tokens"]) // max(1, total["n_documents"])
    by = {name: [unit.counts.get(name, 0) for unit in units] for name in ("n_text_tokens", "n_tokens", "n_documents")}
    made = zip(by["n_text_tokens"], by["n_documents"], by["n_tokens"], strict=True)
    # As even as tokens are; by characters nothing would be left to vary, and bounds would be too narrow.
    spread(units, "n_words", total["n_words"], by["n_text_tokens"])
    for name in AROUND_TEXT:
        spread(units, name, total[name], by["n_documents"])
    spread(units, "n_cut_tokens", total["n_cut_tokens"], [max(0.0, n + n_around * d - kept) for n, d, kept in made])
    return units


def _spread_files(units: list[Unit], entries: Sequence[Written], output: OutputConfig) -> None:
    """Gives units their shares of the rows and bytes of shards."""
    is_document = output.packing is None and not any(entry.of("windows") for entry in entries)
    tokens, documents = ([unit.counts.get(name, 0) for unit in units] for name in ("n_tokens", "n_documents"))
    spread(units, "shard_rows", sum(entry.shard.rows or 0 for entry in entries), documents if is_document else tokens)
    spread(units, "shard_tokens", sum(entry.shard.tokens or 0 for entry in entries), tokens)
    files = ((file.file, file.n_bytes) for entry in entries for file in (entry.shard, *entry.companions))
    for format_, n_bytes in bytes_of(output, files).items():
        spread(units, f"bytes.{format_}", n_bytes, tokens)


def bytes_of(output: OutputConfig, files: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Returns the bytes of shards by format, index files included, from the names and bytes of their files."""
    format_of = {suffix: name for name in output.formats for suffix in formats.suffixes(output, name)}
    sums = dict.fromkeys(map(str, output.formats), 0)
    for name, n_bytes in files:
        sums[format_of[f".{name.partition('.')[2]}"]] += n_bytes
    return sums


def _flat(counts: Mapping[str, Any]) -> dict[str, float]:
    """Returns the counts by name; of rejects and of filtered documents by "rejected.reason" and so on, too."""
    flat: dict[str, float] = {}
    for name, value in counts.items():
        if isinstance(value, int):
            flat[name] = value
        elif isinstance(value, Mapping):
            flat |= {name: sum(value.values()), **{f"{name}.{each}": n for each, n in value.items()}}
    return flat


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
