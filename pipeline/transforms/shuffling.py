# SPDX-License-Identifier: Apache-2.0
"""From the sorted runs of splits to the merged shards of each folder.

    SplitRuns --Deal--> GroupByKey --MergeRuns, if there are very many--> Deal > GroupByKey > MergeShards --> Done

Shards that an earlier run has merged from the same plan are found first; runs are then not needed again.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PBegin, PCollection

from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs.planning import SHUFFLING_STAGE, JobPlan
from tokenmill.pipeline.shuffling.passes import Pass, deal, merge_runs, plan_passes
from tokenmill.pipeline.shuffling.shards import PlannedShard, load_committed, name_shard
from tokenmill.pipeline.tokenizing.pages import schema_of_rows
from tokenmill.pipeline.tokenizing.writing import merge_planned
from tokenmill.pipeline.transforms.compiled import TokenizerText, compiled_tokenizer
from tokenmill.pipeline.transforms.elements import Done
from tokenmill.pipeline.transforms.stages import StageReport, enter_stage

_Group = tuple[int, int, int]
"""The number of a folder, of a group of splits, and of a range of keys."""


@dataclasses.dataclass(frozen=True)
class FolderShards:
    """The shards of one folder."""

    config: Config
    n_shards: int
    n_bytes: int
    salt: str
    plan: str

    def name(self, index: int) -> PlannedShard:
        """Returns one of them."""
        return name_shard(index, self.n_shards, self.n_bytes, self.salt, self.plan)


def _shards_of(plan: JobPlan) -> list[FolderShards]:
    """Returns the shards of each folder."""
    digest = f"{plan.planned.digest:016x}"  # of what all folders read
    shards = ((each, each.shards()) for each in plan.folders.values())
    return [
        FolderShards(each.config, len(its), sum(shard.n_planned for shard in its), each.job.digest, digest)
        for each, its in shards
    ]


class FindMergedShards(beam.PTransform):
    """Finds the shards that an earlier run has merged from the splits of this plan.

    Input: a pipeline. Output: the number of the folder of each. Memory: small; reads the files.
    """

    def __init__(self, plan: JobPlan, tokenizer: TokenizerText) -> None:
        """Takes the plan, and the tokenizer of all folders."""
        super().__init__()
        self._tokenizer, self._shards = tokenizer, _shards_of(plan)

    def expand(self, begin: PBegin) -> PCollection[int]:  # noqa: D102
        find = beam.FlatMap(_find_merged, self._shards, self._tokenizer)
        numbers = [(i, each.n_shards) for i, each in enumerate(self._shards)]
        return (
            begin
            | "CountShards" >> beam.Create(numbers)  # only their number, to keep the graph small
            | "NumberShards" >> beam.FlatMap(_numbered).with_output_types(tuple[int, int])
            | "SpreadShards" >> beam.Reshuffle()
            | "FindMerged" >> find.with_output_types(int)
        )


def _numbered(folder: tuple[int, int]) -> Iterator[tuple[int, int]]:
    i, n_shards = folder
    yield from ((i, index) for index in range(n_shards))


def _find_merged(place: tuple[int, int], shards: Sequence[FolderShards], tokenizer_json: str) -> Iterator[int]:
    folder, index = place
    of, digest = shards[folder], compiled_tokenizer(tokenizer_json).digest
    if load_committed(of.name(index), of.config.output, digest) is not None:
        yield folder


class MergeShards(beam.PTransform):
    """Merges the runs of all splits of each folder into committed shards, each a range of hashes.

    Input: `SplitRuns`. Output: `Done` of each shard, once its files and its entry are on disk. Memory: bounded, see
    `output.spill`, and what the writers hold; disk: the documents of all splits once more for each pass.
    """

    def __init__(self, plan: JobPlan, n_merged: AsSingleton, tokenizer: TokenizerText) -> None:
        """Takes the plan, how many of its shards are merged already, and the tokenizer of all folders."""
        super().__init__()
        self._tokenizer, self._n_merged, self._shards = tokenizer, n_merged, _shards_of(plan)
        assert plan.config.output.shuffle is not None
        self._passes = plan_passes(len(plan.splits), plan.splits.n_work, plan.config.output.shuffle.run_bytes)

    def expand(self, runs: PCollection[SplitRuns]) -> PCollection[Done]:  # noqa: D102
        for i, into in enumerate(self._passes):
            merge = beam.Map(_merge_runs, self._shards, into, self._n_merged)
            runs = _grouped(runs, into, f"{i}") | f"MergeRuns{i}" >> merge.with_output_types(SplitRuns)
        # All splits are one group; folders have different numbers of shards.
        dealt = runs | "Deal" >> beam.FlatMap(_deal_shards, self._shards).with_output_types(tuple[_Group, SplitRuns])
        merge = beam.ParDo(_MergeShardFn(self._shards), self._tokenizer)
        return dealt | "Group" >> beam.GroupByKey() | "MergeShard" >> merge.with_output_types(Done)


def _grouped(runs: PCollection[SplitRuns], into: Pass, label: str) -> PCollection[tuple[_Group, Iterable[SplitRuns]]]:
    """Returns for each group and range the runs to merge."""
    dealt = runs | f"Deal{label}" >> beam.FlatMap(deal, into).with_output_types(tuple[_Group, SplitRuns])
    return dealt | f"Group{label}" >> beam.GroupByKey()


def _deal_shards(runs: SplitRuns, shards: Sequence[FolderShards]) -> Iterator[tuple[_Group, SplitRuns]]:
    return deal(runs, Pass(1 << 62, shards[runs.folder].n_shards))


class _MergeShardFn(beam.DoFn):
    def __init__(self, shards: Sequence[FolderShards]) -> None:
        self._shards = shards
        self._report = StageReport(MergeShards, SHUFFLING_STAGE)

    def process(self, element: tuple[_Group, Iterable[SplitRuns]], tokenizer_json: str) -> Iterator[Done]:
        (folder, _, index), runs = element
        of, tokenizer = self._shards[folder], compiled_tokenizer(tokenizer_json)
        planned = of.name(index)
        with self._report.of(planned.id) as on_rows:
            entry = merge_planned(planned, [*runs], of.config, tokenizer, on_rows)
        yield Done(folder, index, entry.shard_id)


def _merge_runs(
    element: tuple[_Group, Iterable[SplitRuns]], shards: Sequence[FolderShards], into: Pass, n_merged: int
) -> SplitRuns:
    enter_stage(SHUFFLING_STAGE)
    (folder, group, number), found = element
    runs: Sequence[SplitRuns] = [*found]
    part = (number, into.n_ranges)
    if n_merged == sum(each.n_shards for each in shards):  # the runs may have been removed, and nobody needs them
        return SplitRuns("", group, "", (), runs[0].fields, part, folder)
    config = shards[folder].config
    assert config.output.shuffle is not None
    schema = schema_of_rows(config, runs[0].fields)
    return merge_runs(runs, group, part, config.output.path, config.output.shuffle.run_bytes, schema)
