# SPDX-License-Identifier: Apache-2.0
"""What a batch, a file, a split, a shard or a job counts: exact integers, whose sums do not depend on the order.

    reader: PieceCounts of each file --Accounts--> PieceCounts of each file of a split --sum_of--+
    encoder, writer: numbers by group and name, columns -----------------------------------------+--> Counts

Each adds its numbers under names of its own; `quantities` says which of them must be equal.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.books import quantities
from tokenmill.pipeline.books.quantities import RULES

Ints = npt.NDArray[np.int64]

Groups = Mapping[str, Mapping[str, int]]
"""Numbers by group and name."""

LANGUAGE, SOURCE, STEP = "lang:", "source:", "step:"
"""What the names of groups begin with: those of the documents in a language, of the files of a source, and of what a
step changed in texts."""

_EXTREMES = {"min_tokens": min, "max_tokens": max}
"""Numbers that are not added: the tokens of the shortest and of the longest row."""


class Counts:
    """Numbers and columns that can be added up.

    Attributes:
      groups: by group and name; the group "" has the numbers of everything. A name with a colon, as in
        "rejected:not_json", is one of several whose sum is the number "rejected".
      columns: dense, int64, by name: for example how often each token occurred, in the order of ids.
    """

    def __init__(self) -> None:
        """Starts without any number."""
        self.groups: dict[str, dict[str, int]] = {"": {}}
        self.columns: dict[str, Ints] = {}

    def __getitem__(self, name: str) -> int:
        """Returns a number of everything; 0 if it was never counted."""
        return self.groups[""].get(name, 0)

    def add(self, numbers: Mapping[str, int], group: str = "") -> None:
        """Adds numbers to those of a group. What is zero is kept, too: it says that it was counted."""
        sums = self.groups.setdefault(group, {})
        for name, n in numbers.items():
            if name in _EXTREMES:
                sums[name] = _EXTREMES[name](sums.get(name, n), n)
            else:
                sums[name] = sums.get(name, 0) + n

    def add_groups(self, groups: Groups) -> None:
        """Adds the numbers of groups."""
        for group, numbers in groups.items():
            self.add(numbers, group)

    def add_by(self, kind: str, labels: pa.DictionaryArray, **numbers: Ints) -> None:
        """Adds numbers of documents to the groups of their labels.

        Args:
          kind: what the names of the groups begin with, such as `LANGUAGE`.
          labels: the label of each document.
          numbers: by name, int64[n].
        """
        codes, places = np.unique(labels.indices.to_numpy(zero_copy_only=False), return_inverse=True)
        # bincount adds in float64, which is exact here: no batch has 2**53 of anything.
        sums = {name: np.bincount(places, n, codes.size).astype(np.int64).tolist() for name, n in numbers.items()}
        for i, label in enumerate(labels.dictionary.take(pa.array(codes)).to_pylist()):
            self.add({name: column[i] for name, column in sums.items()}, f"{kind}{label}")

    def labels(self, kind: str) -> dict[str, dict[str, int]]:
        """Returns the numbers of all groups of a kind, by their labels."""
        return {group.removeprefix(kind): n for group, n in self.groups.items() if group.startswith(kind)}

    def column(self, name: str, size: int = 0) -> Ints:
        """Returns a column to add to, which has at least `size` numbers."""
        column = self.columns.get(name)
        if column is None:
            column = self.columns[name] = np.zeros(size, np.int64)
        elif column.size < size:
            column = self.columns[name] = np.concatenate([column, np.zeros(size - column.size, np.int64)])
        return column

    def __iadd__(self, other: "Counts") -> Self:
        self.add_groups(other.groups)
        for name, column in other.columns.items():
            self.column(name, column.size)[: column.size] += column
        return self


def flatten(record: Mapping[str, Any]) -> dict[str, int]:
    """Returns numbers of which some are counted by name, as {"rejected": {"not_json": 2}}, as {"rejected:not_json": 2}.

    What is counted by name may be None instead of empty.
    """
    flat: dict[str, int] = {}
    for name, value in record.items():
        if isinstance(value, int):
            flat[name] = value
        else:
            flat |= {f"{name}:{each}": n for each, n in (value or {}).items()}
    return flat


def nest(numbers: Mapping[str, int]) -> dict[str, Any]:
    """Returns the record that `flatten` made these numbers of, without what is empty."""
    record: dict[str, Any] = {}
    for name, n in numbers.items():
        whole, colon, each = name.partition(":")
        if colon:
            record.setdefault(whole, {})[each] = n
        else:
            record[name] = n
    return record


@dataclass(frozen=True, slots=True)
class PieceCounts:
    """What a split read of one of its pieces, or a batch of a piece, and what became of it."""

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
    """Checksum of the `n_bytes` bytes that were read; "" for a part of a piece."""

    def __add__(self, other: Self) -> Self:
        """Returns the sum, with the later checksum: the last part of a piece has that of all bytes."""
        sums = map(quantities.plus, _counted(self), _counted(other))
        return replace(type(self)(*sums), sha256=other.sha256 or self.sha256)

    def imbalances(self) -> list[str]:
        """Returns every equation of `quantities.OF_INPUT` that does not hold, with both numbers."""
        return quantities.imbalances(quantities.OF_INPUT, sum_of((self,)))

    def to_record(self) -> dict[str, Any]:
        """Returns the fields that are not zero or empty, as plain JSON; of a small file most are zero."""
        return {name: value for name, value in zip(_NAMES, _values(self), strict=True) if value}


_NAMES = tuple(each.name for each in fields(PieceCounts))
COUNTED_OF_FILES = _NAMES[:-1]
"""The names of the quantities that are counted by file."""
_values, _counted = attrgetter(*_NAMES), attrgetter(*COUNTED_OF_FILES)
_OF_READER = ("n_records", "filtered", "n_bytes", "n_document_bytes", "n_filtered_bytes", "n_skipped_bytes")
"""Those that a split takes from its reader; the encoder and the file of rejects count the others once more."""

Moves = tuple[tuple[int, PieceCounts], ...]
"""Corrections: pairs of the index of a piece and what to add to its counts, for example to turn a document into a
filtered one."""


class Accounts:
    """Adds up the counts of a split, piece by piece."""

    def __init__(self, n_pieces: int) -> None:
        """Starts at zero, for pieces 0 to `n_pieces` - 1."""
        self._counts: list[PieceCounts | None] = [None] * n_pieces
        self._tokenized: dict[str, Ints] = {}

    def add(self, pieces: Iterable[tuple[int, PieceCounts]]) -> None:
        """Adds the counts of a batch for each piece (`batches.ReadBatch.pieces`), or `Moves`."""
        for piece, counts in pieces:
            before = self._counts[piece]
            self._counts[piece] = counts if before is None else before + counts

    def add_tokenized(self, documents: pa.RecordBatch, **counts: Ints) -> None:
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

    def finish(self) -> tuple[PieceCounts, ...]:
        """Returns the counts of every piece, in order."""
        read = [counts or PieceCounts() for counts in self._counts]
        if not self._tokenized:
            return tuple(read)
        rows = zip(*(n.tolist() for n in self._tokenized.values()), strict=True)
        return tuple(
            replace(counts, **dict(zip(self._tokenized, row, strict=True)))
            for counts, row in zip(read, rows, strict=True)
        )


def sum_of(counts: Sequence[PieceCounts], names: Iterable[str] = COUNTED_OF_FILES) -> dict[str, int]:
    """Returns the sums of some quantities over files, as `flatten` names them."""
    sums: dict[str, int] = {}
    for name in names:
        column = [getattr(each, name) for each in counts]
        if name not in quantities.BY_NAME:
            sums[name] = sum(column)
            continue
        for by_name in filter(None, column):
            for each, n in by_name.items():
                sums[f"{name}:{each}"] = sums.get(f"{name}:{each}", 0) + n
    return sums


def read_of(counts: Sequence[PieceCounts]) -> dict[str, int]:
    """Returns the numbers of a split that its reader counts, from those of its files."""
    return sum_of(counts, _OF_READER)


def filtered(documents: pa.RecordBatch, rule: str) -> Moves:
    """Returns the moves for documents, `schemas.DOCUMENTS`, that were counted, but that one of `RULES` leaves out."""
    assert rule in RULES, rule
    return tuple((i, replace(lost, filtered={rule: n}, n_filtered_bytes=size)) for i, lost, n, size in _lost(documents))


def rejected(documents: pa.RecordBatch, reason: str) -> Moves:
    """Returns the moves for documents that were counted as documents, but are rejected for a reason; see `filtered`."""
    return tuple(
        (i, replace(lost, rejected={reason: n}, n_rejected_bytes=size)) for i, lost, n, size in _lost(documents)
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


def _lost(documents: pa.RecordBatch) -> Iterator[tuple[int, PieceCounts, int, int]]:
    """Yields the index of each piece that has some of the documents, what it loses, how many, and their bytes."""
    pieces, sizes = documents.column("piece").to_numpy(), documents.column("n_bytes").to_numpy()
    for piece in np.unique(pieces).tolist():
        is_of = pieces == piece
        n, size = int(is_of.sum()), int(sizes[is_of].sum())
        yield piece, PieceCounts(n_documents=-n, n_document_bytes=-size), n, size


def count_reasons(rejects: pa.RecordBatch) -> dict[str, int]:
    """Returns the number of `schemas.REJECTS` by reason."""
    return {each["values"]: each["counts"] for each in pc.value_counts(rejects.column("reason")).to_pylist()}


def count_part(
    documents: pa.RecordBatch | None, rejects: pa.RecordBatch | None, n_bytes: int, n_skipped_bytes: int, sha256: str
) -> PieceCounts:
    """Returns the counts of one stretch of a file."""
    (n_documents, n_document_bytes), (n_rejects, n_rejected_bytes) = (
        (batch.num_rows, pc.sum(batch.column("n_bytes")).as_py()) if batch is not None and batch.num_rows else (0, 0)
        for batch in (documents, rejects)
    )
    return PieceCounts(
        n_records=n_documents + n_rejects,
        n_documents=n_documents,
        rejected=count_reasons(rejects) if n_rejects and rejects is not None else None,
        n_bytes=n_bytes,
        n_document_bytes=n_document_bytes,
        n_rejected_bytes=n_rejected_bytes,
        n_skipped_bytes=n_skipped_bytes,
        sha256=sha256,
    )
