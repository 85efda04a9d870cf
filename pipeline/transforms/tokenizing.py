# SPDX-License-Identifier: Apache-2.0
"""From the plan of a job to committed shards; a page is of one of the folders of the job.

From `FindCommitted` to `WriteShards` all is one fused stage. Five rules keep it one, and a split whole:

1. Pages are never encoded: `elements.FusedCoder` refuses, and tells a runner their size.
2. Only `FindCommitted` has side inputs, and no step has state, timers or hints: on Flink and Spark each of these begins
   a new stage.
3. Pages of a split are numbered. Beam does not promise their order, so a step that misses one fails.
4. A step does not hear of an error behind or before it. What `WriteShards` has staged is removed before its next
   bundle, or when its worker is done with it; `jobs.planning.prepare` removes what a killed worker leaves.
5. Statistics travel with the pages, by reference, and are committed with the shard.

If the job shuffles, `SortRuns` is in the place of `WriteShards`, and after it runs become the shards of each folder.
Shards that an earlier run has merged from the same plan are found first; runs are then not needed again. Where there
are very many, `MergeRuns` first makes fewer of them.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import AsSingleton, PBegin, PCollection, TaggedOutput
from apache_beam.typehints import no_annotations

from tokenmill.pipeline.books.ledger import LedgerEntry, runs_of
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs.planning import SHUFFLING_STAGE, TOKENIZING_STAGE, JobPlan, read_plan
from tokenmill.pipeline.running.clock import Stopwatch
from tokenmill.pipeline.running.progress import Amount
from tokenmill.pipeline.shuffling import Pass, PlannedShard, deal, load_merged, merge_runs, name_shard, plan_passes
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing import steps
from tokenmill.pipeline.tokenizing.pages import Page, Step, Work, read_pages, schema_of_rows
from tokenmill.pipeline.tokenizing.tokenize import SplitWriter, load_committed, merge_planned
from tokenmill.pipeline.transforms.elements import Done, Todo
from tokenmill.pipeline.transforms.stages import (
    Meter,
    Number,
    StageReport,
    TokenizerText,
    compiled_tokenizer,
    compiled_tokenizers,
    enter_stage,
)

_COMMITTED = "committed"
_Of = TypeVar("_Of")


class Tokenized(NamedTuple):
    """What `TokenizeCorpus` gives."""

    splits: "PCollection[Done | SplitRuns]"
    """`Done` of every split of each folder, or its `SplitRuns` if the job shuffles."""
    shards: PCollection[Done] | None = None
    """`Done` of every merged shard, if the job shuffles."""


class PagesRead(NamedTuple):
    """What `ReadSplits` gives."""

    pages: PCollection[Page]
    """Those of a split one after another."""
    committed: "PCollection[Done | SplitRuns]"
    """The splits that folders have already."""


@beam.typehints.with_output_types(Any)
@dataclasses.dataclass(eq=False)
class TokenizeCorpus(beam.PTransform):
    """Tokenizes all splits of a plan, each read once, into committed shards of every folder.

    Input: a pipeline. Outputs: those of `Tokenized`. A split that is committed already is only looked at. Memory: one
    page, and for each folder its tokens and a row group, or a run two to three times, per worker. Bad documents go to
    `rejected/`.
    """

    plan: JobPlan
    tokenizers: Sequence[TokenizerText]
    """The `tokenizer.json` of each folder, or one for all."""

    @no_annotations  # which Beam understands where there is one output
    def expand(self, begin: PBegin) -> Tokenized:  # noqa: D102
        plan, text = self.plan, self.tokenizers[0]  # a job with several tokenizers does not shuffle
        if plan.config.output.shuffle is None:
            return Tokenized(self._split_by_split(begin, "WriteShards", Done))
        are_merged = AsSingleton(begin | "FindMergedShards" >> FindMergedShards(plan, text), default_value=False)
        runs = self._split_by_split(begin, "SortRuns", SplitRuns, are_merged)
        return Tokenized(runs, runs | "MergeShards" >> MergeShards(plan, are_merged, text))

    def _split_by_split(
        self, begin: PBegin, write: str, made: type, are_merged: AsSingleton | bool = False
    ) -> "PCollection[Done | SplitRuns]":
        """Adds the steps of a split, in one stage; `write` and `made` are the name and the type of its last one."""
        read = begin | "ReadSplits" >> ReadSplits(self.plan, self.tokenizers, are_merged)
        pages = read.pages
        for step in steps.STEPS:
            pages = pages | step.__name__ >> beam.ParDo(StepFn(step)).with_output_types(Page)
        written = pages | write >> beam.ParDo(WriteFn(write)).with_output_types(made)
        return (read.committed, written) | "AllSplits" >> beam.Flatten().with_output_types(made)


@beam.typehints.with_output_types(Any)
@dataclasses.dataclass(eq=False)
class ReadSplits(beam.PTransform):
    """Reads the splits of a plan into pages. Input: a pipeline. Outputs: those of `PagesRead`."""

    plan: JobPlan
    tokenizers: Sequence[TokenizerText]
    are_merged: AsSingleton | bool = False
    """Whether an earlier run has merged all shards of a shuffle."""

    @no_annotations
    def expand(self, begin: PBegin) -> PagesRead:  # noqa: D102
        find = beam.ParDo(FindCommitted(self.plan), self.are_merged, *self.tokenizers)
        find = find.with_outputs(_COMMITTED, main="todo").with_output_types(Any)
        splits = begin | "ReadPlan" >> ReadPlan(self.plan.plan_path)
        todo, committed = splits | "FindCommitted" >> find
        todo.element_type = Todo
        committed.element_type = Done if self.plan.config.output.shuffle is None else SplitRuns
        read = beam.ParDo(ReadPages(self.plan.config.output.path)).with_output_types(Page)
        return PagesRead(todo | "ReadPages" >> read, committed)


@dataclasses.dataclass(eq=False)
class ReadPlan(beam.PTransform):
    """Reads the splits that `jobs.planning.prepare` wrote, and deals them out to all workers.

    Input: a pipeline. Output: `Split`. Splits are not in the graph, which would grow with the input.
    """

    path: str

    def expand(self, begin: PBegin) -> PCollection[Split]:  # noqa: D102
        read = beam.FlatMap(_read_plan, self.path).with_output_types(Split)
        return begin | beam.Impulse() | "Read" >> read | "Spread" >> beam.Reshuffle()


def _read_plan(_: bytes, path: str) -> Iterator[Split]:
    return read_plan(path)


class FindCommitted(beam.DoFn):
    """Splits -> `Todo`, or what a folder has committed already. The first step of the stage, and its only side inputs.

    It hands over open tokenizers, by reference: pages and what they are made of do not leave the process.
    """

    def __init__(self, plan: JobPlan) -> None:
        """Takes the plan of the whole job."""
        self._configs, self._n_splits = [each.config for each in plan.folders.values()], len(plan.splits)
        self._salts = [each.job.digest for each in plan.folders.values()]
        self._done = Metrics.counter("ReadSplits", "splits-done-before")

    def process(self, split: Split, are_merged: bool, *tokenizers: str) -> Iterator["Todo | TaggedOutput"]:
        """Looks for a split in all folders; `are_merged`: whether all shards are merged, of all folders together."""
        works: list[Work] = []
        opened = compiled_tokenizers(tokenizers, len(self._configs))
        for i, (config, tokenizer) in enumerate(zip(self._configs, opened, strict=True)):
            work = Work(split.of_folder(i, self._salts[i]), config, tokenizer, self._n_splits, are_merged, folder=i)
            if (entry := load_committed(work)) is None:
                works.append(work)
            else:
                yield TaggedOutput(_COMMITTED, _done(entry, i))
        if works:
            yield Todo(split, tuple(works))
        else:
            self._done.inc()
            Meter(TOKENIZING_STAGE, split.id).finish()


class ReadPages(beam.DoFn):
    """`Todo` -> pages. When it has yielded the last one, all steps behind it are done with the split."""

    def __init__(self, output: str) -> None:
        """Takes `output.path`, above all folders."""
        self._output = output
        self._bytes, self._records = (Metrics.counter("ReadSplits", name) for name in ("bytes-in", "records-in"))

    def process(self, todo: Todo) -> Iterator[Page]:
        """Reads a split once for all folders that lack it."""
        split, works = todo
        meter, watch = Meter(TOKENIZING_STAGE, split.id), Stopwatch(self._output, split)
        for page in read_pages(works):
            if page.batch is not None and page.work is works[0]:
                self._bytes.inc(page.batch.n_bytes)
                self._records.inc(page.batch.n_records)
                meter.add(Amount(page.batch.n_bytes, page.batch.n_records))
            yield dataclasses.replace(page, report=meter.add)
        watch.stop(meter.done.n_bytes, meter.done.n_tokens)
        meter.finish()


class _OfSplits(beam.DoFn, Generic[_Of]):
    """A step with something open for each split of each folder: made at its first page, let go after its last."""

    def __init__(self, name: str, make: Callable[[Work], _Of]) -> None:
        self._name, self._make = name, make
        self._open: dict[str, tuple[int, _Of]] = {}  # by the id of the split, which is another one in each folder

    def _opened(self, page: Page) -> _Of:
        """Returns what is open for the split of a page; raises RuntimeError if the page is not the one that follows."""
        split_id = page.work.split.id
        expected, of = self._open.get(split_id) or (0, None)
        if page.number != expected:
            raise RuntimeError(
                f"{self._name}: page {page.number} of split {split_id} comes where page {expected} is next: this "
                "runner does not keep the pages of a split together and in order"
            )
        of = self._make(page.work) if of is None else of
        self._open[split_id] = page.number + 1, of
        return of

    def _close(self, page: Page) -> None:
        if page.is_last:
            del self._open[page.work.split.id]

    def finish_bundle(self) -> None:
        """Raises RuntimeError if the last page of a split has not come."""
        if self._open:
            raise RuntimeError(f"{self._name}: a bundle ends within split {min(self._open)}: this runner cut it")


class StepFn(_OfSplits[Step]):
    """One of `STEPS`."""

    def __init__(self, step: Callable[[Work], Step]) -> None:
        """Takes the class of the step."""
        super().__init__(step.__name__, step)
        self._documents = Metrics.counter(self._name, "documents-out")

    def start_bundle(self) -> None:
        """Forgets what an error has left."""
        self._open = {}

    def process(self, page: Page) -> Iterator[Page]:
        """Yields the page with what the step makes."""
        made = self._opened(page)(page)
        self._documents.inc(made.n_documents)
        yield made
        self._close(page)


class WriteFn(_OfSplits[SplitWriter]):
    """Pages with rows -> `Done`, or `SplitRuns` if the job shuffles, when the last page has committed the split."""

    def __init__(self, name: str) -> None:
        """Takes the name of the step."""
        super().__init__(name, SplitWriter)
        self._documents, self._tokens, self._splits = (
            Metrics.counter(name, each) for each in ("documents-out", "tokens-out", "splits-done")
        )
        self._rejected = Metrics.counter(name, "documents-rejected")

    def start_bundle(self) -> None:
        """Removes what an error in this or another step has left."""
        self.teardown()

    def process(self, page: Page) -> Iterator[Done | SplitRuns]:
        """Writes a page; yields when the split is committed."""
        write = self._opened(page)
        try:
            entry = write(page)
        except BaseException:
            self.teardown()
            raise
        self._close(page)
        if entry is not None:
            write.close()
            self._documents.inc(entry.n_documents)
            self._tokens.inc(entry.n_tokens)
            self._rejected.inc(sum((entry.of("rejected") or {}).values()))
            self._splits.inc()
            yield _done(entry, page.work.folder)

    def teardown(self) -> None:
        """Removes what is staged."""
        for _, write in self._open.values():
            write.close()
        self._open = {}


def _done(entry: LedgerEntry, folder: int) -> Done | SplitRuns:
    if entry.runs is not None:
        return dataclasses.replace(runs_of(entry), folder=folder)
    return Done(folder, entry.index, entry.split_id)


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


@dataclasses.dataclass(eq=False)
class FindMergedShards(beam.PTransform):
    """Finds out whether an earlier run has merged all shards from the splits of this plan.

    Input: a pipeline. Output: True or False, or nothing if no shard is merged. Memory: small; reads the files.
    """

    plan: JobPlan
    tokenizer: TokenizerText

    def expand(self, begin: PBegin) -> PCollection[bool]:  # noqa: D102
        shards = _shards_of(self.plan)
        n_shards = sum(each.n_shards for each in shards)
        find = beam.FlatMap(_find_merged, shards, self.tokenizer)
        numbers = [(i, each.n_shards) for i, each in enumerate(shards)]
        return (
            begin
            # Only the number of their shards, to keep the graph small.
            | "Folders" >> beam.Create(numbers).with_output_types(tuple[int, int])
            | "NumberShards"
            >> beam.FlatMapTuple(lambda i, n: itertools.product([i], range(n))).with_output_types(tuple[int, int])
            | "SpreadShards" >> beam.Reshuffle()
            | "FindMerged" >> find.with_output_types(int)
            | "NumberMerged" >> Number()
            | "AreAll" >> beam.Map(lambda n: n == n_shards).with_output_types(bool)
        )


def _find_merged(place: tuple[int, int], shards: Sequence[FolderShards], tokenizer_json: str) -> Iterator[int]:
    folder, index = place
    of, digest = shards[folder], compiled_tokenizer(tokenizer_json).digest
    if load_merged(of.name(index), of.config.output, digest) is not None:
        yield folder


@dataclasses.dataclass(eq=False)
class MergeShards(beam.PTransform):
    """Merges the runs of all splits of each folder into committed shards, each a range of hashes.

    Input: `SplitRuns`. Output: `Done` of each shard, once its files and its entry are on disk. Memory: bounded, see
    `output.spill`, and what the writers hold; disk: the documents of all splits once more for each pass.
    """

    plan: JobPlan
    are_merged: AsSingleton
    """Whether all shards are merged already."""
    tokenizer: TokenizerText

    def expand(self, runs: PCollection[SplitRuns]) -> PCollection[Done]:  # noqa: D102
        shards, splits, shuffle = _shards_of(self.plan), self.plan.splits, self.plan.config.output.shuffle
        assert shuffle is not None
        for i, into in enumerate(plan_passes(len(splits), splits.n_work, shuffle.run_bytes)):
            merge = beam.Map(_merge_runs, shards, into, self.are_merged)
            dealt = runs | f"Deal{i}" >> beam.FlatMap(deal, into).with_output_types(tuple[_Group, SplitRuns])
            runs = dealt | f"Group{i}" >> beam.GroupByKey() | f"MergeRuns{i}" >> merge.with_output_types(SplitRuns)
        # All splits are one group; folders have different numbers of shards.
        dealt = runs | "Deal" >> beam.FlatMap(_deal_shards, shards).with_output_types(tuple[_Group, SplitRuns])
        merge = beam.ParDo(_MergeShardFn(shards), self.tokenizer)
        return dealt | "Group" >> beam.GroupByKey() | "MergeShard" >> merge.with_output_types(Done)


def _deal_shards(runs: SplitRuns, shards: Sequence[FolderShards]) -> Iterator[tuple[_Group, SplitRuns]]:
    return deal(runs, Pass(1 << 62, shards[runs.folder].n_shards))


class _MergeShardFn(beam.DoFn):
    def __init__(self, shards: Sequence[FolderShards]) -> None:
        self._shards = shards
        self._report = StageReport(MergeShards, SHUFFLING_STAGE, "shards")

    def process(self, element: tuple[_Group, Iterable[SplitRuns]], tokenizer_json: str) -> Iterator[Done]:
        (folder, _, index), runs = element
        of, tokenizer = self._shards[folder], compiled_tokenizer(tokenizer_json)
        planned = of.name(index)
        with self._report.of(planned.id) as on_rows:
            entry = merge_planned(planned, [*runs], of.config, tokenizer, on_rows)
        yield Done(folder, index, entry.shard_id)


def _merge_runs(
    element: tuple[_Group, Iterable[SplitRuns]], shards: Sequence[FolderShards], into: Pass, are_merged: bool
) -> SplitRuns:
    enter_stage(SHUFFLING_STAGE)
    (folder, group, number), found = element
    runs: Sequence[SplitRuns] = [*found]
    key_range = (number, into.n_ranges)
    if are_merged:  # the runs may have been removed, and nobody needs them
        return SplitRuns("", group, "", (), runs[0].fields, key_range, folder)
    config = shards[folder].config
    assert config.output.shuffle is not None
    schema = schema_of_rows(config, runs[0].fields)
    return merge_runs(runs, group, key_range, config.output.path, config.output.shuffle.run_bytes, schema)
