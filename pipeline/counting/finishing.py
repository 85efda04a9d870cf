# SPDX-License-Identifier: Apache-2.0
"""Turns the counts of splits into the counts artifact: merges each hash partition, prunes, checks sums. No Beam here.

Every word is in one partition, whose runs are merged in bounded memory (`merging`). Words are left out only if the
config says so, and only after their exact count is known, so the result does not depend on any order. `min_count` drops
words that occur less often. `max_words` drops words that occur at most B times, where B is the smallest number that
leaves no more than `max_words` words. B, and how many words and occurrences were dropped, are in counts.json.
"""

import hashlib
import heapq
import itertools
import json
import marshal
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.books.input_counts import PieceCounts
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.lists import RecordList
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.books.reject_limits import LossyFiles, RejectLimits, by_limits
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.tokenizer import CountsConfig
from tokenmill.pipeline.counting import counts as artifact
from tokenmill.pipeline.counting.counts import Group, GroupRows, PartitionWriter, Pruning
from tokenmill.pipeline.counting.merging import merge_runs
from tokenmill.pipeline.counting.split_counts import Described, GroupTotals, SplitCounts, Totals
from tokenmill.pipeline.counting.words import describe_words
from tokenmill.pipeline.input.unusable import check_usable
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.running.in_turn import in_turn
from tokenmill.pipeline.splits import Split

_RUNS_AHEAD = 8
"""Batches read before they are merged; each is at most `MAX_COUNTER_BYTES`, divided by the number of partitions."""

_RUN_FILES = 1 << 16
_CHUNK_FILES = 1 << 11

_DONE_NAME = f"{filenames.COUNTING}/done.json"


@dataclass(frozen=True)
class PartitionCounts(Described):
    """One file of the counts artifact."""

    what = "the counts of a partition"
    partition: int
    groups: tuple[GroupRows, ...]
    pruning: Pruning
    file: FileRecord
    alphabet: FileRecord
    """The counts of the characters in its words, a file in `_counts/`."""

    @property
    def n_words(self) -> int:
        """All occurrences of words in the partition, kept or left out."""
        return sum(group.n_words for group in self.groups) + self.pruning.n_occurrences


def histogram_partition(
    partition: int, splits: Iterable[SplitCounts], output: str, min_count: int
) -> list[tuple[int, int]]:
    """Returns pairs of a count and the number of words with this count in a partition, by ascending count.

    Counts below `min_count` are left out. Memory: as for `merge_partition`.
    """
    found: Counter[int] = Counter()
    splits = sorted(splits, key=lambda counts: counts.split_id)
    for group in _groups_of(splits):
        for table in merge_runs(_runs_of(partition, group, splits, output), output, f"{partition}"):
            counts, n_words = np.unique(table["count"].to_numpy(), return_counts=True)
            found.update(dict(zip(counts.tolist(), n_words.tolist(), strict=True)))
    return sorted((count, n_words) for count, n_words in found.items() if count >= min_count)


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


def merge_partition(
    partition: int,
    n_partitions: int,
    splits: Iterable[SplitCounts],
    output: str,
    labels: Sequence[str] = (),
    bound: int = 0,
) -> PartitionCounts:
    """Adds up one hash partition of all splits and writes it as one file of the counts artifact.

    Memory: bounded, see `merging.merge_runs`, and one row group.

    Args:
      partition: the index of the partition.
      n_partitions: how many there are.
      splits: the counts of all splits, in any order.
      output: the output folder.
      labels: the kinds of labels of groups.
      bound: words that occur at most this often are left out, see `find_bound`.
    """
    splits = sorted(splits, key=lambda counts: counts.split_id)
    with Staging(output, f"counts-{partition}") as staging:
        writer = PartitionWriter(staging.create(artifact.partition_name(partition, n_partitions)), labels, bound)
        for group in _groups_of(splits):
            runs = _runs_of(partition, group, splits, output)
            writer.add_group(group, merge_runs(runs, output, f"{partition}"))
        record = writer.finish()
        staging.publish()
    alphabet = artifact.write_alphabet(
        writer.characters, output, f"{filenames.COUNTING}/alphabet-{partition:05d}.parquet"
    )
    return PartitionCounts(partition, tuple(writer.groups), writer.pruning, record, alphabet)


