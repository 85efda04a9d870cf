# SPDX-License-Identifier: Apache-2.0
"""Steps from texts to word counts, from these to a vocabulary, and statistics of a vocabulary."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import PCollection, Row
from apache_beam.typehints import Tuple
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.windowed_value import WindowedValue

from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.file import section
from tokenmill.pipeline.config.tokenizer import TokenizerConfig, TrainConfig
from tokenmill.pipeline.counting import count
from tokenmill.pipeline.counting.arithmetic import MAX_COUNT
from tokenmill.pipeline.counting.partitions import N_PARTITIONS, partitions_of
from tokenmill.pipeline.rows import declared_types
from tokenmill.pipeline.rows import elements as elements_of
from tokenmill.pipeline.rows.arguments import checked
from tokenmill.pipeline.rows.batching import Compute, RowTransform, Work
from tokenmill.pipeline.rows.elements import Field
from tokenmill.pipeline.rows.tokenize import IDS
from tokenmill.pipeline.rows.tokenizers import GivenTokenizer, TokenizerSource
from tokenmill.pipeline.statistics.vocabulary import describe, token_counts
from tokenmill.pipeline.training.tokenizers import counting_tokenizer, train_tokenizer
from tokenmill.tokenizer import WordCounter, add_word_counts

_WORDS = RowTypeConstraint.from_fields([("word", bytes), ("count", int)])
_ID_COUNTS = pa.schema([("id", pa.int64()), ("count", pa.int64())])
_DOCUMENTS = -1
"""What is counted as this id: documents."""

_FANOUT = 16
"""Where everything has one key, so many workers add up accumulators before one adds up theirs."""

_MERGED_ROWS = 100_000
"""So many rows are added up at a time, or as many as are added up already, so that all take linear time."""

_FEW_WORDS = 256
"""So few are added up faster by a dict than by the kernels, whose start takes half a millisecond."""


@beam.typehints.with_input_types(pa.RecordBatch)
@beam.typehints.with_output_types(pa.RecordBatch)
class AddUp(beam.CombineFn):
    """From batches of counts to one batch that has each key once, in order.

    An accumulator is a table that is added up, and those that are to be added to it: when there are many rows, and
    before a shuffle, which then takes each key once and nothing of what a table was cut from.
    """

    def __init__(self, schema: pa.Schema, add: Callable[[Sequence[pa.Table]], pa.Table]) -> None:
        """Takes the schema of the batches, and what adds up tables."""
        self._schema, self._add = schema, add

    def create_accumulator(self) -> list[pa.Table]:
        """Returns counts of nothing."""
        return [self._schema.empty_table()]

    def add_input(self, accumulator: list[pa.Table], batch: pa.RecordBatch | pa.Table) -> list[pa.Table]:
        """Adds the counts of a batch."""
        accumulator.append(pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch)
        is_much = sum(each.num_rows for each in accumulator[1:]) > max(_MERGED_ROWS, accumulator[0].num_rows)
        return self.compact(accumulator) if is_much else accumulator

    def merge_accumulators(self, accumulators: Iterable[list[pa.Table]]) -> list[pa.Table]:
        """Adds up counts."""
        tables = (table for each in accumulators for table in each)
        return functools.reduce(self.add_input, tables, self.create_accumulator())

    def compact(self, accumulator: list[pa.Table]) -> list[pa.Table]:
        """Adds up what came separately."""
        return [self._add(accumulator)] if len(accumulator) > 1 else accumulator

    def extract_output(self, accumulator: list[pa.Table]) -> pa.RecordBatch:
        """Returns all counts."""
        (table,) = self.compact(accumulator)
        return pa.record_batch([column.combine_chunks() for column in table.columns], schema=self._schema)


def _add_words(tables: Sequence[pa.Table]) -> pa.Table:
    """Returns what `add_word_counts` returns, and leaves to it what is much, or not as it should be."""
    is_simple = all(table.schema.equals(schemas.WORD_COUNTS) for table in tables)
    if is_simple and sum(table.num_rows for table in tables) <= _FEW_WORDS:
        counts: dict[bytes, int] = {}
        for word, n in zip(*pa.concat_tables(tables).to_pydict().values(), strict=True):
            counts[word] = counts.get(word, 0) + n
        if sum(counts.values()) <= MAX_COUNT:
            words = sorted(counts)
            return pa.table([words, [counts[word] for word in words]], schema=schemas.WORD_COUNTS)
    return add_word_counts(tables)


def _add_ids(tables: Sequence[pa.Table]) -> pa.Table:
    grouped = pa.concat_tables(tables).group_by("id", use_threads=False).aggregate([("count", "sum")])
    return grouped.rename_columns(["id", "count"]).sort_by("id")


class CountWords(RowTransform):
    """Counts the words of texts: normalized pre-tokens.

    Input: rows with a text, or batches; each window is counted separately. Output: for rows `beam.Row(word, count)`,
    where `word` is UTF-8 bytes; for batches up to `n_partitions` batches of `schemas.WORD_COUNTS`, which have no word
    in common, each ordered by word. Memory: on each worker the distinct words of a bundle, at most
    `count.MAX_COUNTER_BYTES` for all windows, and those of one partition on the worker that merges it. The shuffle
    carries each distinct word once per bundle and window. Counters: elements-in, words-out.
    """

    @checked
    def __init__(
        self,
        tokenizer: TokenizerSource | None = None,
        *,
        train: TrainConfig | Mapping[str, Any] | None = None,
        column: str = "text",
        n_partitions: int | None = None,
    ) -> None:
        """Makes the step. `tokenizer` or `train` says what a word is; if neither is given, words are those of BERT.

        Args:
          tokenizer: see `TokenizerSource`; needs no model.
          train: how a vocabulary will be trained on the counts; they have the words that this training needs.
          column: the field with the text.
          n_partitions: the words are merged in this many parts, each on one worker; None: in `N_PARTITIONS`, or of rows
            in windows in one, as each window goes to a worker of its own.

        Raises:
          OSError, ValueError: if `tokenizer` cannot be used, `train` asks for what cannot be done, or both are given.
        """
        if n_partitions is not None and (not isinstance(n_partitions, int | np.integer) or n_partitions < 1):
            raise ValueError(f"CountWords: n_partitions must be a number from 1, got {n_partitions!r}")
        if tokenizer is not None and train is not None:
            raise ValueError("CountWords: tokenizer and train both say what a word is; give one")
        if tokenizer is None:
            tokenizer = counting_tokenizer(section(TokenizerConfig, "tokenizer", {"train": train}, "CountWords"))
        self._tokenizer = GivenTokenizer(tokenizer)
        self._n_partitions = None if n_partitions is None else int(n_partitions)
        display = {"n_partitions": n_partitions} if n_partitions is not None else {}
        work = Work([Field(column, pa.string())], _as_texts)
        super().__init__(work, **display, **self._tokenizer.display_data())

    def _make(self, batches: PCollection[pa.RecordBatch], pcoll: PCollection[Any]) -> PCollection[Any]:
        n_partitions = self._n_partitions or (N_PARTITIONS if pcoll.windowing.is_default() else 1)
        if n_partitions > 1:  # each partition would merge windows of its own
            declared_types.check_windows_stay("CountWords", "n_partitions must be 1", pcoll.windowing.windowfn)
        count_texts = beam.ParDo(_CountTextsFn(self._tokenizer, n_partitions), self._tokenizer.side_input)
        counts = (
            batches
            | "CountBundle" >> count_texts.with_output_types(Tuple[int, pa.RecordBatch])
            | "AddUp" >> beam.CombinePerKey(AddUp(schemas.WORD_COUNTS, _add_words))
            | "Words" >> beam.MapTuple(_words_of).with_output_types(pa.RecordBatch)
        )
        if elements_of.are_batches(pcoll.element_type):
            return counts
        return counts | "AsRows" >> beam.FlatMap(_as_rows).with_output_types(_WORDS)


def _as_texts(_: Any) -> Compute:
    return lambda texts: pa.record_batch({"text": texts})


class _CountTextsFn(beam.DoFn):
    def __init__(self, given: GivenTokenizer, n_partitions: int) -> None:
        self._given = given
        self._n_partitions = int(n_partitions)

    def start_bundle(self) -> None:
        self._counters: dict[Any, WordCounter] = {}

    def process(
        self, texts: pa.RecordBatch, given: str | None, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[WindowedValue]:
        if window not in self._counters:
            self._counters[window] = self._given.tokenizer(given).new_word_counter()
        self._counters[window].update(texts.column(0))
        if self._counters[window].n_bytes * len(self._counters) > count.MAX_COUNTER_BYTES:
            yield from self.finish_bundle()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for window in list(self._counters):
            counts = self._counters.pop(window).to_table(ordered=False)
            for partition, batch in enumerate(partitions_of(counts, self._n_partitions)):
                if batch.num_rows:
                    yield WindowedValue((partition, batch), window.max_timestamp(), (window,))


def _words_of(_: int, counts: pa.RecordBatch) -> pa.RecordBatch:
    Metrics.counter(CountWords, "words-out").inc(counts.num_rows)
    return counts


def _as_rows(counts: pa.RecordBatch) -> Iterator[Row]:
    for word, n in zip(counts.column("word").to_pylist(), counts.column("count").to_pylist(), strict=True):
        yield Row(word=word, count=n)


class TrainVocabulary(RowTransform):
    """Trains a vocabulary on word counts.

        trained = texts | CountWords(train=train) | TrainVocabulary(train)
        tokens = texts | Tokenize(trained)

    Input: the output of `CountWords`. Output: one `tokenizer.json` as text, for `Tokenize` or a file. Memory: all
    distinct words, on one worker. Deterministic: the same counts make the same vocabulary, in whatever order they come.
    Counts without a word end the pipeline with an error.
    """

    def __init__(self, train: TrainConfig | Mapping[str, Any] | None = None, **options: Any) -> None:
        """Makes the step.

        Args:
          train: the section `tokenizer.train` of a config.
          **options: or the keys of that section, one by one: `TrainVocabulary(model="unigram", vocab_size=8000)`.

        Raises:
          ValueError: if an option is not allowed; the message names it.
        """
        if train is not None and options:
            raise ValueError(f"TrainVocabulary: give train or its keys {', '.join(options)}, not both")
        keys = {"train": options if train is None else train}
        self._config = section(TokenizerConfig, "tokenizer", keys, "TrainVocabulary")
        train = self._config.train
        assert train is not None
        if isinstance(train.vocab_size, list) or train.counts is not None:
            raise ValueError("TrainVocabulary makes one vocabulary, of its input: no list of sizes, no counts")
        counting_tokenizer(self._config)  # raises here what a worker would raise later
        fields = [Field(each.name, each.type) for each in schemas.WORD_COUNTS]
        super().__init__(Work(fields, _as_word_counts), train=train.model_dump_json(exclude_defaults=True))

    def _make(self, batches: PCollection[pa.RecordBatch], pcoll: PCollection[Any]) -> PCollection[Any]:
        add_up = beam.CombineGlobally(AddUp(schemas.WORD_COUNTS, _add_words))
        if not pcoll.windowing.is_default():
            add_up = add_up.without_defaults()  # otherwise training runs, and fails, where there is nothing to train on
        return batches | "AddUp" >> add_up | "Train" >> beam.Map(_train, self._config).with_output_types(str)


def _as_word_counts(_: Any) -> Compute:
    return lambda *columns: pa.record_batch([*columns], schema=schemas.WORD_COUNTS)


def _train(counts: pa.RecordBatch, options: TokenizerConfig) -> str:
    (tokenizer,) = train_tokenizer(pa.Table.from_batches([counts]), options).values()
    return tokenizer.to_str()


class VocabularyStatistics(RowTransform):
    """Measures how a vocabulary fits its tokens: used, dead and unreachable entries, coverage, entropy, Zipf slope.

    Input: rows with ids, or batches, in the global window. Output: one dict with the part `vocabulary` of a job's
    `stats.json`, plus `documents` and `tokens`. Memory: a number for each entry of the vocabulary.
    """

    @checked
    def __init__(self, tokenizer: TokenizerSource, *, column: str = "input_ids") -> None:
        """Makes the step.

        Args:
          tokenizer: the tokenizer that made the ids; see `TokenizerSource`.
          column: the field with the ids.

        Raises:
          OSError, ValueError: if `tokenizer` cannot be read or is not a tokenizer.
        """
        self._tokenizer = GivenTokenizer(tokenizer)
        work = Work([Field(column, IDS)], functools.partial(_count_ids, self._tokenizer))
        super().__init__(work, self._tokenizer.side_input, **self._tokenizer.display_data())

    def _make(self, batches: PCollection[pa.RecordBatch], pcoll: PCollection[Any]) -> PCollection[Any]:
        declared_types.check_global(pcoll, "VocabularyStatistics")
        add_up = beam.CombineGlobally(AddUp(_ID_COUNTS, _add_ids)).with_fanout(_FANOUT)
        as_dict = beam.Map(_describe, self._tokenizer, self._tokenizer.side_input).with_output_types(dict)
        return batches | "Count" >> add_up | "Describe" >> as_dict


def _count_ids(source: GivenTokenizer, given: str | None) -> Compute:
    def compute(ids: pa.Array) -> pa.RecordBatch:
        source.check_ids(given, ids)
        counts = np.bincount(ids.flatten().to_numpy())
        its = np.flatnonzero(counts)
        return pa.record_batch([np.append(_DOCUMENTS, its), np.append(len(ids), counts[its])], schema=_ID_COUNTS)

    return compute


def _describe(counted: pa.RecordBatch, source: GivenTokenizer, given: str | None) -> dict[str, Any]:
    tokenizer = source.tokenizer(given)
    ids, numbers = (column.to_numpy() for column in counted.columns)
    counts = np.zeros(tokenizer.n_ids, np.int64)
    counts[ids[1:]] = numbers[1:]
    n_documents = int(numbers[0]) if numbers.size else 0
    return {"documents": n_documents, "tokens": int(counts.sum()), **describe(token_counts(counts, tokenizer))}
