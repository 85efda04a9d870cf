# SPDX-License-Identifier: Apache-2.0
"""Does a job's own work on a sample, in a temporary folder: the same readers, text steps, tokenizer and writers.

So there is no second implementation to keep up to date, and everything that a job counts is counted for the sample.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from tokenmill.pipeline.books.input_counts import PieceCounts
from tokenmill.pipeline.books.ledger import LedgerEntry
from tokenmill.pipeline.books.rules import OTHER_PART, TOO_LONG
from tokenmill.pipeline.books.shard_entry import ShardEntry, Written, runs_of
from tokenmill.pipeline.config.input import NO_LIMITS, InputConfig
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.counting import count, finishing
from tokenmill.pipeline.counting.counts import open_counts
from tokenmill.pipeline.counting.partitions import N_PARTITIONS
from tokenmill.pipeline.estimating.costs import memory_now, peak_memory
from tokenmill.pipeline.estimating.estimates import Unit, spread
from tokenmill.pipeline.estimating.places import Sample
from tokenmill.pipeline.input.batches import ReadBatch
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.shuffling.shards import PlannedShard
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing.parts import label
from tokenmill.pipeline.tokenizing.tokenize import Attempt, merge_planned, tokenizer_info
from tokenmill.pipeline.training.train import train_vocabularies
from tokenmill.tokenizer import Tokenizer

SECONDS = "seconds"
"""The name under which the counts of a unit have the time that it took."""

OF_FOLDERS = ("n_documents", "n_tokens")
"""What is counted for each folder of a job with several, too, as `n_tokens.lang=zh`."""


@dataclass
class Trial:
    """What was done, and how long it took."""

    units: list[Unit] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """For each sample, in order."""
    entries: dict[str, list[LedgerEntry]] = field(default_factory=dict)
    """Of each folder; of a job with one folder, its name is empty."""
    shards: dict[str, list[ShardEntry]] = field(default_factory=dict)
    """The merged shards of each folder, if the job shuffles."""
    merge_seconds: float = 0.0
    """The time for merging `shards`, or counts."""
    memory: int = 0
    """Bytes by which the memory of the process grew, at its peak: what a worker takes."""

    @property
    def written(self) -> list[Written]:
        """The entries with shards: of all folders, the merged ones if the job shuffles."""
        return [*chain(*self.shards.values())] or [*chain(*self.entries.values())]

    @property
    def pace(self) -> float:
        """Seconds for each planned byte that was read."""
        return sum(self.seconds) / max(1.0, sum(unit.n_planned for unit in self.units))


@contextmanager
def temporary(config: Config) -> Iterator[Config]:
    """Gives the config of a trial: its output folder is temporary, and no number of rejects stops it."""
    with tempfile.TemporaryDirectory(prefix="tokenmill-plan-") as folder:
        section = config.input.with_all(**NO_LIMITS)
        output = config.output.model_copy(update={"path": str(Path(folder) / "out")})
        yield config.model_copy(update={"input": section, "output": output})


def tokenize(
    samples: Sequence[Sample],
    folders: Mapping[str, tuple[Config, Tokenizer]],
    shards: Mapping[str, Sequence[PlannedShard]],
    batch_bytes: int,
) -> Trial:
    """Tokenizes samples and writes their shards.

    Args:
      folders: the config of each folder in the trial, and its tokenizer, as workers have it.
      shards: of each folder, to merge, if the job shuffles.
      batch_bytes: the size of a unit.
    """
    trial = Trial(entries={folder: [] for folder in folders})
    config, _ = next(iter(folders.values()))
    # The first use of a tokenizer builds its tables, which is a part of the start of a job.
    for each in folders.values():
        _write_empty_shard(*each)
    at_first = memory_now()
    for sample in samples:
        started = time.perf_counter()
        reading = _Reading(sample, batch_bytes)
        with ExitStack() as stack:
            attempts = {}
            for folder, (its, made_by) in folders.items():
                staging = stack.enter_context(Staging(its.output.path, sample.split.id))
                attempt = Attempt(sample.split, its, made_by, tokenizer_info(made_by), staging, len(samples))
                attempts[folder] = attempt, staging
            for batch in reading.batches(sample.split, config.input):
                batch = label(batch, config)
                pieces = {piece for piece, _ in batch.pieces}
                found = {}
                for folder, (attempt, _) in attempts.items():
                    before = _flat(attempt.counts(pieces).to_record())
                    attempt.add(batch)
                    found[folder] = Counter(_flat(attempt.counts(pieces).to_record()))
                    found[folder].subtract(before)
                reading.note(_together(found) if len(found) > 1 else found[""])
            for folder, (attempt, staging) in attempts.items():
                entry = attempt.finish()
                staging.commit(entry)
                trial.entries[folder].append(entry)
        trial.seconds.append(time.perf_counter() - started)
        made = [entries[-1] for entries in trial.entries.values()]
        trial.units += _spread_entries(reading.units(), made, config.output)
    started = time.perf_counter()
    for folder, planned in shards.items():
        runs = [runs_of(entry) for entry in trial.entries[folder]]
        trial.shards[folder] = [merge_planned(shard, runs, *folders[folder]) for shard in planned]
    trial.merge_seconds = time.perf_counter() - started
    trial.memory = peak_memory() - at_first
    if shards:
        _spread_files(trial.units, trial.written, config.output)
    return trial


def _together(folders: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Returns the counts of a batch in all folders together, as `parts.add_up` has them; see `OF_FOLDERS`."""
    found: Counter[str] = Counter()
    for folder, counts in folders.items():
        found.update(counts)
        found.update({f"{name}.{folder}": counts[name] for name in OF_FOLDERS})
    # All folders have read everything, and have left out the same, but for what another one has, or a row cannot hold.
    for name, n in next(iter(folders.values())).items():
        if name == f"filtered.{TOO_LONG}":
            continue
        if name in ("n_records", "n_bytes", "n_skipped_bytes") or name.startswith("filtered."):
            found[name] = n
    found.pop(f"filtered.{OTHER_PART}", None)
    found["filtered"] = sum(n for name, n in found.items() if name.startswith("filtered."))
    return found


