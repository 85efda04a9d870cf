# SPDX-License-Identifier: Apache-2.0
"""Texts inside a record: `content.text` is the field of that name if a record has one, else the field in `content`."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tokenmill.pipeline.config.kept_fields import find_field

_OTHER_WAYS = re.compile(r"^\$\.?|\[[^\]]*\]|\.(?:\d+|\*|list|element|item)(?=\.|$)")
"""How JSONPath, jq and Parquet write the way through a list."""


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


def is_nested(field: str) -> bool:
    """Returns whether a field may be inside another one."""
    return "." in field


def values_at(record: dict[str, Any], field: str) -> list[Any]:
    """Returns the values of a field of a record: none where it is absent, several where lists are on the way to it.

    A list of parts, as `[{"type": "text", "text": "a"}, {"type": "image"}]`, gives the texts of those that have one.
    """
    if field in record or not is_nested(field):
        return [record[field]] if field in record else []
    return _walk(record, field.split("."))


def inside(record: Any, field: str) -> object:
    """Returns the value of a field of a record, which a path through objects may lead to; None where it is absent."""
    if field in record:
        return record[field]
    for name in field.split("."):
        record = record.get(name) if isinstance(record, dict) else None
    return record


def _walk(value: Any, names: Sequence[str]) -> list[Any]:
    if isinstance(value, list):
        return list(itertools.chain.from_iterable(_walk(each, names) for each in value))
    if not names:
        return [value]
    return _walk(value[names[0]], names[1:]) if isinstance(value, dict) and names[0] in value else []


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
    import pyarrow.compute as pc

    if field in batch.schema.names:
        return batch.column(field)
    first, *rest = field.split(".")
    if (found := find_field(batch.schema, field)) is not None and not _is_list(found.type):
        return pc.struct_field(batch.column(first), rest)
    glue = join.encode()
    joined = []
    for value in batch.column(first).to_pylist():
        texts = [each for each in _walk(value, rest) if each is not None]
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
