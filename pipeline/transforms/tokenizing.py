# SPDX-License-Identifier: Apache-2.0
"""The transform from splits to committed shards, or to the sorted runs of a shuffle."""

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
from tokenmill.pipeline.tokenizing.tokenize import SplitOfPart, tokenize_parts
from tokenmill.pipeline.transforms.compiled import TokenizerText, compiled_tokenizers
from tokenmill.pipeline.transforms.stages import StageReport


@dataclasses.dataclass
class TokenizeSplits(beam.PTransform):
    """Tokenizes splits into committed shards of one folder, or of several in one reading.

    Input: JSON of a split and of its id in each folder. Output: for each folder its number, the split's index and id,
    and "", once shard and ledger entry are on disk; if the job shuffles, at last `SplitRuns` as JSON. If a split is
    committed already, its files are only read. Memory: one batch, and for each folder its tokens and a row group, or a
    run two to three times, per worker. Counters: bytes-in, documents-in, documents-rejected, documents-filtered,
    tokens-out, splits-done. Bad documents go to `rejected/`.
    """

    output: str
    """`output.path`, above all folders."""
    configs: Sequence[Config]
    """The config of each folder."""
    n_splits: int
    tokenizers: Sequence[TokenizerText]
    """Of each folder, or one for all."""
    merged: Sequence[tuple[Any, int]] = ()
    """If the job shuffles, of each folder: how many shards are merged already, as a side input, and how many it has."""

    def expand(self, splits: Any) -> Any:  # noqa: D102
        fn = _TokenizeSplitsFn(self.output, self.configs, self.n_splits, [n for _, n in self.merged])
        merged = [n_merged for n_merged, _ in self.merged]
        done = beam.ParDo(fn, *merged, *self.tokenizers).with_output_types(tuple[int, int, str, str])
        return splits | "TokenizeSplit" >> done


class _TokenizeSplitsFn(beam.DoFn):
    def __init__(self, output: str, configs: Sequence[Config], n_splits: int, n_shards: Sequence[int]) -> None:
        self._output, self._configs, self._n_splits, self._n_shards = output, configs, n_splits, n_shards
        self._report = StageReport(TokenizeSplits, TOKENIZING_STAGE)

    def process(self, element: str, *merged_and_tokenizers: Any) -> Iterator[tuple[int, int, str, str]]:
        line, ids = json.loads(element)
        split, n = Split.from_json(line), len(self._n_shards)
        merged, texts = merged_and_tokenizers[:n], merged_and_tokenizers[n:]
        tokenizers = compiled_tokenizers(texts, len(ids))
        are_merged = [False] * len(ids)
        if n:
            are_merged = [done == n_shards for done, n_shards in zip(merged, self._n_shards, strict=True)]
        splits = [dataclasses.replace(split, id=each) for each in ids]
        folders = [*map(SplitOfPart, splits, self._configs, tokenizers, are_merged)]
        with self._report.of(split.id, Stopwatch(self._output, split)) as on_batch:
            entries = tokenize_parts(folders, self._n_splits, on_batch)
        for index, entry in enumerate(entries):
            yield index, split.index, entry.split_id, json.dumps(runs_of(entry).to_record()) if n else ""
