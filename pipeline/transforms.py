# SPDX-License-Identifier: Apache-2.0
"""Beam transforms: thin shells over the functions of this package, for our jobs and for graphs of your own.

Two families. The jobs use the first, in which only split descriptors and names cross the runner:

- `TokenizeSplits`: a split -> a committed shard, in one fused step;
- `SortSplits`, `FindMergedShards`, `MergeShards`: the same in two steps, where the documents are shuffled;
- `CountSplits`, `MergeCounts`: splits -> the counts artifact;
- `TrainVocabulary`: the counts artifact -> tokenizers.

The second exchanges columns, `pa.RecordBatch` of a few megabytes, and can be put together freely. Beam fuses
neighbours, so batches between them cost nothing; a shuffle in between pays for every byte:

- `ReadDocuments`, `NormalizeDocuments`, `TokenizeDocuments`, `CountWords`.

A tokenizer travels as the text of its `tokenizer.json`: a string, or a side input with one, and is compiled once per
process. All transforms are deterministic, make no assumption on order or batching, and may be retried.
"""

import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics.metric import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.typehints import Tuple
from apache_beam.utils.windowed_value import WindowedValue

from pipeline import arrow_coder as arrow_coder  # noqa: PLC0414  # registers the coder, here and in every worker
from pipeline import count_finishing, counting, progress, schemas
from pipeline.config import Config, InputConfig, TokenizerConfig
from pipeline.count_finishing import PartitionCounts
from pipeline.count_partitions import N_PARTITIONS, partitions_of
from pipeline.counting import SplitCounts
from pipeline.counts import open_counts
from pipeline.limits import RejectLimits
from pipeline.planning import (
    COUNTING_STAGE,
    MERGING_STAGE,
    SHUFFLING_STAGE,
    TOKENIZING_STAGE,
    TRAINING_STAGE,
    read_plan,
)
from pipeline.readers import read_split
from pipeline.shuffling.books import SplitRuns
from pipeline.shuffling.shards import PlannedShard, load_committed, recorded_digest, runs_of
from pipeline.splits import Split
from pipeline.text_config import TextOptions
from pipeline.tokenizing import merge_planned, padded_spans, tokenize_split
from pipeline.train_config import CountsConfig
from pipeline.training import train_vocabularies
from tokenizer import Tokenizer, WordCounter, add_word_counts

COUNTS = CountsConfig()
"""The `counts` section by default: every word is kept, whatever its source."""

TokenizerText = str | beam.pvalue.AsSingleton
"""A `tokenizer.json` as text, or a side input that holds one."""

_compiled: dict[str, Tokenizer] = {}
_compiling = threading.Lock()
_KEPT_TOKENIZERS = 4


def compiled_tokenizer(tokenizer_json: str) -> Tokenizer:
    """Returns the tokenizer of a `tokenizer.json`, built once per process and shared by its threads.

    Building one takes seconds where the vocabulary is large. Keeps the last few.
    """
    with _compiling:
        if tokenizer_json not in _compiled:
            while len(_compiled) >= _KEPT_TOKENIZERS:
                del _compiled[next(iter(_compiled))]
            _compiled[tokenizer_json] = Tokenizer.from_str(tokenizer_json)
        return _compiled[tokenizer_json]


class _Report:
    """What a step over splits tells Beam, in counters, and whoever watches this process."""

    def __init__(self, transform: type[beam.PTransform], stage: str) -> None:
        self._stage = stage
        names = ("bytes-in", "documents-in", "documents-rejected", "tokens-out", "documents-filtered")
        self._counters = [Metrics.counter(transform, name) for name in names]
        self._done = Metrics.counter(transform, "splits-done")

    @contextlib.contextmanager
    def of(self, split_id: str) -> Iterator[counting.OnBatch]:
        """Yields what is to be called after each batch of a split, or of a shard."""
        totals = [0, 0, 0, 0, 0]
        watcher = progress.current()

        def on_batch(n_bytes: int, n_documents: int, n_rejected: int, n_tokens: int, n_filtered: int) -> None:
            for i, number in enumerate((n_bytes, n_documents, n_rejected, n_tokens, n_filtered)):
                totals[i] += number
            if watcher is not None:
                n_records = n_documents + n_rejected + n_filtered
                watcher.advance(self._stage, split_id, n_bytes, n_rejected, n_tokens, n_records)

        yield on_batch
        for counter, number in zip(self._counters, totals, strict=True):
            counter.inc(number)
        self._done.inc()
        if watcher is not None:
            watcher.finish(self._stage, split_id)


