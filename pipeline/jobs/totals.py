# SPDX-License-Identifier: Apache-2.0
"""Adds up what the ledger records of a job: in one process, or parts of it in many, which the last step joins.

A part is a stretch of `PART_ENTRIES` splits, or shards of a shuffle. Its sums and lists go into files in `_tmp/`; the
last step reads these one after another, in order, so the result is the same as without parts.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import lists
from tokenmill.pipeline.books.job_books import JobBooks, check_balance, entry_digest, read_committed
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.ledger import LedgerEntry, ShardEntry, Written
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.books.reject_limits import LossyFiles
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.output.writers import mds
from tokenmill.pipeline.reporting.stats import summarize
from tokenmill.pipeline.running.in_turn import in_turn
from tokenmill.pipeline.statistics.tally import Statistics
from tokenmill.tokenizer import Tokenizer

PART_ENTRIES = 256
"""Entries added up in a part; the last step holds nothing of them, but takes a few milliseconds for each part."""


class Totals:
    """Sums and lists of entries of the ledger: all that the manifest and the statistics of a job follow from."""

    def __init__(
        self,
        output: str,
        listed: lists.Sink,
        tokens: Statistics,
        *,
        is_shuffled: bool,
        is_whole: bool = True,
        input: InputConfig | None = None,
        is_part: bool = False,
    ) -> None:
        """Starts at zero.

        Args:
          output: the output folder.
          listed: gets the records of the manifest's lists.
          tokens: statistics of nothing, of the job's vocabulary.
          is_shuffled: whether the job shuffles.
          is_whole: whether each file must be read completely; False in a replay.
          input: the section that says which files are damaged; None if nobody wants to know.
          is_part: whether these are the totals of a part, to be saved.
        """
        self._output, self._listed, self._is_part = output, listed, is_part
        self._rejecting: list[dict[str, Any]] = []
        self._ids = self._planned = 0
        self.lossy = LossyFiles(input) if input is not None else None
        self.books = JobBooks(self._take, is_shuffled=is_shuffled, is_whole=is_whole, is_part=is_part)
        self.statistics = tokens
        self._unk_id = tokens.unk_id if tokens.unk_id >= 0 else None
        self.mds_shards: list[mds.Shard] = []

    def add(self, entry: LedgerEntry) -> None:
        """Adds the entry of the next split, in the order of the plan."""
        self._ids += int(entry.split_id, 16)
        self._planned += entry_digest(entry)
        self.books.add(entry)
        self.mds_shards += _mds_shards(entry)

    def add_shard(self, entry: ShardEntry) -> None:
        """Adds the entry of the next merged shard of a job that shuffles, in order."""
        self._ids += int(entry.shard_id, 16)
        self.books.add_shard(entry)
        self.mds_shards += _mds_shards(entry)

    def read_splits(self, ids: Iterable[str], tokenizer: str) -> None:
        """Adds committed splits and their statistics, in the order of the plan.

        Args:
          ids: those of the splits.
          tokenizer: the digest of the tokenizer that must have made them.

        Raises:
          BooksError: if one is not committed, or does not balance.
        """

        def committed(split_id: str) -> tuple[LedgerEntry, Statistics]:
            entry = read_committed(split_id, self._output, tokenizer)
            check_balance(entry)
            with storage.open_read(storage.join(self._output, entry.statistics.file)) as handle:
                return entry, Statistics.from_bytes(handle.read(), self._unk_id)

        for entry, statistics in in_turn(committed, ids, waits=storage.is_remote(self._output)):
            self.statistics.merge(statistics)
            self.add(entry)

    def read_shards(self, ids: Iterable[str]) -> None:
        """Adds the merged shards of a job that shuffles, in order; BooksError if one is missing or does not balance."""
        for entry in in_turn(self._read_shard, ids, waits=storage.is_remote(self._output)):
            self.add_shard(entry)

    def check_planned(self, ids: Iterable[str], digest: int) -> None:
        """Raises BooksError unless just these were added, as planned.

        Args:
          ids: the ids of all splits and shards.
          digest: `PlannedSplits.digest`.
        """
        if self._ids != sum(int(each, 16) for each in ids) or self._planned % (1 << 64) != digest:
            raise BooksError("the splits and shards that were added up are not those of the plan")

    def summarize(self, table: pa.Table) -> dict[str, Any]:
        """Returns the contents of stats.json, after all was added.

        Args:
          table: the count and kind of each entry of the vocabulary, `token_table.TOKEN_COUNTS`.
        """
        self.statistics.add_groups(self.books.counts.groups)
        packing, windows, chat = (self.books.totals.get(name) for name in ("packing", "windows", "chat"))
        return summarize(self.statistics, table, packing, windows, chat, self.books.by_source)

    def save(self, path: str) -> None:
        """Writes a part into files whose names begin with `path`; again, the same bytes."""
        assert isinstance(self._listed, lists.Lists)
        self._listed.save(path)
        storage.write_atomic(f"{path}.statistics", self.statistics.to_bytes())
        self.books.counts.add_groups(self.statistics.groups)  # the words that were dropped
        more = {"rejecting": self._rejecting, "mds_shards": self.mds_shards, "ids": self._ids, "planned": self._planned}
        storage.write_atomic(f"{path}.json", json.dumps(self.books.to_record() | more).encode())

    def join(self, paths: Sequence[str]) -> None:
        """Adds parts that `save` has written, in order."""

        def read(path: str) -> tuple[dict[str, Any], Statistics]:
            with storage.open_read(f"{path}.json") as books, storage.open_read(f"{path}.statistics") as statistics:
                return json.load(books), Statistics.from_bytes(statistics.read(), self._unk_id)

        assert isinstance(self._listed, lists.Lists)
        saved = in_turn(read, paths, waits=storage.is_remote(self._output))
        for path, (part, statistics) in zip(paths, saved, strict=True):
            self.statistics.merge(statistics)
            self.books.join(part)
            self._listed.extend(path)
            for record in part["rejecting"]:
                self._note_rejects(record)
            self.mds_shards += map(tuple, part["mds_shards"])
            self._ids += part["ids"]
            self._planned += part["planned"]

    def _take(self, kind: str, record: dict[str, Any]) -> None:
        self._listed.take(kind, record)
        if kind == "inputs" and record["read"].get("rejected"):
            self._note_rejects(record)

    def _note_rejects(self, record: dict[str, Any]) -> None:
        if self._is_part:
            self._rejecting.append(record)
        elif self.lossy is not None:
            self.lossy.add(record)

    def _read_shard(self, shard_id: str) -> ShardEntry:
        entry = ShardEntry.read(self._output, shard_id)
        if entry is None:
            raise BooksError(f"shard {shard_id} has not been merged")
        check_balance(entry)
        return entry


def totals_of(config: Config, job: Job, tokenizer: Tokenizer, listed: lists.Lists, *, is_part: bool = False) -> Totals:
    """Returns the totals of a job, or of a part of it, before anything is added."""
    return Totals(
        config.output.path,
        listed,
        Statistics(tokenizer.n_ids, tokenizer.unk_token_id),
        is_shuffled=config.output.shuffle is not None,
        is_whole="replay_of" not in job.parts,
        input=config.input,
        is_part=is_part,
    )


def add_up_part(config: Config, job: Job, tokenizer: Tokenizer, kind: str, number: int, ids: Iterable[str]) -> None:
    """Adds up some splits or shards, as `kind` says, and saves them as a part; raises BooksError as `Totals`."""
    output = config.output.path
    totals = totals_of(config, job, tokenizer, lists.Lists(output, is_part=True), is_part=True)
    if kind == "splits":
        totals.read_splits(ids, tokenizer.digest)
    else:
        totals.read_shards(ids)
    totals.save(part_path(output, kind, number))


def part_path(output: str, kind: str, number: int) -> str:
    """Returns what the names of a part's files begin with; `kind` is "splits" or "shards"."""
    return storage.join(output, filenames.TEMPORARY, f"{kind}-{number:08d}")


def _mds_shards(entry: Written) -> Iterator[mds.Shard]:
    """Yields the records of an entry's MDS shards for their index."""
    for file in (entry.shard, *entry.companions):
        if file.file.endswith(".mds"):
            yield file.file, file.n_bytes, file.rows or 0
