# SPDX-License-Identifier: Apache-2.0
"""Splits: units of work with stable ids, each a group of small files or a part of a large one.

The plan depends on nothing but the names, sizes and formats of the files: not on the folder that the corpus is in, the
number of workers or the order in which a store lists its files.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Literal

Compression = Literal["none", "gzip", "zstd", "bz2", "xz", "archive"]
"""How a file is compressed. `archive`: by the archive that it is a member of; its bytes are those of the member."""

EXPANSION = 4
"""The bytes of text assumed for each byte of a compressed file."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, or the records of a file that begin in a range of it."""

    path: str
    name: str
    """The path relative to the literal directory part of the pattern that matched it, or more of the path where other
    files have that name; unique in a plan. It goes into ids of documents, and into keys of samples and shuffles."""
    n_bytes: int
    """Bytes of the whole file, as stored; of a member of an archive, bytes of the member."""
    version: str
    format: str
    compression: Compression
    start: int
    stop: int
    """A range of bytes, or of groups of rows. A file that is never cut has 0 and `n_bytes`."""
    n_text_bytes: int = 0
    """Of groups of rows: bytes of their texts, encoded, at least 1; of an empty file, and of one without rows, 0."""
    file: int = 0
    """Number of the file in the plan, from 0: its place in `inputs` of the manifest."""
    encoding: str = "utf-8"
    """Python's codec of a text file that is not compressed; `input.encoding` if it is."""
    source: str = ""
    """The source of `input.sources` that the file is of; "" if there are none."""

    @property
    def n_planned(self) -> int:
        """How much of the input this is, in bytes of the file or, if it has rows, of text."""
        return self.n_text_bytes or self.stop - self.start

    @property
    def has_rows(self) -> bool:
        """Whether positions are numbers of rows, not of bytes, and there are any."""
        return self.n_text_bytes > 0

    @property
    def n_work(self) -> int:
        """About how many bytes a reader of this gets, and so how long it takes, compressed or not."""
        return self.n_planned * (1 if self.compression in ("none", "archive") else EXPANSION)

    @property
    def is_read_as_stored(self) -> bool:
        """Whether positions are those in the stored file: it is not compressed, in UTF-8, and has no rows."""
        return self.compression == "none" and self.encoding == "utf-8" and not self.has_rows


_to_fields = attrgetter(*(field.name for field in fields(Piece)))


@dataclass(frozen=True, slots=True)
class Split:
    """One unit of work: read, tokenized and committed as a whole."""

    index: int
    """Position in the plan; names the shard."""
    id: str
    """16 hexadecimal digits: a hash of the pieces and of everything else that decides the output."""
    pieces: tuple[Piece, ...]
    fields: str = ""
    """`kept_fields.encode_fields` of the fields that go with the documents, the same in all splits of a job."""

    @property
    def n_bytes(self) -> int:
        """Planned bytes; progress is measured against their sum over all splits."""
        return sum(piece.n_planned for piece in self.pieces)

    @property
    def source(self) -> str:
        """The source of all pieces: no split reads several."""
        return self.pieces[0].source if self.pieces else ""

    @property
    def n_work(self) -> int:
        """Sum of `Piece.n_work`."""
        return sum(piece.n_work for piece in self.pieces)

    def to_json(self) -> str:
        """Returns one line that `from_json` reads back."""
        record = [self.index, self.id, [_to_fields(piece) for piece in self.pieces], self.fields]
        return json.dumps(record, ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def from_json(line: str) -> "Split":
        """Returns the split that `to_json` described."""
        index, split_id, pieces, fields = json.loads(line)
        return Split(index, split_id, tuple(Piece(*piece) for piece in pieces), fields)


def name_splits(groups: Iterable[list[Piece]], salt: str, fields: str = "") -> list[Split]:
    """Returns splits that read these pieces, in this order, with ids that depend on them and on `salt`.

    Args:
      groups: the pieces of each split.
      salt: digest of everything else that decides the output.
      fields: `Split.fields`.
    """
    return [Split(index, _hash(salt, pieces), tuple(pieces), fields) for index, pieces in enumerate(groups)]


def by_work(splits: Iterable[Split]) -> list[Split]:
    """Returns splits in the order in which workers should take them: small ones at the end even out the work."""
    return sorted(splits, key=lambda split: (-split.n_work, split.index))


def _hash(salt: str, pieces: list[Piece]) -> str:
    keys = [
        (each.name, each.n_bytes, each.start, each.stop, each.format, each.compression)
        + ((each.encoding,) if each.encoding != "utf-8" else ())
        for each in pieces
    ]
    record = json.dumps([salt, keys], separators=(",", ":"))
    return hashlib.sha256(record.encode("utf-8")).hexdigest()[:16]