def _enter_stage(stage: str) -> None:
    watcher = progress.current()
    if watcher is not None:
        watcher.enter(stage)


# Split by split: what the jobs are made of.


@dataclasses.dataclass
class TokenizeSplits(beam.PTransform):
    """Tokenizes splits into committed shards.

    Input: splits as JSON. Output: the id of each split, once its shard and ledger entry are on disk. A split that is
    committed already costs the reading of its files. Memory: one batch, its tokens and a row group per worker.
    Counters: bytes-in, documents-in, documents-rejected, documents-filtered, tokens-out, splits-done. Bad documents go
    to `rejected/`.
    """

    config: Config
    n_splits: int
    tokenizer: TokenizerText

    def expand(self, splits: Any) -> Any:  # noqa: D102
        fn = _TokenizeSplitsFn(self.config, self.n_splits)
        return splits | "TokenizeSplit" >> beam.ParDo(fn, self.tokenizer).with_output_types(str)


class _TokenizeSplitsFn(beam.DoFn):
    def __init__(self, config: Config, n_splits: int) -> None:
        self._config = config
        self._n_splits = n_splits
        self._report = _Report(TokenizeSplits, TOKENIZING_STAGE)

    def process(self, element: str, tokenizer_json: str) -> Iterator[str]:
        split = Split.from_json(element)
        tokenizer = compiled_tokenizer(tokenizer_json)
        with self._report.of(split.id) as on_batch:
            entry = tokenize_split(split, self._config, tokenizer, self._n_splits, on_batch)
        yield entry.split_id


