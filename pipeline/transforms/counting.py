# SPDX-License-Identifier: Apache-2.0
"""From the plan of a job to the counts artifact, and from that to vocabularies.

    CountCorpus       ReadPlan > CountSplits > MergeCounts --list[PartitionCounts]-->
                         Split   SplitCounts
    TrainVocabulary   list[PartitionCounts] > Train --list[Vocabulary]-->

The counts of words stay in files; descriptions of these files go through Beam.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import AsIter, AsList, AsSingleton, PBegin, PCollection

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.text import TextOptions
from tokenmill.pipeline.config.tokenizer import CountsConfig, TokenizerConfig
from tokenmill.pipeline.counting import count, finishing
from tokenmill.pipeline.counting.counts import open_counts
from tokenmill.pipeline.counting.finishing import PartitionCounts
from tokenmill.pipeline.counting.partitions import N_PARTITIONS
from tokenmill.pipeline.counting.split_counts import SplitCounts
from tokenmill.pipeline.jobs.planning import COUNTING_STAGE, MERGING_STAGE, TRAINING_STAGE, JobPlan
from tokenmill.pipeline.running import progress
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.training.train import Vocabulary, train_vocabularies
from tokenmill.pipeline.transforms.compiled import compiled_tokenizer
from tokenmill.pipeline.transforms.stages import StageReport, call_once, enter_stage, with_memory
from tokenmill.pipeline.transforms.tokenizing import ReadPlan

_TRAINING_MEMORY = "16GB"
"""All other steps take less than 2 GB, whatever the input is."""

_Histogram = list[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Counting:
    """What the steps that count share."""

    input: InputConfig
    output: str
    tokenizer: str
    """A `tokenizer.json`, whose normalizer and pre-tokenizer define the words."""
    counts: CountsConfig = CountsConfig()  # noqa: RUF009 - immutable; every word is kept, whatever its source
    n_partitions: int = N_PARTITIONS
    text: TextOptions = TextOptions()  # noqa: RUF009 - immutable
    """How text is changed before its words are counted."""

    @property
    def key(self) -> str:
        """The digest of all that counts depend on besides the input."""
        return count.count_key(self.input, self.counts, self.tokenizer, self.text, self.n_partitions)


class CountCorpus(beam.PTransform):
    """Counts the words of all splits of a plan.

    Input: a pipeline. Output: one list, the `PartitionCounts` of the finished artifact in order. It is what an earlier
    run has finished, if it has, and empty if a vocabulary is trained on counts of another folder.
    """

    def __init__(self, plan: JobPlan) -> None:
        """Takes the plan; looks for counts that are finished.

        Raises:
          ValueError: if the job does not count words.
        """
        super().__init__()
        self._finished = plan.finished_counts()
        if self._finished is None and plan.counting_json is None and plan.counts_given is None:
            raise ValueError(f"the job {plan.name} does not count words")
        config, self._path, self._counting = plan.config, plan.plan_path, None
        if self._finished is None and plan.counting_json is not None:
            n, output = plan.n_partitions, config.output.path
            self._counting = Counting(config.input, output, plan.counting_json, config.counts, n, config.text)

    def expand(self, begin: PBegin) -> PCollection[list[PartitionCounts]]:  # noqa: D102
        if self._counting is None:
            return begin | "Finished" >> beam.Create([self._finished or []]).with_output_types(list[PartitionCounts])
        splits = begin | "ReadPlan" >> ReadPlan(self._path)
        return splits | "CountSplits" >> CountSplits(self._counting) | "MergeCounts" >> MergeCounts(self._counting)


class CountSplits(beam.PTransform):
    """Counts the words of splits into files; a split that an earlier run has counted is only looked at.

    Input: `Split`. Output: `SplitCounts`. Memory: one batch and at most `count.MAX_COUNTER_BYTES` of distinct words per
    worker. Counters: bytes-in, documents-in, documents-rejected, documents-filtered, splits-done.
    """

    def __init__(self, counting: Counting) -> None:
        """Takes what is counted."""
        super().__init__()
        self._counting = counting

    def expand(self, splits: PCollection[Split]) -> PCollection[SplitCounts]:  # noqa: D102
        return splits | "CountSplit" >> beam.ParDo(_CountSplitFn(self._counting)).with_output_types(SplitCounts)


class _CountSplitFn(beam.DoFn):
    def __init__(self, counting: Counting) -> None:
        self._counting, self._key = counting, counting.key
        self._report = StageReport(CountSplits, COUNTING_STAGE)

    def process(self, split: Split) -> Iterator[SplitCounts]:
        of = self._counting
        tokenizer = compiled_tokenizer(of.tokenizer)
        with self._report.of(split.id) as on_batch:
            counted = count.count_split(
                split, of.input, of.output, tokenizer, self._key, of.counts, of.n_partitions, on_batch, of.text
            )
        yield counted


class MergeCounts(beam.PTransform):
    """Merges the counts of all splits into the counts artifact, a hash partition per element of work.

    Input: `SplitCounts`. Output: one list, the `PartitionCounts` of the finished artifact, in order. Memory: bounded,
    see `counting.merging`; disk: all counts of splits, and a partition once more. With `max_words` the partitions are
    merged twice, because the words to drop must be known first. Counter: words-out, the distinct ones.
    """

    def __init__(self, counting: Counting) -> None:
        """Takes what was counted; its input section has the limits for rejects."""
        super().__init__()
        self._counting = counting

    def expand(self, counts: PCollection[SplitCounts]) -> PCollection[list[PartitionCounts]]:  # noqa: D102
        of, pipeline = self._counting, counts.pipeline
        splits = AsList(counts | "Places" >> beam.Map(_places).with_output_types(SplitCounts))
        numbers = pipeline | "Partitions" >> beam.Create(list(range(of.n_partitions)))
        bound: int | AsSingleton = of.counts.min_count - 1
        if of.counts.max_words is not None:
            histogram = beam.Map(_histogram, splits, of.output, of.counts.min_count).with_output_types(_Histogram)
            histograms = AsList(numbers | "Histogram" >> histogram)
            bound = AsSingleton(call_once(pipeline, "FindBound", finishing.find_bound, histograms, of.counts))
        merge = beam.ParDo(_MergePartitionFn(of), splits, bound).with_output_types(PartitionCounts)
        partitions = AsList(numbers | "MergePartition" >> merge)
        return call_once(
            pipeline, "FinishCounts", _finish_counts, AsIter(counts), partitions, of, kind=list[PartitionCounts]
        )


def _places(split: SplitCounts) -> SplitCounts:
    """Returns what a merge needs of `SplitCounts`, without what was read: every merge holds it of all splits."""
    return dataclasses.replace(split, pieces=(), inputs=())


def _histogram(partition: int, splits: Sequence[SplitCounts], output: str, min_count: int) -> _Histogram:
    enter_stage(MERGING_STAGE)
    return finishing.histogram_partition(partition, splits, output, min_count)


class _MergePartitionFn(beam.DoFn):
    def __init__(self, counting: Counting) -> None:
        self._counting = counting
        self._words = Metrics.counter(MergeCounts, "words-out")

    def process(self, partition: int, splits: Sequence[SplitCounts], bound: int) -> Iterator[PartitionCounts]:
        enter_stage(MERGING_STAGE)
        of = self._counting
        merged = finishing.merge_partition(partition, of.n_partitions, splits, of.output, of.counts.by, bound)
        self._words.inc(merged.file.rows or 0)
        yield merged


def _finish_counts(
    splits: Iterable[SplitCounts], partitions: Sequence[PartitionCounts], of: Counting
) -> list[PartitionCounts]:
    return finishing.finish_counts(splits, partitions, of.output, of.key, of.tokenizer, of.counts.by, of.input)


class TrainVocabulary(beam.PTransform):
    """Trains the vocabularies of a job on a counts artifact.

    Input: one element of any value, once the artifact is finished. Output: one list of `Vocabulary`: each a
    `tokenizer.json` as text, with the truncation and padding of the config, and its training record. Memory: all
    distinct words of the artifact, on one worker. Deterministic: a function of the counts and the config.
    """

    def __init__(self, plan: JobPlan) -> None:
        """Takes the plan."""
        super().__init__()
        config, folders = plan.config, plan.folders.values()
        labels = [each.config.trained_label for each in folders] if config.train_by and plan.tokenizes else ()
        self._arguments = config.tokenizer, tuple(config.text.tokens), config.train_by, labels
        self._folder = plan.counts_given or config.output.path

    def expand(self, finished: PCollection[list[PartitionCounts]]) -> PCollection[list[Vocabulary]]:  # noqa: D102
        step = beam.Map(_train, self._folder, *self._arguments).with_output_types(list[Vocabulary])
        return finished | "Train" >> with_memory(step, finished.pipeline, _TRAINING_MEMORY)


def _train(
    _: object, folder: str, config: TokenizerConfig, tokens: Sequence[str], by: str | None, labels: Sequence[str]
) -> list[Vocabulary]:
    enter_stage(TRAINING_STAGE)
    watcher = progress.current()
    tell = functools.partial(watcher.measure, TRAINING_STAGE) if watcher is not None else None
    return [*train_vocabularies(open_counts(folder), config, tokens, tell, by, labels)]
