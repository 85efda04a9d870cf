# SPDX-License-Identifier: Apache-2.0
"""The ledger entry of a shard that was merged from sorted runs: what is in it, and in which files."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Self

from pydantic import TypeAdapter

from tokenmill.pipeline.books import json_files, ledger
from tokenmill.pipeline.books.json_files import Count
from tokenmill.pipeline.books.ledger import Entry, FileRecord, LedgerEntry
from tokenmill.pipeline.books.shapes import SumsRecord
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

    def to_json(self) -> bytes:
        """Returns this as JSON, with the record of the sums."""
        return ledger.to_json({"format_version": ledger.FORMAT_VERSION, **asdict(self), "sums": self.sums.to_record()})

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Returns the entry that `to_json` turned into `data`; raises ValueError if `data` is something else."""
        fields = ledger.load_entry(data, _WHAT)
        sums = Sums.from_record(json_files.check(fields.get("sums"), _SUMS, f"not {_WHAT}").model_dump())
        entry = ledger.read_as(cls, {**fields, "sums": sums}, _WHAT)
        if entry.index >= entry.n_shards:
            raise ValueError(f"not {_WHAT}: shard {entry.index} of {entry.n_shards}")
        return entry


Written = LedgerEntry | ShardEntry
"""The entry of a shard: of a split, or of a merged one."""

_WHAT = "the entry of a shard"
_SUMS = TypeAdapter(SumsRecord)


def sums_of(entry: LedgerEntry) -> Sums:
    """Returns the sums of a sorted split, from its entry, also if another version of TokenMill sorted it.

    Raises:
      ValueError: if the split was not sorted.
    """
    if entry.runs is None:
        raise ValueError(f"split {entry.split_id} was not sorted")
    return Sums.from_record(entry.runs["sums"])


def runs_of(entry: LedgerEntry) -> SplitRuns:
    """Returns the runs of a split, from its entry.

    Raises:
      ValueError: if the split was not sorted.
    """
    if entry.runs is None:
        raise ValueError(f"split {entry.split_id} was not sorted")
    placed = {name: getattr(entry, name) for name in ("split_id", "index", "fields")}
    placed["sha256"] = entry.shard.sha256
    return SplitRuns.from_record({**entry.runs, **placed})


def imbalance_of_sums(before: Sums, after: Sums) -> list[str]:
    """Returns what differs between the documents of all splits and those of all shards, whatever their order."""
    ours, theirs = before.to_record(), after.to_record()
    return [
        f"{name} of all splits {n} != of all shards {theirs[name]}" for name, n in ours.items() if n != theirs[name]
    ]
