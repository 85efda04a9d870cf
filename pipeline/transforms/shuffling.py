# SPDX-License-Identifier: Apache-2.0
"""Transforms from the sorted runs of all splits to the shards of a shuffle; `TokenizeSplits` makes the runs."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from tokenmill.pipeline.books.shard_entry import recorded_digest
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs.planning import SHUFFLING_STAGE, read_plan
from tokenmill.pipeline.shuffling.shards import PlannedShard, load_committed
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing.tokenize import merge_planned
from tokenmill.pipeline.transforms.compiled import TokenizerText, compiled_tokenizer
from tokenmill.pipeline.transforms.once import call_once
from tokenmill.pipeline.transforms.stages import StageReport


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
    """Merges the runs of all splits into committed shards, each a range of hashes.

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
