# SPDX-License-Identifier: Apache-2.0
"""Rejects of a split: documents that a text step or a span gave up are among them, and all of them are a file."""

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline import schemas
from pipeline.accounts import rejected
from pipeline.isolating import MEMORY, TIMEOUT, UNKNOWN
from pipeline.ledger import FileRecord
from pipeline.readers import ReadBatch
from pipeline.readers.rejects import SAMPLE_BYTES
from pipeline.splits import Piece, Split
from pipeline.staging import StagedFile, Staging
from pipeline.writers.parquet import RowGroups

REASON = "text_timeout"
"""For documents that a text step or a span gave up."""

_REJECT_LIMITS = (1 << 16, 64 << 20)
"""Rows of a row group of rejects, and bytes of their strings."""

_DETAILS = {
    REASON: "a regular expression of normalize or spans did not finish in its time",
    TIMEOUT: "a regular expression of the tokenizer did not finish in its time",
    MEMORY: "there was not enough memory to tokenize the text",
    UNKNOWN: "a character is not in the vocabulary, which has no unknown token",
}


def as_rejects(gone: pa.RecordBatch, reason: str, split: Split) -> pa.RecordBatch:
    """Returns documents that are given up for a reason, `schemas.DOCUMENTS`, as `schemas.REJECTS`."""
    n = gone.num_rows
    columns: list[Any] = [
        pa.array([split.pieces[i].path for i in gone.column("piece").to_pylist()], pa.string()),
        gone.column("offset"),
        gone.column("n_bytes"),
        pa.repeat(pa.scalar(reason, pa.string()), n),
        pa.repeat(pa.scalar(_DETAILS[reason], pa.string()), n),
        pc.binary_slice(gone.column("text").cast(pa.binary()), 0, SAMPLE_BYTES),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schemas.REJECTS)


def without_rejected(batch: ReadBatch, is_rejected: npt.NDArray[np.bool_], reason: str, split: Split) -> ReadBatch:
    """Returns a batch whose documents that are given up for a reason, bool[n], are among its rejects."""
    if not is_rejected.any():
        return batch
    gone = batch.documents.filter(pa.array(is_rejected))
    rejects = [as_rejects(gone, reason, split), *([] if batch.rejects is None else [batch.rejects])]
    table = pa.Table.from_batches(rejects).combine_chunks()
    return dataclasses.replace(
        batch,
        documents=batch.documents.filter(pa.array(~is_rejected)),
        rejects=table.to_batches()[0],
        pieces=(*batch.pieces, *rejected(gone, reason)),
    )


class RejectsFile:
    """The rejects of a split, a file only if there are any. Sources are names, not paths: the same bytes anywhere."""

    def __init__(self, staging: Staging, name: str, pieces: Iterable[Piece]) -> None:
        """Creates no file yet.

        Args:
          staging: of the attempt.
          name: `ledger.rejects_name` of the split.
          pieces: of the split.
        """
        self.reasons: Counter[str] = Counter()
        self.n_rows = self.n_bytes = 0
        self._staging = staging
        self._name = name
        self._names = {piece.path: piece.name for piece in pieces}
        self._file: StagedFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._groups = RowGroups(_REJECT_LIMITS)

    def write(self, rejects: pa.RecordBatch) -> None:
        """Appends rows of `schemas.REJECTS`."""
        if rejects.num_rows == 0:
            return
        if self._writer is None:
            self._file = self._staging.create(self._name)
            self._writer = pq.ParquetWriter(self._file, schemas.REJECTS, compression="zstd", store_schema=False)
        self.n_rows += rejects.num_rows
        self.n_bytes += pc.sum(rejects.column("n_bytes")).as_py()
        self.reasons.update(rejects.column("reason").to_pylist())
        source = pa.array([self._names[path] for path in rejects.column("source").to_pylist()], pa.string())
        rejects = rejects.set_column(0, schemas.REJECTS.field(0), source)
        n_string_bytes = sum(
            pc.binary_length(rejects.column(name)).to_numpy().astype(np.int64)
            for name in ("source", "detail", "sample")
        )
        for group in self._groups.add(rejects, (np.ones(rejects.num_rows, np.int64), n_string_bytes)):
            self._writer.write_table(group)

    def finish(self) -> FileRecord | None:
        """Finishes the file; None if there is none."""
        if self._file is None or self._writer is None:
            return None
        for group in self._groups.rest():
            self._writer.write_table(group)
        self._writer.close()
        return self._file.finish(rows=self.n_rows)
