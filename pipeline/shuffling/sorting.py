# SPDX-License-Identifier: Apache-2.0
"""The first step of a shuffle: the documents of one split, tokenized, as sorted runs."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipeline.books.ledger import FileRecord
from pipeline.books.sums import describe_runs
from pipeline.config.output import ShuffleConfig
from pipeline.filenames import runs_name
from pipeline.hashing import SHUFFLING, document_keys
from pipeline.output.staging import Staging
from pipeline.shuffling.runs import RunsWriter
from pipeline.splits import Split


class SortedSplit:
    """Stands where an unshuffled job has the shard of a split; holds one run."""

    packing = windows = None
    """Runs are documents, what shards make of them."""

    documents = None
    """Places stand in the runs, and become tables of documents in the shards."""

    def __init__(self, staging: Staging, split: Split, config: ShuffleConfig, padding_side: str | None) -> None:
        """Creates the file.

        Args:
          staging: of the attempt.
          split: whose documents come.
          config: the section.
          padding_side: of the rows; None where they are not padded.
        """
        self._writer = RunsWriter(staging.create(runs_name(split.id)), padding_side, config.run_bytes)
        self._names = [piece.name for piece in split.pieces]
        self._seed = config.seed

    def add(self, documents: pa.RecordBatch, tokens: pa.RecordBatch) -> None:
        """Appends documents.

        Args:
          documents: `schemas.DOCUMENTS`.
          tokens: `schemas.TOKENS` and more columns, a row for each of them.
        """
        self._writer.write(document_keys(SHUFFLING, self._seed, self._names, documents), tokens)

    def finish(self) -> tuple[FileRecord, ...]:
        """Finishes the file and returns its record."""
        return (self._writer.finish(),)

    @property
    def runs(self) -> Mapping[str, Any]:
        """What the entry of the split says of its runs, complete once they are finished."""
        return describe_runs(self._writer.runs, self._writer.sums)
