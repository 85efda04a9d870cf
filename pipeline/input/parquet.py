# SPDX-License-Identifier: Apache-2.0
"""Parquet: reads the text columns, a few rows at a time, of any Arrow type for text."""

import contextlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.pipeline.columns import children
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.kept_fields import find_field, paths_of, stored_fields, without_marks
from tokenmill.pipeline.input.batches import Part, Source, join_texts, make_documents
from tokenmill.pipeline.input.line_kernels import find_invalid
from tokenmill.pipeline.input.lines import Mask, Positions
from tokenmill.pipeline.input.nested import column_at, type_at
from tokenmill.pipeline.input.rejects import SAMPLE_BYTES, Rejects, listed_names, too_large_all
from tokenmill.pipeline.parquet_file import open_parquet

NO_FIELDS = pa.schema([])

# A column chunk is read through a buffer of this size instead of at once: it may be as large as the file.
_BUFFER_BYTES = 1 << 20
# Writers end a dictionary at about 1 MiB, so even this many rows that all repeat one long text fit into memory.
_MAX_ROWS = 256
# No writer makes a larger row group; the footer of a damaged or hostile file may claim any number of rows.
_MOST_ROWS = (1 << 31) - 1
_LOST_ROWS = 1 << 14
_BESIDE_MESSAGES = ("tools", "documents", "chat_template_kwargs", "system", "input")
CONVERSATION_FIELDS = ("conversations", "prompt", "completion", "instruction", "output", *_BESIDE_MESSAGES)
"""Columns that may hold a part of a conversation, besides `input.messages_field`; see `read_conversation`."""
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
        _check_columns(schema, config)
        footer.is_read = True
        for number in range(metadata.num_row_groups):
            with contextlib.suppress(_DataRead):
                next(
                    file.iter_batches(1, row_groups=[number], columns=own_columns(schema, config), use_threads=False),
                    None,
                )
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and not _is_damage(error):
            raise
        raise ValueError(f"is not a readable Parquet file: {error}") from error
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
    reader = _Reader(source, config, batch_bytes, digest, fields)
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
                if not _is_damage(error):
                    raise
                batch = None
            if batch is None:  # also where the row group has fewer rows than the footer says
                yield from reader.reject_rows(group, row, first_row)
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


