# SPDX-License-Identifier: Apache-2.0
"""Values of any Arrow type as JSON, for formats that know few types."""

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

    Times are in ISO 8601, durations in seconds, decimals their digits, bytes in base64, all as strings.
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
    texts = [json.dumps(value, ensure_ascii=False, default=to_plain) for value in column.to_pylist()]
    return pa.array(texts, pa.large_string())


def to_plain(value: Any) -> Any:
    """Returns what JSON has for a value that it does not know."""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return str(value.total_seconds())
    if isinstance(value, decimal.Decimal):
        return str(value)
    return base64.b64encode(value).decode()
