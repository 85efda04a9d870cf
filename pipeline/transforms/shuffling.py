# SPDX-License-Identifier: Apache-2.0
"""Transforms from splits to the shards of a shuffle: sorted runs first, then each shard merged from all runs."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from tokenmill.pipeline.books.shard_entry import recorded_digest, runs_of
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs.planning import SHUFFLING_STAGE, TOKENIZING_STAGE, read_plan
from tokenmill.pipeline.running.clock import Stopwatch
from tokenmill.pipeline.shuffling.shards import PlannedShard, load_committed
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing.tokenize import merge_planned, tokenize_split
from tokenmill.pipeline.transforms.compiled import TokenizerText, compiled_tokenizer
from tokenmill.pipeline.transforms.once import call_once
from tokenmill.pipeline.transforms.stages import StageReport


@dataclasses.dataclass
class SortSplits(beam.PTransform):
    """Tokenizes splits into committed runs of sorted documents: the first step of a shuffle.

    Input: splits as JSON. Output: `SplitRuns` of each as JSON. Memory: one batch, its tokens and a run two to three
    times, per worker. Counters: those of `TokenizeSplits`.
    """

    config: Config
    n_splits: int
    tokenizer: TokenizerText
    merged: Any
    """Side input: the ids of shards that are merged already."""
    n_shards: int

    def expand(self, splits: Any) -> Any:  # noqa: D102
        fn = _SortSplitsFn(self.config, self.n_splits, self.n_shards)
        return splits | "SortSplit" >> beam.ParDo(fn, self.tokenizer, self.merged).with_output_types(str)


class _SortSplitsFn(beam.DoFn):
    def __init__(self, config: Config, n_splits: int, n_shards: int) -> None:
        self._config = config
        self._n_splits = n_splits
        self._n_shards = n_shards
        self._report = StageReport(SortSplits, TOKENIZING_STAGE)

    def process(self, element: str, tokenizer_json: str, merged: Sequence[str]) -> Iterator[str]:
        split = Split.from_json(element)
        tokenizer = compiled_tokenizer(tokenizer_json)
        are_merged = len(merged) == self._n_shards
        with self._report.of(split.id, Stopwatch(self._config.output.path, split)) as on_batch:
            entry = tokenize_split(split, self._config, tokenizer, self._n_splits, on_batch, are_merged=are_merged)
        yield json.dumps(runs_of(entry).to_record())


@dataclasses.dataclass
class FindMergedShards(beam.PTransform):
    """Finds the shards of a shuffle that an earlier run has merged from exactly the runs that the ledger records.

    Input: planned shards. Output: the ids of shards that are on disk as recorded. Memory: small; reads the files.
    """

    config: Config
    plan_path: str
    tokenizer: TokenizerText

    def expand(self, shards: Any) -> Any:  # noqa: D102
        recorded = call_once(shards.pipeline, "ReadRecorded", _recorded_runs, self.plan_path, self.config.output.path)
        find = beam.FlatMap(_find_merged, self.config, beam.pvalue.AsSingleton(recorded), self.tokenizer)
        return shards | "FindMerged" >> find.with_output_types(str)


def _recorded_runs(plan_path: str, output: str) -> str:
    splits = sorted(map(Split.from_json, read_plan(plan_path)), key=lambda split: split.index)
    return recorded_digest(output, splits) or ""


def _find_merged(shard: PlannedShard, config: Config, runs: str, tokenizer_json: str) -> Iterator[str]:
    digest = compiled_tokenizer(tokenizer_json).digest
    if runs and load_committed(shard, runs, config.output, digest) is not None:
        yield shard.id


@dataclasses.dataclass
class MergeShards(beam.PTransform):
    """Merges the runs of all splits into committed shards, each a range of hashes: the second step of a shuffle.

    Input: planned shards. Output: the id of each shard, once its files and its entry are on disk. Memory: bounded, see
    `shuffling.merging`, and what the writers hold. Counters: bytes-in, documents-in, tokens-out, splits-done.
    """

    config: Config
    tokenizer: TokenizerText
    runs: Any
    """Side input: `SplitRuns` of all splits as JSON."""

    def expand(self, shards: Any) -> Any:  # noqa: D102
        fn = _MergeShardsFn(self.config)
        return shards | "MergeShard" >> beam.ParDo(fn, self.tokenizer, self.runs).with_output_types(str)


class _MergeShardsFn(beam.DoFn):
    def __init__(self, config: Config) -> None:
        self._config = config
        self._report = StageReport(MergeShards, SHUFFLING_STAGE)
        self._read: tuple[Sequence[str], list[SplitRuns]] = [], []

    def process(self, element: PlannedShard, tokenizer_json: str, runs: Sequence[str]) -> Iterator[str]:
        if self._read[0] != runs:  # the same for every shard
            self._read = runs, [SplitRuns.from_record(json.loads(text)) for text in runs]
        splits = self._read[1]
        tokenizer = compiled_tokenizer(tokenizer_json)
        with self._report.of(element.id) as on_rows:
            entry = merge_planned(element, splits, self._config, tokenizer, on_rows)
        yield entry.shard_id
