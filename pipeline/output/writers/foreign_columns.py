# SPDX-License-Identifier: Apache-2.0
"""Columns of any type in our Parquet files: Arrow writes them into a file in memory, whose pages are copied.

The pages of a column do not refer to the rest of a file. Only their positions, which are in the footer, must be
changed.
"""

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.pipeline.output.writers.thrift import Fields, read_struct

_MAGIC = b"PAR1"
_SCHEMA, _ROW_GROUPS, _COLUMNS, _METADATA = 2, 4, 1, 3
_TOTAL_BYTES = 6
_OFFSETS = (9, 10, 11)
"""Field numbers in a column's metadata: where its data, its index and its dictionary begin."""


class ForeignColumns:
    """Makes the pages of columns, one row group at a time."""

    def __init__(self, fields: Sequence[pa.Field], compression: str) -> None:
        """Takes the columns, perhaps none, and their compression, "zstd" or "none"."""
        self.n_fields = self.n_leaves = 0
        self.described: list[Fields] = []
        """The columns as elements of a Parquet schema."""
        self._schema = pa.schema(fields)
        self._compression = compression
        if fields:
            footer, _ = self._write(self._schema.empty_table())
            elements = _structs(footer, _SCHEMA)
            self.described = elements[1:]
            self.n_fields = len(fields)
            self.n_leaves = sum(1 for element in elements[1:] if 1 in element)  # with a physical type

    def write(self, table: pa.Table, position: int) -> tuple[list[Fields], bytes, int]:
        """Returns the metadata of the columns for a row group, their pages, and the bytes of these before compression.

        Args:
          table: the row group; has the columns, and may have others.
          position: where in the file the pages will begin.
        """
        if not self.n_fields:
            return [], b"", 0
        footer, data = self._write(table.select(self._schema.names))
        groups = _structs(footer, _ROW_GROUPS)
        chunks = _structs(groups[0], _COLUMNS)
        n_bytes = 0
        for chunk in chunks:
            metadata = chunk[_METADATA][1]
            n_bytes += metadata[_TOTAL_BYTES][1]
            for number in _OFFSETS:
                if number in metadata:
                    kind, offset = metadata[number]
                    metadata[number] = kind, offset + position - len(_MAGIC)
            # Where the column begins; Arrow says nothing there.
            chunk[2] = chunk[2][0], min(metadata[number][1] for number in _OFFSETS if number in metadata)
        return chunks, data, n_bytes

    def _write(self, table: pa.Table) -> tuple[Fields, bytes]:
        sink = io.BytesIO()
        pq.write_table(
            table,
            sink,
            compression=self._compression,
            store_schema=False,
            row_group_size=max(1, table.num_rows),
            write_page_index=False,
        )
        data = sink.getvalue()
        n_footer = int.from_bytes(data[-8:-4], "little")
        footer, _ = read_struct(data, len(data) - 8 - n_footer)
        return footer, data[len(_MAGIC) : len(data) - 8 - n_footer]


def _structs(fields: Fields, number: int) -> list[Fields]:
    _, elements = fields[number][1]
    return list(elements)
