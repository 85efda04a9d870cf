# SPDX-License-Identifier: Apache-2.0
"""Does a job's own work on some splits, in a temporary folder, and reads what it counted from its ledger.

So there is no second implementation to keep up to date, and everything that a job counts is counted for the sample.
"""

import functools
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenmill.pipeline.books import parts
from tokenmill.pipeline.books.counts import Counts, nest
from tokenmill.pipeline.books.input_counts import sum_of
from tokenmill.pipeline.books.ledger import LedgerEntry, Written, runs_of
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.config.input import NO_LIMITS
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.counting import finishing
from tokenmill.pipeline.counting.count import Counting, count_split
from tokenmill.pipeline.estimating.costs import memory_now, peak_memory
from tokenmill.pipeline.estimating.estimates import Unit, spread
from tokenmill.pipeline.estimating.sample import TrialSplit
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.shuffling.shards import PlannedShard
from tokenmill.pipeline.tokenizing.pages import Work
from tokenmill.pipeline.tokenizing.tokenize import tokenize_folders
from tokenmill.pipeline.tokenizing.writing import merge_planned
from tokenmill.tokenizer import Tokenizer

OF_FOLDERS = ("n_documents", "n_tokens")
"""What is counted for each folder of a job with several, too, as `n_tokens.lang=zh`."""


