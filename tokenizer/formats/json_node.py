# SPDX-License-Identifier: Apache-2.0
"""JSON from strangers: values that know where they stand, so that every complaint names the place."""

import json
import re
from typing import Any

from tokenizer.errors import TokenizerFileError
from tokenizer.formats.json_numbers import read_float

_MAX_INTEGER = (1 << 63) - 1
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Escapes that may be half of a character; most files have none."""


class Node:
    """A JSON value with the path it stands at, for messages; every access says what it expects."""

    def __init__(self, value: Any, path: str, ignored: list[str] | None = None) -> None:
        self.value = value
        self.path = path
        self.ignored: list[str] = [] if ignored is None else ignored
        """Places of fields that `known` has found to be none, of all nodes that came from one root."""

    def fail(self, problem: str) -> TokenizerFileError:
        """Returns the error that says what is wrong here."""
        return TokenizerFileError(f"{self.path}: {problem}")

    def as_(self, kind: type, name: str) -> Any:
        """Returns the value if it is of a kind, which messages call `name`."""
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            raise self.fail(f"expected {name}, got {json.dumps(self.value)[:80]}")
        return self.value

    def object(self) -> dict[str, Any]:
        """Returns the fields of an object, not a copy: every access to a field asks for them."""
        fields: dict[str, Any] = self.as_(dict, "an object")
        return fields

    def text(self) -> str:
        """Returns a string."""
        return str(self.as_(str, "a string"))

    def integer(self) -> int:
        """Returns an integer of 64 bits."""
        value = int(self.as_(int, "an integer"))
        if abs(value) > _MAX_INTEGER:
            raise self.fail(f"must fit into 64 bits, got {str(value)[:80]}")
        return value

    def flag(self) -> bool:
        """Returns true or false."""
        return bool(self.as_(bool, "true or false"))

    def items(self) -> list["Node"]:
        """Returns the values of a list."""
        return [Node(v, f"{self.path}[{i}]", self.ignored) for i, v in enumerate(self.as_(list, "a list"))]

    def child(self, key: str, default: Any = ...) -> "Node":
        """Returns a field, `default` where it is missing; an error if there is none."""
        fields = self.object()
        if key not in fields and default is ...:
            raise self.fail(f"field {key!r} is missing")
        return Node(fields.get(key, default), f"{self.path}.{key}", self.ignored)

    def one_of(self, allowed: dict[str, Any]) -> Any:
        """Returns what a name stands for, an error where it is not `allowed`."""
        name = self.text()
        if name not in allowed:
            raise self.fail(f"{name!r} is not supported; supported: {', '.join(allowed)}")
        return allowed[name]

    def known(self, *keys: str) -> None:
        """Notes the fields that are not among `keys`, which HF ignores too."""
        self.ignored += [f"{self.path}.{key}"[:200] for key in self.object() if key not in keys]

    def only(self, *keys: str) -> None:
        """Raises an error naming a field that is not among `keys`."""
        for key in self.object():
            if key not in keys:
                raise self.fail(f"field {key!r} is not supported; known: {', '.join(keys)}")


def parse(text: str, source: str) -> Node:
    """Parses JSON in which no object names a field twice; numbers are those that HF would read.

    Raises:
      TokenizerFileError: if it is not that, nests too deeply, or holds half of a surrogate pair, which is no text.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_float=read_float)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return Node(value, source)
    except (ValueError, RecursionError) as error:
        raise TokenizerFileError(f"{source}: not JSON: {str(error)[:200] or 'nested too deeply'}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"{key!r} stands twice in one object")
            seen.add(key)
    return fields
