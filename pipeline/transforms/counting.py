# SPDX-License-Identifier: Apache-2.0
"""From the plan of a job to the counts artifact, and from that to vocabularies.

The counts of words stay in files; descriptions of their runs go through Beam.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import AsList, AsSingleton, PBegin, PCollection

from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.ledger import runs_of
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.config.tokenizer import TokenizerConfig
from tokenmill.pipeline.counting import count, finishing
from tokenmill.pipeline.counting.count import Counting
from tokenmill.pipeline.counting.counts import open_counts
from tokenmill.pipeline.jobs.planning import COUNTING_STAGE, MERGING_STAGE, TRAINING_STAGE, JobPlan, read_plan
from tokenmill.pipeline.running import progress
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.training.train import Vocabulary, train_vocabularies
from tokenmill.pipeline.transforms.stages import (
    Number,
    StageReport,
    call_once,
    compiled_tokenizer,
    enter_stage,
    with_memory,
)
from tokenmill.pipeline.transforms.tokenizing import ReadPlan

_TRAINING_MEMORY = "16GB"
"""All other steps take less than 2 GB, whatever the input is."""

_Histogram = list[tuple[int, int]]


@dataclasses.dataclass(eq=False)
class CountCorpus(beam.PTransform):
    """Counts the words of all splits of a plan.

    Input: a pipeline. Output: one element, the folder of the finished artifact: that of this job, which an earlier run
    may have finished, or the other one that a vocabulary is trained on. A job that counts no words is a ValueError.
    """

    plan: JobPlan

    def expand(self, begin: PBegin) -> PCollection[str]:  # noqa: D102
        plan, counting = self.plan, self.plan.counting()
        if counting is None and plan.counts_given is None:
            raise ValueError(f"the job {plan.name} does not count words")
        if counting is None or finishing.is_finished(counting):
            folder = plan.counts_given or plan.config.output.path
            return begin | "Finished" >> beam.Create([folder]).with_output_types(str)
        runs = begin | "ReadPlan" >> ReadPlan(plan.plan_path) | "CountSplits" >> CountSplits(counting)
        return runs | "MergeCounts" >> MergeCounts(counting, plan.plan_path)


@dataclasses.dataclass(eq=False)
class CountSplits(beam.PTransform):
    """Counts the words of splits into files; a split that an earlier run has counted is only looked at.

    Input: `Split`. Output: `SplitRuns`. Memory: one batch and at most `count.MAX_COUNTER_BYTES` of distinct words per
    worker. Counters: bytes-in, documents-in, documents-rejected, documents-filtered, splits-done.
    """

    counting: Counting

    def expand(self, splits: PCollection[Split]) -> PCollection[SplitRuns]:  # noqa: D102
        return splits | "CountSplit" >> beam.ParDo(_CountSplitFn(self.counting)).with_output_types(SplitRuns)


class _CountSplitFn(beam.DoFn):
    def __init__(self, counting: Counting) -> None:
        self._counting = counting
        self._report = StageReport(CountSplits, COUNTING_STAGE)

    def process(self, split: Split) -> Iterator[SplitRuns]:
        with self._report.of(split.id) as on_batch:
            entry = count.count_split(split, self._counting, compiled_tokenizer(self._counting.tokenizer), on_batch)
        yield runs_of(entry)


@dataclasses.dataclass(eq=False)
class MergeCounts(beam.PTransform):
    """Merges the counts of all splits into the counts artifact, a hash partition per element of work.

    Input: `SplitRuns`. Output: one element, the output folder, once the artifact is finished. Memory: bounded, see
    `counting.merging`, and some 200 bytes for each run; disk: all counts of splits, and a partition once more. With
    `max_words` the partitions are merged twice, because the words to drop must be known first. Counter: words-out, the
    distinct ones.
    """

    counting: Counting
    plan_path: str
    """The path of the plan, by which the last step reads the ledger."""

    def expand(self, runs: PCollection[SplitRuns]) -> PCollection[str]:  # noqa: D102
        of, pipeline, splits = self.counting, runs.pipeline, AsList(runs)
        numbers = pipeline | "Partitions" >> beam.Create(list(range(of.n_partitions))).with_output_types(int)
        bound: int | AsSingleton = of.counts.min_count - 1
        if of.counts.max_words is not None:
            histogram = beam.Map(_histogram, splits, of).with_output_types(_Histogram)
            histograms = AsList(numbers | "Histogram" >> histogram)
            find = finishing.find_bound, histograms, of.counts
            bound = AsSingleton(call_once(pipeline, "FindBound", *find, kind=int))
        merge = beam.ParDo(_MergePartitionFn(of), splits, bound).with_output_types(int)
        n_merged = AsSingleton(numbers | "MergePartition" >> merge | "NumberMerged" >> Number(), 0)
        return call_once(pipeline, "FinishCounts", _finish_counts, n_merged, of, self.plan_path, kind=str)


def _histogram(partition: int, splits: Sequence[SplitRuns], of: Counting) -> _Histogram:
    enter_stage(MERGING_STAGE)
    return finishing.histogram_partition(partition, splits, of)


class _MergePartitionFn(beam.DoFn):
    def __init__(self, counting: Counting) -> None:
        self._counting = counting
        self._words = Metrics.counter(MergeCounts, "words-out")

    def process(self, partition: int, splits: Sequence[SplitRuns], bound: int) -> Iterator[int]:
        enter_stage(MERGING_STAGE)
        entry = finishing.merge_partition(partition, splits, self._counting, bound)
        self._words.inc(entry.shard.rows or 0)
        yield partition


def _finish_counts(_: int, of: Counting, plan_path: str) -> str:
    splits = PlannedSplits(read_plan(plan_path))
    finishing.finish_counts(of, splits, read_plan(plan_path))
    return of.output


@dataclasses.dataclass(eq=False)
class TrainVocabulary(beam.PTransform):
    """Trains the vocabularies of a job on a counts artifact.

    Input: the folder of the artifact. Output: one list of `Vocabulary`: each a `tokenizer.json` as text, with the
    truncation and padding of the config, and its training record. Memory: all distinct words of the artifact, on one
    worker. Deterministic: a function of the counts and the config.
    """

    plan: JobPlan

    def expand(self, folder: PCollection[str]) -> PCollection[list[Vocabulary]]:  # noqa: D102
        config, folders = self.plan.config, self.plan.folders.values()
        needs_all = config.train_by and self.plan.tokenizes and not self.plan.is_sample
        labels = [each.config.trained_label for each in folders] if needs_all else ()
        train = beam.Map(_train, config.tokenizer, tuple(config.text.tokens), config.train_by, labels)
        step = train.with_output_types(list[Vocabulary])
        return folder | "Train" >> with_memory(step, folder.pipeline, _TRAINING_MEMORY)


def _train(
    folder: str, config: TokenizerConfig, tokens: Sequence[str], by: str | None, labels: Sequence[str]
) -> list[Vocabulary]:
    enter_stage(TRAINING_STAGE)
    watcher = progress.current()
    tell = functools.partial(watcher.measure, TRAINING_STAGE) if watcher is not None else None
    return [*train_vocabularies(open_counts(folder), config, tokens, tell, by, labels)]
