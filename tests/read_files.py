# SPDX-License-Identifier: Apache-2.0
"""Reads a file of any format through a plan, and checks the books of what is read."""

from pathlib import Path
from typing import Any, NamedTuple

from tokenmill.pipeline.config.formats import FORMATS
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.rejects import REASONS
from tokenmill.pipeline.input.splitting import plan_splits


class Read(NamedTuple):
    """What a file gives, as Python."""

    documents: list[dict[str, Any]]
    rejects: list[dict[str, Any]]
    n_bytes: int
    n_skipped: int

    @property
    def texts(self) -> list[str]:
        return [row["text"] for row in self.documents]

    @property
    def reasons(self) -> list[str]:
        return [row["reason"] for row in self.rejects]

    def rows(self, *names: str) -> list[tuple[Any, ...]]:
        """Returns columns of the documents."""
        return [tuple(row[name] for name in names) for row in self.documents]

    def refused(self) -> list[tuple[Any, ...]]:
        """Returns all of the rejects but their source."""
        return [(row["offset"], row["n_bytes"], row["reason"], row["detail"], row["sample"]) for row in self.rejects]


def read(path: Path, batch_bytes: int = 1 << 22, **options: Any) -> Read:
    """Returns the documents and rejects of a file, or of the files of a pattern, in order."""
    config = InputConfig(paths=[str(path)], **options)
    found = Read([], [], 0, 0)
    for split in plan_splits(config, "salt"):
        for batch in read_split(split, config, batch_bytes):
            batch.documents.validate(full=True)
            rows = batch.documents.to_pylist()
            bad = [] if batch.rejects is None else batch.rejects.to_pylist()
            assert batch.n_records == len(rows) + len(bad)
            assert batch.n_bytes == sum(row["n_bytes"] for row in rows + bad) + batch.n_skipped_bytes
            assert not batch.counts.imbalances()
            assert {row["reason"] for row in bad} <= set(REASONS)
            assert {row["source"] for row in bad} <= {piece.path for piece in split.pieces}
            piece = split.pieces[0]
            if piece.stop - piece.start < piece.n_bytes and not FORMATS[piece.format].has_rows:  # a part of a file
                assert all(piece.start <= row["offset"] < piece.stop for row in rows + bad)
            found = Read(
                found.documents + rows,
                found.rejects + bad,
                found.n_bytes + batch.n_bytes,
                found.n_skipped + batch.n_skipped_bytes,
            )
    return found
