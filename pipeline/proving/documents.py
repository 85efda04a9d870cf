# SPDX-License-Identifier: Apache-2.0
"""Checks a shard's table of documents against the ledger, the input, the keys of a shuffle, and the rows."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline.books.ledger import LedgerEntry
from tokenmill.pipeline.books.shard_entry import ShardEntry
from tokenmill.pipeline.books.sums import sum_doc_ids
from tokenmill.pipeline.config.kept_fields import decode_fields, without_marks
from tokenmill.pipeline.hashing import SHUFFLING, document_keys
from tokenmill.pipeline.output.document_tables import SegmentSizes, listed_fields, measure_segments, read_table
from tokenmill.pipeline.output.packing.packed import segment_sizes
from tokenmill.pipeline.output.packing.windowed import ExpectedWindows
from tokenmill.pipeline.output.writers.base import ragged
from tokenmill.pipeline.output.writers.json_texts import json_texts
from tokenmill.pipeline.proving.report import VerifyReport, check_file


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

    def __init__(self, name: str, table: pa.Table, segments: SegmentSizes | None, fields: pa.Schema) -> None:
        """Takes the table of the file `name`.

        Args:
          name: the name of the file.
          table: the whole table.
          segments: the segments, in the order of the rows; None if rows are not packed.
          fields: the kept fields of the shard.
        """
        self.fields = KeptFields(fields, table)
        """The kept fields, for comparison with those in other files."""
        self._name = name
        self.n_tokens = table.column("n_tokens").to_numpy().astype(np.int64)
        """int64[n_documents], how many tokens each document has."""
        self._doc_ids = table.column("doc_id")
        self._segments = segments

    @classmethod
    def read(
        cls, output: str, entry: LedgerEntry | ShardEntry, found: Mapping[str, Any], report: VerifyReport
    ) -> Self | None:
        """Reads and checks the table of an entry; returns None if it cannot be read, or the entry has none.

        Args:
          output: the output folder.
          entry: the entry of the split or shard.
          found: the manifest.
          report: problems are added to it.
        """
        record = entry.documents
        if record is None or not check_file(output, record, report):
            return None
        try:
            has_segments = entry.packing is not None or entry.windows is not None
            formats = found["config"]["output"]["format"]
            formats = [formats] if isinstance(formats, str) else formats
            fields = listed_fields(formats, decode_fields(entry.fields), are_documents=not has_segments)
            batches = list(read_table(output, record, has_segments=has_segments))
            schema = schemas.listed_documents(has_segments=has_segments, fields=fields)
            table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
            _check_places(output, table, entry, found)
            _check_sums(table, entry)
            segments = _check_segments(table, entry, found) if entry.packing is not None else None
        except (OSError, ValueError) as error:
            report.problems.append(f"{record.file}: {error}")
            return None
        documents = cls(record.file, table, segments, decode_fields(entry.fields))
        if entry.windows is not None and (difference := _compare_windows(table, documents.windows(found))):
            report.problems.append(f"{record.file}: {difference}")
        return documents

    def windows(self, found: Mapping[str, Any]) -> ExpectedWindows:
        """Returns the windows of the documents; `found` is the manifest."""
        return ExpectedWindows(found, self._doc_ids, self.n_tokens)

    def compare_rows(self, first: int, doc_ids: pa.Array | None, n_tokens: np.ndarray) -> str | None:
        """Returns how rows that are documents differ from the table; None if they do not.

        Args:
          first: the number of the first of these rows.
          doc_ids: the document ids of the rows; None where the format has none.
          n_tokens: the number of tokens of each row, without padding.
        """
        listed = self.n_tokens[first : first + n_tokens.size]
        if listed.size < n_tokens.size:
            return f"row {first + listed.size} is not a document of {self._name}"
        if (listed != n_tokens).any():
            row = int(np.argmax(listed != n_tokens))
            return f"row {first + row} has {n_tokens[row]} tokens, {self._name} lists {listed[row]}"
        expected = self._doc_ids.slice(first, n_tokens.size).combine_chunks()
        if doc_ids is not None and not expected.equals(doc_ids):
            pairs = enumerate(zip(expected, doc_ids, strict=True))
            row, ours, theirs = next((i, a, b) for i, (a, b) in pairs if not a.equals(b))
            return f"row {first + row} is document {theirs.as_py()!r}, {self._name} lists {ours.as_py()!r}"
        return None

    def compare_sequences(self, first: int, batch: pa.RecordBatch) -> str | None:
        """Returns how packed sequences, from number `first` on, differ from the places that the table lists."""
        assert self._segments is not None
        listed = self._segments
        bounds = np.searchsorted(listed.rows, np.arange(first, first + batch.num_rows + 1))
        start, stop = int(bounds[0]), int(bounds[-1])
        sizes = listed.sizes[start:stop]
        ends = np.concatenate([[0], np.cumsum(sizes)])[bounds - start]
        where = f"sequence {first} and on: {self._name} lists other"
        if (np.diff(ends) != batch.column("n_tokens").to_numpy()).any():
            return f"{where} numbers of tokens"
        if "documents" not in batch.schema.names:
            return None
        if not np.array_equal(ragged(batch.column("documents"))[0], listed.numbers[start:stop]):
            return f"{where} documents"
        for column in schemas.BOUNDARIES:
            if column in batch.schema.names and not np.array_equal(segment_sizes(batch, column), sizes):
                return f"{where} segments than {column}"
        return None


def _compare_windows(table: pa.Table, expected: ExpectedWindows) -> str | None:
    """Returns a problem: the first document that is not listed in exactly the rows of its windows; None if all are."""
    rows, starts = (table.column(name).combine_chunks() for name in ("rows", "starts"))
    counts = np.bincount(expected.texts, minlength=table.num_rows)
    for listed in (rows, starts):
        if (wrong := np.flatnonzero(pc.list_value_length(listed).to_numpy() != counts)).size:
            return f"document {wrong[0]} is not in {counts[wrong[0]]} rows"
    n_before = len(expected.marks.before)
    is_right = (rows.flatten().to_numpy() == np.arange(counts.sum())) & (starts.flatten().to_numpy() == n_before)
    return None if is_right.all() else f"document {expected.texts[np.argmin(is_right)]} is in other rows, or elsewhere"


def _check_places(output: str, table: pa.Table, entry: LedgerEntry | ShardEntry, found: Mapping[str, Any]) -> None:
    """Raises ValueError unless documents are in the right order: that of the input, or of their keys."""
    if not table.num_rows:
        return
    files, offsets = (table.column(name).to_numpy() for name in ("input_file", "input_offset"))
    if files.min() < 0 or files.max() >= len(found["inputs"]):
        raise ValueError(f"a document comes from none of the {len(found['inputs'])} files of the manifest")
    if isinstance(entry, LedgerEntry):
        is_after = (np.diff(files) > 0) | ((np.diff(files) == 0) & (np.diff(offsets) > 0))
        if not is_after.all():
            raise ValueError(f"document {int(np.argmin(is_after)) + 1} does not come after the one before it")
        if strange := set(np.unique(files).tolist()) - {piece.file for piece in entry.pieces}:
            raise ValueError(f"documents are of file {min(strange)}, which split {entry.split_id} has not read")
        return
    used, pieces = np.unique(files, return_inverse=True)
    names = [found["inputs"][file]["name"] for file in used.tolist()]
    places = pa.record_batch({"offset": pa.array(offsets), "piece": pa.array(pieces)})
    keys = document_keys(SHUFFLING, found["config"]["output"]["shuffle"]["seed"], names, places)
    with storage.open_read(storage.join(output, entry.keys.file)) as handle:
        recorded = np.frombuffer(handle.read(), "<u8")
    if not np.array_equal(keys, recorded):
        raise ValueError(f"the places of documents are not those of the keys in {entry.keys.file}")
    doc_ids = sum_doc_ids(keys, table.column("doc_id").combine_chunks())
    if doc_ids != entry.sums.doc_ids:
        raise ValueError(
            f"the document ids are not those of the keys: sum {doc_ids:016x}, recorded {entry.sums.doc_ids:016x}"
        )


def _check_sums(table: pa.Table, entry: LedgerEntry | ShardEntry) -> None:
    n_tokens = int(table.column("n_tokens").to_numpy().sum(dtype=np.int64))
    sums = [("documents", table.num_rows, entry.n_documents), ("tokens", n_tokens, entry.n_tokens)]
    if isinstance(entry, LedgerEntry):
        n_bytes = int(table.column("input_bytes").to_numpy().sum())
        sums.append(("bytes of documents", n_bytes, entry.n_document_bytes))
    for what, ours, theirs in sums:
        if ours != theirs:
            raise ValueError(f"{ours} {what}, but the ledger says {theirs}")


def _check_segments(table: pa.Table, entry: LedgerEntry | ShardEntry, found: Mapping[str, Any]) -> SegmentSizes:
    """Returns the segments of a packed shard in the order of its rows; raises ValueError unless they fill the rows."""
    n_separators = 0 if found["packing"]["separator_id"] is None else 1
    all_ = measure_segments(table, found["config"]["output"]["packing"]["length"], n_separators)
    order = np.lexsort((all_.starts, all_.rows))
    numbers, rows, starts, sizes, firsts = (
        getattr(all_, name)[order] for name in ("numbers", "rows", "starts", "sizes", "firsts")
    )
    if (sizes < 1).any():
        raise ValueError(f"document {int(numbers[np.argmin(sizes)])} is in a sequence with none of its tokens")
    totals = np.bincount(numbers, sizes, table.num_rows).astype(np.int64)
    wrong = np.flatnonzero(totals != table.column("n_tokens").to_numpy() + n_separators)
    if wrong.size:
        raise ValueError(f"document {int(wrong[0])} is not in sequences with all of its tokens")
    is_first = np.diff(rows, prepend=-1) != 0
    ends = np.cumsum(sizes)
    begins = ends - sizes
    expected = begins - np.repeat(begins[is_first], np.diff(np.append(np.flatnonzero(is_first), rows.size)))
    if not np.array_equal(starts, expected):
        row = int(rows[np.argmax(starts != expected)])
        raise ValueError(f"the documents of sequence {row} do not follow one another")
    n_sequences = (entry.packing or {})["n_sequences"]
    if not np.array_equal(rows[is_first], np.arange(n_sequences)):
        raise ValueError(f"documents are not in all of the {n_sequences} sequences")
    return SegmentSizes(numbers, rows, starts, sizes, firsts)
