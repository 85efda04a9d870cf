# SPDX-License-Identifier: Apache-2.0
"""Checks the table of documents of a shard, and counts rows again that must hold these documents where it says.

    table of documents --> ledger, input and keys of a shuffle: equal? --> ListedDocuments
    rows as they were read --Placement of the table--> pieces of documents --> tokens, lengths and hashes of documents

There is one way back for documents, windows and packed sequences: a row is a list of pieces.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline.books import sums_kernels
from tokenmill.pipeline.books.ledger import LedgerEntry, ShardEntry, Written
from tokenmill.pipeline.books.sums import sum_doc_ids
from tokenmill.pipeline.config.kept_fields import decode_fields, without_marks
from tokenmill.pipeline.hashing import SHUFFLING, document_keys
from tokenmill.pipeline.output.placement import Int64s, Measures, Placement, RowForm, count_between, placed_columns
from tokenmill.pipeline.output.spill import shard_range
from tokenmill.pipeline.output.tables import listed_fields, read_documents
from tokenmill.pipeline.output.writers.base import json_texts
from tokenmill.pipeline.proving.report import VerifyReport, check_file
from tokenmill.pipeline.statistics.tally import Statistics


class KeptFields:
    """The kept fields of one shard, read from its first file and held in memory: all its files must hold the same."""

    def __init__(self, fields: pa.Schema, listed: pa.Table) -> None:
        """Takes the fields that the ledger names, and the table of documents, which may have them."""
        self._fields = pa.schema(without_marks(fields))
        self._first: tuple[str, pa.Table] | None = None
        if len(fields) and set(fields.names) <= set(listed.schema.names):
            self._first = "the table of documents", listed.select(fields.names)

    def __bool__(self) -> bool:
        return len(self._fields) > 0

    def compare(self, name: str, batches: Sequence[pa.RecordBatch]) -> str | None:
        """Returns how the fields in the file `name` differ from those of the files before; None if they do not.

        Args:
          name: the name of the file.
          batches: its columns that may be null.
        """
        if not batches:
            return None
        table = pa.Table.from_batches(batches)
        is_json = name.endswith(".mds")
        names = sorted(self._fields.names) if is_json else self._fields.names
        if table.schema.names != names or not (is_json or table.schema.equals(self._fields)):
            return f"keeps the fields {table.schema.to_string()!r}, but the ledger says {self._fields.to_string()!r}"
        if self._first is None:
            self._first = name, table
            return None
        other, first = self._first
        if table.num_rows != first.num_rows:
            return f"keeps the fields of {table.num_rows} rows, {other} of {first.num_rows}"
        for field in names:
            ours, theirs = table[field], first[field]
            if is_json == other.endswith(".mds") and ours.equals(theirs):
                continue
            # As JSON, because there NaN equals itself.
            ours, theirs = _as_json(ours, is_json), _as_json(theirs, other.endswith(".mds"))
            if not ours.equals(theirs):
                pairs = enumerate(zip(ours.to_pylist(), theirs.to_pylist(), strict=False))
                row, mine, before = next((i, mine, before) for i, (mine, before) in pairs if mine != before)
                return f"field {field!r} of row {row} is {mine}, in {other} {before}"
        return None


def _as_json(column: pa.ChunkedArray, is_json: bool) -> pa.ChunkedArray:
    if is_json:
        return column
    return pa.chunked_array([json_texts(chunk).cast(pa.string()) for chunk in column.chunks], pa.string())


class ListedDocuments:
    """The table of one shard, all of it in memory, for comparison with the shard's rows."""

    def __init__(self, name: str, table: pa.Table, placement: Placement, keys: np.ndarray, fields: pa.Schema) -> None:
        """Takes the table of the file `name`; keys, uint64[n_documents], are those of a shuffle, or none."""
        self.name, self.placement, self.keys = name, placement, keys
        self.fields = KeptFields(fields, table)
        """The kept fields, for comparison with those in other files."""
        self.n_tokens = table.column("n_tokens").to_numpy().astype(np.int64)
        """int64[n_documents], how many tokens each document has."""
        self.doc_ids = table.column("doc_id")

    @classmethod
    def read(cls, output: str, entry: Written, manifest: Mapping[str, Any], report: VerifyReport) -> Self | None:
        """Reads and checks the table of an entry; None if it cannot be read, or there is none."""
        record = entry.documents
        if record is None or not check_file(output, record, report):
            return None
        try:
            has_segments = bool(entry.of("packing") or entry.of("windows"))
            formats = manifest["config"]["output"]["format"]
            formats = [formats] if isinstance(formats, str) else formats
            fields = listed_fields(formats, decode_fields(entry.fields), are_documents=not has_segments)
            batches = list(read_documents(output, record, has_segments=has_segments))
            schema = schemas.listed_documents(has_segments=has_segments, fields=fields)
            table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
            keys = read_keys(output, entry) if isinstance(entry, ShardEntry) else np.zeros(0, np.uint64)
            _check_places(table, entry, manifest, keys)
            _check_sums(table, entry)
            form = RowForm.recorded(manifest)
            placement = Placement.listed(table, form)
            if has_segments:
                totals = form.totals(table.column("n_tokens").to_numpy().astype(np.int64))
                n_rows = entry["packing:n_sequences"] + entry["windows:n_windows"]
                placement.check(totals, n_rows, form)
        except (OSError, ValueError) as error:
            report.problems.append(f"{record.file}: {error}")
            return None
        return cls(record.file, table, placement, keys, decode_fields(entry.fields))


