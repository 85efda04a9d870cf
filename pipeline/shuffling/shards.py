# SPDX-License-Identifier: Apache-2.0
"""The second step of a shuffle: one shard merged from the runs of all splits, and its entry in the ledger.

An entry names the digest of all runs it was merged from. So a shard is kept by a resumed job only where every split is
what it was, and a job that is finished needs its runs no more.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from pipeline import balance, ledger, storage
from pipeline.ledger import BooksError, FileRecord, LedgerEntry
from pipeline.output_config import OutputConfig, ShuffleConfig
from pipeline.packing import PackingTokens
from pipeline.progress import OnBatch
from pipeline.sharding import Shard
from pipeline.shuffling.books import SplitRuns, Sums, sum_rows
from pipeline.shuffling.columns import row_bytes
from pipeline.shuffling.merging import merge_range, shard_range
from pipeline.shuffling.runs import RunFiles, open_runs
from pipeline.splits import Split
from pipeline.staging import Staging
from pipeline.windows import WindowLayout
from pipeline.writers import TokenizerInfo, suffixes

RUNS = "_runs"
"""The folder of runs, gone when the job is finished."""

SHARD_BYTES = 32 << 20
"""Bytes of the input, as stored, for one shard, where the config does not say how many there are."""


@dataclass(frozen=True)
class PlannedShard:
    """One shard of a shuffled job."""

    index: int
    n_shards: int
    id: str
    """16 hexadecimal digits; names its entry."""
    n_planned: int
    """Its share of the planned bytes of the input."""


def plan_shards(config: ShuffleConfig, splits: Sequence[Split], salt: str) -> list[PlannedShard]:
    """Returns the shards of a job, none without splits; how many does not depend on how its input is cut.

    Args:
      config: the section.
      splits: of the plan.
      salt: digest of the job; becomes a part of every id.
    """
    n_bytes = sum(split.n_bytes for split in splits)
    return name_shards((config.shards or max(1, -(-n_bytes // SHARD_BYTES))) if splits else 0, n_bytes, salt)


def name_shards(n: int, n_bytes: int, salt: str) -> list[PlannedShard]:
    """Returns `n` shards of an input of `n_bytes`; `salt` becomes a part of every id."""
    digests = (hashlib.sha256(f"{salt} shuffle {i} {n}".encode()).hexdigest() for i in range(n))
    return [PlannedShard(i, n, digest[:16], n_bytes // n) for i, digest in enumerate(digests)]


def runs_name(split_id: str) -> str:
    """Returns the name of the file with the runs of a split."""
    return f"{RUNS}/{split_id}.run"


def keys_name(shard_id: str) -> str:
    """Returns the name of the file with the keys of a shard: uint64, little-endian, one per document, in its order."""
    return f"{ledger.LEDGER}/{shard_id}.keys"


def runs_digest(splits: Iterable[SplitRuns]) -> str:
    """Returns the sha256, in hex, of what is to be merged: the splits in their order, and the bytes of their runs."""
    listed = [(split.split_id, split.sha256) for split in sorted(splits, key=lambda split: split.index)]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


@dataclass(frozen=True)
class ShardEntry:
    """What is in one shard of a shuffled job. All counts are exact."""

    shard_id: str
    index: int
    n_shards: int
    tokenizer: str
    """Digest of the tokenizer."""
    runs: str
    """`runs_digest` of what it was merged from."""
    sums: Sums
    shard: FileRecord
    """The rows in the first format."""
    companions: tuple[FileRecord, ...]
    """What belongs to the shard beside its first file."""
    documents: FileRecord
    """The table of its documents."""
    keys: FileRecord
    fields: str = ""
    """`Split.fields` of the job."""
    packing: Mapping[str, int] | None = None
    """`packing.COUNTS` where rows are packed sequences; None where they are not."""
    windows: Mapping[str, int] | None = None
    """`windows.COUNTS` where rows are windows of documents; None where they are not."""

    @property
    def n_documents(self) -> int:
        """Documents, packed or not."""
        return self.sums.n_documents

    @property
    def n_tokens(self) -> int:
        """Tokens of the documents."""
        return self.sums.n_tokens

    @property
    def n_oov_tokens(self) -> int:
        """Unknown tokens of the documents."""
        return self.sums.n_oov_tokens

    def files(self) -> Iterator[FileRecord]:
        """Yields the files this entry names."""
        yield self.shard
        yield from self.companions
        yield self.documents
        yield self.keys

    def imbalances(self) -> list[str]:
        """Returns every identity that does not hold, with both numbers."""
        equations = balance.shard_equations(self)
        equations.append(("keys", self.keys.rows, "documents", self.n_documents))
        return [
            f"shard {self.shard_id}: {left} {ours} != {right} {theirs}"
            for left, ours, right, theirs in equations
            if ours != theirs
        ]

    def to_json(self) -> bytes:
        """Returns this as JSON; the same bytes for equal entries."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields |= {name: vars(fields[name]) for name in ("shard", "documents", "keys")}
        fields |= {"companions": [vars(file) for file in self.companions], "sums": self.sums.to_record()}
        return ledger.to_json({"format_version": ledger.FORMAT_VERSION, **fields})

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Returns the entry that `to_json` made `data` of.

        Raises:
          ValueError: if `data` is something else.
        """
        try:
            fields = json.loads(data)
            version = fields.pop("format_version")
            if version != ledger.FORMAT_VERSION:
                raise ValueError(f"entry of format {version!r}, this TokenMill reads {ledger.FORMAT_VERSION}")
            for name in ("shard", "documents", "keys"):
                fields[name] = FileRecord(**fields[name])
            fields["companions"] = tuple(FileRecord(**file) for file in fields["companions"])
            return cls(**{**fields, "sums": Sums.from_record(fields["sums"])})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not the entry of a shard: {error!r}") from error


def merge_shard(
    planned: PlannedShard,
    splits: Sequence[SplitRuns],
    output: OutputConfig,
    info: TokenizerInfo,
    schema: pa.Schema,
    packing: PackingTokens | None = None,
    windows: WindowLayout | None = None,
    on_rows: OnBatch | None = None,
) -> ShardEntry:
    """Merges, writes and commits one shard; or returns its entry, without work, if that is done already.

    Every attempt writes the same bytes, so it may be repeated and may run twice at once. Holds what `merge_range` and
    the writers hold, and about 2 kB for every run.

    Args:
      planned: which shard.
      splits: all of the job, in any order.
      output: the section.
      info: the tokenizer that made the ids.
      schema: of the rows of the runs, places among them.
      packing: the ids that packing adds; where `output.packing` is given.
      windows: how documents become windows; None where they do not.
      on_rows: called after each batch, whose own bytes stand for those read; what it raises stops the attempt.

    Raises:
      OSError: if a file cannot be read or written.
      ValueError: if a file of runs is damaged.
      BooksError: if the counts of what was merged and written do not agree; nothing is committed then.
    """
    runs = runs_digest(splits)
    if (committed := load_committed(planned, runs, output, info.digest)) is not None:
        return committed
    sums = Sums()
    with Staging(output.path, planned.id) as staging, RunFiles() as files:
        paths = [storage.join(output.path, runs_name(split.split_id)) for split in splits]
        shard = Shard(staging, planned.index, planned.n_shards, output, info, packing, windows, schema)
        keys_file = staging.create(keys_name(planned.id))
        opened = open_runs(files, paths, splits, schema)
        low, high = shard_range(planned.index, planned.n_shards)
        for keys, rows in merge_range(opened, low, high, piece_bytes=_piece_bytes(output)):
            found = sum_rows(keys, rows, None if windows is not None else info.padding_side)
            sums += found
            shard.write(rows)
            keys_file.write(keys.astype("<u8"))
            if on_rows is not None:
                on_rows(int(row_bytes(rows).sum()), rows.num_rows, 0, found.n_tokens, 0)
        first, *companions = shard.finish()
        assert shard.documents is not None
        entry = ShardEntry(
            shard_id=planned.id,
            index=planned.index,
            n_shards=planned.n_shards,
            tokenizer=info.digest,
            runs=runs,
            sums=sums,
            shard=first,
            companions=tuple(companions),
            documents=shard.documents,
            fields=splits[0].fields if splits else "",
            keys=keys_file.finish(rows=sums.n_documents),
            packing=shard.packing,
            windows=shard.windows,
        )
        if wrong := entry.imbalances():
            raise BooksError("\n".join(wrong))
        staging.publish()
    storage.write_atomic(storage.join(output.path, ledger.entry_name(planned.id)), entry.to_json())
    return entry


def _piece_bytes(output: OutputConfig) -> int:
    # What is held is then what a worker held while it sorted, the rows that writers hold included.
    return max(1, (output.shuffle or ShuffleConfig()).run_bytes // 4)


def load_committed(planned: PlannedShard, runs: str, output: OutputConfig, tokenizer: str) -> ShardEntry | None:
    """Returns the entry of a shard that needs no work: committed, of the same runs, and all its files as recorded.

    Reads the files, to compute their checksums again.

    Args:
      planned: which shard.
      runs: `runs_digest` of all splits.
      output: the section.
      tokenizer: digest of the tokenizer.
    """
    entry = read_entry(output.path, planned.id)
    if (
        entry is None
        or (entry.shard_id, entry.runs, entry.tokenizer) != (planned.id, runs, tokenizer)
        or [file.file for file in (entry.shard, *entry.companions, entry.documents)]
        != [
            *(ledger.shard_name(planned.index, planned.n_shards, each) for each in suffixes(output)),
            ledger.documents_name(planned.index, planned.n_shards),
        ]
        or any(ledger.problem(output.path, file) for file in entry.files())
    ):
        return None
    return entry


def read_entry(output: str, shard_id: str) -> ShardEntry | None:
    """Returns the entry of a shard as it is on disk; None if there is none, or it cannot be read as one."""
    path = storage.join(output, ledger.entry_name(shard_id))
    if not storage.exists(path):
        return None
    with storage.open_read(path) as handle:
        try:
            return ShardEntry.from_json(handle.read())
        except ValueError:
            return None


def runs_of(entry: LedgerEntry) -> SplitRuns:
    """Returns what the entry of a split says of its runs.

    Raises:
      ValueError: if the split was not sorted.
    """
    if entry.runs is None:
        raise ValueError(f"split {entry.split_id} was not sorted")
    placed = {name: getattr(entry, name) for name in ("split_id", "index", "fields")}
    placed["sha256"] = entry.shard.sha256
    return SplitRuns.from_record({**entry.runs, **placed})


def recorded_digest(output: str, splits: Iterable[Split]) -> str | None:
    """Returns `runs_digest` of what the ledger records, whether the runs are still there or not.

    None if a split is not recorded as it is planned now.
    """
    found = []
    for split in splits:
        entry = ledger.read_entry(output, split.id)
        if entry is None or entry.runs is None or (entry.index, entry.pieces) != (split.index, split.pieces):
            return None
        found.append(runs_of(entry))
    return runs_digest(found)


def add_sums(shards: Iterable[ShardEntry]) -> Sums:
    """Returns the sums of the documents of shards."""
    return sum((shard.sums for shard in shards), Sums())


def check_sums(entries: Iterable[LedgerEntry], shards: Sequence[ShardEntry]) -> None:
    """Checks that the documents of all shards are those of all splits, without regard to their order.

    Raises:
      BooksError: with both numbers of each identity that does not hold.
    """
    before = sum((runs_of(entry).sums for entry in entries), Sums()).to_record()
    after = add_sums(shards).to_record()
    lines = [f"{name} of all splits {before[name]} != of all shards {after[name]}" for name in before]
    if wrong := [line for line, name in zip(lines, before, strict=True) if before[name] != after[name]]:
        raise BooksError("\n".join(wrong))
