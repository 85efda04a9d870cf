# SPDX-License-Identifier: Apache-2.0
"""The transform from splits to committed shards."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from pipeline.config.job import Config
from pipeline.jobs.planning import TOKENIZING_STAGE
from pipeline.running.clock import Stopwatch
from pipeline.splits import Split
from pipeline.tokenizing.tokenize import tokenize_split
from pipeline.transforms.compiled import TokenizerText, compiled_tokenizer
from pipeline.transforms.stages import StageReport


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
