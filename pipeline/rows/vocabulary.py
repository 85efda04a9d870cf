# SPDX-License-Identifier: Apache-2.0
"""Steps from texts to word counts, from these to a vocabulary, and statistics of a vocabulary."""

from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import PCollection, Row
from apache_beam.typehints import Tuple, no_annotations, typehints
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.windowed_value import WindowedValue

from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.tokenizer import TokenizerConfig, TrainConfig
from tokenmill.pipeline.counting import count
from tokenmill.pipeline.counting.partitions import N_PARTITIONS, partitions_of
from tokenmill.pipeline.rows import declared_types
from tokenmill.pipeline.rows import elements as elements_of
from tokenmill.pipeline.rows.batching import Check, Gather, column_of, expand_checked, gather_field
from tokenmill.pipeline.rows.combining import FANOUT, AddWordCounts, CountIds
from tokenmill.pipeline.rows.errors import FallibleTransform, Results
from tokenmill.pipeline.rows.tokenize import IDS
from tokenmill.pipeline.rows.tokenizers import GivenTokenizer, TokenizerSource
from tokenmill.pipeline.statistics.token_table import describe, token_counts
from tokenmill.pipeline.training.tokenizers import counting_tokenizer, train_tokenizer
from tokenmill.tokenizer import WordCounter

_WORDS = RowTypeConstraint.from_fields([("word", bytes), ("count", int)])


