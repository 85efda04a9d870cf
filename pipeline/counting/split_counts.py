# SPDX-License-Identifier: Apache-2.0
"""What counting one split gave, beside the counts: exact totals, and the descriptor that crosses the runner."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from pipeline.books.ledger import BooksError, FileRecord
from pipeline.counting.counts import Group
from pipeline.splits import Piece

FORMAT_VERSION = 2
"""Version of the files in `_counts/`."""


@dataclass(frozen=True)
class Totals:
    """What was read and counted. All numbers are exact; sums of totals are totals."""

    n_records: int = 0
    n_documents: int = 0
    rejected: Mapping[str, int] | None = None
    """Records by the reason they were rejected for."""
    filtered: Mapping[str, int] | None = None
    """Documents by the rule that left them out."""
    n_bytes: int = 0
    """Bytes read: of documents, of rejected and filtered records and skipped ones."""
    n_document_bytes: int = 0
    n_rejected_bytes: int = 0
    n_filtered_bytes: int = 0
    n_skipped_bytes: int = 0
    n_text_bytes: int = 0
    """Bytes of the texts alone, as UTF-8."""
    n_chars: int = 0
    n_words: int = 0
    """Pre-tokens, all occurrences."""

    def __add__(self, other: "Totals") -> "Totals":
        ours, theirs = asdict(self), asdict(other)
        rejected = _add(ours.pop("rejected"), theirs.pop("rejected"))
        filtered = _add(ours.pop("filtered"), theirs.pop("filtered"))
        return Totals(rejected=rejected, filtered=filtered, **{name: ours[name] + theirs[name] for name in ours})


def _add(ours: Mapping[str, int] | None, theirs: Mapping[str, int] | None) -> dict[str, int]:
    return dict(sorted((Counter(ours or {}) + Counter(theirs or {})).items()))


@dataclass(frozen=True)
class GroupTotals:
    """What was read of one group, exact."""

    labels: Group
    n_documents: int = 0
    n_text_bytes: int = 0
    n_chars: int = 0
    n_words: int = 0

    def __add__(self, other: "GroupTotals") -> "GroupTotals":
        return GroupTotals(
            self.labels,
            self.n_documents + other.n_documents,
            self.n_text_bytes + other.n_text_bytes,
            self.n_chars + other.n_chars,
            self.n_words + other.n_words,
        )


@dataclass(frozen=True)
class SplitCounts:
    """What counting one split gave: the descriptor that crosses the runner and marks the split as done."""

    split_id: str
    counter: str
    """What the counts depend on beside the split: see `count_key`."""
    pieces: tuple[Piece, ...]
    totals: Totals
    groups: tuple[GroupTotals, ...]
    batches: tuple[tuple[int, int], ...]
    """For each record batch of the file, which of the groups and which hash partition it is of."""
    file: FileRecord

    def to_json(self) -> str:
        """Returns this as JSON."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Returns what `to_json` made `text` of; ValueError if it is something else."""
        fields = load_fields(text)
        pieces = tuple(Piece(**piece) for piece in fields.pop("pieces"))
        groups = tuple(GroupTotals(**(group | {"labels": tuple(group["labels"])})) for group in fields.pop("groups"))
        batches = tuple((group, partition) for group, partition in fields.pop("batches"))
        totals, file = Totals(**fields.pop("totals")), FileRecord(**fields.pop("file"))
        return cls(pieces=pieces, totals=totals, groups=groups, batches=batches, file=file, **fields)


def check_totals(where: str, totals: Totals) -> None:
    """Checks that every record and byte read is a document, a reject or skipped.

    Raises:
      BooksError: naming `where`, with both numbers.
    """
    n_rejected = sum((totals.rejected or {}).values())
    n_made = totals.n_documents + n_rejected + sum((totals.filtered or {}).values())
    kept = totals.n_document_bytes + totals.n_rejected_bytes + totals.n_filtered_bytes + totals.n_skipped_bytes
    if totals.n_records != n_made:
        raise BooksError(f"{where}: records read {totals.n_records} != documents + rejected + filtered {n_made}")
    if totals.n_bytes != kept:
        raise BooksError(
            f"{where}: bytes read {totals.n_bytes} != bytes of documents + rejected + filtered + skipped {kept}"
        )


def load_fields(text: str | bytes) -> dict[str, Any]:
    """Returns the fields of a descriptor of this format; ValueError if it is something else."""
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.pop("format_version", None) != FORMAT_VERSION:
        raise ValueError(f"not a descriptor of format {FORMAT_VERSION}")
    return fields