@dataclasses.dataclass
class SortSplits(beam.PTransform):
    """Tokenizes splits into committed runs of sorted documents: the first step of a shuffle.

    Input: splits as JSON. Output: `SplitRuns` of each as JSON. Memory: one batch, its tokens and a run, about three
    times, per worker. Counters as of `TokenizeSplits`.
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
        self._report = _Report(SortSplits, TOKENIZING_STAGE)

    def process(self, element: str, tokenizer_json: str, merged: Sequence[str]) -> Iterator[str]:
        split = Split.from_json(element)
        tokenizer = compiled_tokenizer(tokenizer_json)
        are_merged = len(merged) == self._n_shards
        with self._report.of(split.id) as on_batch:
            entry = tokenize_split(split, self._config, tokenizer, self._n_splits, on_batch, are_merged=are_merged)
        yield json.dumps(runs_of(entry).to_record())


@dataclasses.dataclass
class FindMergedShards(beam.PTransform):
    """Finds the shards of a shuffle that an earlier run has merged of just what the ledger records.

    Input: planned shards. Output: the ids of those that are on disk as recorded. Memory: small; reads the files.
    """

    config: Config
    plan_path: str
    tokenizer: TokenizerText

    def expand(self, shards: Any) -> Any:  # noqa: D102
        recorded = (
            shards.pipeline
            | "ForRecorded" >> beam.Create([self.plan_path])
            | "ReadRecorded" >> beam.Map(_recorded_runs, self.config.output.path).with_output_types(str)
        )
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

    Input: planned shards. Output: the id of each once its files and its entry are on disk. Memory: bounded, see
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
        self._report = _Report(MergeShards, SHUFFLING_STAGE)
        self._read: tuple[Sequence[str], list[SplitRuns]] = [], []

    def process(self, element: PlannedShard, tokenizer_json: str, runs: Sequence[str]) -> Iterator[str]:
        if self._read[0] != runs:  # the same for every shard
            self._read = runs, [SplitRuns.from_record(json.loads(text)) for text in runs]
        splits = self._read[1]
        tokenizer = compiled_tokenizer(tokenizer_json)
        with self._report.of(element.id) as on_rows:
            entry = merge_planned(element, splits, self._config, tokenizer, on_rows)
        yield entry.shard_id


@dataclasses.dataclass
class CountSplits(beam.PTransform):
    """Counts the words of splits into files.

    Input: splits as JSON. Output: `SplitCounts` as JSON. Memory: one batch and at most
    `counting.MAX_COUNTER_BYTES` of distinct words per worker. Counters: bytes-in, documents-in, documents-rejected,
    documents-filtered, splits-done.
    """

    input: InputConfig
    output: str
    tokenizer: str
    """Its normalizer and pre-tokenizer say what a word is."""
    counts: CountsConfig = COUNTS
    n_partitions: int = N_PARTITIONS
    """As for `MergeCounts`."""
    text: TextOptions = dataclasses.field(default_factory=TextOptions)
    """What happens to text before that."""

    def expand(self, splits: Any) -> Any:  # noqa: D102
        return splits | "CountSplit" >> beam.ParDo(_CountSplitsFn(self)).with_output_types(str)


class _CountSplitsFn(beam.DoFn):
    def __init__(self, parameters: CountSplits) -> None:
        self._input, self._output, self._tokenizer = parameters.input, parameters.output, parameters.tokenizer
        self._counts, self._n_partitions = parameters.counts, parameters.n_partitions
        self._key = counting.count_key(parameters.input, parameters.counts, parameters.tokenizer, parameters.text)
        self._text = parameters.text
        self._report = _Report(CountSplits, COUNTING_STAGE)

    def process(self, element: str) -> Iterator[str]:
        split = Split.from_json(element)
        tokenizer = compiled_tokenizer(self._tokenizer)
        with self._report.of(split.id) as on_batch:
            counts = counting.count_split(
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
    Memory: bounded, see `count_merging`; disk: all counts of splits, and a partition once more. With `max_words` the
    partitions are merged twice, for what is dropped must be known first. Counter: words-out, the distinct ones.
    """

    output: str
    key: str
    tokenizer: str
    """As for `CountSplits`."""
    counts: CountsConfig = COUNTS
    n_partitions: int = N_PARTITIONS
    limits: RejectLimits = RejectLimits()  # noqa: RUF009  # frozen

    def expand(self, counts: Any) -> Any:  # noqa: D102
        splits = beam.pvalue.AsList(counts)
        numbers = counts.pipeline | "Partitions" >> beam.Create(list(range(self.n_partitions)))
        bound: Any = self.counts.min_count - 1
        if self.counts.max_words is not None:
            histograms = numbers | "Histogram" >> beam.Map(
                _histogram, splits, self.output, self.counts.min_count
            ).with_output_types(list[tuple[int, int]])
            found = (
                counts.pipeline
                | "ForBound" >> beam.Create([self.counts])
                | "FindBound" >> beam.Map(_find_bound, beam.pvalue.AsList(histograms)).with_output_types(int)
            )
            bound = beam.pvalue.AsSingleton(found)
        merge = beam.ParDo(_MergePartitionFn(self), splits, bound)
        partitions = numbers | "MergePartition" >> merge.with_output_types(str)
        return (
            counts.pipeline
            | "Once" >> beam.Create([None])
            | "FinishCounts"
            >> beam.Map(_finish_counts, splits, beam.pvalue.AsList(partitions), self).with_output_types(list[str])
        )


def _histogram(partition: int, splits: Sequence[str], output: str, min_count: int) -> list[tuple[int, int]]:
    _enter_stage(MERGING_STAGE)
    counts = map(SplitCounts.from_json, splits)
    return count_finishing.histogram_partition(partition, counts, output, min_count)


def _find_bound(config: CountsConfig, histograms: Sequence[Sequence[tuple[int, int]]]) -> int:
    return count_finishing.find_bound(histograms, config)


class _MergePartitionFn(beam.DoFn):
    def __init__(self, parameters: MergeCounts) -> None:
        self._parameters = parameters
        self._words = Metrics.counter(MergeCounts, "words-out")

    def process(self, element: int, splits: Sequence[str], bound: int) -> Iterator[str]:
        _enter_stage(MERGING_STAGE)
        merged = count_finishing.merge_partition(
            element,
            self._parameters.n_partitions,
            map(SplitCounts.from_json, splits),
            self._parameters.output,
            self._parameters.counts.by,
            bound,
        )
        self._words.inc(merged.file.rows or 0)
        yield merged.to_json()