def read_keys(output: str, entry: ShardEntry) -> np.ndarray:
    """Returns the keys of the documents of a shuffled shard, uint64[n_documents].

    Raises:
      ValueError: if they are not in order, or not of this shard.
      OSError: if they cannot be read.
    """
    with storage.open_read(storage.join(output, entry.keys.file)) as handle:
        keys = np.frombuffer(handle.read(), "<u8")
    low, high = shard_range(entry.index, entry.n_shards)
    wrong = np.flatnonzero(np.diff(keys, prepend=np.uint64(low)) > keys)  # below zero is above all
    if wrong.size or (keys.size and int(keys[-1]) >= high):
        row = int(wrong[0]) if wrong.size else keys.size - 1
        raise ValueError(
            f"{entry.keys.file}: the key {keys[row]} of document {row} is not in the order of the shuffle, or not of "
            f"this shard, {low} to {high - 1}"
        )
    return keys


def _check_places(table: pa.Table, entry: Written, manifest: Mapping[str, Any], recorded: np.ndarray) -> None:
    """Raises ValueError unless documents are in the right order: that of the input, or of the recorded keys."""
    if not table.num_rows:
        return
    files, offsets = (table.column(name).to_numpy() for name in ("input_file", "input_offset"))
    if files.min() < 0 or files.max() >= len(manifest["inputs"]):
        raise ValueError(f"a document comes from none of the {len(manifest['inputs'])} files of the manifest")
    if isinstance(entry, LedgerEntry):
        is_after = (np.diff(files) > 0) | ((np.diff(files) == 0) & (np.diff(offsets) > 0))
        if not is_after.all():
            raise ValueError(f"document {int(np.argmin(is_after)) + 1} does not come after the one before it")
        if strange := set(np.unique(files).tolist()) - {piece.file for piece in entry.pieces}:
            raise ValueError(f"documents are of file {min(strange)}, which split {entry.split_id} has not read")
        return
    used, pieces = np.unique(files, return_inverse=True)
    names = [manifest["inputs"][file]["name"] for file in used.tolist()]
    places = pa.record_batch({"offset": pa.array(offsets), "piece": pa.array(pieces)})
    keys = document_keys(SHUFFLING, manifest["config"]["output"]["shuffle"]["seed"], names, places)
    if not np.array_equal(keys, recorded):
        raise ValueError(f"the places of documents are not those of the keys in {entry.keys.file}")
    doc_ids = sum_doc_ids(keys, table.column("doc_id").combine_chunks())
    if doc_ids != entry.sums.doc_ids:
        raise ValueError(
            f"the document ids are not those of the keys: sum {doc_ids:016x}, recorded {entry.sums.doc_ids:016x}"
        )


