# SPDX-License-Identifier: Apache-2.0
"""The fields of `input.keep_fields`, which are stored with documents: a job settles their types before it begins.

A field has the same type in every file, split and worker. For JSON and CSV it is the type that the config declares. A
field without a declared type becomes text: strings as they are, other values as their JSON. For Parquet and Arrow it is
the type in the files, which must agree.
"""

import base64
import functools
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from tokenmill.pipeline.config.input import SOURCE, InputConfig

# pyarrow 25 casts views of lists to lists with offsets that are wrong.
_UNKEPT = (
    *(pa.types.is_union, pa.types.is_interval, pa.types.is_run_end_encoded),
    *(pa.types.is_list_view, pa.types.is_large_list_view),
)

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""How Hive writes null as the name of a folder."""

TEXT = b"text"
"""Metadata key of a field of JSON lines without a declared type: any value becomes text."""


def encode_fields(fields: pa.Schema) -> str:
    """Returns a schema as text, to be stored in JSON; "" for no fields."""
    return base64.b64encode(fields.serialize().to_pybytes()).decode() if len(fields) else ""


@functools.lru_cache(maxsize=16)
def decode_fields(text: str) -> pa.Schema:
    """Returns the schema that `encode_fields` turned into `text`."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))) if text else pa.schema([])


