# SPDX-License-Identifier: Apache-2.0
"""Turns the counts of splits into the counts artifact: merges each hash partition, prunes, checks sums. No Beam here.

    a range of the runs of all splits --merge_partition--> counts/counts-00003-of-00016.parquet
                                                           _counts/_ledger/<id>.json
    all entries of the ledger ---------finish_counts-----> counts/alphabet.parquet, counts/counts.json

Every word is in one partition, whose runs are merged in bounded memory (`merging`). Words are left out only if the
config says so, and only after their exact count is known, so the result does not depend on any order. `min_count` drops
words that occur less often. `max_words` drops words that occur at most B times, where B is the smallest number that
leaves no more than `max_words` words. B, and how many words and occurrences were dropped, are in counts.json.

The id of a partition is a hash of the plan and of all else that decides what it holds. So its entry says that it needs
no work, even when the runs are gone.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import filenames, schemas, storage
from tokenmill.pipeline.books import quantities
from tokenmill.pipeline.books.counts import Counts, Groups, nest
from tokenmill.pipeline.books.job_books import JobBooks, PlannedSplits
from tokenmill.pipeline.books.ledger import Entry, SplitEntry
from tokenmill.pipeline.books.lists import Lists
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.books.reject_limits import by_limits, check_rejects
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.config.tokenizer import CountsConfig
from tokenmill.pipeline.counting import counts as artifact
from tokenmill.pipeline.counting.count import Counting
from tokenmill.pipeline.counting.counts import Group, PartitionWriter, Pruning, groups_of
from tokenmill.pipeline.counting.merging import merge_counts
from tokenmill.pipeline.counting.words import describe_words
from tokenmill.pipeline.input.unusable import check_usable
from tokenmill.pipeline.isolating import in_turn
from tokenmill.pipeline.output.spill import RunFiles, RunReader, shard_range
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.splits import Split

_RUNS_AHEAD = 8
"""Parts of runs read before they are merged; each is at most `MAX_COUNTER_BYTES`, divided by the number of
partitions, and a piece more."""

_PRUNED = "pruned"
"""The group of the numbers of `Pruning` in the entry of a partition."""


def histogram_partition(partition: int, splits: Sequence[SplitRuns], of: Counting) -> list[tuple[int, int]]:
    """Returns pairs of a count and the number of words with this count in a partition, by ascending count.

    Counts below `min_count` are left out. Memory: as for `merge_partition`.
    """
    found: Counter[int] = Counter()
    for group in _groups_of(splits):
        for table in merge_counts(_words_of(partition, group, splits, of), of.output, f"{partition}"):
            counts, n_words = np.unique(table["count"].to_numpy(), return_counts=True)
            found.update(dict(zip(counts.tolist(), n_words.tolist(), strict=True)))
    return sorted((count, n_words) for count, n_words in found.items() if count >= of.counts.min_count)


def find_bound(histograms: Iterable[Iterable[tuple[int, int]]], config: CountsConfig) -> int:
    """Returns B: words that occur at most B times are left out.

    B is the smallest number, at least `min_count - 1`, that leaves no more than `max_words` words; words that occur
    equally often stay or go together.

    Args:
      histograms: `histogram_partition` of every partition; not used without `max_words`.
      config: the section `counts`.
    """
    bound = config.min_count - 1
    if config.max_words is None:
        return bound
    found: Counter[int] = Counter()
    for histogram in histograms:
        found.update(dict(histogram))
    n_left = 0
    for count in sorted(found, reverse=True):
        n_left += found[count]
        if n_left > config.max_words:
            return max(bound, count)
    return bound


def merge_partition(partition: int, splits: Sequence[SplitRuns], of: Counting, bound: int = 0) -> Entry:
    """Adds up one hash partition of all splits and commits it as one file of the counts artifact.

    If an earlier attempt has, this only returns its entry. Memory: bounded, see `merging.merge_counts`, and one row
    group.

    Args:
      partition: the index of the partition.
      splits: the runs of all splits, in any order.
      of: what was counted.
      bound: words that occur at most this often are left out, see `find_bound`.
    """
    if (entry := _merged(partition, of)) is not None:
        return entry
    with Staging(of.output, f"counts-{partition}") as staging:
        name, alphabet_name = _names(partition, of)
        writer = PartitionWriter(staging.create(name), of.counts.by, bound)
        for group in _groups_of(splits):
            words = _words_of(partition, group, splits, of)
            writer.add_group(group, merge_counts(words, of.output, f"{partition}"))
        entry = Entry(
            index=partition,
            tokenizer=of.key,
            counts={**writer.counts.groups, _PRUNED: asdict(writer.pruning)},
            shard=writer.finish(),
            companions=(artifact.write_alphabet(writer.characters, staging, alphabet_name),),
        )
        staging.publish()
    path = storage.join(of.output, filenames.COUNTING, filenames.entry_name(_id_of(partition, of)))
    storage.write_atomic(path, entry.to_json())
    return entry


def is_finished(of: Counting) -> bool:
    """Returns whether an earlier run has finished these counts of these splits; reads all files to make sure."""
    return storage.exists(storage.join(of.output, artifact.REPORT_NAME)) and all(
        _merged(partition, of, with_alphabet=False) is not None for partition in range(of.n_partitions)
    )


def finish_counts(of: Counting, planned: PlannedSplits, splits: Iterable[Split]) -> None:
    """Adds up the ledger, checks that no word was lost, and writes counts/alphabet.parquet and counts/counts.json.

    Memory: a split at a time.

    Args:
      of: what was counted; its partitions are merged.
      planned: the plan.
      splits: its splits, in any order; looked at if all records of a source were rejected.

    Raises:
      BooksError: if a split is not counted as planned, a part of a file is missing, or the counts do not sum up to the
        words read.
      ValueError: if all records were rejected, more than the section `input` allows, or too much of a file.
    """
    inputs = Lists(of.output, ["counted"])

    def take(_: str, record: Mapping[str, Any]) -> None:
        counted = {"name": record["name"], "n_bytes": record["n_bytes"]}
        inputs.take("counted", counted | ({"read": record["read"]} if record["read"].get("rejected") else {}))

    def read(split_id: str) -> SplitEntry:
        entry = SplitEntry.read(of.splits, split_id)
        if entry is None or entry.tokenizer != of.key:
            raise BooksError(f"the words of split {split_id} have not been counted")
        return entry

    books = JobBooks(take, limits=of.input)
    for entry in in_turn(read, planned.ids(), waits=storage.is_remote(of.output)):
        books.add_read(entry)
    books.close()
    books.check_planned(planned)
    if books.problems and not of.is_sample:
        raise BooksError("\n".join(books.problems))
    for section, given in () if of.is_sample else by_limits(of.input, books.totals, books.by_source):
        check_usable(given["n_records"], given["rejected"], splits, section, where="")
    check_rejects(of.input, books.totals, books.by_source)
    if books.lossy is not None:
        books.lossy.check()
    write_artifact(of, books.counts.groups, inputs=inputs.finish()["counted"])


def write_artifact(of: Counting, numbers: Groups, inputs: Any = ()) -> None:
    """Writes what makes the merged partitions an artifact.

    Args:
      of: what was counted.
      numbers: the sums of the numbers of all splits.
      inputs: the list of input files, as in counts.json.

    Raises:
      BooksError: if a partition is not merged, or the counts do not sum up to the words read.
    """
    totals, entries = totals_of(numbers), [_read(partition, of) for partition in range(of.n_partitions)]
    merged, pruning, characters = Counts(), Pruning(), np.zeros(artifact.N_CODE_POINTS, np.int64)
    for entry in entries:
        merged.add_groups(entry.counts)
        pruning += Pruning(**entry.counts[_PRUNED])
        characters += artifact.read_alphabet(of.output, _names(entry.index, of)[1])
    rows = groups_of(merged.groups)
    n_counted = sum(group["n_words"] for group in rows.values()) + pruning.n_occurrences
    if n_counted != totals["n_words"]:
        raise BooksError(
            f"counts: the words of all splits are {totals['n_words']}, the sum of all counts is {n_counted}"
        )
    if wrong := quantities.imbalances(quantities.OF_INPUT, numbers[""]):
        raise BooksError("\n".join(f"counts: {line}" for line in wrong))
    n_distinct = {group: rows.get(group, {}).get("n_distinct_words", 0) for group in groups_of(numbers)}
    artifact.finish_artifact(
        of.output,
        labels=of.counts.by,
        words=describe_words(of.tokenizer),
        totals=totals | {"n_distinct_words": sum(n_distinct.values())},
        groups=[
            {"labels": list(group), **read, "n_distinct_words": n_distinct[group]}
            for group, read in groups_of(numbers).items()
        ],
        pruning=pruning,
        partitions=[entry.shard for entry in entries],
        characters=characters,
        counter=of.key,
        inputs=inputs,
    )


def totals_of(numbers: Groups) -> dict[str, Any]:
    """Returns the totals of counts.json, but for distinct words, from the numbers of splits."""
    read, groups = nest(numbers[""]), groups_of(numbers).values()
    return {
        **{each.name: read.get(each.name, {} if each.name in quantities.BY_NAME else 0) for each in quantities.READ},
        **{each.name: sum(group[each.name] for group in groups) for each in quantities.TEXTS},
    }


def _names(partition: int, of: Counting) -> list[str]:
    """Returns the names of the files of a partition: of its words, and of how often their characters occur."""
    alphabet = f"{filenames.COUNTED_SPLITS}/alphabet-{partition:05d}.parquet"
    return [artifact.partition_name(partition, of.n_partitions), alphabet]


def _id_of(partition: int, of: Counting) -> str:
    return hashlib.sha256(f"{of.key} {of.plan} {partition} {of.n_partitions}".encode()).hexdigest()[:16]


def _read(partition: int, of: Counting) -> Entry:
    entry = Entry.read(storage.join(of.output, filenames.COUNTING), _id_of(partition, of))
    if entry is None or entry.index != partition:
        raise BooksError(f"partition {partition} of the word counts has not been merged")
    return entry


def _merged(partition: int, of: Counting, *, with_alphabet: bool = True) -> Entry | None:
    """Returns the entry of a partition that needs no work: it is committed, and its files are as recorded."""
    try:
        entry = _read(partition, of)
    except BooksError:
        return None
    spared = None if with_alphabet else next(iter(entry.companions), None)
    return entry if entry.has_files(of.output, _names(partition, of), without=spared) else None


def _groups_of(splits: Iterable[SplitRuns]) -> list[Group]:
    return sorted({group for split in splits for group in split.groups})


def _words_of(partition: int, group: Group, splits: Sequence[SplitRuns], of: Counting) -> Iterator[pa.Table]:
    """Yields the words of a group in one partition, from one run after another."""
    low, high = shard_range(partition, of.n_partitions)
    with RunFiles(of.output) as files:

        def read(run: RunReader) -> pa.Table:
            run.start(low)
            return pa.Table.from_batches([each.remove_column(0) for each in run.take(high)], schemas.WORD_COUNTS)

        runs = (
            RunReader(files, storage.join(of.splits, filenames.runs_name(split.split_id)), run, schemas.WORD_COUNTS)
            for split in splits
            for run, labels in zip(split.runs, split.groups, strict=True)
            if labels == group
        )
        yield from in_turn(read, runs, waits=files.is_remote, n_ahead=_RUNS_AHEAD)