def _check_sums(table: pa.Table, entry: Written) -> None:
    n_tokens = int(table.column("n_tokens").to_numpy().sum(dtype=np.int64))
    sums = [("documents", table.num_rows, entry.n_documents), ("tokens", n_tokens, entry.n_tokens)]
    if isinstance(entry, LedgerEntry):
        n_bytes = int(table.column("input_bytes").to_numpy().sum())
        sums.append(("bytes of documents", n_bytes, entry["n_document_bytes"]))
    for what, ours, theirs in sums:
        if ours != theirs:
            raise ValueError(f"{ours} {what}, but the ledger says {theirs}")


class PlacedRows:
    """The rows of one file. Holds 8 bytes per document for lengths, and as many for hashes."""

    def __init__(
        self,
        name: str,
        form: RowForm,
        listed: ListedDocuments | None,
        counted: Statistics,
        *,
        has_ids: bool = False,
        is_hashed: bool = False,
    ) -> None:
        """Starts before the first row.

        Args:
          name: the name of the file, for messages.
          form: what the rows are.
          listed: the table of documents; None where there is none, and rows are documents.
          counted: empty statistics; filled with rows, and with the tokens and lengths of documents.
          has_ids: whether rows have the ids of documents.
          is_hashed: whether to hash the tokens of documents, which is a tenth of the work.
        """
        self._name, self._form = name, form
        self._table = listed.name if listed is not None else ""
        self._placement = listed.placement if listed is not None else None
        self._doc_ids = listed.doc_ids if listed is not None and has_ids else None
        self._counted, self._is_hashed = counted, is_hashed
        self.problems: list[str] = []
        """What is wrong, but does not keep rows from being counted."""
        self._wrong_columns: set[str] = set()
        self._n_rows = self._n_tokens = 0
        self._lengths = [listed.n_tokens] if listed is not None else []
        self.hashes = np.zeros(listed.n_tokens.size if listed is not None else 0, np.uint64)
        """uint64[n_documents], a hash of the tokens of each (`sums_kernels.add_values`), or 0."""
        self._last = np.zeros(0, np.int32)  # the tokens that the row before ends with, for windows

    @property
    def lengths(self) -> Int64s:
        """The tokens of the documents so far, int64[n]."""
        return np.concatenate([np.zeros(0, np.int64), *self._lengths])

    def add(self, batch: pa.RecordBatch, ids: np.ndarray, starts: Int64s, stops: Int64s) -> None:
        """Counts the next rows.

        Args:
          batch: the rows, as `formats.read_rows` yields them.
          ids: int32[n_ids].
          starts: int64[n], where the tokens of each row begin in `ids`, padding not included.
          stops: int64[n], where they end.

        Raises:
          ValueError: if they are not the rows that the table lists.
        """
        where = f"{self._name}, row {self._n_rows} and on"
        placement = self._pieces(starts.size, stops - starts, where)
        firsts = np.flatnonzero(np.diff(placement.rows, prepend=-1))
        rows = placement.rows - self._n_rows
        n_around = sum(map(len, self._form.around_row))
        n_tokens = n_around + (np.add.reduceat(placement.sizes, firsts) if firsts.size else firsts)
        if (wrong := np.flatnonzero(n_tokens != stops - starts)).size:
            row = int(wrong[0])
            raise ValueError(
                f"{self._name}: row {self._n_rows + row} has {stops[row] - starts[row]} tokens, but its documents have "
                f"{n_tokens[row]} there"
            )
        at = Measures(
            batch.column("input_ids").offsets.to_numpy(), starts, n_tokens, rows, starts[rows] + placement.starts
        )
        self._check_around(ids, starts, stops, where)
        n_marks = self._count_marks(ids, placement, at, where)
        own = at.at + np.where(placement.firsts > 0, self._form.stride, 0)
        ends = at.at + placement.sizes - (placement.firsts + placement.sizes > self._totals(placement))
        self._check_repeated(ids, placement, at, ends, where)
        self._check_columns(batch, placement, at)
        if "n_oov" in batch.schema.names:
            n_unknown = count_between(ids == self._counted.unk_id, at.at, ends) - n_marks
            self._compare(batch, "n_oov", pa.array(n_unknown.astype(np.int32)))
        self._counted.update(pa.array(np.full(own.size, ""), pa.string()), ids, own, ends)
        self._counted.add({"n_oov_tokens": -int(n_marks.sum())})
        if self._is_hashed:
            hashes = np.zeros(own.size, np.uint64)
            sums_kernels.add_values(ids, own, ends, placement.firsts + own - at.at, hashes)
            np.add.at(self.hashes, placement.documents, hashes)
        self._n_rows += starts.size
        self._n_tokens += int(n_tokens.sum())

    def finish(self) -> None:
        """Completes the statistics after the last row; whoever knows how many rows there must be compares them."""
        if self._form.strategy == "documents":
            self._lengths, self.hashes = [self.lengths[: self._n_rows]], self.hashes[: self._n_rows]
        # What was updated are pieces of documents, without separators and what is around windows.
        counted = self._counted
        counted.add(
            {"n_documents": self._n_rows - counted["n_documents"], "n_tokens": self._n_tokens - counted["n_tokens"]}
        )
        self._counted.set_lengths(self.lengths)

    def _pieces(self, n: int, n_tokens: Int64s, where: str) -> Placement:
        """Returns the pieces of the next `n` rows, which have so many tokens, int64[n]."""
        first, last = self._n_rows, self._n_rows + n
        if self._placement is None:
            self._lengths.append(n_tokens)
            self.hashes = np.concatenate([self.hashes, np.zeros(n, np.uint64)])
            numbers, zeros = np.arange(first, last), np.zeros(n, np.int64)
            return Placement(numbers, zeros, n_tokens, numbers, zeros)
        if self._form.strategy == "documents":
            listed = self._lengths[0][first:last]
            if listed.size < n or (listed != n_tokens).any():
                row = first + int(np.argmax(listed != n_tokens[: listed.size]) if listed.size == n else listed.size)
                tokens = f"lists {self._lengths[0][row]}" if row < self._lengths[0].size else "does not list it"
                self.problems.append(
                    f"{self._name}: row {row} has {n_tokens[row - first]} tokens, {self._table} {tokens}"
                )
                # One difference would cause many more: the rows from here on count as they are.
                self._placement = self._doc_ids = None
                self._lengths, self.hashes = [self._lengths[0][:first]], self.hashes[:first]
                return self._pieces(n, n_tokens, where)
        found = self._placement.of_rows(first, last)
        if n and (not found.rows.size or found.rows[-1] != last - 1):
            raise ValueError(f"{where}: has more rows than the table of documents lists")
        return found

    def _totals(self, placement: Placement) -> Int64s:
        """Returns how many tokens the document of each piece has, without a separator."""
        if self._placement is None:
            return placement.sizes
        found: Int64s = self._lengths[0][placement.documents]
        return found

    def _check_around(self, ids: np.ndarray, starts: Int64s, stops: Int64s, where: str) -> None:
        """Raises ValueError unless all rows have the tokens around rows."""
        before, after = self._form.around_row
        sides = [(token_id, starts + i) for i, token_id in enumerate(before)]
        sides += [(token_id, stops - i) for i, token_id in enumerate(reversed(after), 1)]
        for token_id, places in sides:
            if (wrong := np.flatnonzero(ids[places] != token_id)).size:
                raise ValueError(f"{where}: row {wrong[0]} of these has no token {token_id} around its window")

    def _count_marks(self, ids: np.ndarray, placement: Placement, at: Measures, where: str) -> Int64s:
        """Returns how many tokens of each piece are marks that are the unknown token, separators not included.

        Raises:
          ValueError: unless every document has its marks and its separator.
        """
        (before, after), totals = self._form.around_document, self._totals(placement)
        if (wrong := np.flatnonzero(totals < len(before) + len(after))).size:
            number = placement.documents[wrong[0]]
            raise ValueError(
                f"{where}: document {number} has fewer tokens than the {len(before) + len(after)} around every document"
            )
        marks = [(token_id, np.full(totals.size, i), True) for i, token_id in enumerate(before)]
        marks += [(token_id, totals - i, True) for i, token_id in enumerate(reversed(after), 1)]
        if self._form.separator_id is not None:
            marks.append((self._form.separator_id, totals, False))
        n_unknown = np.zeros(totals.size, np.int64)
        for token_id, places, is_mark in marks:
            is_here = (places >= placement.firsts) & (places < placement.firsts + placement.sizes)
            found = ids[(at.at + places - placement.firsts)[is_here]]
            if (wrong := np.flatnonzero(found != token_id)).size:
                piece = np.flatnonzero(is_here)[wrong[0]]
                number, place = placement.documents[piece], places[piece]
                raise ValueError(
                    f"{where}: token {place} of document {number} must be {token_id}, is {found[wrong[0]]}"
                )
            n_unknown += is_here & is_mark & (token_id == self._counted.unk_id)
        return n_unknown

    def _check_repeated(self, ids: np.ndarray, placement: Placement, at: Measures, ends: Int64s, where: str) -> None:
        """Raises ValueError unless each window begins as the one before it ends."""
        stride = self._form.stride
        if not stride or not ends.size:
            return
        later = np.flatnonzero(placement.firsts > 0)
        places = np.arange(stride)
        before = np.empty((later.size, stride), np.int32)
        is_behind = later > 0  # for row 0 the row before was in another batch
        before[is_behind] = ids[(ends[later[is_behind] - 1] - stride)[:, None] + places]
        if later.size and later[0] == 0:
            before[0] = self._last
        is_right = (before == ids[at.at[later][:, None] + places]).all(axis=1)
        if not is_right.all():
            row = later[np.argmin(is_right)]
            raise ValueError(
                f"{where}: row {row} of these does not begin with the {stride} tokens that end the one before"
            )
        self._last = ids[max(int(ends[-1]) - stride, int(at.at[-1])) : ends[-1]].copy()

    def _check_columns(self, batch: pa.RecordBatch, placement: Placement, at: Measures) -> None:
        """Compares the columns that say where documents are with the table."""
        for name, column in placed_columns(batch.schema.names, placement, at, self._form).items():
            self._compare(batch, name, column)
        if self._doc_ids is not None:
            self._compare(batch, "doc_id", self._doc_ids.take(pa.array(placement.documents)).combine_chunks())

    def _compare(self, batch: pa.RecordBatch, name: str, expected: pa.Array) -> None:
        """Adds a problem if a column that rows may have is another; only the first of each column."""
        if name not in batch.schema.names or name in self._wrong_columns or expected.equals(batch.column(name)):
            return
        self._wrong_columns.add(name)
        pairs = [(ours.as_py(), theirs.as_py()) for ours, theirs in zip(expected, batch.column(name), strict=True)]
        wrong = [row for row, (ours, theirs) in enumerate(pairs) if ours != theirs]
        row = wrong[0]
        ours, theirs = (f"{each!r:.80}" for each in pairs[row])
        what = "counted" if name in ("n_tokens", "n_oov") else f"{self._table} gives"
        more = f", and in {len(wrong) - 1} more rows" if len(wrong) > 1 else ""
        self.problems.append(f"{self._name}: {name} of row {self._n_rows + row} is {theirs}, {what} {ours}{more}")