def _spread_entries(units: list[Unit], entries: Sequence[LedgerEntry], output: OutputConfig) -> list[Unit]:
    """Gives the units of a sample their shares of what is counted only for all of it, in each folder."""
    n_special, n_added, n_documents, n_words = (
        sum(getattr(entry, name) for entry in entries)
        for name in ("n_special_tokens", "n_added_tokens", "n_documents", "n_words")
    )
    n_around = (n_special + n_added) // max(1, n_documents)
    for unit in units:
        made = unit.counts.get("n_text_tokens", 0) + n_around * unit.counts.get("n_documents", 0)
        unit.counts["n_cut_tokens"] = made - unit.counts.get("n_tokens", 0)
    # As even as tokens are; by characters nothing would be left to vary, and bounds would be too narrow.
    spread(units, "n_words", n_words, "n_text_tokens")
    spread(units, "n_special_tokens", n_special, "n_documents")
    spread(units, "n_added_tokens", n_added, "n_documents")
    if entries[0].runs is None:
        _spread_files(units, entries, output)
    return units


def _spread_files(units: list[Unit], entries: Sequence[Written], output: OutputConfig) -> None:
    is_document = output.packing is None and all(entry.windows is None for entry in entries)
    n_rows = sum(entry.shard.rows or 0 for entry in entries)
    spread(units, "shard_rows", n_rows, "n_documents" if is_document else "n_tokens")
    spread(units, "shard_tokens", sum(entry.shard.tokens or 0 for entry in entries), "n_tokens")
    files = ((file.file, file.n_bytes) for entry in entries for file in (entry.shard, *entry.companions))
    for format_, n_bytes in bytes_of(output, files).items():
        spread(units, f"bytes.{format_}", n_bytes, "n_tokens")


