# SPDX-License-Identifier: Apache-2.0
"""Parquet, a few rows at a time, and Arrow's IPC format, as a file (Feather, too) or a stream of record batches."""

import contextlib
import io
import re
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from tokenmill.pipeline.columns import open_parquet
from tokenmill.pipeline.config.kept_fields import stored_fields
from tokenmill.pipeline.input.batches import Part
from tokenmill.pipeline.input.columnar import RowReader, check_columns, is_damage, own_columns, text_columns
from tokenmill.pipeline.input.decompressing import beginning, read_exactly

# A column chunk is read through a buffer of this size instead of at once: it may be as large as the file.
_BUFFER_BYTES = 1 << 20
# Writers end a dictionary at about 1 MiB, so even this many rows that all repeat one long text fit into memory.
_MAX_ROWS = 256
# No writer makes a larger row group; the footer of a damaged or hostile file may claim any number of rows.
_MOST_ROWS = (1 << 31) - 1
_LIST = re.compile(r"\.list\.(element|item)|\.bag\.array_element")
"""What the path of a column has for each list that it is in."""

_MAGIC = b"ARROW1"
_FEATHER_1 = b"FEA1"
_START = 8
"""In a file, the stream follows the magic bytes and two more; behind it is a footer, which is not needed."""
_BYTES = {
    pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view(),
}  # fmt: skip


