# SPDX-License-Identifier: Apache-2.0
"""Rows of Arrow columns become documents, a few at a time, from text columns of any Arrow type for text."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.columns import children, stretches
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.kept_fields import find_field, without_marks
from tokenmill.pipeline.input.batches import NO_FIELDS, Part, Source, join_texts, make_documents
from tokenmill.pipeline.input.json_values import is_nested, walk
from tokenmill.pipeline.input.rejects import SAMPLE_BYTES, Mask, Positions, Rejects, listed_names, too_large_all
from tokenmill.tokenizer.chat.conversations import BESIDE, FIELDS, SOUNDS_LIKE_A_MARK
from tokenmill.tokenizer.utf8 import find_invalid_utf8

_LOST_ROWS = 1 << 14
_OTHER_WAYS = re.compile(r"^\$\.?|\[[^\]]*\]|\.(?:\d+|\*|list|element|item)(?=\.|$)")
"""How JSONPath, jq and Parquet write the way through a list."""


class RowReader(ABC):
    """Reads a file of rows, in groups: turns them into documents and rejects."""

    def __init__(
        self,
        config: InputConfig,
        fields: pa.Schema = NO_FIELDS,
        source: Source = Source(0, "", ""),  # noqa: B008
        batch_bytes: int = 1 << 22,
        digest: Any = None,
    ) -> None:
        """Takes how to read a file.

        Args:
          config: which columns hold text and id, and how large a text may be.
          fields: the fields to keep, as the job has settled them.
          source: the file.
          batch_bytes: how many bytes of text a part may have, unless a single text has more.
          digest: a `hashlib` object that takes the bytes of all texts, one after another; None for no checksum.
        """
        self._config, self._fields, self._source = config, fields, source
        self._batch_bytes = batch_bytes
        self._digest = digest
        self._unread: list[str] = []

    @abstractmethod
    def measure(self, handle: BinaryIO) -> tuple[list[int], pa.Schema]:
        """Returns the bytes of text in each group of rows, and the fields to keep.

        Raises:
          ValueError: when the file cannot be read, or has no usable text or id column.
        """

    @abstractmethod
    def read(self, handle: BinaryIO, groups: range) -> Iterator[Part]:
        """Yields the documents and rejects of a run of groups.

        Offsets are row numbers in the file, and the bytes counted are those of the texts. Each row that cannot be read
        becomes a reject of zero bytes.

        Raises:
          OSError: when reading fails for another reason than damage in the file.
        """

    @staticmethod
    @abstractmethod
    def count_rows(handle: BinaryIO) -> list[int]:
        """Returns the number of rows in each group."""

    @staticmethod
    @abstractmethod
    def column_names(handle: BinaryIO) -> list[str]:
        """Returns the names of the columns."""

    def _choose_columns(self, schema: pa.Schema) -> list[str]:
        """Returns the columns and fields of a file that are needed."""
        own = [name for name in own_columns(schema, self._config) if name in schema.names]
        others = [self._config.id_field, *self._fields.names]
        self._unread = [name for name in schema.names if name not in (*own, self._config.id_field)]
        return list(dict.fromkeys([*own, *(name for name in others if name and find_field(schema, name) is not None)]))

    def _reject_rows(self, what: str, first_row: int, stop_row: int) -> Iterator[Part]:
        """Yields rejects of zero bytes for all rows that cannot be read; `what` is damaged."""
        detail = f"{what} is damaged: rows {first_row} to {stop_row - 1} cannot be read"
        for start in range(first_row, stop_row, _LOST_ROWS):
            rows = np.arange(start, min(start + _LOST_ROWS, stop_row))
            rejects = Rejects(self._source.path)
            rejects.add_all(rows, np.zeros_like(rows), "corrupt_stream", detail)
            yield Part(None, rejects.to_batch(), 0, 0)

    def _read_batch(self, batch: pa.RecordBatch, first_row: int) -> Iterator[Part]:
        """Yields rows of the file from `first_row` on, in parts of bounded size."""
        if self._config.messages_field is not None:
            own = own_columns(batch.schema, self._config)
            texts = _to_json(batch.select(own), dict.fromkeys(self._unread, True))
        elif self._config.text_fields:
            there = [name for name in self._config.text_fields if type_at(batch.schema, name) is not None]
            columns = [_to_text(column_at(batch, name, self._config.join)) for name in there]
            texts = join_texts(columns, self._config.join)
        else:
            texts = column_at(batch, self._config.text_field, self._config.join)
        if not pa.types.is_dictionary(texts.type):
            texts = _to_text(texts)  # a slice at a time, because this decodes dictionaries
        kept = self._keep(batch) if len(self._fields) else None
        ids = _column_of(batch, self._config.id_field)
        sizes = _measure(texts)
        for start, stop in stretches(sizes, self._batch_bytes):
            part_ids = None if ids is None else _to_text(ids[start:stop])
            part_kept = None if kept is None else kept[start:stop]
            part_texts = _to_text(texts[start:stop])
            yield self._make_part(part_texts, part_ids, sizes[start:stop], first_row + start, part_kept)

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
        renamed = (name.split(".")[0] for name in (config.messages_field, *config.chat_fields))
        return list(dict.fromkeys([*renamed, *FIELDS]))
    return config.text_fields or [config.text_field]


def own_columns(schema: pa.Schema, config: InputConfig) -> list[str]:
    """Returns the columns that hold the texts, or in which these are, and those that say what of them is trained."""
    if config.messages_field is not None:
        marks = (name for name in schema.names if SOUNDS_LIKE_A_MARK.search(name))
        return [name for name in dict.fromkeys([*text_columns(config), *marks]) if name in schema.names]
    there = [name for name in text_columns(config) if type_at(schema, name) is not None]
    return [name if name in schema.names else name.split(".")[0] for name in there]


def _to_json(batch: pa.RecordBatch, unread: Mapping[str, Any]) -> pa.Array:
    """Returns large_binary[n]: each row as an object in JSON; a byte that is no text where a row has one.

    `unread` are fields for all rows: columns that are not read, which are to be counted.
    """
    try:
        rows = without_padding(batch.to_struct_array())
        return pa.array([_object({**row, **unread}) for row in rows], pa.large_binary())
    except UnicodeDecodeError:
        if batch.num_rows == 1:
            return pa.array([b"\xff"], pa.large_binary())
    single = (batch.slice(i, 1) for i in range(batch.num_rows))
    return pa.concat_arrays([_to_json(row, unread) for row in single])


def _object(row: dict[str, Any]) -> bytes:
    """Returns a row as JSON; bytes are taken for text, and what JSON has not, such as a date, is spelled."""

    def spelled(value: Any) -> str:
        return value.decode() if isinstance(value, bytes) else str(value)

    return json.dumps(row, ensure_ascii=False, default=spelled).encode("utf-8", "surrogatepass")


def _take_field(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """Returns a field of a batch in the type that the job has settled on; nulls where the file has none."""
    column = _column_of(batch, field.name)
    return pa.nulls(batch.num_rows, field.type) if column is None else _plain(column, field.type)


def _column_of(batch: pa.RecordBatch, path: str | None) -> pa.Array | None:
    """Returns the column that `find_field` finds; None if there is none."""
    if path is None or find_field(batch.schema, path) is None:
        return None
    if path in batch.schema.names:
        return batch.column(path)
    first, *rest = path.split(".")
    return pc.struct_field(batch.column(first), rest)


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
        found = find_invalid_utf8(values.to_numpy(), offsets[:-1], offsets[1:])
        return np.zeros(n_rows, np.bool_) if found is None else found >= 0
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


def hint(fields: Iterable[str]) -> str:
    """Returns the end of a message about absent fields: how those are written that lead through lists; or ""."""
    plain = ", ".join(repr(_OTHER_WAYS.sub("", field)) for field in fields if _OTHER_WAYS.search(field))
    return f"; lists of parts need no mark, write {plain}" if plain else ""


def field_names(schema: pa.Schema, depth: int = 8) -> list[str]:
    """Returns the names of columns, and of what is inside them to some depth, as a config has them."""
    names = []
    for field in schema:
        kind = field.type
        while _is_list(kind):
            kind = kind.value_type
        inner = field_names(pa.schema(list(kind)), depth - 1) if depth and pa.types.is_struct(kind) else ()
        names += [field.name, *(f"{field.name}.{name}" for name in inner)]
    return names


def type_at(schema: pa.Schema, field: str) -> pa.DataType | None:
    """Returns the type of the values of a field of a Parquet file; None if it has no such field."""
    if field in schema.names:
        return schema.field(field).type
    names = field.split(".")
    kind = schema.field(names[0]).type if is_nested(field) and names[0] in schema.names else None
    for name in [*names[1:], None]:
        while kind is not None and _is_list(kind):
            kind = kind.value_type
        if name is None or kind is None:
            return kind
        index = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        kind = kind.field(index).type if index >= 0 else None
    return kind


def column_at(batch: pa.RecordBatch, field: str, join: str) -> pa.Array:
    """Returns the texts of a field of a batch, those of several parts joined; null where none is there.

    Bytes are taken for text, which is not checked to be UTF-8.
    """
    if field in batch.schema.names:
        return batch.column(field)
    first, *rest = field.split(".")
    if (found := find_field(batch.schema, field)) is not None and not _is_list(found.type):
        return pc.struct_field(batch.column(first), rest)
    glue = join.encode()
    joined = []
    for value in batch.column(first).to_pylist():
        texts = [each for each in walk(value, rest) if each is not None]
        as_bytes = [each if isinstance(each, bytes) else each.encode() for each in texts]
        joined.append(glue.join(as_bytes) if texts else None)
    return pa.array(joined, pa.large_binary())


def without_padding(column: pa.Array) -> list[Any]:
    """Returns the values of a column without the nulls that Arrow puts where objects of a list have different fields.

    Nulls in lists and in maps are values. Maps become objects.
    """
    return [_unpadded(value, column.type) for value in column.to_pylist(maps_as_pydicts="lossy")]


def _unpadded(value: object, kind: pa.DataType) -> object:
    if isinstance(value, list) and _is_list(kind):
        return [_unpadded(each, kind.value_type) for each in value]
    if isinstance(value, dict) and pa.types.is_struct(kind):
        return {each.name: _unpadded(value[each.name], each.type) for each in kind if value[each.name] is not None}
    return value


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def check_columns(schema: pa.Schema, config: InputConfig) -> None:
    """Raises ValueError unless a file has the columns that are needed, each once, and of a type that may be."""
    beside = {*BESIDE} - {str(config.messages_field).split(".")[0]} - {*config.chat_fields}
    if config.messages_field is not None and not ({*text_columns(config)} & {*schema.names}) - beside:
        raise ValueError(
            f"has no column {config.messages_field!r} for input.messages_field, nor another that holds a conversation; "
            f"it has {listed_names(schema.names)}"
        )
    for field in (*text_columns(config), config.id_field, *config.keep_fields):
        if field is not None and schema.names.count(field) > 1:
            raise ValueError(f"has {schema.names.count(field)} columns {field!r}")
    wanted = text_columns(config) if config.messages_field is None else []
    types = {field: found for field in wanted if (found := type_at(schema, field)) is not None}
    if wanted and not types:
        names = " or ".join(map(repr, wanted))
        setting = "text_fields" if config.text_fields else "text_field"
        raise ValueError(
            f"has no column {names} for input.{setting}; it has {listed_names(field_names(schema))}" + hint(wanted)
        )
    for field, text_type in types.items():
        if not _is_text(text_type):
            raise ValueError(f"column {field!r} is {text_type}; a text column is a string or binary")
    id_field = find_field(schema, config.id_field)
    if id_field is None:
        return
    id_type = id_field.type
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
        types.is_null,  # a column without a value
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
    )
    return any(test(column_type) for test in tests)


def is_damage(error: Exception) -> bool:
    """Returns whether an error of pyarrow's says that the bytes read are wrong, not that they could not be read."""
    return isinstance(error, pa.ArrowException | MemoryError) or (type(error) is OSError and error.errno is None)
