# SPDX-License-Identifier: Apache-2.0
"""The books of a whole job: checks its splits and shards, adds them up one after another, and checks the totals.

Records, bytes, rows and tokens of a split or shard are each counted twice, independently. `PlannedSplits` finds the
entries of a plan.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from tokenmill.pipeline.books import quantities
from tokenmill.pipeline.books.counts import COUNTED_OF_FILES, SOURCE, Counts, PieceCounts, flatten, nest, sum_of
from tokenmill.pipeline.books.ledger import LedgerEntry, ShardEntry, SplitEntry, Written
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.books.reject_limits import LossyFiles
from tokenmill.pipeline.books.sums import Sums
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.splits import Piece, Split

_TOTALS = (
    *(each.name for each in (*quantities.READ, *quantities.TOKENIZED)),
    *("n_splits", "shard_rows", "shard_tokens", "shard_bytes", "reject_rows", "reject_bytes"),
)
_IN_TOTALS = frozenset(_TOTALS) | {"packing", "windows", "has_field", "chat"}
"""The numbers in the totals of a manifest; `_TOTALS` are there if they are zero, too."""

_MOST_PROBLEMS = 1000
"""A message lists at most this many problems of input files."""


class JobBooks:
    """Adds up entries that balance, checks that no part of a file is missing, and passes on the manifest's records.

    It holds sums, the file that the last entry ended in and, for a job that shuffles, the ids of its splits.

    Attributes:
      counts: the sums of all numbers so far.
      problems: problems of input files so far, a line each.
      sorted_splits: if the job shuffles, the id of each split.
      sorted, merged: if the job shuffles, sums of the documents of all splits, and of all merged shards.
      lossy: the files that are damaged, or lost too much.
    """

    def __init__(
        self,
        take: Callable[[str, dict[str, Any]], None],
        *,
        is_shuffled: bool = False,
        is_whole: bool = True,
        is_chunk: bool = False,
        limits: InputConfig | None = None,
    ) -> None:
        """Starts at zero.

        Args:
          take: called with the name of a list in the manifest and its next record.
          is_shuffled: whether the job shuffles, so that rows are in merged shards, not in those of splits.
          is_whole: whether each file must be read completely; False in a replay, which reads only ranges.
          is_chunk: whether these are books of a stretch of the splits, for `join`: its first file may begin before.
          limits: the section that says which files are damaged; None if nobody wants to know.
        """
        self._take, self._is_whole, self._is_chunk, self.is_shuffled = take, is_whole, is_chunk, is_shuffled
        self.counts = Counts()
        self.problems: list[str] = []
        self.sorted_splits: list[str] = []
        self.sorted, self.merged = Sums(), Sums()
        self.lossy = LossyFiles(limits) if limits is not None else None
        self._rejecting: list[dict[str, Any]] = []  # of a part: the records of files with rejects
        self._ids = self._planned = 0
        self._first: _File | None = None
        self._file: _File | None = None

    @property
    def totals(self) -> dict[str, Any]:
        """The totals of the manifest."""
        numbers = {name: n for name, n in self.counts.groups[""].items() if name.partition(":")[0] in _IN_TOTALS}
        return {**dict.fromkeys(_TOTALS, 0), "rejected": {}, "filtered": {}, **nest(numbers)}

    @property
    def by_source(self) -> dict[str, dict[str, Any]]:
        """What was read of each source of `input.sources`, as in the manifest."""
        return {name: nest(numbers) for name, numbers in self.counts.labels(SOURCE).items()}

    def add(self, entry: LedgerEntry) -> None:
        """Adds the entry of the next split that was tokenized, in the order of the plan."""
        self.add_read(entry)
        if self.is_shuffled:
            self.sorted_splits.append(entry.split_id)
            if entry.runs is None:
                raise BooksError(f"split {entry.split_id} was not sorted")
            self.sorted += entry.runs.sums
        else:
            self._add_written(entry, {"split": entry.split_id})
        if entry.rejects is not None:
            self.counts.add({"reject_rows": entry.rejects.rows or 0, "reject_bytes": entry.rejects.n_bytes})
            self._take("rejects", {**entry.rejects.to_record(), "split": entry.split_id})

    def add_read(self, entry: SplitEntry) -> None:
        """Adds what a split read and counted: of the next one, as the pieces of a file are neighbours in the plan."""
        self._ids += int(entry.split_id, 16)
        self._planned += _digest(Split(entry.index, entry.split_id, entry.pieces, entry.fields))
        self.counts.add_groups(entry.counts)
        self.counts.add({"n_splits": 1})
        for piece, counts in zip(entry.pieces, entry.inputs, strict=False):  # `imbalances` checks that they are as many
            self._read(_File(piece, piece.stop - piece.start, counts))

    def add_shard(self, shard: ShardEntry) -> None:
        """Adds the entry of the next shard of a job that shuffles."""
        self._ids += int(shard.shard_id, 16)
        self.merged += shard.sums
        self.counts.add_groups(shard.counts)
        self._add_written(shard, {"entry": shard.shard_id})

    def close(self) -> None:
        """Checks the last file; no split may be added after that."""
        self._end_file()

    def check_planned(self, planned: "PlannedSplits", shards: Iterable[str] = ()) -> None:
        """Raises BooksError unless just the planned splits, and the shards of these ids, were added."""
        ids = sum(planned.ints()) + sum(int(each, 16) for each in shards)
        if (self._ids, self._planned % (1 << 64)) != (ids, planned.digest):
            raise BooksError("the splits and shards that were added up are not those of the plan")

    def to_record(self) -> dict[str, Any]:
        """Returns the books of a part as plain JSON; of its files all but the first and the last are passed on."""
        files = [
            [asdict(file.piece), file.n_planned, asdict(file.counts)] for file in (self._first, self._file) if file
        ]
        return {
            "groups": self.counts.groups,
            "files": files,
            "problems": self.problems,
            "rejecting": self._rejecting,
            "splits": self.sorted_splits,
            "sums": [vars(self.sorted), vars(self.merged)],
            "planned": [self._ids, self._planned],
        }

    def join(self, part: Mapping[str, Any]) -> None:
        """Adds the books of the next stretch of the splits, from `to_record`; what it passed on comes after that."""
        self.counts.add_groups(part["groups"])
        self.sorted_splits += part["splits"]
        before, after = part["sums"]
        self.sorted, self.merged = self.sorted + Sums(**before), self.merged + Sums(**after)
        for i, (piece, n_planned, counts) in enumerate(part["files"]):
            if i:
                self._end_file()
            self._read(_File(Piece(**piece), n_planned, PieceCounts(**counts)))
        for record in part["rejecting"]:
            self._note_rejects(record)
        self.problems += part["problems"][: _MOST_PROBLEMS - len(self.problems)]
        self._ids += part["planned"][0]
        self._planned += part["planned"][1]

    def _read(self, file: "_File") -> None:
        before = self._file
        if before is not None and (before.piece.path, before.piece.name) == (file.piece.path, file.piece.name):
            counts = replace(before.counts + file.counts, sha256="")
            self._file = _File(before.piece, before.n_planned + file.n_planned, counts)
        else:
            self._end_file()
            self._file = file

    def _add_written(self, entry: Written, of: Mapping[str, str]) -> None:
        n_bytes = sum(file.n_bytes for file in (entry.shard, *entry.companions))
        rows, tokens = entry.shard.rows or 0, entry.shard.tokens or 0
        self.counts.add({"shard_rows": rows, "shard_tokens": tokens, "shard_bytes": n_bytes})
        files = [("shards", entry.shard), *(("companions", file) for file in entry.companions)]
        for kind, file in [*files, *([("documents", entry.documents)] if entry.documents is not None else [])]:
            self._take(kind, {**file.to_record(), **of})

    def _end_file(self) -> None:
        """Checks that every byte of an uncompressed file of lines was read exactly once."""
        file, self._file = self._file, None
        if file is None:
            return
        if self._is_chunk and self._first is None:
            self._first = file
            return
        piece, counts = file.piece, file.counts
        n_expected = piece.n_bytes if self._is_whole else file.n_planned
        if piece.is_read_as_stored and counts.n_bytes != n_expected and len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(f"{piece.path!r}: {counts.n_bytes} bytes read of {n_expected}")
        record = _input(piece, counts)
        self._take("inputs", record)
        if counts.rejected:
            self._note_rejects(record)
        if piece.source:
            self.counts.add(flatten({"n_files": 1, **record["read"]}), f"{SOURCE}{piece.source}")

    def _note_rejects(self, record: dict[str, Any]) -> None:
        if self._is_chunk:
            self._rejecting.append(record)
        elif self.lossy is not None:
            self.lossy.add(record)


class _File(NamedTuple):
    """What was read so far of a file that more entries may go on with."""

    piece: Piece
    """The first of it."""
    n_planned: int
    counts: PieceCounts


def _input(piece: Piece, counts: PieceCounts) -> dict[str, Any]:
    """Returns the manifest's record of an input file; it has no checksum if the file is cut into several splits."""
    record: dict[str, Any] = {"name": piece.name, "n_bytes": piece.n_bytes, "format": piece.format}
    if piece.compression != "none":
        record["compression"] = piece.compression
    read = counts.to_record()
    if sha256 := read.pop("sha256", None):
        record["sha256"] = sha256
    return {**record, "read": read}


