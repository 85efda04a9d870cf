# SPDX-License-Identifier: Apache-2.0
"""The result of counting a split, besides the file of counts: exact totals, and a descriptor that goes through Beam."""

import json
from dataclasses import asdict, dataclass
from typing import ClassVar, Self

from tokenmill.pipeline.books import ledger, quantities
from tokenmill.pipeline.books.input_counts import PieceCounts, ReadCounts
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.counting.counts import Group
from tokenmill.pipeline.splits import Piece

FORMAT_VERSION = 4
"""Version of the files in `_counts/`."""


@dataclass(frozen=True)
class Totals(ReadCounts):
    """What was read and counted. All numbers are exact, and can be added up."""

    n_text_bytes: int = 0
    """Bytes of the texts alone, as UTF-8."""
    n_chars: int = 0
    n_words: int = 0
    """Pre-tokens, all occurrences."""

    def check(self, where: str) -> None:
        """Raises BooksError, naming `where`, unless every record and byte read is a document, a reject or skipped."""
        if wrong := self.imbalances():
            raise BooksError("\n".join(f"{where}: {line}" for line in wrong))


@dataclass(frozen=True)
class GroupTotals:
    """What was read of one group, exact."""

    labels: Group
    n_documents: int = 0
    n_text_bytes: int = 0
    n_chars: int = 0
    n_words: int = 0

    def __add__(self, other: Self) -> Self:
        return quantities.add(self, other)


@dataclass(frozen=True)
class Described:
    """What a JSON file in `_counts/` says, which goes through Beam, too."""

    what: ClassVar[str]
    """Its name in messages."""

    def to_json(self) -> str:
        """Returns this as JSON."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Returns the value that `to_json` turned into `text`; ValueError if it is something else."""
        return ledger.read_as(cls, ledger.load_entry(text, cls.what, FORMAT_VERSION), cls.what)


@dataclass(frozen=True)
class SplitCounts(Described):
    """The result of counting one split: a descriptor that goes through Beam and, on disk, marks the split as done."""

    what = "the counts of a split"
    split_id: str
    counter: str
    """The digest of all that the counts depend on besides the split: `count_key`."""
    pieces: tuple[Piece, ...]
    totals: Totals
    groups: tuple[GroupTotals, ...]
    batches: tuple[tuple[int, int, int], ...]
    """The record batches of the file, in order: the index of a group, and a range of hash partitions with one each."""
    file: FileRecord
    inputs: tuple[tuple[int, PieceCounts], ...] = ()
    """What was read of the pieces that have rejects, by their index; of a single piece, which may be a part of a file,
    in any case."""
