# SPDX-License-Identifier: Apache-2.0
"""The file of a split's rejects: records that could not be read, or that text steps or the tokenizer gave up on."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline.books.input_counts import count_reasons
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.output.staging import StagedFile, Staging
from tokenmill.pipeline.output.writers.parquet import RowGroups
from tokenmill.pipeline.parquet_file import open_parquet, whole
from tokenmill.pipeline.splits import Piece

_REJECT_LIMITS = (1 << 16, 64 << 20)
"""Limits of a row group of rejects: its rows, and the bytes of their strings."""


class RejectsFile:
    """Writes the rejects of a split, if there are any.

    It names sources by their names, not by their paths, so that the bytes do not depend on where the corpus is.
    """

    def __init__(self, staging: Staging, name: str, pieces: Iterable[Piece]) -> None:
        """Creates no file yet.

        Args:
          staging: the staged files of the attempt.
          name: `filenames.rejects_name` of the split.
          pieces: the pieces of the split.
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
            self._writer = pq.ParquetWriter(
                self._file,
                schemas.REJECTS,
                compression="zstd",
                store_schema=False,
                # Samples differ, and nobody looks for one by its value: a dictionary and statistics only cost time.
                use_dictionary=["source", "reason", "detail"],
                write_statistics=False,
            )
        self.n_rows += rejects.num_rows
        self.n_bytes += pc.sum(rejects.column("n_bytes")).as_py()
        self.reasons.update(count_reasons(rejects))
        sources = rejects.column("source").dictionary_encode()
        names = pa.array([self._names[path] for path in sources.dictionary.to_pylist()], pa.string())
        source = names.take(sources.indices)
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


def read(output: str, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file of rejects in batches, `columns` or all of `schemas.REJECTS`.

    Raises:
      ValueError: if it is no such file; OSError: if it cannot be opened.
    """
    with storage.open_read(storage.join(output, name)) as handle, whole(name):
        file = open_parquet(handle)
        if not file.schema_arrow.equals(schemas.REJECTS):
            raise ValueError(f"{name}: columns are not {schemas.REJECTS.names}")
        yield from file.iter_batches(1024, columns=columns, use_threads=False)