class _Reader:
    def __init__(self, source: Source, config: InputConfig, batch_bytes: int, digest: Any, fields: pa.Schema) -> None:
        self._fields = fields
        self._source = source
        self._config = config
        self._batch_bytes = batch_bytes
        self._digest = digest

    def choose_columns(self, schema: pa.Schema) -> list[str]:
        own = (*own_columns(schema, self._config), self._config.id_field)
        kept = [field.name for field in self._fields if find_field(schema, field.name) is not None]
        return list(dict.fromkeys([*(field for field in own if field is not None and field in schema.names), *kept]))

    def reject_rows(self, group: int, first_row: int, stop_row: int) -> Iterator[Part]:
        """Yields rejects for all rows that cannot be read from a row group."""
        detail = f"row group {group} is damaged: rows {first_row} to {stop_row - 1} cannot be read"
        for start in range(first_row, stop_row, _LOST_ROWS):
            rows = np.arange(start, min(start + _LOST_ROWS, stop_row))
            rejects = Rejects(self._source.path)
            rejects.add_all(rows, np.zeros_like(rows), "corrupt_stream", detail)
            yield Part(None, rejects.to_batch(), 0, 0)

    def read(self, batch: pa.RecordBatch, first_row: int) -> Iterator[Part]:
        """Yields rows of the file from `first_row` on, in parts of bounded size."""
        if self._config.messages_field is not None:
            own = own_columns(batch.schema, self._config)
            texts = pa.array([_to_json(row) for row in batch.select(own).to_pylist()], pa.large_string())
        elif self._config.text_fields:
            columns = [_to_text(column_at(batch, name, self._config.join)) for name in self._config.text_fields]
            texts = join_texts(columns, self._config.join)
        else:
            texts = column_at(batch, self._config.text_field, self._config.join)
        if not pa.types.is_dictionary(texts.type):
            texts = _to_text(texts)  # a slice at a time, because this decodes dictionaries
        kept = self._keep(batch) if len(self._fields) else None
        ids = batch.column(self._config.id_field) if self._config.id_field in batch.schema.names else None
        sizes = _measure(texts)
        ends = np.cumsum(sizes)
        start = 0
        while start < len(sizes):
            n_before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, n_before + self._batch_bytes, side="right")))
            part_ids = None if ids is None else _to_text(ids[start:stop])
            part_kept = None if kept is None else kept[start:stop]
            part_texts = _to_text(texts[start:stop])
            yield self._make_part(part_texts, part_ids, sizes[start:stop], first_row + start, part_kept)
            start = stop

    def _keep(self, batch: pa.RecordBatch) -> pa.StructArray:
        columns = [_take_field(batch, field) for field in self._fields]
        return pa.StructArray.from_arrays(columns, fields=without_marks(self._fields))

    def _make_part(
        self, texts: pa.Array, ids: pa.Array | None, sizes: Positions, first_row: int, kept: pa.StructArray | None
    ) -> Part:
        if self._digest is not None:
            _add_texts(self._digest, texts)
        rejects = Rejects(self._source.path)
        is_null = texts.is_null().to_numpy(zero_copy_only=False)
        is_large = sizes > self._config.max_document_bytes
        bad_text, bad_id = _mark_invalid(texts, len(sizes)), _mark_invalid(ids, len(sizes))
        good = np.ones(len(sizes), np.bool_)
        limit = self._config.max_document_bytes
        columns = self._config.text_fields or self._config.text_field
        for is_bad, reason, detail in (
            (is_null, "null_text", f"column {columns!r} is null"),
            (is_large, "too_large", ""),
            (bad_text, "invalid_utf8", f"column {self._config.text_field!r} is not UTF-8"),
            (bad_id, "invalid_utf8", f"column {self._config.id_field!r} is not UTF-8"),
        ):
            rows = np.flatnonzero(is_bad & good)
            good[rows] = False
            if rows.size:
                details = detail or too_large_all(sizes[rows], limit)
                rejects.add_all(first_row + rows, sizes[rows], reason, details, _samples(texts.take(pa.array(rows))))
        rows = np.flatnonzero(good)
        if len(rows) < len(good):
            texts = texts.take(pa.array(rows))
            ids = None if ids is None else ids.take(pa.array(rows))
            kept = None if kept is None else kept.take(pa.array(rows))
        ids = None if ids is None else pc.cast(ids, pa.string())
        texts = pc.cast(texts, pa.string())
        documents = make_documents(self._source, texts, ids, first_row + rows, sizes[rows], kept)
        return Part(documents, rejects.to_batch(), int(sizes.sum()), 0)


def text_columns(config: InputConfig) -> list[str]:
    """Returns the names of the text columns; of conversations, all columns that may hold a part of one."""
    if config.messages_field is not None:
        return list(dict.fromkeys([config.messages_field.split(".")[0], *CONVERSATION_FIELDS]))
    return config.text_fields or [config.text_field]


def own_columns(schema: pa.Schema, config: InputConfig) -> list[str]:
    """Returns the columns that hold the texts, or in which these are."""
    if config.messages_field is not None:
        return [name for name in text_columns(config) if name in schema.names]
    return [name if name in schema.names else name.split(".")[0] for name in text_columns(config)]


def _to_json(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=str)


