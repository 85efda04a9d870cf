# SPDX-License-Identifier: Apache-2.0
"""Values of any Arrow type as JSON, for formats with few types."""

import base64
import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_NEEDS_ESCAPE = r'[\x00-\x1f"\\]'


def json_texts(column: pa.Array) -> pa.LargeStringArray:
    """Returns large_string[n], the JSON of each value, `null` for a null.

    Times in ISO 8601, durations in seconds, decimals as digits and bytes in base64 all become strings; for times and
    durations in nanoseconds, see `spell_nanoseconds`.
    """
    null = pa.scalar("null", pa.large_string())
    if pa.types.is_integer(column.type):
        return pc.fill_null(column.cast(pa.large_string()), null)
    if pa.types.is_string(column.type) and not pc.any(pc.match_substring_regex(column, _NEEDS_ESCAPE)).as_py():
        quote = pa.scalar('"', pa.large_string())
        quoted = pc.binary_join_element_wise(
            quote, column.cast(pa.large_string()), quote, pa.scalar("", pa.large_string())
        )
        return pc.fill_null(quoted, null)
    texts = [json.dumps(value, ensure_ascii=False, default=to_plain) for value in _spelled(column).to_pylist()]
    return pa.array(texts, pa.large_string())


def spell_nanoseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns columns with strings in place of times and durations in nanoseconds, for which Python has no type.

    Arrow converts these to pandas objects, or fails without pandas. Here a time becomes
    `2026-11-24 18:05:00.000000001`, a duration its number of nanoseconds.
    """
    columns = [_spelled(column) for column in batch.columns]
    fields = [field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)]
    return pa.record_batch(columns, schema=pa.schema(fields))


def _spelled(column: pa.Array) -> pa.Array:
    type_ = _spelled_type(column.type)
    return column if type_ == column.type else column.cast(type_)


def _spelled_type(type_: pa.DataType) -> pa.DataType:
    """Returns a type with strings in place of times and durations in nanoseconds, at any depth."""
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_spelled_type(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_spelled_type(type_.key_type), type_.item_field.with_type(_spelled_type(type_.item_type)))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        field = type_.value_field.with_type(_spelled_type(type_.value_type))
        if pa.types.is_fixed_size_list(type_):
            return pa.list_(field, type_.list_size)
        return pa.list_(field) if pa.types.is_list(type_) else pa.large_list(field)
    return pa.string() if getattr(type_, "unit", None) == "ns" else type_


def to_plain(value: Any) -> str:
    """Returns a JSON value for a Python value that JSON has no type for; `json.dumps` takes it as `default`."""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return str(value.total_seconds())
    if isinstance(value, decimal.Decimal):
        return str(value)
    return base64.b64encode(value).decode()