def identities(totals: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the equations of totals, each as {"left", "right"}: terms with their numbers.

    Raises:
      BooksError: naming every equation that does not hold.
    """
    counts = flatten(totals)
    equations = *quantities.OF_INPUT, *quantities.OF_TOKENS, *quantities.of_rows(counts), *quantities.OF_REJECTS
    if wrong := quantities.imbalances(equations, counts):
        raise BooksError("\n".join(f"the job: {line}" for line in wrong))
    return [equation.terms(counts) for equation in equations]


def imbalances(entry: Written | SplitEntry) -> list[str]:
    """Returns a line for every equation that does not hold, with the split or shard and both numbers."""
    if not isinstance(entry, LedgerEntry | ShardEntry):
        lines = quantities.imbalances(quantities.OF_INPUT, entry.counts.get("", {}))
        return [*(f"split {entry.split_id}: {line}" for line in lines), *_imbalances_of_inputs(entry)]
    counts = {**entry.counts.get("", {}), "n_documents": entry.n_documents, "n_tokens": entry.n_tokens}
    if isinstance(entry, ShardEntry):
        counts["n_keys"] = entry.keys.rows or 0
        lines = [*_imbalances_of_rows(entry, counts), *quantities.imbalances(quantities.OF_KEYS, counts)]
        return [f"shard {entry.shard_id}: {line}" for line in lines]
    where = f"split {entry.split_id}: "
    counts["reject_rows"] = (entry.rejects.rows or 0) if entry.rejects else 0
    checks = [*quantities.OF_INPUT, *quantities.OF_TOKENS, *quantities.OF_REJECTS]
    if entry.runs is not None:
        names = "documents", "tokens", "oov_tokens"
        counts |= {f"sorted_{name}": getattr(entry.runs.sums, f"n_{name}") for name in names}
        checks += quantities.OF_RUNS
    lines = [*quantities.imbalances(checks, counts), *_imbalances_of_rows(entry, counts)]
    return [*(where + line for line in lines), *_imbalances_of_inputs(entry)]


def _imbalances_of_inputs(entry: SplitEntry) -> list[str]:
    """Returns the equations that do not hold for a file of the split, or between the split and the sums of files."""
    where = f"split {entry.split_id}"
    if len(entry.inputs) != len(entry.pieces):
        return [f"{where}: {len(entry.inputs)} inputs are counted, of {len(entry.pieces)} pieces"]
    lines = [
        f"{where}, {piece.name!r}: {problem}"
        for piece, counts in zip(entry.pieces, entry.inputs, strict=True)
        for problem in counts.imbalances()
    ]
    sums = sum_of(entry.inputs)
    names = sums.keys() | {name for name in entry.counts.get("", {}) if name.partition(":")[0] in COUNTED_OF_FILES}
    return lines + [
        f"{where}: {name} {entry[name]} != sum over its files {sums.get(name, 0)}"
        for name in sorted(names)
        if entry[name] != sums.get(name, 0)
    ]


def _imbalances_of_rows(entry: Written, counts: Mapping[str, int]) -> list[str]:
    """Returns every equation that does not hold between the documents of a shard and its files."""
    checks = quantities.in_rows(counts)
    if entry.documents is not None:
        counts = {**counts, "listed_documents": entry.documents.rows or 0, "listed_tokens": entry.documents.tokens or 0}
        checks += quantities.OF_LIST
    lines = quantities.imbalances(checks, counts)
    of_files = quantities.of_rows(counts)[:2]
    for file in (entry.shard, *entry.companions):
        if file.rows is not None or file is entry.shard:
            where = "" if file is entry.shard else f"{file.file}: "
            written = {"shard_rows": file.rows or 0, "shard_tokens": file.tokens or 0}
            lines += [where + line for line in quantities.imbalances(of_files, {**counts, **written})]
    return lines


def check_balance(entry: Written | SplitEntry) -> None:
    """Raises BooksError with the lines of `imbalances`, if there are any."""
    if wrong := imbalances(entry):
        raise BooksError("\n".join(wrong))


class PlannedSplits:
    """The splits of a plan: their ids, and a sum that says whether their entries are as planned."""

    def __init__(self, splits: Iterable[Split]) -> None:
        """Reads the plan.

        Args:
          splits: all of them, in any order.
        """
        indices, ids = array("q"), array("Q")
        self.n_bytes = 0
        """The planned bytes of all splits."""
        self.fields = ""
        """`Split.fields`, which is the same in all splits."""
        self.digest = 0
        """The sum of a digest of every split, whatever its id, modulo 2**64; the same for all folders of a job."""
        for split in splits:
            indices.append(split.index)
            ids.append(int(split.id, 16))
            self.digest = (self.digest + _digest(split)) % (1 << 64)
            self.n_bytes += split.n_bytes
            self.fields = split.fields
        self._ids = np.array(ids, np.uint64)[np.argsort(np.array(indices, np.int64))]

    def __len__(self) -> int:
        return self._ids.size

    def ids(self) -> Iterator[str]:
        """Yields the ids in the order of the plan."""
        return (f"{split_id:016x}" for split_id in self.ints())

    def ints(self) -> Iterator[int]:
        """Yields the ids as numbers."""
        return map(int, self._ids)


def read_committed(split_id: str, output: str, tokenizer: str) -> LedgerEntry:
    """Returns the entry of a split; raises BooksError if it is not committed with the tokenizer of this digest."""
    entry = LedgerEntry.read(output, split_id)
    if entry is None or entry.tokenizer != tokenizer:
        raise BooksError(f"split {split_id} has not been committed with tokenizer {tokenizer}")
    return entry


def _digest(split: Split) -> int:
    line = replace(split, id="").to_json()
    return int.from_bytes(hashlib.blake2b(line.encode("utf-8", "surrogatepass"), digest_size=8).digest())