def finish_counts(
    splits: Iterable[SplitCounts],
    partitions: Sequence[PartitionCounts],
    output: str,
    key: str,
    tokenizer_json: str,
    labels: Sequence[str] = (),
    config: InputConfig | None = None,
) -> list[PartitionCounts]:
    """Checks that no word was lost, and writes counts/alphabet.parquet and counts/counts.json.

    Memory: 20 bytes for each input file.

    Args:
      splits: the counts of all splits, in any order; looked at again if all records of a source were rejected.
      partitions: those of `merge_partition`.
      output: the output folder.
      key: `count_key`.
      tokenizer_json: what says what a word is.
      labels: the kinds of labels of groups.
      config: the section `input`; None: no limits.

    Returns:
      The partitions in order.

    Raises:
      BooksError: if the counts do not sum up to the words read.
      ValueError: if all records were rejected, more than `config`, the `input` section, allows, or too much of a file.
    """
    partitions = sorted(partitions, key=lambda counts: counts.partition)
    totals, by_source, files, digest = Totals(rejected={}, filtered={}), dict[str, Totals](), _Files(), _PlanDigest(key)
    read: dict[Group, GroupTotals] = {}
    for split in splits:
        totals += split.totals
        source = split.pieces[0].source if split.pieces else ""
        by_source[source] = by_source.get(source, Totals(rejected={}, filtered={})) + split.totals
        for group in split.groups:
            read[group.labels] = read.get(group.labels, GroupTotals(group.labels)) + group
        files.add(split)
        digest.add(split)
    inputs = RecordList(output, "counted")
    lossy = LossyFiles(config) if config is not None else None
    for record in files:
        inputs.add(record)
        if lossy is not None:
            lossy.add(record)
    if config is not None and lossy is not None:
        for section, given in by_limits(
            config, asdict(totals), {name: asdict(each) for name, each in by_source.items()}
        ):
            check_usable(given["n_records"], given["rejected"], splits, section, where="")
            RejectLimits.of(section).check_all(**given)
        lossy.check()
    n_counted = sum(counts.n_words for counts in partitions)
    if n_counted != totals.n_words:
        raise BooksError(f"counts: the words of all splits are {totals.n_words}, the sum of all counts is {n_counted}")
    totals.check("counts")
    characters = np.zeros(artifact.N_CODE_POINTS, np.int64)
    for counts in partitions:
        characters += artifact.read_alphabet(output, counts.alphabet.file)
    artifact.write_report(
        output,
        labels=labels,
        words=describe_words(tokenizer_json),
        totals=asdict(totals) | {"n_distinct_words": sum(counts.file.rows or 0 for counts in partitions)},
        groups=_group_report(read, partitions),
        pruning=sum((counts.pruning for counts in partitions), Pruning()),
        partitions=[counts.file for counts in partitions],
        alphabet=artifact.write_alphabet(characters, output),
        counter=key,
        inputs=inputs.finish(),
    )
    done = {"splits": digest.value(), "partitions": [counts.to_json() for counts in partitions]}
    storage.write_atomic(storage.join(output, _DONE_NAME), json.dumps(done).encode())
    return partitions


def _group_report(read: Mapping[Group, GroupTotals], partitions: Iterable[PartitionCounts]) -> list[dict[str, Any]]:
    n_distinct: Counter[Group] = Counter()
    for counts in partitions:
        n_distinct.update({rows.labels: rows.n_distinct_words for rows in counts.groups})
    return [asdict(read[labels]) | {"n_distinct_words": n_distinct[labels]} for labels in sorted(read)]


def delete_staged(output: str) -> None:
    """Removes the counts of single splits, which are not needed after the job."""
    folder = storage.join(output, filenames.COUNTING)
    for name in storage.list_files(folder):
        if name != _DONE_NAME.rpartition("/")[2]:
            storage.delete(storage.join(folder, name))


