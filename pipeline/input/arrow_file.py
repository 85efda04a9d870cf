# SPDX-License-Identifier: Apache-2.0
"""Arrow's IPC format, as a file (Feather, too) or a stream: record batches, one after another.

A batch is found only by reading those before it, so a file is one split. The columns that are used are in memory, a
batch at a time, and checked completely before any of their values is used.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import pyarrow as pa

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.kept_fields import stored_fields
from tokenmill.pipeline.input.batches import Part, Source
from tokenmill.pipeline.input.columnar import NO_FIELDS, RowsReader, check_columns, is_damage
from tokenmill.pipeline.input.decompressing import beginning, read_exactly

_MAGIC = b"ARROW1"
_FEATHER_1 = b"FEA1"
_START = 8
"""In a file, the stream follows the magic bytes and two more; behind it is a footer, which is not needed."""
_BYTES = {
    pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view(),
}  # fmt: skip


def measure(handle: BinaryIO, config: InputConfig) -> tuple[list[int], pa.Schema]:
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
    check_columns(schema, config)
    return [handle.seek(0, io.SEEK_END)], stored_fields(schema, config)


def read(
    handle: BinaryIO,
    source: Source,
    groups: range,
    config: InputConfig,
    batch_bytes: int,
    digest: Any = None,
    fields: pa.Schema = NO_FIELDS,
) -> Iterator[Part]:
    """Yields the documents and rejects of a file; see `parquet.read_row_groups`.

    The rows of a batch that is wrong become rejects of zero bytes. Where a batch cannot be read, nothing behind it can
    be, so all of that is one reject.
    """
    del groups  # there is one
    rows = RowsReader(source, config, batch_bytes, digest, fields)
    schema = _open(handle).schema
    roots = [name if name in schema.names else name.split(".")[0] for name in rows.choose_columns(schema)]
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
            yield from rows.reject_rows(f"record batch {number}, and what follows it,", row, row + 1)
            return
        stop = row + batch.num_rows
        if _is_valid(batch):
            yield from rows.read(batch, row)
        else:
            yield from rows.reject_rows(f"record batch {number}", row, stop)
        row, number = stop, number + 1


def count_rows(handle: BinaryIO) -> list[int]:
    """Returns the number of rows, as that of one group; this reads the file."""
    return [sum(batch.num_rows for batch in _open(handle, [0]))]


def column_names(handle: BinaryIO) -> list[str]:
    """Returns the names of the columns."""
    return list(_open(handle).schema.names)


def write(records: Iterable[Mapping[str, Any]], config: InputConfig) -> bytes:
    """Returns a file of the texts of records."""
    out = io.BytesIO()
    table = pa.table({config.text_field: [record[config.text_field] for record in records]})
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


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