class ParquetReader(RowReader):
    """Reads Parquet; its groups are row groups."""

    def measure(self, handle: BinaryIO) -> tuple[list[int], pa.Schema]:
        """Returns, from the footer, bytes of text per row group (encoded, uncompressed), and the fields to keep.

        Raises:
          ValueError: when the file is not Parquet, has no usable text or id column, or a row group that cannot have as
            many rows as the footer says.
        """
        footer = _Footer(handle)
        wanted = text_columns(self._config)
        try:
            file = open_parquet(footer, buffer_size=_BUFFER_BYTES)
            metadata, schema = file.metadata, file.schema_arrow
            check_columns(schema, self._config)
            footer.is_read = True
            for number in range(metadata.num_row_groups):
                with contextlib.suppress(_DataRead):
                    next(
                        file.iter_batches(
                            1, row_groups=[number], columns=own_columns(schema, self._config), use_threads=False
                        ),
                        None,
                    )
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            if isinstance(error, OSError) and not is_damage(error):
                raise
            raise ValueError(f"is not a readable Parquet file: {error}{beginning(handle)}") from error
        described = [metadata.schema.column(i) for i in range(metadata.num_columns)]
        paths = [_LIST.sub("", column.path) for column in described]
        if self._config.messages_field is not None:
            paths = [path.split(".")[0] for path in paths]
        leaves = [i for i, path in enumerate(paths) if path in wanted]
        sizes = []
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            columns = [group.column(leaf) for leaf in leaves]
            # A text column has one value per row; Arrow would leave out rows beyond the smaller number without a word.
            flat = zip(leaves, columns, strict=True)
            for n_rows in (column.num_values for i, column in flat if not described[i].max_repetition_level):
                if n_rows != group.num_rows or not 0 <= n_rows <= _MOST_ROWS:
                    raise ValueError(
                        f"is damaged: the footer says that row group {number} has {group.num_rows} rows, and its text "
                        f"{n_rows} values; write the file again"
                    )
            sizes.append(max(1, sum(column.total_uncompressed_size for column in columns)))
        return sizes, stored_fields(schema, self._config)

    def read(self, handle: BinaryIO, groups: range) -> Iterator[Part]:
        """Yields the documents and rejects of a run of row groups."""
        file = open_parquet(handle, buffer_size=_BUFFER_BYTES, page_checksum_verification=True)
        metadata = file.metadata
        if metadata.num_row_groups < groups.stop:
            raise OSError(
                f"{self._source.path!r} has {metadata.num_row_groups} row groups, but had {groups.stop} or more when "
                "the job was planned; start the job again once the file no longer changes"
            )
        first_row = sum(metadata.row_group(group).num_rows for group in range(groups.start))
        for group in groups:
            row, n_rows = first_row, metadata.row_group(group).num_rows
            first_row += n_rows
            n_group_bytes = metadata.row_group(group).total_byte_size
            batch_rows = max(1, min(_MAX_ROWS, self._batch_bytes * n_rows // max(1, n_group_bytes)))
            columns = self._choose_columns(file.schema_arrow)
            batches = file.iter_batches(batch_rows, row_groups=[group], columns=columns, use_threads=False)
            while row < first_row:
                try:
                    batch = next(batches, None)
                except (pa.ArrowException, OSError) as error:
                    if not is_damage(error):
                        raise
                    batch = None
                if batch is None:  # also where the row group has fewer rows than the footer says
                    yield from self._reject_rows(f"row group {group}", row, first_row)
                    break
                yield from self._read_batch(batch, row)
                row += batch.num_rows

    @staticmethod
    def count_rows(handle: BinaryIO) -> list[int]:
        """Returns the number of rows in each row group."""
        metadata = open_parquet(handle).metadata
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]

    @staticmethod
    def column_names(handle: BinaryIO) -> list[str]:
        """Returns the names of the columns."""
        return list(open_parquet(handle).schema_arrow.names)


class _DataRead(Exception):  # noqa: N818  # a signal, not an error
    """Raised where something beyond the footer is read."""


class _Footer:
    """A Parquet file of which nothing can be read once `is_read`, so that only Arrow's checks of the footer are run.

    Arrow checks the footer of a column again when it begins to read the column, and then raises an exception. Asked for
    the footer of a column that is damaged, it ends the process.
    """

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self.is_read = False
        self.seek, self.tell = handle.seek, handle.tell

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def read(self, n_bytes: int = -1) -> bytes:
        if self.is_read:
            raise _DataRead
        return self._handle.read(n_bytes)


class ArrowReader(RowReader):
    """Reads Arrow's files and streams, which are one group: a batch is found only by reading those before it.

    The columns that are used are in memory, a batch at a time, and checked completely before any of their values is
    used.
    """

    def measure(self, handle: BinaryIO) -> tuple[list[int], pa.Schema]:
        """Returns the size of the file, as that of one group of rows, and the fields to keep.

        Raises:
          ValueError: when it is not Arrow's, is cut short, or has no usable text or id column.
        """
        try:
            schema = _open(handle).schema
        except (pa.ArrowException, OSError, MemoryError) as error:  # a size may be any number
            if not is_damage(error):
                raise
            raise ValueError(f"is not a readable Arrow file: {error}{beginning(handle)}") from error
        check_columns(schema, self._config)
        return [handle.seek(0, io.SEEK_END)], stored_fields(schema, self._config)

    def read(self, handle: BinaryIO, groups: range) -> Iterator[Part]:
        """Yields the documents and rejects of a file.

        The rows of a batch that is wrong become rejects of zero bytes. Where a batch cannot be read, nothing behind it
        can be, so all of that is one reject.
        """
        schema = _open(handle).schema
        roots = [name if name in schema.names else name.split(".")[0] for name in self._choose_columns(schema)]
        batches = _open(handle, [schema.names.index(name) for name in dict.fromkeys(roots)])
        row = number = 0
        while True:
            try:
                batch = batches.read_next_batch()
            except StopIteration:
                return
            except (pa.ArrowException, OSError, MemoryError) as error:  # a size may be any number
                if not is_damage(error):
                    raise
                yield from self._reject_rows(f"record batch {number}, and what follows it,", row, row + 1)
                return
            stop = row + batch.num_rows
            if _is_valid(batch):
                yield from self._read_batch(batch, row)
            else:
                yield from self._reject_rows(f"record batch {number}", row, stop)
            row, number = stop, number + 1

    @staticmethod
    def count_rows(handle: BinaryIO) -> list[int]:
        """Returns the number of rows, as that of one group; this reads the file."""
        return [sum(batch.num_rows for batch in _open(handle, [0]))]

    @staticmethod
    def column_names(handle: BinaryIO) -> list[str]:
        """Returns the names of the columns."""
        return list(_open(handle).schema.names)


def _open(handle: BinaryIO, columns: list[int] | None = None) -> pa.RecordBatchReader:
    """Returns what reads the batches of a file, or the columns of these numbers."""
    handle.seek(0)
    head = read_exactly(handle, _START)
    if head.startswith(_FEATHER_1):
        raise ValueError("is Feather of version 1; pyarrow.feather reads it, and writes version 2")
    is_file = head.startswith(_MAGIC)
    if is_file:
        handle.seek(-len(_MAGIC), io.SEEK_END)
        if read_exactly(handle, len(_MAGIC)) != _MAGIC:
            raise ValueError("is cut short: the end of an Arrow file is missing")
    handle.seek(_START if is_file else 0)
    options = pa.ipc.IpcReadOptions(included_fields=columns, use_threads=False)
    return pa.ipc.open_stream(handle, options=options)


def _is_valid(batch: pa.RecordBatch) -> bool:
    """Returns whether all values are inside their buffers; texts need not be UTF-8, which is checked row by row."""
    try:
        for column in batch.columns:
            (column.view(_BYTES[column.type]) if column.type in _BYTES else column).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