def without_marks(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Returns the fields as they are stored, without the metadata `TEXT`."""
    return [field.remove_metadata() for field in fields]


def declared_fields(config: InputConfig) -> pa.Schema:
    """Returns the fields as the config declares them, for JSON lines."""
    declared: Mapping[str, Any] = config.keep_fields if isinstance(config.keep_fields, dict) else {}
    return pa.schema(
        [
            pa.field(path, _type_of(declared[path]))
            if declared.get(path) is not None
            else pa.field(path, pa.string(), metadata={TEXT: b""})
            for path in config.keep_fields
        ]
    )


def _type_of(declared: Any) -> pa.DataType:
    if isinstance(declared, list):
        return pa.list_(_type_of(declared[0]))
    if isinstance(declared, dict):
        return pa.struct([pa.field(name, _type_of(each)) for name, each in declared.items()])
    return pa.type_for_alias(declared)


def stored_fields(schema: pa.Schema, config: InputConfig) -> pa.Schema:
    """Returns the kept fields that a Parquet file has, with the file's types as `plain_type` gives them."""
    found = []
    for path in config.keep_fields:
        field = find_field(schema, path)
        if field is not None:
            found.append(pa.field(path, plain_type(field.type)))
    return pa.schema(found)


def find_field(schema: pa.Schema, path: str | None) -> pa.Field | None:
    """Returns the column named `path`, else the field that the path leads to through structs, else None."""
    if path is None:
        return None
    if path in schema.names:
        return schema.field(path)
    first, *rest = path.split(".")
    found = schema.field(first) if first in schema.names else None
    for name in rest:
        if found is None or not pa.types.is_struct(found.type):
            return None
        index = found.type.get_field_index(name)
        found = found.type.field(index) if index >= 0 else None
    return found


def folder_values(path: str) -> dict[str, str | None]:
    """Returns the columns that names of folders on a path give, as Hive and Spark write them: `lang=en/`, `year=2026/`.

    >>> folder_values("corpus/lang=en/year=2026/a.parquet")
    {'lang': 'en', 'year': '2026'}
    """
    pairs = (folder.split("=", 1) for folder in path.replace("\\", "/").split("/")[:-1] if "=" in folder)
    return {name: None if value == _NO_VALUE else unquote(value) for name, value in pairs}


def folder_fields(path: str, config: InputConfig, stored: pa.Schema | None) -> pa.Schema:
    """Returns the fields to keep that are in the names of folders, not in the file, in their declared types.

    Raises:
      ValueError: when a name is not of the type.
    """
    values = folder_values(path) if config.keep_fields and "=" in path else {}
    names = () if stored is None else stored.names
    fields = [field for field in declared_fields(config) if field.name in values and field.name not in names]
    for field in fields:
        try:
            pa.scalar(values[field.name], pa.string()).cast(field.type)
        except pa.ArrowException as error:
            raise ValueError(f"has the folder {field.name}={values[field.name]}, not {field.type}: {error}") from error
    return pa.schema(fields)


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Returns a type without dictionaries, views and extensions, which only say how values are stored.

    Null, as columns without a value have it, stays: it may become any other type.
    """
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    if pa.types.is_string_view(type_) or pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_binary_view(type_) or pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(each.name, plain_type(each.type)) for each in type_])
    if pa.types.is_map(type_):
        entry = [pa.field("key", plain_type(type_.key_type)), pa.field("value", plain_type(type_.item_type))]
        return pa.list_(pa.struct(entry))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return pa.list_(plain_type(type_.value_type))
    return type_


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Returns the type of values of both plain types, of which null is any other; None if there is none."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    pairs = [(one.field(i), other.field(i)) for i in range(min(one.num_fields, other.num_fields))]
    inner = [_common(ours.type, theirs.type) for ours, theirs in pairs]
    is_alike = one.id == other.id and one.num_fields == other.num_fields > 0 and None not in inner
    if pa.types.is_list(one):
        return pa.list_(inner[0]) if is_alike else None
    names = [ours.name for ours, theirs in pairs if ours.name == theirs.name]
    if not (is_alike and pa.types.is_struct(one) and len(names) == len(inner)):
        return None
    return pa.struct([pa.field(name, kind) for name, kind in zip(names, inner, strict=True)])


def _without_nulls(type_: pa.DataType) -> pa.DataType:
    """Returns a plain type with strings in place of null."""
    if pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(_without_nulls(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(each.name, _without_nulls(each.type)) for each in type_])
    return type_


def _unkept(type_: pa.DataType) -> pa.DataType | None:
    """Returns the type in a plain type whose values shards cannot hold; None if there is none."""
    if any(is_one(type_) for is_one in _UNKEPT):
        return type_
    return next((found for i in range(type_.num_fields) if (found := _unkept(type_.field(i).type)) is not None), None)


def settle_fields(config: InputConfig, files: Iterable[tuple[str, pa.Schema | None]]) -> tuple[pa.Schema, list[str]]:
    """Returns the fields that a job keeps, and a list of problems: files that lack them or disagree on their types.

    Args:
      config: the section `input`.
      files: path and, where a file says which fields it has, the result of `stored_fields`.
    """
    settled: dict[str, tuple[pa.Field, str]] = {}
    problems = []
    declared = declared_fields(config)
    is_all_known = True
    for path, stored in files:
        is_all_known &= stored is not None
        for field in declared if stored is None else stored:
            first, where = settled.setdefault(field.name, (field, path))
            common = _common(first.type, field.type)
            if (unkept := _unkept(field.type)) is not None:
                problems.append(f"{path!r} has {field.name!r} as {unkept}, whose values cannot be kept; cast it")
            elif common is None:
                problems.append(f"{path!r} has {field.name!r} as {field.type}, but {where!r} has it as {first.type}")
            else:
                both = (field if field.metadata else first).with_type(common)
                settled[field.name] = both, where if common == first.type else path
    for field in declared:
        if field.name not in settled and is_all_known:
            problems.append(f"{field.name!r} of input.keep_fields is in none of the files")
        elif field.name in settled:
            found, where = settled[field.name]
            common = found.type if field.metadata else _common(field.type, found.type)
            settled[field.name] = found.with_type(_without_nulls(found.type if common is None else common)), where
            if not field.metadata and common != field.type:
                problems.append(
                    f"{where!r} has {field.name!r} as {found.type}, but input.keep_fields says {field.type}"
                )
    own = [pa.field(SOURCE, pa.string())] if config.sources else []
    return pa.schema([*(settled.get(field.name, (field, ""))[0] for field in declared), *own]), problems
