# SPDX-License-Identifier: Apache-2.0
"""The global shuffle. In: tokenized documents in the order of the input. Out: shards in the order of a hash.

    documents of a split --spill--> _runs/: sorted runs --merge_runs, if many--> fewer runs --merge_shard--> shards

The hash covers a seed and the place of a document in the input. The documents of each split are written as sorted runs
into `_runs/` (`output.spill`); then each shard is a range of hashes, merged from all runs. So the order depends only on
the seed and the documents, and no process holds more than a stretch of its split, or pieces of its shard.
`proving.shards` and `books.sums.imbalance_of_sums` prove that nothing was lost on the way.

No merge reads from more than about `FAN_IN` runs. Where there are more, passes merge the files of neighbouring splits,
or groups of them, and cut the result into ranges of keys, each a file of about `run_bytes`. 10,000 runs with a fan-in
of 100 become 100 groups of 100 ranges, and a shard is merged from one or two ranges of each of the 100 groups. Rows
with the same key stay in the order of their splits, so shards have the same bytes whatever the passes.

A file of a pass is named by what it was merged from: an attempt that finds it need not merge. The id of a shard is a
hash of the job and of the whole plan: a resumed job keeps it only if no split has changed, and then needs no runs.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books.counts import flatten
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.ledger import FileRecord, ShardEntry, problem
from tokenmill.pipeline.books.sums import SplitRuns, Sums, sum_rows
from tokenmill.pipeline.config.output import OutputConfig, ShuffleConfig
from tokenmill.pipeline.filenames import RUNS, keys_name, runs_name
from tokenmill.pipeline.output.placement import RowForm
from tokenmill.pipeline.output.shard import Shard
from tokenmill.pipeline.output.spill import RunFiles, RunsWriter, merge_range, open_runs, shard_range
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.output.writers.base import TokenizerInfo
from tokenmill.pipeline.output.writers.formats import suffixes
from tokenmill.pipeline.running.progress import Amount, OnBatch

FAN_IN = 256
"""About how many runs a merge reads from, where `run_bytes` allow 256 KiB of each; a read takes it some 0.2 ms."""

_BLOCK_BYTES = 32 << 20
"""The most that a merge gathers at a time; larger pieces of memory are given back each time, and filled anew."""


@dataclass(frozen=True)
class Pass:
    """One pass, or the merge of shards, which has one group."""

    width: int
    """How many neighbouring splits, or groups of the pass before, become one group."""
    n_ranges: int
    """The ranges of keys that each group is cut into, a file each."""


def plan_passes(n_splits: int, n_work: int, run_bytes: int, *, fan_in: int | None = None) -> list[Pass]:
    """Returns the passes before shards are merged, none where all runs are few enough.

    Args:
      n_splits: the number of splits of the plan.
      n_work: `Split.n_work` of all of them; a run is assumed to hold two thirds of `run_bytes` of it.
      run_bytes: as `ShuffleConfig` has it.
      fan_in: about how many runs may be merged at once; None: as many as give large reads, at most `FAN_IN`.
    """
    fan_in = fan_in or min(FAN_IN, max(FAN_IN // 4, run_bytes >> 18))
    n_runs, n_passes = max(1, n_splits, 3 * n_work // (2 * run_bytes)), 0
    while fan_in ** (n_passes + 1) < n_runs:
        n_passes += 1
    fan = max(2, round(n_runs ** (1 / (n_passes + 1)) + 0.5))  # the same for each pass
    widths = [max(1, round(fan * n_splits / n_runs)), *[fan] * n_passes]
    return [Pass(widths[i], fan ** (i + 1)) for i in range(n_passes)]


def deal(runs: SplitRuns, into: Pass) -> Iterator[tuple[tuple[int, int, int], SplitRuns]]:
    """Yields folder, group and range that need a file, each with what it needs: the runs that may have such keys."""
    low, high = shard_range(*runs.key_range)
    for number in range(low * into.n_ranges >> 64, ((high - 1) * into.n_ranges >> 64) + 1):
        first, end = shard_range(number, into.n_ranges)
        needed = tuple(run for run in runs.runs if run.last >= first and run.first < end)
        yield (runs.folder, runs.index // into.width, number), replace(runs, runs=needed)


def merge_runs(
    splits: Sequence[SplitRuns], group: int, part: tuple[int, int], output: str, run_bytes: int, schema: pa.Schema
) -> SplitRuns:
    """Merges one range of keys of some files into a new one; if that is there already, only describes it.

    Every attempt writes the same bytes, so it may be repeated, and may run twice at the same time. Holds what
    `merge_range` and `RunsWriter` hold.

    Args:
      splits: all files of the group that have keys of the range, in any order.
      group: the number of the group.
      part: the number of the range, and how many there are.
      output: the output folder.
      run_bytes: as `ShuffleConfig` has it.
      schema: the schema of the rows of the runs.

    Raises:
      OSError: if a file cannot be read or written.
      ValueError: if a file of runs is damaged.
    """
    run_bytes = min(run_bytes, _BLOCK_BYTES)
    sources = sorted((split.index, split.split_id, split.sha256) for split in splits)
    name = hashlib.sha256(json.dumps([sources, part, run_bytes]).encode()).hexdigest()[:16]
    path = storage.join(output, RUNS, f"{name}.json")
    if (found := _load_runs(output, path)) is not None:
        return found
    with Staging(output, name) as staging, RunFiles(output) as files:
        writer = RunsWriter(staging.create(runs_name(name)), run_bytes)
        runs = open_runs(files, [storage.join(output, runs_name(split.split_id)) for split in splits], splits, schema)
        for keys, rows in merge_range(runs, *shard_range(*part), step_bytes=run_bytes):
            writer.write(keys, rows)
        file = writer.finish()
        staging.publish()
    first = splits[0]
    merged = SplitRuns(name, group, file.sha256, tuple(writer.runs), first.fields, part, first.folder)
    storage.write_atomic(path, json.dumps({"file": asdict(file), "runs": merged.to_json()}).encode())
    return merged


def _load_runs(output: str, path: str) -> SplitRuns | None:
    if not storage.exists(path):
        return None
    with storage.open_read(path) as handle:
        try:
            found = json.load(handle)
            file, merged = FileRecord(**found["file"]), SplitRuns.from_json(found["runs"])
        except (ValueError, KeyError, TypeError):
            return None
    return merged if problem(output, file) is None else None


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
    if (committed := load_merged(planned, output, info.digest)) is not None:
        return committed
    sums, place = Sums(), (planned.index, planned.n_shards)
    with Staging(output.path, planned.id) as staging, RunFiles(output.path) as files:
        paths = [storage.join(output.path, runs_name(split.split_id)) for split in splits]
        shard = Shard(staging, *place, output, info, form, schema)
        keys_file = staging.create(keys_name(planned.id))
        opened = open_runs(files, paths, splits, schema)
        for keys, rows in merge_range(opened, *shard_range(*place), step_bytes=_step_bytes(output)):
            sums += (found := sum_rows(keys, rows, None if form.strategy == "windows" else info.padding_side))
            shard.write(rows)
            keys_file.write(keys.astype("<u8"))
            if on_rows is not None:
                on_rows(Amount(rows.nbytes, rows.num_rows, n_tokens=found.n_tokens))
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


def load_merged(planned: PlannedShard, output: OutputConfig, tokenizer: str) -> ShardEntry | None:
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
