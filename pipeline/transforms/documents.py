# SPDX-License-Identifier: Apache-2.0
"""Transforms for graphs of your own: they exchange batches of documents, tokens and word counts."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics.metric import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.typehints import Tuple
from apache_beam.utils.windowed_value import WindowedValue

from pipeline import schemas
from pipeline.config.input import InputConfig
from pipeline.counting import count
from pipeline.counting.partitions import N_PARTITIONS, partitions_of
from pipeline.input.reading import read_split
from pipeline.splits import Split
from pipeline.transforms import arrow_coder as arrow_coder  # noqa: PLC0414  # registers the coder, here and in every worker
from pipeline.transforms.compiled import TokenizerText, compiled_tokenizer
from tokenizer import Tokenizer, WordCounter, add_word_counts


@dataclasses.dataclass
class ReadDocuments(beam.PTransform):
    """Reads splits.

    Input: splits as JSON (`splitting.plan_splits`). Output: `documents`, batches of `schemas.DOCUMENTS` of about 4 MiB
    of text, and `rejects`, batches of `schemas.REJECTS`. Memory: one batch per worker. Counters: bytes-in,
    documents-out, documents-rejected.
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
    """Replaces the texts of documents by their normalized forms, in case you want to see or keep them.

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
    bare = tokenizer.encode_bare(documents.column("text"))
    layout = tokenizer.layout(add_special_tokens)
    rows = layout.apply(bare)
    offsets, ids = rows.offsets.to_numpy(), rows.values.to_numpy()
    n_tokens = layout.kept(np.diff(bare.offsets.to_numpy())) + layout.n_around
    unknown = -1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id
    n_unknown_before = np.concatenate(([0], np.cumsum(ids == unknown)))
    n_oov = n_unknown_before[offsets[1:]] - n_unknown_before[offsets[:-1]]
    n_oov -= np.count_nonzero(layout.before == unknown) + np.count_nonzero(layout.after == unknown)
    columns = [documents.column("doc_id"), rows, n_tokens.astype(np.int32), n_oov.astype(np.int32)]
    return pa.record_batch(columns, schema=schemas.TOKENS)


@dataclasses.dataclass
class CountWords(beam.PTransform):
    """Counts the words of documents.

    Input: batches of `schemas.DOCUMENTS`. Output: `n_partitions` batches of `schemas.WORD_COUNTS`, disjoint, each
    ordered by word bytes; words are normalized pre-tokens. Memory: the distinct words of a bundle, at most
    `count.MAX_COUNTER_BYTES`, per worker, and those of one partition on the worker that merges it; the shuffle carries
    each distinct word once per bundle. Counters: documents-in, words-out.
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
        if self._counter.n_bytes > count.MAX_COUNTER_BYTES:
            yield from self._take()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for keyed in self._take():
            yield WindowedValue(keyed, window.max_timestamp(), (window,))

    def _take(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._counter is None:
            return
        counts = self._counter.to_table(ordered=False)
        self._counter = None
        for partition, batch in enumerate(partitions_of(counts, self._n_partitions)):
            if batch.num_rows:
                yield partition, batch


def _add_up(_: int, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    merged = add_word_counts([pa.Table.from_batches([batch]) for batch in batches])
    Metrics.counter(CountWords, "words-out").inc(merged.num_rows)
    return merged.to_batches()[0]
