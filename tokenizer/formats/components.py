# SPDX-License-Identifier: Apache-2.0
"""Objects as JSON: a table per role lists the fields of each type; two functions read and write by these tables."""

import base64
import binascii
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tokenmill.tokenizer.formats.json_node import Node

_REQUIRED = object()
_MAX_PARTS = 256
_MAX_DEPTH = 32
"""The most levels of sequences in sequences; real files have two."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a component: its name in JSON, its attribute, and how to read and write it."""

    json: str
    attribute: str
    read: Callable[[Node], Any]
    default: Any = _REQUIRED
    write: Callable[[Any], Any] = lambda value: value
    """Called with the value of `attribute`, or with the component if it has no such attribute."""
    is_own: bool = False
    """Whether it is ours, and HF passes over it; then it is written only if it is not the default."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """One type of component."""

    make: Callable[..., Any]
    fields: tuple[Field, ...] = ()
    legacy: tuple[Field, ...] = ()
    """Fields of older files, which are read but not written."""


Table = Mapping[str, Spec]
"""HF's name of a type, which is also the name of our class -> its spec."""


def read(node: Node, table: Table) -> Any:
    """Reads a component; returns None for null.

    Raises:
      TokenizerFileError: if its type is not in the table, or a value is wrong.
    """
    if node.value is None:
        return None
    if node.path.count("].") > _MAX_DEPTH:
        raise node.fail(f"nested more than {_MAX_DEPTH} deep, which no tokenizer is")
    spec = node.child("type").one_of(dict(table))
    return read_fields(node, spec, f"{node.child('type').text()}: ")


def read_fields(node: Node, spec: Spec, prefix: str = "", **given: Any) -> Any:
    """Reads an object whose type is known; a field `type` is passed over.

    Args:
      node: the object.
      spec: what it is.
      prefix: goes in front of the message if its values do not go together.
      **given: more arguments of `spec.make`.

    Raises:
      TokenizerFileError: if a value is wrong.
    """
    fields = (*spec.fields, *spec.legacy)
    node.known("type", *(f.json for f in fields))
    values = {
        field.attribute: field.default
        if field.default is not _REQUIRED and field.json not in node.object()
        else field.read(node.child(field.json))
        for field in fields
    }
    try:
        return spec.make(**values, **given)
    except ValueError as error:
        raise node.fail(f"{prefix}{error}") from error


def write(component: Any, table: Table) -> dict[str, Any] | None:
    """Returns a component as JSON, None for None.

    Raises:
      ValueError: if its type is not in the table.
    """
    if component is None:
        return None
    name = type(component).__name__
    kind = inspect.unwrap(table[name].make) if name in table else None
    if kind is None or (isinstance(kind, type) and kind is not type(component)):  # text steps have some of HF's names
        raise ValueError(f"{component!r} cannot be written as tokenizer.json; it has no type for it")
    return {"type": name} | write_fields(component, table[name])


def write_fields(component: Any, spec: Spec) -> dict[str, Any]:
    """Returns the fields of a component as JSON."""
    written = [(field, field.write(getattr(component, field.attribute, component))) for field in spec.fields]
    return {field.json: value for field, value in written if not field.is_own or value != field.default}


def _few(node: Node) -> list[Node]:
    """Returns the parts of a sequence, none of them null; each goes through every text."""
    if len(items := node.items()) > _MAX_PARTS:
        raise node.fail(f"a sequence of {len(items)} parts, allowed are {_MAX_PARTS}")
    for item in items:
        item.object()
    return items


# Kinds of fields.


def flag(json: str, default: Any = _REQUIRED, attribute: str | None = None) -> Field:
    """True or false."""
    return Field(json, attribute or json, lambda node: node.flag(), default)


def text(json: str, default: Any = _REQUIRED, is_own: bool = False) -> Field:
    """A string."""
    return Field(json, json, lambda node: node.text(), default, is_own=is_own)


def integer(json: str, default: Any = _REQUIRED) -> Field:
    """An integer."""
    return Field(json, json, lambda node: node.integer(), default)


def optional(json: str, read: Callable[[Node], Any], **others: Any) -> Field:
    """A value or null, which is also what a missing one is; `others` are fields of `Field`."""
    return Field(json, json, lambda node: None if node.value is None else read(node), None, **others)


def names(json: str, default: Any = _REQUIRED, **theirs_to_ours: str) -> Field:
    """One of several names; `theirs_to_ours` maps HF's to ours."""
    ours_to_theirs = {ours: theirs for theirs, ours in theirs_to_ours.items()}
    return Field(json, json, lambda node: node.one_of(theirs_to_ours), default, lambda value: ours_to_theirs[value])


def base64_bytes(json: str) -> Field:
    """Bytes, as base64."""

    def decode(node: Node) -> bytes:
        try:
            return base64.b64decode(node.text(), validate=True)
        except binascii.Error as error:
            raise node.fail(f"not base64: {error}") from error

    return Field(json, json, decode, write=lambda value: base64.b64encode(value).decode())


def parts(json: str, table: Callable[[], Table], attribute: str | None = None) -> Field:
    """A list of components of the same role."""
    return Field(
        json,
        attribute or json,
        lambda node: tuple(read(item, table()) for item in _few(node)),
        write=lambda values: [write(value, table()) for value in values],
    )


def pattern() -> Field:
    """A literal or a regular expression, for the component's `pattern` and `is_regex`; see `with_pattern`."""

    def decode(node: Node) -> tuple[str, bool]:
        fields = node.object()
        if list(fields) not in (["String"], ["Regex"]):
            raise node.fail(f"expected String or Regex, got {', '.join(fields) or 'nothing'}")
        (kind,) = fields
        return node.child(kind).text(), kind == "Regex"

    return Field("pattern", "text_and_kind", decode, write=lambda c: {"Regex" if c.is_regex else "String": c.pattern})


def with_pattern(make: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the constructor of a component that has a `pattern()` among its fields."""

    @functools.wraps(make)
    def made(text_and_kind: tuple[str, bool], **rest: Any) -> Any:
        return make(pattern=text_and_kind[0], is_regex=text_and_kind[1], **rest)

    return made