def _finish_counts(_: None, splits: Sequence[str], partitions: Sequence[str], parameters: MergeCounts) -> list[str]:
    finished = count_finishing.finish_counts(
        [SplitCounts.from_json(text) for text in splits],
        [PartitionCounts.from_json(text) for text in partitions],
        parameters.output,
        parameters.key,
        parameters.tokenizer,
        parameters.counts.by,
        parameters.limits,
    )
    return [counts.to_json() for counts in finished]


@dataclasses.dataclass
class TrainVocabulary(beam.PTransform):
    """Trains vocabularies on a counts artifact.

    Input: one element, whatever it is, once the artifact is finished. Output: one list of `training.Vocabulary` as
    JSON: each a `tokenizer.json` as text, with the truncation and padding that the config asks for, and its training
    record. Memory: all distinct words of the artifact, on one worker. Deterministic: a function of the counts and the
    config.
    """

    config: TokenizerConfig
    counts: str
    """The folder of the artifact."""
    span_tokens: Sequence[str] = ()
    """Tokens of spans, special tokens like those of the config."""

    def expand(self, finished: Any) -> Any:  # noqa: D102
        return finished | "Train" >> beam.Map(_train, self).with_output_types(list[str])


def _train(_: Any, parameters: TrainVocabulary) -> list[str]:
    _enter_stage(TRAINING_STAGE)
    vocabularies = train_vocabularies(open_counts(parameters.counts), parameters.config, tuple(parameters.span_tokens))
    return [vocabulary.to_json() for vocabulary in vocabularies]


# Batch by batch: pieces for graphs of your own.


@dataclasses.dataclass
class ReadDocuments(beam.PTransform):
    """Reads splits.

    Input: splits as JSON (`splits.plan_splits`). Output: `documents`, batches of `schemas.DOCUMENTS` of about 4 MiB of
    text, and `rejects`, batches of `schemas.REJECTS`. Memory: one batch per worker. Counters: bytes-in, documents-out,
    documents-rejected.
    """

    input: InputConfig

    def expand(self, splits: Any) -> Any:  # noqa: D102
        return splits | "Read" >> beam.ParDo(_ReadFn(self.input)).with_outputs("rejects", main="documents")


class _ReadFn(beam.DoFn):
    def __init__(self, input_config: InputConfig) -> None:
        self._input = input_config
        self._bytes = Metrics.counter(ReadDocuments, "bytes-in")
        self._documents = Metrics.counter(ReadDocuments, "documents-out")
        self._rejected = Metrics.counter(ReadDocuments, "documents-rejected")

    def process(self, element: str) -> Iterator[Any]:
        for batch in read_split(Split.from_json(element), self._input):
            self._bytes.inc(batch.n_bytes)
            self._documents.inc(batch.documents.num_rows)
            yield batch.documents
            if batch.rejects is not None:
                self._rejected.inc(batch.rejects.num_rows)
                yield beam.pvalue.TaggedOutput("rejects", batch.rejects)


@dataclasses.dataclass
class NormalizeDocuments(beam.PTransform):
    """Replaces the texts of documents by their normalized forms, for whoever wants to see or keep them.

    Input and output: batches of `schemas.DOCUMENTS`. `TokenizeDocuments` normalizes by itself. Memory: a batch, twice.
    Counter: documents-in.
    """

    tokenizer: TokenizerText

    def expand(self, documents: Any) -> Any:  # noqa: D102
        return documents | "Normalize" >> beam.Map(_normalize, self.tokenizer).with_output_types(pa.RecordBatch)


def _normalize(documents: pa.RecordBatch, tokenizer_json: str) -> pa.RecordBatch:
    Metrics.counter(NormalizeDocuments, "documents-in").inc(documents.num_rows)
    return normalize_documents(documents, compiled_tokenizer(tokenizer_json))


def normalize_documents(documents: pa.RecordBatch, tokenizer: Tokenizer) -> pa.RecordBatch:
    """Returns `documents` with the text column normalized; offsets and sizes stay those of the input."""
    if tokenizer.normalizer is None:
        return documents
    text = tokenizer.normalizer.normalize_arrow(documents.column("text")).cast(pa.string())
    return documents.set_column(1, schemas.DOCUMENTS.field("text"), text)


