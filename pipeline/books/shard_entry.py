# SPDX-License-Identifier: Apache-2.0
"""The ledger entry of a shard that was merged from sorted runs: what is in it, and in which files."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.books.json_files import Count
from tokenmill.pipeline.books.ledger import Entry, FileRecord, LedgerEntry
from tokenmill.pipeline.books.sums import SplitRuns, Sums


def runs_digest(splits: Iterable[SplitRuns]) -> str:
    """Returns a digest, 64 hexadecimal digits, of what is merged: each split's place, id, and checksum of its runs."""
    return add_digests(digest_of_runs(split.index, split.split_id, split.sha256) for split in splits)


def digest_of_runs(index: int, split_id: str, sha256: str) -> str:
    """Returns `runs_digest` of one split."""
    return hashlib.sha256(f"{index} {split_id} {sha256}".encode()).hexdigest()


def add_digests(digests: Iterable[str]) -> str:
    """Returns the sum of digests, modulo 2**256: no process needs all splits to have that of a job."""
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 256):064x}"


@dataclass(frozen=True, kw_only=True)
class ShardEntry(Entry):
    """The contents of one shard of a shuffled job. All counts are exact."""

    shard_id: str
    n_shards: Count
    runs: str
    """`runs_digest` of the runs it was merged from."""
    sums: Sums
    documents: FileRecord
    keys: FileRecord

    @property
    def n_documents(self) -> int:
        """The number of documents, packed or not."""
        return self.sums.n_documents

    @property
    def n_tokens(self) -> int:
        """The number of tokens of the documents."""
        return self.sums.n_tokens

    @property
    def n_oov_tokens(self) -> int:
        """The number of unknown tokens of the documents."""
        return self.sums.n_oov_tokens

    def files(self) -> Iterator[FileRecord]:
        """Yields the files this entry names."""
        yield from super().files()
        yield self.keys

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Returns the entry that `to_json` turned into `data`; raises ValueError if `data` is something else."""
        entry = ledger.read_as(cls, ledger.load_entry(data, _WHAT), _WHAT)
        if entry.index >= entry.n_shards:
            raise ValueError(f"not {_WHAT}: shard {entry.index} of {entry.n_shards}")
        return entry


Written = LedgerEntry | ShardEntry
"""The entry of a shard: of a split, or of a merged one."""

_WHAT = "the entry of a shard"


def runs_of(entry: LedgerEntry) -> SplitRuns:
    """Returns the runs of a split that was sorted, from its entry."""
    assert entry.runs is not None
    return SplitRuns(entry.split_id, entry.index, entry.shard.sha256, entry.runs.runs, entry.fields)


def imbalance_of_sums(before: Sums, after: Sums) -> list[str]:
    """Returns what differs between the documents of all splits and those of all shards, whatever their order."""
    ours, theirs = before.to_record(), after.to_record()
    return [
        f"{name} of all splits {n} != of all shards {theirs[name]}" for name, n in ours.items() if n != theirs[name]
    ]
