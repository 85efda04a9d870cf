# SPDX-License-Identifier: Apache-2.0
"""Components as JSON: a table per role lists the fields of each type; two functions read and write by these tables."""

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


@dataclasses.dataclass(frozen=True)
class Spec:
    """One type of component."""

    make: Callable[..., Any]
    fields: tuple[Field, ...] = ()
    legacy: tuple[Field, ...] = ()
    """Fields of older files, which are read but not written."""
    own: tuple[Field, ...] = ()
    """Fields of ours, which HF passes over; they are written if they are not the default."""


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
    name = node.child("type").text()
    spec = node.child("type").one_of(dict(table))
    fields = (*spec.fields, *spec.legacy, *spec.own)
    node.known("type", *(f.json for f in fields))
    values = {}
    for field in fields:
        if field.default is _REQUIRED or field.json in node.object():
            values[field.attribute] = field.read(node.child(field.json))
        else:
            values[field.attribute] = field.default
    try:
        return spec.make(**values)
    except ValueError as error:
        raise node.fail(f"{name}: {error}") from error


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
    spec = table[name]
    own = [field for field in spec.own if getattr(component, field.attribute) != field.default]
    return {"type": name} | {f.json: f.write(getattr(component, f.attribute, component)) for f in (*spec.fields, *own)}


def _few(node: Node) -> list[Node]:
    """Returns the parts of a sequence, each of which goes through every text."""
    if len(items := node.items()) > _MAX_PARTS:
        raise node.fail(f"a sequence of {len(items)} parts, allowed are {_MAX_PARTS}")
    return items


# Kinds of fields.


def flag(json: str, default: Any = _REQUIRED, attribute: str | None = None) -> Field:
    """True or false."""
    return Field(json, attribute or json, lambda node: node.flag(), default)


def optional_flag(json: str) -> Field:
    """True, false or null."""
    return Field(json, json, lambda node: None if node.value is None else node.flag(), None)


def text(json: str, default: Any = _REQUIRED) -> Field:
    """A string."""
    return Field(json, json, lambda node: node.text(), default)


def integer(json: str, default: Any = _REQUIRED) -> Field:
    """An integer."""
    return Field(json, json, lambda node: node.integer(), default)


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
