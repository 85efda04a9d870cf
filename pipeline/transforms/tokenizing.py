# SPDX-License-Identifier: Apache-2.0
"""The transform from splits to committed shards."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from tokenmill.pipeline.books.shard_entry import runs_of
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs.planning import TOKENIZING_STAGE
from tokenmill.pipeline.running.clock import Stopwatch
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing.tokenize import Share, tokenize_shares, tokenize_split
from tokenmill.pipeline.transforms.compiled import TokenizerText, compiled_tokenizer, compiled_tokenizers, for_each
from tokenmill.pipeline.transforms.stages import StageReport


@dataclasses.dataclass
class TokenizeSplits(beam.PTransform):
    """Tokenizes splits into committed shards.

    Input: splits as JSON. Output: the id of each split, once its shard and ledger entry are on disk. If a split is
    committed already, its files are only read. Memory: one batch, its tokens and a row group per worker.
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
        self._report = StageReport(TokenizeSplits, TOKENIZING_STAGE)

    def process(self, element: str, tokenizer_json: str) -> Iterator[str]:
        split = Split.from_json(element)
        tokenizer = compiled_tokenizer(tokenizer_json)
        with self._report.of(split.id, Stopwatch(self._config.output.path, split)) as on_batch:
            entry = tokenize_split(split, self._config, tokenizer, self._n_splits, on_batch)
        yield entry.split_id


@dataclasses.dataclass
class TokenizePartitions(beam.PTransform):
    """Tokenizes splits into committed shards of several folders in one reading, by a tokenizer for each or one for all.

    Input: JSON of a split and of its id in each job. Output: for each folder a pair of its index and of the split's id,
    once all of it is on disk; if the job shuffles, of `SplitRuns` as JSON. Memory: one batch, and for each folder its
    tokens and a row group or a run, per worker. Counters: those of `TokenizeSplits`.
    """

    output: str
    """The folder above all others."""
    configs: Sequence[Config]
    """The config of each partition."""
    n_splits: int
    tokenizers: Sequence[TokenizerText]
    """Of each partition, or one for all."""
    merged: Sequence[tuple[Any, int]] = ()
    """If the job shuffles, of each partition: the ids of shards that are merged already, as a side input, and how many
    shards it has."""

    def expand(self, splits: Any) -> Any:  # noqa: D102
        fn = _TokenizePartitionsFn(self.output, self.configs, self.n_splits, [n for _, n in self.merged])
        merged = [ids for ids, _ in self.merged]
        done = beam.ParDo(fn, *merged, *self.tokenizers).with_output_types(tuple[int, str])
        return splits | "TokenizeSplit" >> done


class _TokenizePartitionsFn(beam.DoFn):
    def __init__(self, output: str, configs: Sequence[Config], n_splits: int, n_shards: Sequence[int]) -> None:
        self._output, self._configs, self._n_splits, self._n_shards = output, configs, n_splits, n_shards
        self._report = StageReport(TokenizePartitions, TOKENIZING_STAGE)

    def process(self, element: str, *merged_and_tokenizers: Any) -> Iterator[tuple[int, str]]:
        line, ids = json.loads(element)
        split, n = Split.from_json(line), len(self._n_shards)
        merged, texts = merged_and_tokenizers[:n], merged_and_tokenizers[n:]
        tokenizers = for_each(compiled_tokenizers(texts), len(ids))
        are_merged = [False] * len(ids)
        if n:
            are_merged = [len(done) == n_shards for done, n_shards in zip(merged, self._n_shards, strict=True)]
        splits = [dataclasses.replace(split, id=each) for each in ids]
        shares = [*map(Share, splits, self._configs, tokenizers, are_merged)]
        with self._report.of(split.id, Stopwatch(self._output, split)) as on_batch:
            entries = tokenize_shares(shares, self._n_splits, on_batch)
        for index, entry in enumerate(entries):
            yield index, json.dumps(runs_of(entry).to_record()) if n else entry.split_id