class CountWords(FallibleTransform):
    """Counts the words of texts: normalized pre-tokens.

    Input: rows with a text, or batches; each window is counted separately. Output: for rows `beam.Row(word, count)`,
    where `word` is UTF-8 bytes; for batches up to `n_partitions` batches of `schemas.WORD_COUNTS`, which have no word
    in common, each ordered by word. Memory: on each worker the distinct words of a bundle, at most
    `count.MAX_COUNTER_BYTES` for all windows, and those of one partition on the worker that merges it. The shuffle
    carries each distinct word once per bundle and window. Counters: elements-in, words-out.
    """

    def __init__(
        self,
        tokenizer: TokenizerSource | None = None,
        *,
        train: TrainConfig | None = None,
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
        super().__init__()
        if n_partitions is not None and (not isinstance(n_partitions, int | np.integer) or n_partitions < 1):
            raise ValueError(f"CountWords: n_partitions must be a number from 1, got {n_partitions!r}")
        if tokenizer is not None and train is not None:
            raise ValueError("CountWords: tokenizer and train both say what a word is; give one")
        if tokenizer is None:
            tokenizer = counting_tokenizer(TokenizerConfig(train=train))
        self._given = GivenTokenizer(tokenizer, TokenizerConfig())
        self._column = column
        self._n_partitions = None if n_partitions is None else int(n_partitions)

    @no_annotations  # which do not know of a second output
    def expand(self, pcoll: PCollection[Any]) -> Results:
        """Adds the step to a pipeline."""
        pcoll = declared_types.declared(self, pcoll)
        reads = pa.string() if self._errors is None else None
        declared_types.extended_type(pcoll.element_type, self._column, {}, "CountWords", reads)
        return expand_checked(self, pcoll, self._expand, Check(self._column, pa.string()))

    def display_data(self) -> dict[str, Any]:
        """Returns the field that is read, and the digest of the tokenizer that says what a word is."""
        n_partitions = {"n_partitions": self._n_partitions} if self._n_partitions is not None else {}
        return {"column": self._column, **n_partitions, **self._given.display_data()}

    def _expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        are_batches = elements_of.are_batches(pcoll.element_type)
        n_partitions = self._n_partitions or (N_PARTITIONS if pcoll.windowing.is_default() else 1)
        count_texts = beam.ParDo(_CountTextsFn(self._given, n_partitions), self._given.side_input)
        counts = (
            pcoll
            | "Texts" >> gather_field("CountWords", self._column, pa.string())
            | "CountBundle" >> count_texts.with_output_types(Tuple[int, pa.RecordBatch])
            | "AddUp" >> beam.CombinePerKey(AddWordCounts())  # type: ignore[no-untyped-call]
            | "Words" >> beam.MapTuple(_words_of).with_output_types(pa.RecordBatch)
        )
        return counts if are_batches else counts | "AsRows" >> beam.FlatMap(_as_rows).with_output_types(_WORDS)


class _CountTextsFn(beam.DoFn):
    def __init__(self, given: GivenTokenizer, n_partitions: int) -> None:
        self._given = given
        self._n_partitions = int(n_partitions)
        self._n_in = Metrics.counter(CountWords, "elements-in")

    def start_bundle(self) -> None:
        self._counters: dict[Any, WordCounter] = {}

    def process(
        self, texts: pa.RecordBatch, given: str | None, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[WindowedValue]:
        if window not in self._counters:
            self._counters[window] = self._given.tokenizer(given).new_word_counter()
        self._counters[window].update(texts.column(0))
        self._n_in.inc(texts.num_rows)
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


class TrainVocabulary(FallibleTransform):
    """Trains a vocabulary on word counts.

        trained = texts | CountWords(train=train) | TrainVocabulary(train)
        tokens = texts | Tokenize(trained)

    Input: the output of `CountWords`. Output: one `tokenizer.json` as text, for `Tokenize` or a file. Memory: all
    distinct words, on one worker. Deterministic: the same counts make the same vocabulary, in whatever order they come.
    Counts without a word end the pipeline with an error.
    """

    def __init__(self, train: TrainConfig | None = None, **options: Any) -> None:
        """Makes the step.

        Args:
          train: the section `tokenizer.train` of a config.
          **options: or the keys of that section, one by one: `TrainVocabulary(model="unigram", vocab_size=8000)`.

        Raises:
          ValueError: if an option is not allowed; the message names it.
        """
        super().__init__()
        if train is not None and options:
            raise ValueError(f"TrainVocabulary: give train or its keys {', '.join(options)}, not both")
        train = TrainConfig(**options) if train is None else train
        if isinstance(train.vocab_size, list) or train.counts is not None:
            raise ValueError("TrainVocabulary makes one vocabulary, of its input: no list of sizes, no counts")
        self._config = TokenizerConfig(train=train)
        counting_tokenizer(self._config)  # raises here what a worker would raise later

    @no_annotations  # which do not know of a second output
    def expand(self, pcoll: PCollection[Any]) -> Results:
        """Adds the step to a pipeline."""
        pcoll = declared_types.declared(self, pcoll)
        for column in schemas.WORD_COUNTS.names:
            declared_types.extended_type(pcoll.element_type, column, {}, "TrainVocabulary")
        checks = Check("word", pa.large_binary()), Check("count", pa.int64())
        return expand_checked(self, pcoll, self._expand, *checks)

    def display_data(self) -> dict[str, Any]:
        """Returns how the vocabulary is trained: `tokenizer.train` of a config."""
        assert self._config.train is not None
        return {"train": self._config.train.model_dump_json(exclude_defaults=True)}

    def _expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        counts = pcoll
        if pcoll.element_type is not pa.RecordBatch:
            gather = beam.ParDo(Gather("word", _counts_of_rows, elements_of.itself))
            counts = pcoll | "Gather" >> gather.with_output_types(pa.RecordBatch)
        add_up = beam.CombineGlobally(AddWordCounts())  # type: ignore[no-untyped-call]
        if not pcoll.windowing.is_default():
            add_up = add_up.without_defaults()  # otherwise training runs, and fails, where there is nothing to train on
        return counts | "AddUp" >> add_up | "Train" >> beam.Map(_train, self._config).with_output_types(str)


def _counts_of_rows(rows: Sequence[Any]) -> pa.RecordBatch:
    columns = [column_of("TrainVocabulary", rows, field.name, field.type) for field in schemas.WORD_COUNTS]
    return pa.record_batch(columns, schema=schemas.WORD_COUNTS)


def _train(counts: pa.RecordBatch, options: TokenizerConfig) -> str:
    (tokenizer,) = train_tokenizer(pa.Table.from_batches([counts]), options).values()
    return tokenizer.to_str()


class VocabularyStatistics(FallibleTransform):
    """Measures how a vocabulary fits its tokens: used, dead and unreachable entries, coverage, entropy, Zipf slope.

    Input: rows with ids, or batches, in the global window. Output: one dict with the part `vocabulary` of a job's
    `stats.json`, plus `documents` and `tokens`. Memory: a number for each entry of the vocabulary.
    """

    def __init__(self, tokenizer: TokenizerSource, *, column: str = "input_ids") -> None:
        """Makes the step.

        Args:
          tokenizer: the tokenizer that made the ids; see `TokenizerSource`.
          column: the field with the ids.

        Raises:
          OSError, ValueError: if `tokenizer` cannot be read or is not a tokenizer.
        """
        super().__init__()
        self._given = GivenTokenizer(tokenizer, TokenizerConfig())
        self._column = column

    @no_annotations  # which do not know of a second output
    def expand(self, pcoll: PCollection[Any]) -> Results:
        """Adds the step to a pipeline."""
        pcoll = declared_types.declared(self, pcoll)
        reads = IDS if self._errors is None else None
        declared_types.extended_type(pcoll.element_type, self._column, {}, "VocabularyStatistics", reads)
        declared_types.check_global(pcoll, "VocabularyStatistics")
        check = Check(self._column, IDS, self._given.check_ids, self._given.side_input)
        return expand_checked(self, pcoll, self._expand, check)

    def display_data(self) -> dict[str, Any]:
        """Returns the field that is read, and the digest of the tokenizer."""
        return {"column": self._column, **self._given.display_data()}

    def _expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        given = self._given
        ids = (
            pcoll
            | "Ids" >> gather_field("VocabularyStatistics", self._column, IDS)
            | "Check" >> beam.Map(_checked, given, given.side_input).with_output_types(typehints.Any)
        )
        add_up = beam.CombineGlobally(CountIds()).with_fanout(FANOUT)  # type: ignore[no-untyped-call]
        counts = ids | "Count" >> add_up
        return counts | "Describe" >> beam.Map(_describe, given, given.side_input).with_output_types(dict)


def _checked(ids: pa.RecordBatch, source: GivenTokenizer, given: str | None) -> pa.Array:
    source.check_ids(given, ids.column(0))
    return ids.column(0)


def _describe(counted: tuple[int, np.ndarray], source: GivenTokenizer, given: str | None) -> dict[str, Any]:
    n_documents, counts = counted
    tokenizer = source.tokenizer(given)
    counts = np.pad(counts, (0, tokenizer.n_ids - counts.size))
    described = describe(token_counts(counts, tokenizer))
    return {"documents": n_documents, "tokens": int(counts.sum()), **described}
