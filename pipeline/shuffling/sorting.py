# SPDX-License-Identifier: Apache-2.0
"""The first step of a shuffle: the documents of one split, tokenized, as sorted runs."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.sums import Sums, describe_runs, sum_rows
from tokenmill.pipeline.config.output import ShuffleConfig
from tokenmill.pipeline.filenames import runs_name
from tokenmill.pipeline.hashing import SHUFFLING, document_keys
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.shuffling.runs import RunsWriter
from tokenmill.pipeline.splits import Split


class SortedSplit:
    """Has the interface of `Shard`, but writes sorted runs, for a job that shuffles; holds one run."""

    packing = windows = None
    """None: runs hold documents; the merged shards pack them or cut them into windows."""

    documents = None
    """None: runs hold the places of documents; the merged shards have tables of them."""

    def __init__(self, staging: Staging, split: Split, config: ShuffleConfig, padding_side: str | None) -> None:
        """Creates the file.

        Args:
          staging: the staged files of the attempt.
          split: the split of the documents.
          config: the section.
          padding_side: the side on which rows are padded; None if they are not.
        """
        self._writer = RunsWriter(staging.create(runs_name(split.id)), config.run_bytes)
        self._sums, self._padding_side = Sums(), padding_side
        self._names = [piece.name for piece in split.pieces]
        self._seed = config.seed

    def add(self, documents: pa.RecordBatch, tokens: pa.RecordBatch) -> None:
        """Appends documents.

        Args:
          documents: `schemas.DOCUMENTS`.
          tokens: `schemas.TOKENS` and more columns, one row per document.
        """
        if tokens.num_rows:
            keys = document_keys(SHUFFLING, self._seed, self._names, documents)
            self._sums += sum_rows(keys, tokens, self._padding_side)
            self._writer.write(keys, tokens)

    def finish(self) -> tuple[FileRecord, ...]:
        """Finishes the file and returns its record."""
        return (self._writer.finish(self._sums.n_tokens),)

    @property
    def runs(self) -> Mapping[str, Any]:
        """The part of the split's entry about its runs; complete after `finish`."""
        return describe_runs(self._writer.runs, self._sums)