def load_finished(splits: Sequence[Split], output: str, key: str) -> list[PartitionCounts] | None:
    """Returns the partitions of finished counts of exactly these splits, if all files are as recorded; else None."""
    path = storage.join(output, _DONE_NAME)
    if not storage.exists(path) or not storage.exists(storage.join(output, artifact.REPORT_NAME)):
        return None
    with storage.open_read(path) as handle:
        try:
            done = json.loads(handle.read())
            partitions = [PartitionCounts.from_json(text) for text in done["partitions"]]
            digest = _PlanDigest(key)
            for split in splits:
                digest.add(split)
            is_same = done["splits"] == digest.value()
        except (ValueError, KeyError, TypeError):
            return None
    if not is_same or any(ledger.problem(output, counts.file) for counts in partitions):
        return None
    return partitions


def _groups_of(splits: Iterable[SplitCounts]) -> list[Group]:
    return sorted({group.labels for split in splits for group in split.groups})


def _runs_of(partition: int, group: Group, splits: Iterable[SplitCounts], output: str) -> Iterator[pa.Table]:
    def places() -> Iterator[tuple[str, int]]:
        for split in splits:
            labels, n_before = [each.labels for each in split.groups], 0
            for number, first, stop in split.batches:
                if first <= partition < stop and labels[number] == group:
                    yield split.file.file, n_before + partition - first
                n_before += stop - first

    def read(place: tuple[str, int]) -> pa.Table:
        with storage.open_read(storage.join(output, place[0])) as handle, pa.ipc.open_file(handle) as file:
            return pa.Table.from_batches([file.get_batch(place[1])])

    return in_turn(read, places(), waits=storage.is_remote(output), n_ahead=_RUNS_AHEAD)


class _PlanDigest:
    """A digest of the pieces of all splits, with the versions of their files, and of a key; in any order."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._sum = self._n = 0

    def add(self, split: Split | SplitCounts) -> None:
        """Adds the pieces of a split."""
        for piece in split.pieces:
            digest = hashlib.sha256(json.dumps(asdict(piece), sort_keys=True).encode()).digest()
            self._sum = (self._sum + int.from_bytes(digest)) % (1 << 256)
            self._n += 1

    def value(self) -> str:
        """Returns the digest, in hex."""
        return hashlib.sha256(json.dumps([self._key, self._n, self._sum]).encode()).hexdigest()


class _Files:
    """The record of every input file, however the files were cut, in the order of names; packed, 20 bytes for each.

    A file that has rejects has what was read of it.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[str, str, int, dict[str, Any] | None]] = []
        self._runs: list[list[bytes]] = []

    def add(self, split: SplitCounts) -> None:
        """Adds the pieces of a split."""
        reads = dict(split.inputs)
        for i, piece in enumerate(split.pieces):
            read = reads[i].to_record() if i in reads else None
            self._waiting.append((piece.name, piece.path, piece.n_bytes, read))
        if len(self._waiting) >= _RUN_FILES:
            self._pack()

    def _pack(self) -> None:
        self._waiting.sort(key=_PLACE)
        chunks = range(0, len(self._waiting), _CHUNK_FILES)
        packed = (marshal.dumps(self._waiting[start : start + _CHUNK_FILES]) for start in chunks)
        self._runs.append([zlib.compress(chunk, 1) for chunk in packed])
        self._waiting = []

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._pack()
        for _, pieces in itertools.groupby(heapq.merge(*map(_unpacked, self._runs), key=_PLACE), _PLACE):
            read = PieceCounts()
            for name, _, n_bytes, counts in pieces:
                record = {"name": name, "n_bytes": n_bytes}
                read += PieceCounts(**counts or {})
            yield record | ({"read": read.to_record()} if read.rejected else {})


_PLACE = itemgetter(0, 1)


def _unpacked(run: Iterable[bytes]) -> Iterator[tuple[str, str, int, dict[str, Any] | None]]:
    return itertools.chain.from_iterable(marshal.loads(zlib.decompress(chunk)) for chunk in run)
