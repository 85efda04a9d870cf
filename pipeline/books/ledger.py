# SPDX-License-Identifier: Apache-2.0
"""The ledger: one entry per committed split, which says what it read, what became of that, and what it wrote.

A job that shuffles has an entry for each merged shard, too.

`staging` shows how an entry is written, `job_books` which of its numbers must be equal.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeVar, cast

from pydantic import TypeAdapter

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import json_files, quantities
from tokenmill.pipeline.books.counts import PieceCounts, flatten, nest
from tokenmill.pipeline.books.json_files import Count, FileName
from tokenmill.pipeline.books.sums import SortedRuns, SplitRuns, Sums
from tokenmill.pipeline.filenames import EMPTY, entry_name
from tokenmill.pipeline.splits import Piece, Split, to_record

FORMAT_VERSION = 5
"""The version of the format of ledger entries."""

_TOKENS = 1 << 15
"""How many tokens of JSON `json_pieces` puts into one piece."""

LOST = "lost:"
"""What the names of some counts in `chat` begin with: of fields of which texts show nothing, as `lost:tool_calls`."""


@dataclass(frozen=True)
class FileRecord:
    """A file of the output: its name, size, checksum and, for some, number of rows and tokens."""

    file: FileName
    """Its name relative to the output folder, with `/`."""
    n_bytes: Count
    sha256: str
    rows: Count | None = None
    """Number of rows of a shard, of rejects, or of a table of documents; None for other files."""
    tokens: Count | None = None
    """Number of tokens of a shard, without padding, or of the documents in a table; None for other files."""

    def to_record(self) -> dict[str, Any]:
        """Returns the fields that are not None, as plain JSON, as the manifest has them."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Fields common to the entries of splits and those of files that were merged from several, such as shards."""

    index: Count
    """The place of the split in the plan, or of the shard."""
    tokenizer: str
    """Digest of the tokenizer."""
    fields: str = ""
    """The kept fields, as in `Split.fields`."""
    shard: FileRecord
    """The rows in the first format."""
    companions: tuple[FileRecord, ...] = ()
    """The other files of the shard: its index, and the same rows in other formats."""
    documents: FileRecord | None = None
    """The table of the shard's documents; None for a split of a job that shuffles, as the merged shards have it."""
    counts: dict[str, dict[str, Count]]
    """The numbers of `counts.Counts` by group and name: those of reader, encoder and writer; `quantities` describes
    them. Of a merged shard only those of the writer, as its splits have the others."""

    def __getitem__(self, name: str) -> int:
        """Returns a number of everything; 0 if it was not counted."""
        return self.counts.get("", {}).get(name, 0)

    @property
    def n_documents(self) -> int:
        """The number of documents."""
        return self["n_documents"]

    @property
    def n_tokens(self) -> int:
        """The number of tokens of the documents, padding not included."""
        return self["n_tokens"]

    @property
    def n_oov_tokens(self) -> int:
        """The number of unknown tokens of the documents."""
        return self["n_oov_tokens"]

    def of(self, name: str) -> dict[str, int] | None:
        """Returns a number that is counted by name, such as "rejected", by these names; None if it was not counted."""
        numbers: dict[str, int] | None = nest(self.counts.get("", {})).get(name)
        return numbers

    def files(self) -> Iterator[FileRecord]:
        """Yields the files this entry names."""
        yield self.shard
        yield from self.companions
        if self.documents is not None:
            yield self.documents

    def has_files(self, output: str, names: Sequence[str | None], *, without: FileRecord | None = None) -> bool:
        """Returns whether the shard has files of these names, and all files but `without` are as recorded; reads them.

        Args:
          output: the output folder.
          names: those of the shard, of its companions and of its table of documents.
          without: a file that may be gone.
        """
        files = (self.shard, *self.companions, self.documents)
        mine = [file.file.removeprefix(f"{EMPTY}/") for file in files if file is not None]
        return mine == names and not any(problem(output, file) for file in self.files() if file is not without)

    def to_json(self) -> bytes:
        """Returns this as JSON; the same bytes for equal entries."""
        return to_json({"format_version": FORMAT_VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Returns the entry that `to_json` turned into `data`; raises ValueError if `data` is something else."""
        return read_as(cls, load_entry(data))

    @classmethod
    def read(cls, output: str, entry_id: str) -> Self | None:
        """Returns the entry of this id as it is on disk; None if there is none, or it cannot be read as one."""
        path = storage.join(output, entry_name(entry_id))
        if not storage.exists(path):
            return None
        with storage.open_read(path) as handle:
            try:
                return cls.from_json(handle.read())
            except ValueError:
                return None


@dataclass(frozen=True, kw_only=True)
class SplitEntry(Entry):
    """What one split read, and what became of it; the entry of a split whose words were counted. Counts are exact."""

    split_id: str
    pieces: tuple[Piece, ...]
    inputs: tuple[PieceCounts, ...]
    """What was read of each piece, in the order of `pieces`; their sum is what the split read."""
    runs: SortedRuns | None = None
    """The sorted runs of word counts, or of documents if the job shuffles; `shard` is then their file."""

    def to_json(self) -> bytes:
        """Returns this as JSON; of each piece the counts that are not zero."""
        inputs = [counts.to_record() for counts in self.inputs]
        pieces = [to_record(piece) for piece in self.pieces]
        others = asdict(dataclasses.replace(self, inputs=(), pieces=()))  # which would copy every value of every piece
        return to_json({"format_version": FORMAT_VERSION, **others, "inputs": inputs, "pieces": pieces})

    @classmethod
    def committed(
        cls, output: str, split: Split, tokenizer: str, names: Sequence[str | None], *, are_merged: bool = False
    ) -> Self | None:
        """Returns the entry of a split if it needs no work: committed, from the same input, with all files as recorded.

        Returns None otherwise. Reads the split's files, to compare their checksums.

        Args:
          output: the output folder.
          split: as planned now.
          tokenizer: digest of the tokenizer.
          names: those of the shard or the file of runs, of its companions, and of its table of documents.
          are_merged: whether all runs are merged already, so that their file may have been removed.
        """
        entry = cls.read(output, split.id)
        if entry is None:
            return None
        mine = entry.split_id, entry.index, entry.pieces, entry.fields, entry.tokenizer
        is_same = mine == (split.id, split.index, split.pieces, split.fields, tokenizer)
        without = entry.shard if are_merged else None
        return entry if is_same and entry.has_files(output, names, without=without) else None


@dataclass(frozen=True, kw_only=True)
class LedgerEntry(SplitEntry):
    """The entry of a split that was tokenized."""

    rejects: FileRecord | None
    statistics: FileRecord

    def files(self) -> Iterator[FileRecord]:
        """Yields the files this entry names."""
        yield from super().files()
        if self.rejects is not None:
            yield self.rejects
        yield self.statistics


@dataclass(frozen=True, kw_only=True)
class ShardEntry(Entry):
    """The contents of one shard of a shuffled job. All counts are exact."""

    shard_id: str
    n_shards: Count
    plan: str = ""
    """The digest of the plan it was merged for; earlier versions had none."""
    sums: Sums
    documents: FileRecord
    keys: FileRecord

    def __getitem__(self, name: str) -> int:
        """Returns a number; those of documents are in `sums`, as the splits have counted them."""
        number: int | None = getattr(self.sums, name, None)
        return super().__getitem__(name) if number is None else number

    def files(self) -> Iterator[FileRecord]:
        """Yields the files this entry names."""
        yield from super().files()
        yield self.keys

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Returns the entry that `to_json` turned into `data`; raises ValueError if `data` is something else."""
        fields = load_entry(data)
        fields.pop("runs", None)  # which earlier versions had: what it was merged from follows from the plan now
        entry = read_as(cls, fields)
        if entry.index >= entry.n_shards:
            raise ValueError(f"not a ledger entry: shard {entry.index} of {entry.n_shards}")
        return entry


Written = LedgerEntry | ShardEntry
"""The entry of a shard: of a split, or of a merged one."""


def runs_of(entry: SplitEntry) -> SplitRuns:
    """Returns the runs of a split that was sorted, from its entry."""
    of = entry.runs
    assert of is not None
    return SplitRuns(entry.split_id, entry.index, entry.shard.sha256, of.runs, entry.fields, groups=of.groups)


Kind = TypeVar("Kind")


def load_entry(data: bytes) -> dict[str, Any]:
    """Returns the fields of an entry of this format, or of 4, the one before; ValueError if it is something else."""
    try:
        fields: dict[str, Any] = json_files.load(data)
        version = fields.pop("format_version")
        if version == FORMAT_VERSION - 1:
            numbers = flatten({name: fields.pop(name) for name in _COUNTED_BY_4 if name in fields})
            if isinstance(runs := fields.get("runs"), dict):  # of a split; they were other files, which are removed
                fields["runs"] = {**runs, "runs": []}
            return {**fields, "counts": {"": numbers}}
    except (RecursionError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a ledger entry: {error!r}") from error
    if version != FORMAT_VERSION:
        raise ValueError(f"a ledger entry of format {version!r}, but this TokenMill reads {FORMAT_VERSION}")
    return fields


_COUNTED_BY_4 = (
    *(each.name for each in (*quantities.READ, *quantities.TOKENIZED)),
    *("packing", "windows", "chat", "has_field"),
)
"""The keys of entries of format 4 that are numbers, or mappings of names to numbers."""


def read_as(kind: Callable[..., Kind], fields: dict[str, Any]) -> Kind:
    """Returns an entry of a kind with these fields, plain JSON; raises ValueError if they are not those of it."""
    if wrong := {each.name for each in dataclasses.fields(cast(Any, kind))} ^ {*fields}:
        is_known = "no" if min(wrong) in fields else "a missing"
        raise ValueError(f"not a ledger entry: {min(wrong)!r} is {is_known} key of it")
    found: Kind = json_files.check(fields, _shape(kind), "not a ledger entry")
    return found


@functools.cache
def _shape(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def to_json(value: Any) -> bytes:
    """Returns `value` as JSON, written as in all of TokenMill's files: UTF-8, sorted keys, one space per level."""
    return b"".join(json_pieces(value))


def json_pieces(value: Any) -> Iterator[bytes]:
    """Yields `to_json(value)` in pieces of some hundred kilobytes, for values too large to hold as one text."""
    encoder = json.JSONEncoder(sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    tokens = itertools.chain(encoder.iterencode(value), ("\n",))
    while text := "".join(itertools.islice(tokens, _TOKENS)):
        # UTF-8 has no lone surrogates, which come from file names that are not UTF-8; they become JSON escapes.
        yield text.encode("utf-8", "backslashreplace")


def problem(output: str, record: FileRecord) -> str | None:
    """Returns how a file on disk differs from its record, or None if it has the recorded size and checksum."""
    path = storage.join(output, record.file)
    if not storage.exists(path):
        return f"{record.file}: missing"
    found = describe(output, record.file, record.n_bytes)
    if found.n_bytes != record.n_bytes:
        at_least = "at least " if found.n_bytes > record.n_bytes else ""
        return f"{record.file}: {at_least}{found.n_bytes} bytes, recorded {record.n_bytes}"
    if found.sha256 != record.sha256:
        return f"{record.file}: sha256 {found.sha256}, recorded {record.sha256}"
    return None


def describe(output: str, name: str, most_bytes: int | None = None) -> FileRecord:
    """Returns the record of a file in the output folder, with its size and checksum; reads it in bounded memory.

    Args:
      output: the output folder.
      name: the name of the file.
      most_bytes: stop where the file has more than this; the size and the checksum are then those of what was read.

    Raises:
      OSError: if it cannot be read.
    """
    digest = hashlib.sha256()
    n_bytes = 0
    with storage.open_read(storage.join(output, name)) as handle:
        while (most_bytes is None or n_bytes <= most_bytes) and (chunk := handle.read(1 << 20)):
            digest.update(chunk)
            n_bytes += len(chunk)
    return FileRecord(name, n_bytes, digest.hexdigest())
