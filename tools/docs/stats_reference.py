# SPDX-License-Identifier: Apache-2.0
"""Writes the page of all numbers in stats.json, from the types that its JSON Schema is made of."""

from collections.abc import Iterator, Mapping
from typing import Any

from tokenmill.pipeline.reporting.stats_file import json_schema

PAGE = "docs/reference/stats.md"

_HEAD = """\
# stats.json

```json
"oov": {"tokens": 12, "share_of_tokens": 0.0002, "characters_to_add": {"50%": 3, "95%": 9}}
```

Every job that tokenizes writes `stats.json` into its output folder. All counts are over all splits
and exact, but for those in `sample`. A ratio is null where it would divide by zero; a share is from
0 to 1. `tokenmill schema stats` prints this page as a JSON Schema.
[The report](../how-to/report.md) draws the file, and `vocab/token_counts.parquet` has the count of
every entry.
"""


def page() -> str:
    """Returns the page."""
    schema = json_schema()
    parts = [_HEAD, *_section("", schema, schema["$defs"], 0)]
    return "\n".join(parts)


def _section(path: str, described: Mapping[str, Any], kinds: Mapping[str, Any], depth: int) -> Iterator[str]:
    if depth:
        yield f"## {path}\n\n{described['description']}\n"
    yield "| field | type | |\n|---|---|---|"
    below = []
    for name, field in described["properties"].items():
        type_, child, mark = _type(field, kinds)
        said = " ".join(field.get("description", "").split())
        if child is not None:
            said = said or " ".join(child.get("description", "").split())
            below.append((f"{path}.{name}".lstrip(".") + mark, child))
        yield f"| `{name}` | {type_} | {said} |"
    yield ""
    for name, child in below:
        yield from _section(name, child, kinds, depth + 1)


def _type(field: Mapping[str, Any], kinds: Mapping[str, Any]) -> tuple[str, Mapping[str, Any] | None, str]:
    """Returns the type in words; its fields, if it is an object; and the part of the path that follows its name."""
    if "$ref" in field:
        return "object", kinds[field["$ref"].rpartition("/")[2]], ""
    if "anyOf" in field:
        types = [_type(each, kinds) for each in field["anyOf"]]
        named = " or ".join(type_ for type_, _, _ in types)
        child, mark = next(((child, mark) for _, child, mark in types if child is not None), (None, ""))
        return named.removesuffix(" or null") if "default" in field else named, child, mark
    if field.get("type") == "array":
        type_, child, _ = _type(field["items"], kinds)
        return f"list of {type_}s", child, "[]"
    if field.get("type") == "object":
        type_, child, _ = _type(field["additionalProperties"], kinds)
        return f"{type_} by name", child, ".*"
    if "const" in field:
        return f"{field['const']}", None, ""
    return str(field["type"]), None, ""
