# SPDX-License-Identifier: Apache-2.0
"""Passes between the two steps of a shuffle, so that no merge reads from more than about `FAN_IN` runs.

A pass merges the files of neighbouring splits, or groups of them, and cuts the result into ranges of keys, each a file
of about `run_bytes`. 10,000 runs with a fan-in of 100 become 100 groups of 100 ranges, and a shard is merged from one
or two ranges of each of the 100 groups. Rows with the same key stay in the order of their splits, so shards have the
same bytes whatever the passes. A file is named by what it was merged from: an attempt that finds it need not merge.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.filenames import RUNS, runs_name
from tokenmill.pipeline.output.spill import RunFiles, RunsWriter, merge_range, open_runs, shard_range
from tokenmill.pipeline.output.staging import Staging

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
    low, high = shard_range(*runs.part)
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
    if (found := _load_merged(output, path)) is not None:
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


def _load_merged(output: str, path: str) -> SplitRuns | None:
    if not storage.exists(path):
        return None
    with storage.open_read(path) as handle:
        try:
            found = json.load(handle)
            file, merged = ledger.FileRecord(**found["file"]), SplitRuns.from_json(found["runs"])
        except (ValueError, KeyError, TypeError):
            return None
    return merged if ledger.problem(output, file) is None else None
