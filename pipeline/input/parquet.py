# SPDX-License-Identifier: Apache-2.0
"""Parquet: reads the text columns, a few rows at a time, of any Arrow type for text."""

import contextlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.kept_fields import stored_fields
from tokenmill.pipeline.input.batches import Part, Source
from tokenmill.pipeline.input.columnar import NO_FIELDS, RowsReader, check_columns, is_damage, own_columns, text_columns
from tokenmill.pipeline.input.decompressing import beginning
from tokenmill.pipeline.parquet_file import open_parquet

# A column chunk is read through a buffer of this size instead of at once: it may be as large as the file.
_BUFFER_BYTES = 1 << 20
# Writers end a dictionary at about 1 MiB, so even this many rows that all repeat one long text fit into memory.
_MAX_ROWS = 256
# No writer makes a larger row group; the footer of a damaged or hostile file may claim any number of rows.
_MOST_ROWS = (1 << 31) - 1
_LIST = re.compile(r"\.list\.(element|item)|\.bag\.array_element")
"""What the path of a column has for each list that it is in."""


def measure_row_groups(handle: BinaryIO, config: InputConfig) -> tuple[list[int], pa.Schema]:
    """Returns, from the footer, bytes of text per row group (encoded, uncompressed), and the fields to keep.

    Raises:
      ValueError: when the file is not Parquet, has no usable text or id column, or a row group that cannot have as many
        rows as the footer says.
    """
    footer = _Footer(handle)
    wanted = text_columns(config)
    try:
        file = open_parquet(footer, buffer_size=_BUFFER_BYTES)
        metadata, schema = file.metadata, file.schema_arrow
        check_columns(schema, config)
        footer.is_read = True
        for number in range(metadata.num_row_groups):
            with contextlib.suppress(_DataRead):
                next(
                    file.iter_batches(1, row_groups=[number], columns=own_columns(schema, config), use_threads=False),
                    None,
                )
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and not is_damage(error):
            raise
        raise ValueError(f"is not a readable Parquet file: {error}{beginning(handle)}") from error
    described = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    paths = [_LIST.sub("", column.path) for column in described]
    if config.messages_field is not None:
        paths = [path.split(".")[0] for path in paths]
    leaves = [i for i, path in enumerate(paths) if path in wanted]
    sizes = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(leaf) for leaf in leaves]
        # A text column has one value per row. Arrow would leave out the rows beyond the smaller number without a word.
        flat = zip(leaves, columns, strict=True)
        for n_rows in (column.num_values for i, column in flat if not described[i].max_repetition_level):
            if n_rows != group.num_rows or not 0 <= n_rows <= _MOST_ROWS:
                raise ValueError(
                    f"is damaged: the footer says that row group {number} has {group.num_rows} rows, and its text "
                    f"{n_rows} values; write the file again"
                )
        sizes.append(max(1, sum(column.total_uncompressed_size for column in columns)))
    return sizes, stored_fields(schema, config)


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


def read_row_groups(
    handle: BinaryIO,
    source: Source,
    groups: range,
    config: InputConfig,
    batch_bytes: int,
    digest: Any = None,
    fields: pa.Schema = NO_FIELDS,
) -> Iterator[Part]:
    """Yields the documents and rejects of a run of row groups.

    Offsets are row numbers in the file, and the bytes counted are those of the texts. Each row that cannot be read from
    a damaged row group becomes a reject of zero bytes.

    Args:
      handle: the file, seekable.
      source: the file.
      groups: a run of row groups.
      config: which columns hold text and id, and how large a text may be.
      batch_bytes: how many bytes of text a part may have, unless a single text has more.
      digest: a `hashlib` object that takes the bytes of all texts, one after another; None for no checksum.
      fields: the fields to keep, as the job has settled them.

    Raises:
      OSError: when reading fails for another reason than damage in the file.
    """
    file = open_parquet(handle, buffer_size=_BUFFER_BYTES, page_checksum_verification=True)
    metadata = file.metadata
    if metadata.num_row_groups < groups.stop:
        raise OSError(
            f"{source.path!r} has {metadata.num_row_groups} row groups, but had {groups.stop} or more when the job was "
            "planned; start the job again once the file no longer changes"
        )
    reader = RowsReader(source, config, batch_bytes, digest, fields)
    first_row = sum(metadata.row_group(group).num_rows for group in range(groups.start))
    for group in groups:
        row, n_rows = first_row, metadata.row_group(group).num_rows
        first_row += n_rows
        n_group_bytes = metadata.row_group(group).total_byte_size
        batch_rows = max(1, min(_MAX_ROWS, batch_bytes * n_rows // max(1, n_group_bytes)))
        columns = reader.choose_columns(file.schema_arrow)
        batches = file.iter_batches(batch_rows, row_groups=[group], columns=columns, use_threads=False)
        while row < first_row:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                if not is_damage(error):
                    raise
                batch = None
            if batch is None:  # also where the row group has fewer rows than the footer says
                yield from reader.reject_rows(f"row group {group}", row, first_row)
                break
            yield from reader.read(batch, row)
            row += batch.num_rows


def count_rows(handle: BinaryIO) -> list[int]:
    """Returns the number of rows in each row group."""
    metadata = open_parquet(handle).metadata
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def column_names(handle: BinaryIO) -> list[str]:
    """Returns the names of the columns."""
    return list(open_parquet(handle).schema_arrow.names)


def write(records: Iterable[Mapping[str, Any]], config: InputConfig) -> bytes:
    """Returns a file of the texts of records."""
    out = io.BytesIO()
    pq.write_table(pa.table({config.text_field: [record[config.text_field] for record in records]}), out)
    return out.getvalue()
