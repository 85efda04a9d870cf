# SPDX-License-Identifier: Apache-2.0
"""Transforms from the sorted runs of all splits to the shards of a shuffle; `TokenizeSplits` makes the runs."""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from tokenmill.pipeline.books.shard_entry import add_digests, runs_digest
from tokenmill.pipeline.books.sums import SplitRuns, Sums
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs.planning import SHUFFLING_STAGE, read_plan
from tokenmill.pipeline.shuffling.passes import Pass, deal, merge_runs
from tokenmill.pipeline.shuffling.shards import PlannedShard, load_committed, name_shard, recorded_digest
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing.tokenize import merge_planned, schema_of_runs
from tokenmill.pipeline.transforms.compiled import TokenizerText, compiled_tokenizer
from tokenmill.pipeline.transforms.once import call_once
from tokenmill.pipeline.transforms.stages import StageReport, enter_stage


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
    return recorded_digest(output, map(Split.from_json, read_plan(plan_path))) or ""


def _find_merged(shard: PlannedShard, config: Config, runs: str, tokenizer_json: str) -> Iterator[str]:
    digest = compiled_tokenizer(tokenizer_json).digest
    if runs and load_committed(shard, runs, config.output, digest) is not None:
        yield shard.id


@dataclasses.dataclass
class MergeRuns(beam.PTransform):
    """One pass of a shuffle: merges the runs of neighbours, and cuts the result by ranges of keys.

    Input and output: `SplitRuns` as JSON. Memory: bounded, see `shuffling.merging`, and a run two to three times; disk:
    the documents of all splits once more.
    """

    config: Config
    into: Pass
    n_merged: Any
    """Side input: how many shards are merged already."""
    n_shards: int

    def expand(self, runs: Any) -> Any:  # noqa: D102
        merge = beam.Map(_merge_runs, self.config, self.into, self.n_merged, self.n_shards)
        return _grouped(runs, self.into) | "MergeRun" >> merge.with_output_types(str)


@dataclasses.dataclass
class MergeShards(beam.PTransform):
    """Merges runs into committed shards, each a range of hashes.

    Input: `SplitRuns` as JSON, of all splits or of the last pass. Output: the index and the id of each shard, once its
    files and its entry are on disk. Memory: bounded, see `shuffling.merging`, and what the writers hold. Counters:
    bytes-in, documents-in, tokens-out, splits-done.
    """

    config: Config
    tokenizer: TokenizerText
    digest: Any
    """Side input: `runs_digest` of all splits."""
    n_shards: int
    n_bytes: int
    salt: str
    """As `name_shards` takes them."""

    def expand(self, runs: Any) -> Any:  # noqa: D102
        merge = beam.ParDo(_MergeShardsFn(self), self.tokenizer, self.digest).with_output_types(tuple[int, str])
        return _grouped(runs, Pass(1 << 62, self.n_shards)) | "MergeShard" >> merge


@beam.ptransform_fn
def DigestRuns(runs: Any) -> Any:  # noqa: N802
    """Returns a PCollection of one element, `runs_digest` of `SplitRuns` in JSON."""
    return runs | "Digest" >> beam.Map(_digest_of).with_output_types(str) | beam.CombineGlobally(add_digests)


def _digest_of(runs: str) -> str:
    return runs_digest([_parsed(runs)])


class _MergeShardsFn(beam.DoFn):
    def __init__(self, parameters: MergeShards) -> None:
        self._config = parameters.config
        self._named = parameters.n_shards, parameters.n_bytes, parameters.salt
        self._report = StageReport(MergeShards, SHUFFLING_STAGE)

    def process(
        self, element: tuple[tuple[int, int], Iterable[str]], tokenizer_json: str, digest: str
    ) -> Iterator[tuple[int, str]]:
        (_, index), runs = element
        planned, tokenizer = name_shard(index, *self._named), compiled_tokenizer(tokenizer_json)
        with self._report.of(planned.id) as on_rows:
            entry = merge_planned(planned, [*map(_parsed, runs)], self._config, tokenizer, on_rows, runs=digest)
        yield index, entry.shard_id


def _grouped(runs: Any, into: Pass) -> Any:
    """Returns for each group and range the runs to merge, as JSON."""
    dealt = runs | "Deal" >> beam.FlatMap(_dealt, into).with_output_types(tuple[tuple[int, int], str])
    return dealt | beam.GroupByKey()


def _dealt(runs: str, into: Pass) -> Iterator[tuple[tuple[int, int], str]]:
    for key, needed in deal(_parsed(runs), into):
        yield key, json.dumps(needed.to_record())


def _merge_runs(
    element: tuple[tuple[int, int], Iterable[str]], config: Config, into: Pass, n_merged: int, n_shards: int
) -> str:
    enter_stage(SHUFFLING_STAGE)
    (group, number), texts = element
    runs, part = [*map(_parsed, texts)], (number, into.n_ranges)
    if n_merged == n_shards:  # the runs may have been removed, and nobody needs them
        merged = SplitRuns("", group, "", (), Sums(), runs[0].fields, part)
    else:
        assert config.output.shuffle is not None
        run_bytes, schema = config.output.shuffle.run_bytes, schema_of_runs(config, runs)
        merged = merge_runs(runs, group, part, config.output.path, run_bytes, schema)
    return json.dumps(merged.to_record())


def _parsed(runs: str) -> SplitRuns:
    return SplitRuns.from_record(json.loads(runs))
