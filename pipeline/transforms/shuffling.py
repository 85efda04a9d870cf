# SPDX-License-Identifier: Apache-2.0
"""From the sorted runs of splits to the merged shards of one folder.

    SplitRuns --Deal--> GroupByKey --MergeRuns, if there are very many--> Deal > GroupByKey > MergeShards --> Done

Shards that an earlier run has merged from the same runs are found first; runs are then not needed again.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PBegin, PCollection

from tokenmill.pipeline.books.shard_entry import add_digests, runs_digest
from tokenmill.pipeline.books.sums import SplitRuns, Sums
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs.planning import SHUFFLING_STAGE, JobPlan, read_plan
from tokenmill.pipeline.shuffling.passes import Pass, deal, merge_runs, plan_passes
from tokenmill.pipeline.shuffling.shards import load_committed, name_shard, recorded_digest
from tokenmill.pipeline.tokenizing.pages import schema_of_rows
from tokenmill.pipeline.tokenizing.writing import merge_planned
from tokenmill.pipeline.transforms.compiled import TokenizerText, compiled_tokenizer
from tokenmill.pipeline.transforms.elements import Done
from tokenmill.pipeline.transforms.stages import StageReport, call_once, enter_stage

_Group = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class ShardNames:
    """What the shards of a folder are named by, as `shuffling.shards.name_shard` takes it."""

    n_shards: int
    n_bytes: int
    salt: str


class FindMergedShards(beam.PTransform):
    """Finds the shards that an earlier run has merged from exactly the runs that the ledger records.

    Input: a pipeline. Output: their numbers. Memory: small; reads the files.
    """

    def __init__(self, plan: JobPlan, tokenizer: TokenizerText) -> None:
        """Takes the plan of a folder, and its tokenizer."""
        super().__init__()
        self._config, self._path, self._tokenizer = plan.config, plan.plan_path, tokenizer
        self._names = names_of(plan)

    def expand(self, begin: PBegin) -> PCollection[int]:  # noqa: D102
        recorded = call_once(begin.pipeline, "ReadRecorded", _recorded_runs, self._path, self._config.output.path)
        find = beam.FlatMap(_find_merged, self._config, self._names, AsSingleton(recorded), self._tokenizer)
        return (
            begin
            | "CountShards" >> beam.Create([self._names.n_shards])  # only their number, to keep the graph small
            | "NumberShards" >> beam.FlatMap(_numbers).with_output_types(int)
            | "SpreadShards" >> beam.Reshuffle()
            | "FindMerged" >> find.with_output_types(int)
        )


def names_of(plan: JobPlan) -> ShardNames:
    """Returns what names the shards of a folder."""
    shards = plan.shards()
    return ShardNames(len(shards), sum(shard.n_planned for shard in shards), plan.job.digest)


def _numbers(n: int) -> Iterator[int]:
    yield from range(n)


def _recorded_runs(plan_path: str, output: str) -> str:
    return recorded_digest(output, read_plan(plan_path)) or ""


def _find_merged(index: int, config: Config, names: ShardNames, runs: str, tokenizer_json: str) -> Iterator[int]:
    shard, digest = name_shard(index, *dataclasses.astuple(names)), compiled_tokenizer(tokenizer_json).digest
    if runs and load_committed(shard, runs, config.output, digest) is not None:
        yield index


class MergeShards(beam.PTransform):
    """Merges the runs of all splits of a folder into committed shards, each a range of hashes.

    Input: `SplitRuns`. Output: `Done` of each shard, once its files and its entry are on disk. Memory: bounded, see
    `shuffling.spill`, and what the writers hold; disk: the documents of all splits once more for each pass.
    """

    def __init__(self, plan: JobPlan, n_merged: AsSingleton, tokenizer: TokenizerText) -> None:
        """Takes the plan of a folder, how many of its shards are merged already, and its tokenizer."""
        super().__init__()
        self._config, self._tokenizer, self._n_merged = plan.config, tokenizer, n_merged
        self._names = names_of(plan)
        assert plan.config.output.shuffle is not None
        self._passes = plan_passes(len(plan.splits), plan.splits.n_work, plan.config.output.shuffle.run_bytes)

    def expand(self, runs: PCollection[SplitRuns]) -> PCollection[Done]:  # noqa: D102
        digests = runs | "DigestRuns" >> beam.Map(_digest_of).with_output_types(str)
        digest = AsSingleton(digests | "AddDigests" >> beam.CombineGlobally(add_digests))
        for i, into in enumerate(self._passes):
            merge = beam.Map(_merge_runs, self._config, into, self._n_merged, self._names.n_shards)
            runs = _grouped(runs, into, f"{i}") | f"MergeRuns{i}" >> merge.with_output_types(SplitRuns)
        grouped = _grouped(runs, Pass(1 << 62, self._names.n_shards), "")
        merge = beam.ParDo(_MergeShardFn(self._config, self._names), self._tokenizer, digest)
        return grouped | "MergeShard" >> merge.with_output_types(Done)


def _grouped(runs: PCollection[SplitRuns], into: Pass, label: str) -> PCollection[tuple[_Group, Iterable[SplitRuns]]]:
    """Returns for each group and range the runs to merge."""
    dealt = runs | f"Deal{label}" >> beam.FlatMap(deal, into).with_output_types(tuple[_Group, SplitRuns])
    return dealt | f"Group{label}" >> beam.GroupByKey()


def _digest_of(runs: SplitRuns) -> str:
    return runs_digest([runs])


class _MergeShardFn(beam.DoFn):
    def __init__(self, config: Config, names: ShardNames) -> None:
        self._config, self._names = config, names
        self._report = StageReport(MergeShards, SHUFFLING_STAGE)

    def process(self, element: tuple[_Group, Iterable[SplitRuns]], tokenizer_json: str, digest: str) -> Iterator[Done]:
        (_, index), runs = element
        planned, tokenizer = name_shard(index, *dataclasses.astuple(self._names)), compiled_tokenizer(tokenizer_json)
        with self._report.of(planned.id) as on_rows:
            entry = merge_planned(planned, [*runs], self._config, tokenizer, on_rows, runs=digest)
        yield Done(index, entry.shard_id)


def _merge_runs(
    element: tuple[_Group, Iterable[SplitRuns]], config: Config, into: Pass, n_merged: int, n_shards: int
) -> SplitRuns:
    enter_stage(SHUFFLING_STAGE)
    (group, number), found = element
    runs: Sequence[SplitRuns] = [*found]
    part = (number, into.n_ranges)
    if n_merged == n_shards:  # the runs may have been removed, and nobody needs them
        return SplitRuns("", group, "", (), Sums(), runs[0].fields, part)
    assert config.output.shuffle is not None
    schema = schema_of_rows(config, runs[0].fields)
    return merge_runs(runs, group, part, config.output.path, config.output.shuffle.run_bytes, schema)
