# SPDX-License-Identifier: Apache-2.0
"""The sections `normalize` and `spans` of a config, which change text before a tokenizer sees it.

The library that parses steps and spans is imported only for a config that has some: reading a config must stay fast.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

Entry = str | dict[str, Any]


def _mistake(index: int, value: object, error: Exception) -> PydanticCustomError:
    allowed = str(error).removeprefix("normalize[0]: ").removeprefix("SpanRule.__init__() ")
    return PydanticCustomError("cross_check", "{allowed}", {"path": str(index), "value": value, "allowed": allowed})


def _check_steps(entries: list[Entry]) -> list[Entry]:
    if not entries:
        return entries
    from tokenmill.tokenizer.text import parse_steps

    for i, entry in enumerate(entries):
        try:
            parse_steps([entry])
        except ValueError as error:
            raise _mistake(i, entry, error) from None
    return entries


def _check_spans(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not entries:
        return entries
    from tokenmill.tokenizer.text import SpanRule

    tokens: dict[str, int] = {}
    for i, entry in enumerate(entries):
        try:
            rule = SpanRule.from_config(entry)
            if rule.token in tokens:
                raise ValueError(f"token {rule.token!r} belongs to spans.{tokens[rule.token]} already; give it its own")
        except ValueError as error:
            raise _mistake(i, entry, error) from None
        tokens[rule.token] = i
    return entries


_PRESETS = ["basic_clean", "clip", "default", "nfc", "nfd", "nfkc", "nfkd", "whitespace_clean"]
_STEPS = [
    "ascii_digits", "bidi", "casefold", "control_characters", "emoji", "ftfy", "full_width", "html_entities",
    "isolate_digits", "lowercase", "mojibake", "punctuation", "regex", "repeated_punctuation", "segment",
    "strip_accents", "tatweel", "whitespace", "zero_width",
]  # fmt: skip
"""Names for the JSON Schema, which editors then suggest; a test compares both lists with the library."""
_STEP_SCHEMA = {
    "anyOf": [
        {"enum": sorted([*_PRESETS, *_STEPS])},
        {"type": "object", "minProperties": 1, "maxProperties": 1, "propertyNames": {"enum": _STEPS}},
    ]
}
_SPAN_SCHEMA = {
    "type": "object",
    "properties": {
        "token": {"type": "string"},
        "find": {"enum": ["number", "url", "email", "emoji", "repeated", "whitespace"]},
        "regex": {"type": "string"},
        "literal": {"type": "string"},
        "least": {"type": "integer", "minimum": 1},
        "keep_source": {"type": "boolean"},
        "seconds": {"type": "number", "exclusiveMinimum": 0},
    },
    "required": ["token"],
    "additionalProperties": False,
}

Steps = Annotated[list[Entry], AfterValidator(_check_steps), WithJsonSchema({"type": "array", "items": _STEP_SCHEMA})]
"""A list of steps, each a name or one name with its options; see docs/explanation/text.md."""
Spans = Annotated[
    list[dict[str, Any]], AfterValidator(_check_spans), WithJsonSchema({"type": "array", "items": _SPAN_SCHEMA})
]
"""A list of spans, each with its token and one of `find`, `regex`, `literal`; see docs/explanation/text.md."""
