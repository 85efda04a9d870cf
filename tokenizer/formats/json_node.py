# SPDX-License-Identifier: Apache-2.0
"""Untrusted JSON: values that know their path in the file, so that every error message names the place."""

import functools
import json
import re
from typing import Any

from tokenmill.tokenizer.errors import TokenizerFileError

_MAX_INTEGER = (1 << 63) - 1
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Matches escapes that may be half of a surrogate pair; most files have none."""


class Node:
    """A JSON value and its path, for messages; every access states the type that it expects."""

    def __init__(self, value: Any, path: str, ignored: list[str] | None = None) -> None:
        self.value = value
        self.path = path
        self.ignored: list[str] = [] if ignored is None else ignored
        """Paths of unknown fields, see `known`; shared by all nodes of one root."""

    def fail(self, problem: str) -> TokenizerFileError:
        """Returns an error that names the place of this value and the problem."""
        return TokenizerFileError(f"{self.path}: {problem}")

    def as_(self, kind: type, name: str) -> Any:
        """Returns the value if it has the type `kind`, which messages call `name`."""
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            raise self.fail(f"expected {name}, got {json.dumps(self.value)[:80]}")
        return self.value

    def object(self) -> dict[str, Any]:
        """Returns the fields of an object, without copying them: every access to a field calls this."""
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

    def vocabulary(self) -> dict[str, int]:
        """Returns the fields of an object whose values are integers, token -> id."""
        fields = self.object()
        if not set(map(type, fields.values())) <= {int}:
            token, token_id = next(item for item in fields.items() if type(item[1]) is not int)
            raise self.fail(f"id of {token!r} must be an integer, got {json.dumps(token_id)[:80]}")
        return fields

    def flag(self) -> bool:
        """Returns true or false."""
        return bool(self.as_(bool, "true or false"))

    def items(self) -> list["Node"]:
        """Returns the values of a list."""
        return [Node(v, f"{self.path}[{i}]", self.ignored) for i, v in enumerate(self.as_(list, "a list"))]

    def child(self, key: str, default: Any = ...) -> "Node":
        """Returns a field, or `default` if it is missing; without a default that is an error."""
        fields = self.object()
        if key not in fields and default is ...:
            raise self.fail(f"field {key!r} is missing")
        return Node(fields.get(key, default), f"{self.path}.{key}", self.ignored)

    def one_of(self, allowed: dict[str, Any]) -> Any:
        """Returns the value of a name in `allowed`; raises an error if it is not there."""
        name = self.text()
        if name not in allowed:
            raise self.fail(f"{name!r} is not supported; supported: {', '.join(allowed)}")
        return allowed[name]

    def only_one(self, *keys: str) -> str:
        """Returns the name of the only field, which must be one of `keys`."""
        fields = list(self.object())
        if len(fields) != 1 or fields[0] not in keys:
            raise self.fail(f"expected {' or '.join(keys)}, got {', '.join(fields) or 'nothing'}")
        return fields[0]

    def known(self, *keys: str) -> None:
        """Adds the fields that are not among `keys`, and that HF ignores too, to `ignored`."""
        self.ignored += [f"{self.path}.{key}"[:200] for key in self.object() if key not in keys]

    def only(self, *keys: str) -> None:
        """Raises an error that names a field not among `keys`, if there is one."""
        for key in self.object():
            if key not in keys:
                raise self.fail(f"field {key!r} is not supported; known: {', '.join(keys)}")


def parse(text: str, source: str, *, repeats: bool = False) -> Node:
    """Parses JSON in which no object has a field twice.

    repeats: whether a token may stand twice in an object of tokens and ids, as HF takes it: it has the last id, and the
    ids before are among the root's `ignored`.

    Raises:
      TokenizerFileError: if it is not such JSON, nests too deeply, or holds half of a surrogate pair, which is no text.
    """
    ignored: list[str] = []
    try:
        value = json.loads(text, object_pairs_hook=functools.partial(_unique, ignored if repeats else None))
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return Node(value, source, ignored)
    except TokenizerFileError as error:
        raise TokenizerFileError(f"{source}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise TokenizerFileError(f"{source}: not JSON: {str(error)[:200] or 'nested too deeply'}") from error


def _unique(ignored: list[str] | None, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        if ignored is not None and {type(value) for _, value in pairs} == {int}:
            ignored += [f"id {i!r:.20} of {key[:80]!r}, which has a later one" for key, i in pairs if fields[key] != i]
            return fields
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise TokenizerFileError(f"{key!r} stands twice in one object; take one of them out")
            seen.add(key)
    return fields
