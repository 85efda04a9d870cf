# SPDX-License-Identifier: Apache-2.0
"""Checks a shard's table of documents against the ledger, the input, the keys of a shuffle, and the rows."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline.books.ledger import LedgerEntry, ShardEntry
from tokenmill.pipeline.books.sums import sum_doc_ids
from tokenmill.pipeline.config.kept_fields import decode_fields, without_marks
from tokenmill.pipeline.hashing import SHUFFLING, document_keys
from tokenmill.pipeline.output.placement import Placement, RowForm
from tokenmill.pipeline.output.spill import shard_range
from tokenmill.pipeline.output.tables import listed_fields, read_documents
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

    def __init__(self, name: str, table: pa.Table, placement: Placement, keys: np.ndarray, fields: pa.Schema) -> None:
        """Takes the table of the file `name`.

        Args:
          name: the name of the file.
          table: the whole table.
          placement: where it says that the documents are.
          keys: uint64[n_documents], the keys of a shuffle; empty without one.
          fields: the kept fields of the shard.
        """
        self.name, self.placement, self.keys = name, placement, keys
        self.fields = KeptFields(fields, table)
        """The kept fields, for comparison with those in other files."""
        self.n_tokens = table.column("n_tokens").to_numpy().astype(np.int64)
        """int64[n_documents], how many tokens each document has."""
        self.doc_ids = table.column("doc_id")

    @classmethod
    def read(
        cls, output: str, entry: LedgerEntry | ShardEntry, manifest: Mapping[str, Any], report: VerifyReport
    ) -> Self | None:
        """Reads and checks the table of an entry; returns None if it cannot be read, or the entry has none.

        Args:
          output: the output folder.
          entry: the entry of the split or shard.
          manifest: the manifest.
          report: problems are added to it.
        """
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


def _check_places(
    table: pa.Table, entry: LedgerEntry | ShardEntry, manifest: Mapping[str, Any], recorded: np.ndarray
) -> None:
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


def _check_sums(table: pa.Table, entry: LedgerEntry | ShardEntry) -> None:
    n_tokens = int(table.column("n_tokens").to_numpy().sum(dtype=np.int64))
    sums = [("documents", table.num_rows, entry.n_documents), ("tokens", n_tokens, entry.n_tokens)]
    if isinstance(entry, LedgerEntry):
        n_bytes = int(table.column("input_bytes").to_numpy().sum())
        sums.append(("bytes of documents", n_bytes, entry["n_document_bytes"]))
    for what, ours, theirs in sums:
        if ours != theirs:
            raise ValueError(f"{ours} {what}, but the ledger says {theirs}")