def _take_field(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """Returns a field of a batch in the type that the job has settled on; nulls where the file has none."""
    if find_field(batch.schema, field.name) is None:
        return pa.nulls(batch.num_rows, field.type)
    if field.name in batch.schema.names:
        column = batch.column(field.name)
    else:
        first, *rest = field.name.split(".")
        column = pc.struct_field(batch.column(first), rest)
    return _plain(column, field.type)


def _plain(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_map(column.type):
        entry = type_.value_type
        column = column.cast(pa.list_(pa.struct([entry.field(0).with_nullable(False), entry.field(1)])))
    return column if column.type == type_ else column.cast(type_)


def _mark_invalid(texts: pa.Array | None, n_rows: int) -> Mask:
    """Returns bool[n]: the rows that are not valid UTF-8."""
    if texts is None:
        return np.zeros(n_rows, np.bool_)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        texts = pc.fill_null(texts, "")
        offsets, values = children(texts)
        found = np.empty(n_rows, np.int64)
        find_invalid(values.to_numpy(), offsets[:-1], offsets[1:], found)
        return found >= 0
    return np.zeros(n_rows, np.bool_)


def _samples(texts: pa.Array) -> pa.BinaryArray:
    """Returns binary[n]: the beginning of large_string[n], nothing where it is null."""
    beginnings = pc.binary_slice(texts.cast(pa.large_binary()), 0, SAMPLE_BYTES)
    return pc.fill_null(beginnings, b"").cast(pa.binary())


def _add_texts(digest: Any, texts: pa.Array) -> None:
    """Adds the bytes of large_string[n] to a digest, without bytes that Arrow may store for a null."""
    if texts.null_count:
        texts = texts.drop_null()
    _, offsets, values = texts.buffers()
    if values is not None and len(texts):
        bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        digest.update(memoryview(values)[bounds[0] : bounds[-1]])


def _measure(texts: pa.Array) -> Positions:
    """Returns int64[n]: the bytes of each text, 0 where it is null."""
    if pa.types.is_dictionary(texts.type):
        sizes = pc.take(pc.binary_length(texts.dictionary), texts.indices)
    else:
        sizes = pc.binary_length(texts)
    return pc.fill_null(sizes, 0).to_numpy(zero_copy_only=False).astype(np.int64)


def _to_text(column: pa.Array) -> pa.Array:
    """Returns large_string[n] of the same values, which are not checked to be UTF-8."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return pc.cast(column, options=pc.CastOptions(pa.large_string(), allow_invalid_utf8=True))


def _check_columns(schema: pa.Schema, config: InputConfig) -> None:
    if config.messages_field is not None and not {*own_columns(schema, config)} - {*_BESIDE_MESSAGES}:
        raise ValueError(
            f"has no column {config.messages_field!r} for input.messages_field, nor another that holds a conversation; "
            f"it has {listed_names(schema.names)}"
        )
    for field in (*text_columns(config), config.id_field, *paths_of(config)):
        if field is not None and schema.names.count(field) > 1:
            raise ValueError(f"has {schema.names.count(field)} columns {field!r}")
    for field in text_columns(config) if config.messages_field is None else ():
        text_type = type_at(schema, field)
        if text_type is None:
            setting = "text_fields" if config.text_fields else "text_field"
            raise ValueError(f"has no column {field!r} for input.{setting}; it has {listed_names(schema.names)}")
        if not _is_text(text_type):
            raise ValueError(f"column {field!r} is {text_type}; a text column is a string or binary")
    if config.id_field is None or config.id_field not in schema.names:
        return
    id_type = schema.field(config.id_field).type
    if not (_is_text(id_type) or pa.types.is_integer(id_type)):
        raise ValueError(
            f"column {config.id_field!r} is {id_type}; an id column is a string, binary or an integer; "
            "set input.id_field to null to do without"
        )


def _is_text(column_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(column_type):
        column_type = column_type.value_type
    types = pa.types
    tests = (
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
    )
    return any(test(column_type) for test in tests)


def _is_damage(error: Exception) -> bool:
    """Returns whether an error of pyarrow's says that the bytes read are wrong, not that they could not be read."""
    return isinstance(error, pa.ArrowException) or (type(error) is OSError and error.errno is None)
