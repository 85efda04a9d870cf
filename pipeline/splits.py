# SPDX-License-Identifier: Apache-2.0
"""Splits: units of work with stable ids, each a group of small files or a part of a large one.

The plan depends on nothing but the names, sizes and formats of the files: not on the folder that the corpus is in, the
number of workers or the order in which a store lists its files.
"""

import hashlib
import json
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

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
    problem: str = ""
    """Why nothing of the file can be read: it is one reject, without being opened. "" for all others."""
    limit: int = 0
    """In the sample of a plan: where reading ends, in bytes of the decompressed stream, and the rest of a block; 0: no
    limit."""

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
        return self.compression == "none" and self.encoding == "utf-8" and not self.has_rows and not self.problem


_NAMES = [field.name for field in fields(Piece)]
_values = attrgetter(*_NAMES)


def to_record(piece: Piece) -> dict[str, Any]:
    """Returns a piece as plain JSON; without a limit, which only a sample has, and so a ledger has not."""
    return dict(zip(_NAMES, _to_fields(piece), strict=False))


def _to_fields(piece: Piece) -> tuple[Any, ...]:
    values: tuple[Any, ...] = _values(piece)
    return values if piece.limit else values[:-1]


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
        return _to_json([self.index, self.id, [_to_fields(piece) for piece in self.pieces], self.fields])

    def of_folder(self, number: int, salt: str) -> "Split":
        """Returns the same split as the folder of this number among those of the job has it.

        The plan names splits as the first folder does, so that a job with one folder has no other names; each further
        folder, with settings of its own, must not take the entries of another, and names them by its own salt.
        """
        return replace(self, id=f"{_hash(salt, self.pieces):016x}") if number else self

    @staticmethod
    def from_json(line: str) -> "Split":
        """Returns the split that `to_json` described."""
        index, split_id, pieces, fields = json.loads(line)
        return Split(index, split_id, tuple(Piece(*piece) for piece in pieces), fields)


class Splits(Sequence[Split]):
    """The splits of a plan, in its order; each is made when it is asked for.

    Kept are the ids, the sizes, and the pieces of each split as compressed JSON: some 30 bytes for each small file of a
    crawl, where `Piece` and its strings are 900.
    """

    def __init__(self, groups: Iterable[Sequence[Piece]], salt: str, fields: str = "") -> None:
        """Names splits that read these pieces, in this order, with ids that depend on them and on `salt`.

        Args:
          groups: the pieces of each split.
          salt: digest of everything else that decides the output.
          fields: `Split.fields`.
        """
        self.fields = fields
        self._ids, self._sizes, self._works = array("Q"), array("q"), array("q")
        self._data, self._ends = bytearray(), array("q", [0])
        self.n_pieces = self.n_unreadable = self.unreadable_bytes = 0
        """How many pieces there are; how many of them have a `problem`, and their bytes."""
        for pieces in groups:
            self.n_pieces += len(pieces)
            unreadable = [piece for piece in pieces if piece.problem]
            self.n_unreadable += len(unreadable)
            self.unreadable_bytes += sum(piece.stop - piece.start for piece in unreadable)
            self._ids.append(_hash(salt, pieces))
            self._sizes.append(sum(piece.n_planned for piece in pieces))
            self._works.append(sum(piece.n_work for piece in pieces))
            line = _to_json([_to_fields(piece) for piece in pieces])
            self._data += zlib.compress(line.encode(*_LENIENT), 1)
            self._ends.append(len(self._data))

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> Split: ...
    @overload
    def __getitem__(self, index: slice) -> list[Split]: ...
    def __getitem__(self, index: int | slice) -> Split | list[Split]:
        chosen = range(len(self))[index]
        return Split.from_json(self._line(chosen)) if isinstance(chosen, int) else [self[i] for i in chosen]

    def __iter__(self) -> Iterator[Split]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(Split.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]  # `fields` may change

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Planned bytes of each split, int64[n]."""
        return np.array(self._sizes, np.int64)

    @property
    def n_bytes(self) -> int:
        """Planned bytes of all splits."""
        return sum(self._sizes)

    @property
    def n_work(self) -> int:
        """Sum of `Piece.n_work` of all splits."""
        return sum(self._works)

    def lines_by_work(self) -> Iterator[str]:
        """Yields splits as JSON, those with most work first: small ones at the end even out the work."""
        return map(self._line, np.argsort(-np.array(self._works, np.int64), kind="stable").tolist())

    def _line(self, index: int) -> str:
        """Returns `Split.to_json` of a split."""
        pieces = zlib.decompress(memoryview(self._data)[self._ends[index] : self._ends[index + 1]]).decode(*_LENIENT)
        return f'[{index},"{self._ids[index]:016x}",{pieces},{_to_json(self.fields)}]'


_LENIENT = "utf-8", "surrogatepass"
"""A folder may have a name that is not UTF-8."""


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _hash(salt: str, pieces: Sequence[Piece]) -> int:
    keys = [
        (each.name, each.n_bytes, each.start, each.stop, each.format, each.compression)
        + ((each.encoding,) if each.encoding != "utf-8" else ())
        + ((each.problem,) if each.problem else ())
        for each in pieces
    ]
    record = json.dumps([salt, keys], separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(record.encode("utf-8")).digest()[:8])
