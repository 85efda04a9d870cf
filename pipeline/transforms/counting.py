# SPDX-License-Identifier: Apache-2.0
"""Transforms from splits to the counts artifact, and from it to vocabularies."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.metrics.metric import Metrics

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.languages import TextOptions
from tokenmill.pipeline.config.tokenizer import TokenizerConfig
from tokenmill.pipeline.config.training import CountsConfig
from tokenmill.pipeline.counting import count, finishing
from tokenmill.pipeline.counting.counts import open_counts
from tokenmill.pipeline.counting.finishing import PartitionCounts
from tokenmill.pipeline.counting.partitions import N_PARTITIONS
from tokenmill.pipeline.counting.split_counts import SplitCounts
from tokenmill.pipeline.jobs.planning import COUNTING_STAGE, MERGING_STAGE, TRAINING_STAGE
from tokenmill.pipeline.running import progress
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.training.train import train_vocabularies
from tokenmill.pipeline.transforms.compiled import compiled_tokenizer
from tokenmill.pipeline.transforms.stages import StageReport, call_once, enter_stage, with_memory

COUNTS = CountsConfig()
"""The `counts` section by default: every word is kept, whatever its source."""

_TRAINING_MEMORY = "16GB"
"""All other steps take less than 2 GB, whatever the input is."""


@dataclasses.dataclass
class CountSplits(beam.PTransform):
    """Counts the words of splits into files.

    Input: splits as JSON. Output: `SplitCounts` as JSON. Memory: one batch and at most
    `count.MAX_COUNTER_BYTES` of distinct words per worker. Counters: bytes-in, documents-in, documents-rejected,
    documents-filtered, splits-done.
    """

    input: InputConfig
    output: str
    tokenizer: str
    """A `tokenizer.json`, whose normalizer and pre-tokenizer define the words."""
    counts: CountsConfig = COUNTS
    n_partitions: int = N_PARTITIONS
    """As for `MergeCounts`."""
    text: TextOptions = dataclasses.field(default_factory=TextOptions)
    """How text is changed before its words are counted."""

    def expand(self, splits: Any) -> Any:  # noqa: D102
        return splits | "CountSplit" >> beam.ParDo(_CountSplitsFn(self)).with_output_types(str)


class _CountSplitsFn(beam.DoFn):
    def __init__(self, parameters: CountSplits) -> None:
        self._input, self._output, self._tokenizer = parameters.input, parameters.output, parameters.tokenizer
        self._counts, self._n_partitions = parameters.counts, parameters.n_partitions
        self._text = parameters.text
        self._key = count.count_key(self._input, self._counts, self._tokenizer, self._text, self._n_partitions)
        self._report = StageReport(CountSplits, COUNTING_STAGE)

    def process(self, element: str) -> Iterator[str]:
        split = Split.from_json(element)
        tokenizer = compiled_tokenizer(self._tokenizer)
        with self._report.of(split.id) as on_batch:
            counts = count.count_split(
                split,
                self._input,
                self._output,
                tokenizer,
                self._key,
                self._counts,
                self._n_partitions,
                on_batch,
                self._text,
            )
        yield counts.to_json()


@dataclasses.dataclass
class MergeCounts(beam.PTransform):
    """Merges the counts of all splits into the counts artifact, a hash partition per element of work.

    Input: `SplitCounts` as JSON. Output: one list, the `PartitionCounts` of the finished artifact as JSON, in order.
    Memory: bounded, see `counting.merging`; disk: all counts of splits, and a partition once more. With `max_words` the
    partitions are merged twice, because the words to drop must be known first. Counter: words-out, the distinct ones.
    """

    output: str
    key: str
    tokenizer: str
    """As for `CountSplits`."""
    counts: CountsConfig = COUNTS
    n_partitions: int = N_PARTITIONS
    input: InputConfig | None = None
    """The section `input`, with the limits for rejects; None: no limits."""

    def expand(self, counts: Any) -> Any:  # noqa: D102
        splits, all_splits = beam.pvalue.AsList(counts | "Places" >> beam.Map(_places)), beam.pvalue.AsIter(counts)
        numbers = counts.pipeline | "Partitions" >> beam.Create(list(range(self.n_partitions)))
        bound: Any = self.counts.min_count - 1
        if self.counts.max_words is not None:
            histograms = numbers | "Histogram" >> beam.Map(
                _histogram, splits, self.output, self.counts.min_count
            ).with_output_types(list[tuple[int, int]])
            found = call_once(
                counts.pipeline, "FindBound", finishing.find_bound, beam.pvalue.AsList(histograms), self.counts
            )
            bound = beam.pvalue.AsSingleton(found)
        merge = beam.ParDo(_MergePartitionFn(self), splits, bound)
        partitions = numbers | "MergePartition" >> merge.with_output_types(str)
        return call_once(
            counts.pipeline, "FinishCounts", _finish_counts, all_splits, beam.pvalue.AsList(partitions), self
        )


def _places(split: str) -> str:
    """Returns what a merge needs of `SplitCounts`, without what was read: every merge holds it of all splits."""
    return dataclasses.replace(SplitCounts.from_json(split), pieces=(), inputs=()).to_json()


def _histogram(partition: int, splits: Sequence[str], output: str, min_count: int) -> list[tuple[int, int]]:
    enter_stage(MERGING_STAGE)
    counts = map(SplitCounts.from_json, splits)
    return finishing.histogram_partition(partition, counts, output, min_count)


class _MergePartitionFn(beam.DoFn):
    def __init__(self, parameters: MergeCounts) -> None:
        self._parameters = parameters
        self._words = Metrics.counter(MergeCounts, "words-out")

    def process(self, element: int, splits: Sequence[str], bound: int) -> Iterator[str]:
        enter_stage(MERGING_STAGE)
        merged = finishing.merge_partition(
            element,
            self._parameters.n_partitions,
            map(SplitCounts.from_json, splits),
            self._parameters.output,
            self._parameters.counts.by,
            bound,
        )
        self._words.inc(merged.file.rows or 0)
        yield merged.to_json()


@dataclasses.dataclass
class _Parsed:
    """`SplitCounts` of JSON, one at a time, as often as they are looked at."""

    texts: Iterable[str]

    def __iter__(self) -> Iterator[SplitCounts]:
        return map(SplitCounts.from_json, self.texts)


def _finish_counts(splits: Iterable[str], partitions: Sequence[str], parameters: MergeCounts) -> list[str]:
    finished = finishing.finish_counts(
        _Parsed(splits),
        [PartitionCounts.from_json(text) for text in partitions],
        parameters.output,
        parameters.key,
        parameters.tokenizer,
        parameters.counts.by,
        parameters.input,
    )
    return [counts.to_json() for counts in finished]


@dataclasses.dataclass
class TrainVocabularies(beam.PTransform):
    """Trains vocabularies on a counts artifact.

    Input: one element of any value, once the artifact is finished. Output: one list of `train.Vocabulary` as
    JSON: each a `tokenizer.json` as text, with the truncation and padding of the config, and its training record.
    Memory: all distinct words of the artifact, on one worker. Deterministic: a function of the counts and the config.
    """

    config: TokenizerConfig
    counts: str
    """The folder of the artifact."""
    span_tokens: Sequence[str] = ()
    """Tokens of spans, special tokens like those of the config."""
    by: str | None = None
    labels: Sequence[str] = ()
    """As `train_vocabularies` takes both."""

    def expand(self, finished: Any) -> Any:  # noqa: D102
        step = beam.Map(_train, self).with_output_types(list[str])
        return finished | "Train" >> with_memory(step, finished.pipeline, _TRAINING_MEMORY)


def _train(_: Any, parameters: TrainVocabularies) -> list[str]:
    enter_stage(TRAINING_STAGE)
    watcher, counts = progress.current(), open_counts(parameters.counts)
    tell = functools.partial(watcher.measure, TRAINING_STAGE) if watcher is not None else None
    tokens, by, labels = tuple(parameters.span_tokens), parameters.by, parameters.labels
    vocabularies = train_vocabularies(counts, parameters.config, tokens, tell, by, labels)
    return [vocabulary.to_json() for vocabulary in vocabularies]
