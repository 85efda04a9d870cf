# SPDX-License-Identifier: Apache-2.0
"""The second step of a shuffle: one shard merged from the runs of all splits, and its entry in the ledger.

The id of a shard is a hash of the job and of the whole plan. So a resumed job keeps a shard only if no split has
changed, and a finished job no longer needs its runs.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books.counts import flatten
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.ledger import ShardEntry
from tokenmill.pipeline.books.sums import SplitRuns, Sums, sum_rows
from tokenmill.pipeline.config.output import OutputConfig, ShuffleConfig
from tokenmill.pipeline.filenames import keys_name, runs_name
from tokenmill.pipeline.output.placement import RowForm
from tokenmill.pipeline.output.shard import Shard
from tokenmill.pipeline.output.spill import RunFiles, merge_range, open_runs, shard_range
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.output.writers.base import TokenizerInfo
from tokenmill.pipeline.output.writers.formats import suffixes
from tokenmill.pipeline.running.progress import OnBatch

SHARD_BYTES = 32 << 20
"""Bytes of the input, as stored, for one shard, if the config does not say how many shards there are."""


@dataclass(frozen=True)
class PlannedShard:
    """One shard of a shuffled job."""

    index: int
    n_shards: int
    id: str
    """16 hexadecimal digits; names its entry."""
    n_planned: int
    """Its share of the planned bytes of the input."""
    plan: str
    """The digest of the plan. It changes with the place and the age of input files, so no id may depend on it, but a
    shard that was merged for another plan is merged again."""


def plan_shards(output: OutputConfig, planned: PlannedSplits, salt: str) -> list[PlannedShard]:
    """Returns the shards of a job that shuffles, else none, and none without splits.

    Their number does not depend on how the input is cut. A job for one part has its share of them, at least one.

    Args:
      output: the section.
      planned: the plan.
      salt: digest of the job; becomes a part of every id.
    """
    if output.shuffle is None or not len(planned):
        return []
    share = output.parts.share if output.parts is not None else 1.0
    n_bytes = round(planned.n_bytes * share)
    shards = output.shuffle.shards
    n_shards = max(1, -(-n_bytes // SHARD_BYTES) if shards is None else round(shards * share))
    return [name_shard(i, n_shards, n_bytes, salt, f"{planned.digest:016x}") for i in range(n_shards)]


def name_shard(index: int, n: int, n_bytes: int, salt: str, plan: str) -> PlannedShard:
    """Returns one of `n` shards of an input of `n_bytes`; `salt` becomes a part of every id."""
    digest = hashlib.sha256(f"{salt} shuffle {index} {n}".encode()).hexdigest()
    return PlannedShard(index, n, digest[:16], n_bytes // n, plan)


def merge_shard(
    planned: PlannedShard,
    splits: Sequence[SplitRuns],
    output: OutputConfig,
    info: TokenizerInfo,
    schema: pa.Schema,
    form: RowForm,
    on_rows: OnBatch | None = None,
) -> ShardEntry:
    """Merges, writes and commits one shard; if it is committed already, only returns its entry.

    Every attempt writes the same bytes, so it may be repeated, and may run twice at the same time. Holds what
    `merge_range` and the writers hold, and about 2 kB for every run.

    Args:
      planned: which shard.
      splits: files of runs that have all rows of the shard, in any order.
      output: the section.
      info: the tokenizer that made the ids.
      schema: the schema of the rows of the runs, places among them.
      form: what the rows of the shard are.
      on_rows: called after each batch, with its own bytes as the bytes read; an exception from it stops the attempt.

    Raises:
      OSError: if a file cannot be read or written.
      ValueError: if a file of runs is damaged.
      BooksError: if the counts of merged and written documents do not agree; nothing is committed then.
    """
    if (committed := load_committed(planned, output, info.digest)) is not None:
        return committed
    sums = Sums()
    with Staging(output.path, planned.id) as staging, RunFiles(output.path) as files:
        paths = [storage.join(output.path, runs_name(split.split_id)) for split in splits]
        shard = Shard(staging, planned.index, planned.n_shards, output, info, form, schema)
        keys_file = staging.create(keys_name(planned.id))
        opened = open_runs(files, paths, splits, schema)
        keys_of_shard = shard_range(planned.index, planned.n_shards)
        for keys, rows in merge_range(opened, *keys_of_shard, step_bytes=_step_bytes(output)):
            sums += (found := sum_rows(keys, rows, None if form.strategy == "windows" else info.padding_side))
            shard.write(rows)
            keys_file.write(keys.astype("<u8"))
            if on_rows is not None:
                on_rows(rows.nbytes, rows.num_rows, 0, found.n_tokens, 0)
        first, *companions = shard.finish()
        assert shard.documents is not None
        entry = ShardEntry(
            shard_id=planned.id,
            index=planned.index,
            n_shards=planned.n_shards,
            plan=planned.plan,
            tokenizer=info.digest,
            sums=sums,
            shard=first,
            companions=tuple(companions),
            documents=shard.documents,
            fields=splits[0].fields if splits else "",
            keys=keys_file.finish(rows=sums.n_documents),
            counts={"": flatten({"packing": shard.packing, "windows": shard.windows})},
        )
        staging.commit(entry)
    return entry


def _step_bytes(output: OutputConfig) -> int:
    # With this, a merge takes as much memory as sorting did, including the rows that writers hold.
    return max(1, (output.shuffle or ShuffleConfig()).run_bytes // 4)


def load_committed(planned: PlannedShard, output: OutputConfig, tokenizer: str) -> ShardEntry | None:
    """Returns the entry of a shard if it needs no work: committed for this plan, with all files as recorded.

    Returns None otherwise. Reads the files, to compare their checksums.

    Args:
      planned: which shard.
      output: the section.
      tokenizer: digest of the tokenizer.
    """
    entry = ShardEntry.read(output.path, planned.id)
    names = [filenames.shard_name(planned.index, planned.n_shards, each) for each in suffixes(output)]
    names.append(filenames.documents_name(planned.index, planned.n_shards))
    if (
        entry is None
        or (entry.shard_id, entry.plan, entry.tokenizer) != (planned.id, planned.plan, tokenizer)
        or not entry.has_files(output.path, names)
    ):
        return None
    return entry