def bytes_of(output: OutputConfig, files: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Returns the bytes of shards by format, index files included.

    Args:
      files: the files of the shards: name and bytes.
    """
    format_of = {suffix: name for name in output.formats for suffix in formats.suffixes(output, name)}
    found = dict.fromkeys(map(str, output.formats), 0)
    for name, n_bytes in files:
        found[format_of[f".{name.partition('.')[2]}"]] += n_bytes
    return found


def _write_empty_shard(config: Config, tokenizer: Tokenizer) -> None:
    nothing = Split(0, "empty", ())
    config = config.model_copy(update={"input": next(iter(config.input.by_source.values()))})
    with Staging(config.output.path, nothing.id) as staging:
        Attempt(nothing, config, tokenizer, tokenizer_info(tokenizer), staging, 1).finish()


def count_words(samples: Sequence[Sample], config: Config, counting_json: str, batch_bytes: int) -> Trial:
    """Counts the words of samples; see `tokenize`."""
    trial, tokenizer, at_first = Trial(), Tokenizer.from_str(counting_json), memory_now()
    key, done = count.count_key(config.input, config.counts, counting_json, config.text), []
    for sample in samples:
        started = time.perf_counter()
        reading = _Reading(sample, batch_bytes)

        def note(n_bytes: int, *numbers: int, reading: _Reading = reading) -> None:
            n_documents, n_rejected, _, n_filtered = numbers
            records = {"n_documents": n_documents, "rejected": n_rejected, "filtered": n_filtered}
            reading.note({"n_bytes": n_bytes, "n_records": sum(numbers), **records})

        counts = count.count_split(
            sample.split, config.input, config.output.path, tokenizer, key, config.counts,
            on_batch=note, text=config.text, read=reading.batches,
        )  # fmt: skip
        done.append(counts)
        trial.seconds.append(time.perf_counter() - started)
        units = reading.units()
        for name, n in _flat(asdict(counts.totals)).items():
            kind, _, each = name.partition(".")
            # As even as documents are; by bytes hardly anything would be left to vary, and bounds would be too narrow.
            if each or name in ("n_chars", "n_words"):
                spread(units, name, n, kind if each else "n_documents")
        trial.units += units
    started = time.perf_counter()
    by = config.counts.by
    partitions = [
        finishing.merge_partition(number, N_PARTITIONS, done, config.output.path, by) for number in range(N_PARTITIONS)
    ]
    finishing.finish_counts(done, partitions, config.output.path, key, counting_json, by)
    trial.merge_seconds = time.perf_counter() - started
    trial.memory = peak_memory() - at_first
    return trial


def train(plan: JobPlan, config: Config, labels: Sequence[str] = ()) -> dict[str, str]:
    """Trains the vocabularies of a job on the counts of a trial, or on those that the config names.

    Returns:
      The tokenizers as text, by their folders below `vocab/`; `labels` are those that there must be.
    """
    artifact = open_counts(plan.counts_given or config.output.path)
    vocabularies = train_vocabularies(artifact, config.tokenizer, config.text.tokens, by=config.train_by, labels=labels)
    return {vocabulary.folder: vocabulary.tokenizer_json for vocabulary in vocabularies}


class _Reading:
    """Reads a sample and notes what each batch holds."""

    def __init__(self, sample: Sample, batch_bytes: int) -> None:
        self._sample, self._batch_bytes = sample, batch_bytes
        self._parts: list[tuple[tuple[int, PieceCounts], ...]] = []
        self._counts: list[dict[str, float]] = []
        self._since = time.perf_counter()

    def batches(self, split: Split, config: InputConfig) -> Iterator[ReadBatch]:
        limits = {i: each.quota for i, each in enumerate(self._sample.portions) if each.quota is not None}
        for batch in read_split(split, config, self._batch_bytes, limits=limits):
            self._parts.append(batch.pieces)
            yield batch

    def note(self, counts: Mapping[str, float]) -> None:
        """Adds the counts of the last batch, after it is done."""
        now = time.perf_counter()
        self._counts.append({**counts, SECONDS: now - self._since})
        self._since = now

    def units(self) -> list[Unit]:
        """Returns a unit for each batch; the planned bytes of a piece are divided among them by bytes read."""
        read: dict[int, PieceCounts] = {}
        n_batches: Counter[int] = Counter()
        for parts in self._parts:
            for piece, counts in parts:
                read[piece] = read.get(piece, PieceCounts()) + counts
            n_batches.update(piece for piece, _ in parts)
        portions = self._sample.portions
        planned = {piece: portions[piece].planned(counts.n_bytes, counts.n_records) for piece, counts in read.items()}
        weights = {piece: portions[piece].n_meant for piece in read}
        meant = {piece: n if portions[piece].is_range else planned[piece] for piece, n in weights.items()}
        units = []
        for parts, counted in zip(self._parts, self._counts, strict=True):
            shares = [
                (piece, counts.n_bytes / n if (n := read[piece].n_bytes) else 1 / n_batches[piece])
                for piece, counts in parts
            ]
            of_unit = (sum(each[piece] * share for piece, share in shares) for each in (planned, meant, weights))
            n_planned, n_meant, weight = of_unit
            units.append(Unit(n_planned, n_meant, counted, weight))
        return units


def _flat(counts: Mapping[str, Any]) -> dict[str, int]:
    """Returns the counts by name; of rejects and of filtered documents by "rejected.reason" and so on, too."""
    flat: dict[str, int] = {}
    for name, value in counts.items():
        if isinstance(value, int):
            flat[name] = value
        elif isinstance(value, Mapping):
            flat |= {name: sum(value.values()), **{f"{name}.{each}": n for each, n in value.items()}}
    return flat
