# SPDX-License-Identifier: Apache-2.0
"""Counts of what was read of each file of a split, and what became of it: the lowest level of the books."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.books import quantities
from tokenmill.pipeline.books.rules import RULES


@dataclass(frozen=True, slots=True)
class PieceCounts:
    """What a split read of one of its pieces, or a batch of a piece, and what became of it; exact, and can be added."""

    n_records: int = 0
    n_documents: int = 0
    rejected: Mapping[str, int] | None = None
    """Rejected records by reason; None for none."""
    filtered: Mapping[str, int] | None = None
    """Documents by the rule that left them out; None for none."""
    n_bytes: int = 0
    """Bytes read: of the decompressed stream; for Parquet, of the text."""
    n_document_bytes: int = 0
    n_rejected_bytes: int = 0
    n_filtered_bytes: int = 0
    n_skipped_bytes: int = 0
    n_chars: int = 0
    """Characters of the texts that were tokenized."""
    n_spaced_words: int = 0
    n_text_tokens: int = 0
    n_tokens: int = 0
    n_oov_tokens: int = 0
    sha256: str = ""
    """Checksum of the `n_bytes` bytes that were read; "" for a part of a piece and for sums."""

    def __add__(self, other: Self) -> Self:
        return quantities.add(self, other, sha256="")

    def imbalances(self) -> list[str]:
        """Returns every equation of `quantities.OF_INPUT` that does not hold, with both numbers."""
        numbers = dict(zip(_READ_NAMES, _read(self), strict=True))
        for name in ("rejected", "filtered"):  # most files have none
            numbers[name] = sum((numbers[name] or {}).values())
        return quantities.imbalances(quantities.OF_INPUT, numbers)

    def to_record(self) -> dict[str, Any]:
        """Returns the fields that are not zero or empty, as plain JSON; of a small file most are zero."""
        return {name: value for name, value in zip(_NAMES, _values(self), strict=True) if value}


_NAMES = tuple(each.name for each in fields(PieceCounts))
_values = attrgetter(*_NAMES)
_READ_NAMES = tuple(each.name for each in quantities.READ)
_read = attrgetter(*_READ_NAMES)


class Accounts:
    """Adds up the counts of a split, piece by piece."""

    def __init__(self, n_pieces: int) -> None:
        """Starts at zero, for pieces 0 to `n_pieces` - 1."""
        self._counts = [_NONE] * n_pieces
        self._checksums = [""] * n_pieces
        self._tokenized: dict[str, npt.NDArray[np.int64]] = {}

    def add(self, pieces: Iterable[tuple[int, PieceCounts]]) -> None:
        """Adds the counts of a batch for each piece (`batches.ReadBatch.pieces`), or `Moves`."""
        for piece, counts in pieces:
            before = self._counts[piece]
            self._counts[piece] = counts if before is _NONE else before + counts
            self._checksums[piece] = counts.sha256 or self._checksums[piece]

    def add_tokenized(self, documents: pa.RecordBatch, **counts: npt.NDArray[np.int64]) -> None:
        """Adds the counts of documents that were tokenized.

        Args:
          documents: `schemas.DOCUMENTS`.
          counts: by the name of a quantity, int64[n]: how much of it each document has.
        """
        pieces = documents.column("piece").to_numpy()
        for name, n in counts.items():
            # bincount adds in float64, which is exact here: no batch has 2**53 of anything.
            sums = np.bincount(pieces, n, len(self._counts)).astype(np.int64)
            self._tokenized[name] = self._tokenized.get(name, 0) + sums

    def sum(self, pieces: Iterable[int]) -> PieceCounts:
        """Returns the sum of the counts of some pieces so far."""
        pieces = list(pieces)
        tokenized: dict[str, Any] = {name: int(n[pieces].sum()) for name, n in self._tokenized.items()}
        return replace(sum((self._counts[piece] for piece in pieces), PieceCounts()), **tokenized)

    def finish(self) -> tuple[PieceCounts, ...]:
        """Returns the counts of every piece, in order."""
        columns = {"sha256": self._checksums} | {name: n.tolist() for name, n in self._tokenized.items()}
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        return tuple(replace(counts, **row) for counts, row in zip(self._counts, rows, strict=True))


READ_OF_FILES = frozenset(quantities.counted(PieceCounts))
"""The names of the quantities that are counted by file."""

_OF_READER = ("n_records", "filtered", "n_bytes", "n_document_bytes", "n_filtered_bytes", "n_skipped_bytes")
"""Those that a split takes from its reader; the encoder and the file of rejects count the others once more."""


def sum_of(counts: Sequence[PieceCounts], names: Iterable[str] = READ_OF_FILES) -> dict[str, int]:
    """Returns the sums of some quantities over files, as `counts.flatten` names them."""
    sums: dict[str, int] = {}
    for name in names:
        column = [getattr(each, name) for each in counts]
        if name not in ("rejected", "filtered"):
            sums[name] = sum(column)
            continue
        for by_name in filter(None, column):
            for each, n in by_name.items():
                sums[f"{name}:{each}"] = sums.get(f"{name}:{each}", 0) + n
    return sums


def read_of(counts: Sequence[PieceCounts]) -> dict[str, int]:
    """Returns the numbers of a split that its reader counts, from those of its files."""
    return sum_of(counts, _OF_READER)


_NONE = PieceCounts()
Moves = tuple[tuple[int, PieceCounts], ...]
"""Corrections: pairs of the index of a piece and what to add to its counts, for example to turn a document into a
filtered one."""


def filtered(documents: pa.RecordBatch, rule: str) -> Moves:
    """Returns the moves for documents that were counted as documents, but that a rule leaves out.

    Args:
      documents: `schemas.DOCUMENTS`: those that are left out.
      rule: the name of the rule, one of `rules.RULES`.
    """
    assert rule in RULES, rule
    return tuple(
        (piece, PieceCounts(n_documents=-n, n_document_bytes=-size, filtered={rule: n}, n_filtered_bytes=size))
        for piece, n, size in _by_piece(documents)
    )


def rejected(documents: pa.RecordBatch, reason: str) -> Moves:
    """Returns the moves for documents that were counted as documents, but are rejected for a reason; see `filtered`."""
    return tuple(
        (piece, PieceCounts(n_documents=-n, n_document_bytes=-size, rejected={reason: n}, n_rejected_bytes=size))
        for piece, n, size in _by_piece(documents)
    )


def rejects_filtered(counts: PieceCounts, rule: str) -> PieceCounts:
    """Returns what to add so that the rejected records in `counts` count as filtered by `rule` instead."""
    reasons, size = counts.rejected or {}, counts.n_rejected_bytes
    return PieceCounts(
        rejected={reason: -n for reason, n in reasons.items()},
        n_rejected_bytes=-size,
        filtered={rule: sum(reasons.values())},
        n_filtered_bytes=size,
    )


def _by_piece(documents: pa.RecordBatch) -> Iterator[tuple[int, int, int]]:
    """Yields the index of each piece that has some of the documents, how many it has, and their bytes."""
    pieces, sizes = documents.column("piece").to_numpy(), documents.column("n_bytes").to_numpy()
    for piece in np.unique(pieces).tolist():
        is_of = pieces == piece
        yield piece, int(is_of.sum()), int(sizes[is_of].sum())


def count_reasons(rejects: pa.RecordBatch) -> dict[str, int]:
    """Returns the number of `schemas.REJECTS` by reason."""
    return {each["values"]: each["counts"] for each in pc.value_counts(rejects.column("reason")).to_pylist()}


def count_part(
    documents: pa.RecordBatch | None, rejects: pa.RecordBatch | None, n_bytes: int, n_skipped_bytes: int, sha256: str
) -> PieceCounts:
    """Returns the counts of one stretch of a file."""
    n_documents = n_rejects = n_document_bytes = n_rejected_bytes = 0
    rejected: dict[str, int] | None = None
    if documents is not None and documents.num_rows:
        n_documents, n_document_bytes = documents.num_rows, pc.sum(documents.column("n_bytes")).as_py()
    if rejects is not None and rejects.num_rows:
        n_rejects, n_rejected_bytes = rejects.num_rows, pc.sum(rejects.column("n_bytes")).as_py()
        rejected = count_reasons(rejects)
    return PieceCounts(
        n_records=n_documents + n_rejects,
        n_documents=n_documents,
        rejected=rejected,
        n_bytes=n_bytes,
        n_document_bytes=n_document_bytes,
        n_rejected_bytes=n_rejected_bytes,
        n_skipped_bytes=n_skipped_bytes,
        sha256=sha256,
    )