@dataclasses.dataclass
class TokenizeDocuments(beam.PTransform):
    """Tokenizes batches of documents.

    Input: batches of `schemas.DOCUMENTS`. Output: batches of `schemas.TOKENS`, rows in the same order. Memory: a batch
    and its tokens per worker. Counters: documents-in, tokens-out.
    """

    tokenizer: TokenizerText
    add_special_tokens: bool = False

    def expand(self, documents: Any) -> Any:  # noqa: D102
        return documents | "Tokenize" >> beam.Map(_tokenize, self.tokenizer, self.add_special_tokens).with_output_types(
            pa.RecordBatch
        )


def _tokenize(documents: pa.RecordBatch, tokenizer_json: str, add_special_tokens: bool) -> pa.RecordBatch:
    rows = tokenize_documents(documents, compiled_tokenizer(tokenizer_json), add_special_tokens=add_special_tokens)
    Metrics.counter(TokenizeDocuments, "documents-in").inc(documents.num_rows)
    Metrics.counter(TokenizeDocuments, "tokens-out").inc(int(rows.column("n_tokens").to_numpy().sum(dtype=np.int64)))
    return rows


def tokenize_documents(
    documents: pa.RecordBatch, tokenizer: Tokenizer, *, add_special_tokens: bool = False
) -> pa.RecordBatch:
    """Returns the tokens of `documents`, a batch of `schemas.TOKENS` with a row for each of its rows."""
    rows = tokenizer.encode_arrow(documents.column("text"), add_special_tokens)
    offsets, ids = rows.offsets.to_numpy(), rows.values.to_numpy()
    n_tokens = np.diff(offsets)
    if tokenizer.padding is not None:
        starts, stops = np.empty_like(n_tokens), np.empty_like(n_tokens)
        padded_spans(ids, offsets, tokenizer.padding.pad_id, tokenizer.padding.direction == "left", starts, stops)
        n_tokens = stops - starts
    unknown = -1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id
    n_unknown_before = np.concatenate(([0], np.cumsum(ids == unknown)))
    n_oov = n_unknown_before[offsets[1:]] - n_unknown_before[offsets[:-1]]
    columns = [documents.column("doc_id"), rows, n_tokens.astype(np.int32), n_oov.astype(np.int32)]
    return pa.record_batch(columns, schema=schemas.TOKENS)


@dataclasses.dataclass
class CountWords(beam.PTransform):
    """Counts the words of documents.

    Input: batches of `schemas.DOCUMENTS`. Output: `n_partitions` batches of `schemas.WORD_COUNTS`, disjoint, each
    ordered by word bytes; words are normalized pre-tokens. Memory: the distinct words of a bundle, at most
    `counting.MAX_COUNTER_BYTES`, per worker, and those of one partition where it is merged; the shuffle carries each
    distinct word once per bundle. Counters: documents-in, words-out.
    """

    tokenizer: TokenizerText
    n_partitions: int = N_PARTITIONS

    def expand(self, documents: Any) -> Any:  # noqa: D102
        count = beam.ParDo(_CountWordsFn(self.n_partitions), self.tokenizer)
        return (
            documents
            | "CountBundle" >> count.with_output_types(Tuple[int, pa.RecordBatch])
            | "ByPartition" >> beam.GroupByKey()
            | "AddUp" >> beam.MapTuple(_add_up).with_output_types(pa.RecordBatch)
        )


class _CountWordsFn(beam.DoFn):
    def __init__(self, n_partitions: int) -> None:
        self._n_partitions = n_partitions
        self._documents = Metrics.counter(CountWords, "documents-in")

    def start_bundle(self) -> None:
        self._counter: WordCounter | None = None

    def process(self, element: pa.RecordBatch, tokenizer_json: str) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._counter is None:
            self._counter = compiled_tokenizer(tokenizer_json).new_word_counter()
        self._counter.update(element.column("text"))
        self._documents.inc(element.num_rows)
        if self._counter.n_bytes > counting.MAX_COUNTER_BYTES:
            yield from self._take()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for keyed in self._take():
            yield WindowedValue(keyed, window.max_timestamp(), (window,))

    def _take(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._counter is None:
            return
        counts = self._counter.to_table()
        self._counter = None
        for partition, batch in enumerate(partitions_of(counts, self._n_partitions)):
            if batch.num_rows:
                yield partition, batch


def _add_up(_: int, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    merged = add_word_counts([pa.Table.from_batches([batch]) for batch in batches])
    Metrics.counter(CountWords, "words-out").inc(merged.num_rows)
    return merged.to_batches()[0]
