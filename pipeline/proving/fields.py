# SPDX-License-Identifier: Apache-2.0
"""Checks that all files of a shard with room for kept fields hold the same fields."""

from collections.abc import Sequence

import pyarrow as pa

from tokenmill.pipeline.config.kept_fields import without_marks
from tokenmill.pipeline.output.writers.json_texts import json_texts


class KeptFields:
    """The kept fields of one shard, read from its first file and held in memory."""

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