@dataclass
class Trial:
    """What was done, and how long it took."""

    units: list[Unit] = field(default_factory=list)
    """One for each excerpt, in the order of the corpus."""
    entries: dict[str, list[LedgerEntry]] = field(default_factory=dict)
    """Of each folder; of a job with one folder, its name is empty."""
    shards: list[Written] = field(default_factory=list)
    """The entries with shards: of all folders, those of merged shards if the job shuffles."""
    merge_seconds: float = 0.0
    """The time for merging shards, or counts."""
    memory: int = 0
    """Bytes by which the memory of the process grew, at its peak: what a worker takes."""
    _seconds: list[tuple[float, float]] = field(default_factory=list)

    def note(self, seconds: float, units: Sequence[Unit]) -> None:
        """Adds the units of a split, and how long it took."""
        self.units += units
        self._seconds.append((seconds, sum(unit.n_planned for unit in units)))

    @property
    def pace(self) -> float:
        """Seconds for each planned byte, in the second half of the splits: the first ones have more new words."""
        later = self._seconds[len(self._seconds) // 2 :]
        return sum(seconds for seconds, _ in later) / max(1.0, sum(n_planned for _, n_planned in later))


@contextmanager
def temporary(config: Config) -> Iterator[Config]:
    """Gives the config of a trial: its output folder is temporary, and no number of rejects stops it."""
    with tempfile.TemporaryDirectory(prefix="tokenmill-plan-") as folder:
        section = config.input.with_all(**NO_LIMITS)
        output = config.output.model_copy(update={"path": str(Path(folder) / "out")})
        yield config.model_copy(update={"input": section, "output": output})


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
    at_first = memory_now()
    for split in splits:
        started = time.perf_counter()
        works = [Work(split.split, *each, len(splits), folder=i) for i, each in enumerate(folders.values())]
        made = dict(zip(folders, tokenize_folders(works, limits=split.limits), strict=True))
        seconds = time.perf_counter() - started
        for folder, entry in made.items():
            trial.entries[folder].append(entry)
        trial.note(seconds, _units(split, made))
        if output.shuffle is None:
            trial.shards += made.values()
            _spread_files(trial.units[-len(split.excerpts) :], [*made.values()], output)
    started = time.perf_counter()
    for folder, planned in shards.items():
        runs = [runs_of(entry) for entry in trial.entries[folder]]
        trial.shards += [merge_planned(shard, runs, *folders[folder]) for shard in planned]
    trial.merge_seconds = time.perf_counter() - started
    trial.memory = peak_memory() - at_first
    if shards:
        _spread_files(trial.units, trial.shards, output)
    return trial


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
        n_planned = excerpt.n_planned(counts["n_bytes"], counts["n_records"])
        units.append(Unit(n_planned, excerpt.n_bytes if excerpt.is_cut_by_bytes else n_planned, {**counts}))
        first = stop
    total = {
        name: sum(entry[name] for entry in entries.values())
        for name in ("n_words", "n_special_tokens", "n_added_tokens", "n_cut_tokens", "n_documents")
    }
    n_around = (total["n_special_tokens"] + total["n_added_tokens"]) // max(1, total["n_documents"])
    by = {name: [unit.counts.get(name, 0) for unit in units] for name in ("n_text_tokens", "n_tokens", "n_documents")}
    made = (text + n_around * n for text, n in zip(by["n_text_tokens"], by["n_documents"], strict=True))
    cut = [max(0.0, n - kept) for n, kept in zip(made, by["n_tokens"], strict=True)]
    # As even as tokens are; by characters nothing would be left to vary, and bounds would be too narrow.
    spread(units, "n_words", total["n_words"], by["n_text_tokens"])
    spread(units, "n_special_tokens", total["n_special_tokens"], by["n_documents"])
    spread(units, "n_added_tokens", total["n_added_tokens"], by["n_documents"])
    spread(units, "n_cut_tokens", total["n_cut_tokens"], cut)
    return units


def _spread_files(units: list[Unit], entries: Sequence[Written], output: OutputConfig) -> None:
    """Gives units their shares of the rows and bytes of shards."""
    is_document = output.packing is None and not any(entry.of("windows") for entry in entries)
    tokens = [unit.counts.get("n_tokens", 0) for unit in units]
    documents = [unit.counts.get("n_documents", 0) for unit in units]
    spread(units, "shard_rows", sum(entry.shard.rows or 0 for entry in entries), documents if is_document else tokens)
    spread(units, "shard_tokens", sum(entry.shard.tokens or 0 for entry in entries), tokens)
    files = ((file.file, file.n_bytes) for entry in entries for file in (entry.shard, *entry.companions))
    for format_, n_bytes in bytes_of(output, files).items():
        spread(units, f"bytes.{format_}", n_bytes, tokens)


def bytes_of(output: OutputConfig, files: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Returns the bytes of shards by format, index files included.

    Args:
      output: the section `output`.
      files: the files of the shards: name and bytes.
    """
    format_of = {suffix: name for name in output.formats for suffix in formats.suffixes(output, name)}
    sums = dict.fromkeys(map(str, output.formats), 0)
    for name, n_bytes in files:
        sums[format_of[f".{name.partition('.')[2]}"]] += n_bytes
    return sums


def count_words(splits: Sequence[TrialSplit], config: Config, counting_json: str) -> Trial:
    """Counts the words of splits; see `tokenize`."""
    trial, tokenizer, at_first = Trial(), Tokenizer.from_str(counting_json), memory_now()
    of, books = Counting(config.input, config.output.path, counting_json, config.counts, config.text), Counts()
    runs: list[SplitRuns] = []
    for split in splits:
        started = time.perf_counter()
        entry = count_split(split.split, of, tokenizer, read=functools.partial(read_split, limits=split.limits))
        books.add_groups(entry.counts)
        runs.append(runs_of(entry))
        (excerpt,) = split.excerpts
        totals = _flat(finishing.totals_of(entry.counts))
        n_planned = excerpt.n_planned(totals["n_bytes"], totals["n_records"])
        unit = Unit(n_planned, excerpt.n_bytes if excerpt.is_cut_by_bytes else n_planned, {**totals})
        trial.note(time.perf_counter() - started, [unit])
    started = time.perf_counter()
    for partition in range(of.n_partitions):
        finishing.merge_partition(partition, runs, of)
    finishing.write_artifact(of, books.groups)
    trial.merge_seconds = time.perf_counter() - started
    trial.memory = peak_memory() - at_first
    return trial


def _flat(counts: Mapping[str, Any]) -> dict[str, int]:
    """Returns the counts by name; of rejects and of filtered documents by "rejected.reason" and so on, too."""
    flat: dict[str, int] = {}
    for name, value in counts.items():
        if isinstance(value, int):
            flat[name] = value
        elif isinstance(value, Mapping):
            flat |= {name: sum(value.values()), **{f"{name}.{each}": n for each, n in value.items()}}
    return flat
