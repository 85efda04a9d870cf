# SPDX-License-Identifier: Apache-2.0
"""The settings that `transformers` saves next to a vocabulary: options, special tokens by role, added tokens."""

import dataclasses
import reprlib
from pathlib import Path
from typing import Any

from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import files
from tokenmill.tokenizer.formats.json_node import Node, parse
from tokenmill.tokenizer.formats.transformers_classes import class_of_model

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_MOST_DIGITS = 19
"""The most digits of an id of 64 bits."""
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclasses.dataclass(frozen=True)
class Settings:
    """The JSON files of a folder as `transformers` saves it, any of which may be missing."""

    config: Node
    """`tokenizer_config.json`, an empty object if there is none."""
    class_name: str
    """The name of the tokenizer's class, or empty."""
    roles: dict[str, AddedToken]
    """Special tokens by role; their ids are not set."""
    special: frozenset[str]
    """The content of every special token."""
    added: tuple[AddedToken, ...]
    """The tokens of `added_tokens_decoder` and `added_tokens.json`, with their ids."""

    @classmethod
    def of_class(cls, name: str, source: str) -> "Settings":
        """Returns the settings for a single file that is read as a class; `source` is its name in messages."""
        return cls(Node({}, source), name, {}, frozenset(), ())

    def flag(self, name: str, default: bool) -> bool:
        """Returns an option that is true or false; null means the default."""
        node = self.config.child(name, None)
        return default if node.value is None else node.flag()


def read_settings(folder: Path, as_class: str | None = None) -> Settings:
    """Reads the settings of a folder.

    Args:
      folder: the folder.
      as_class: the name of the class, which overrides what the folder says.

    Raises:
      TokenizerFileError: if a file is not as `transformers` writes it; the message says which and where.
    """
    config = _read(folder / "tokenizer_config.json")
    tokens_map = _read(folder / "special_tokens_map.json")
    roles: dict[str, AddedToken] = {}
    for role in ROLES:
        # Older versions wrote the map; the config overrides it.
        for node in (tokens_map, config):
            found = node.child(f"{role}_token", None)
            if found.value is not None:
                roles[role] = _token(found, 0, special=True)
    special = {token.content for token in roles.values()}
    for node in (tokens_map, config):
        for name in ("additional_special_tokens", "extra_special_tokens"):
            extra = node.child(name, None)
            if isinstance(extra.value, list):
                special |= {_token(item, 0, special=True).content for item in extra.items()}
    added: dict[str, AddedToken] = {}
    plain = _read(folder / "added_tokens.json")
    for content in plain.object():
        token_id = plain.child(content).integer()
        added[content] = _token(Node(content, f"{plain.path}.{content}"), token_id, special=content in special)
    decoder = config.child("added_tokens_decoder", {})
    for number in decoder.object():
        if not (number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS):
            raise decoder.fail(f"expected ids as keys, got {reprlib.repr(number)}")
        token = _token(decoder.child(number), int(number), special=False)
        added[token.content] = token
    special |= {t.content for t in added.values() if t.special}
    added = {c: dataclasses.replace(t, special=True) if c in special else t for c, t in added.items()}
    by_id = sorted(added.values(), key=lambda token: token.id)
    name = as_class or _class_name(folder, config)
    return Settings(config, name, roles, frozenset(special), tuple(by_id))


def _class_name(folder: Path, config: Node) -> str:
    """Returns the name of the class, from the first file that says, in the order of `transformers`."""
    model = _read(folder / "config.json")
    for file in (config, model):
        # The folder has its own code, which may do anything to a text, whatever class it names besides.
        code = file.child("auto_map", None)
        if isinstance(code.value, dict) and "AutoTokenizer" in code.value:
            code = code.child("AutoTokenizer")
        elif file is model:
            continue
        names = code.value if isinstance(code.value, list) else [code.value]
        if own := next((name for name in names if isinstance(name, str)), None):
            return own.rpartition(".")[2]
    for file in (config, model):
        name = file.child("tokenizer_class", None)
        if name.value is not None:
            return name.text()
    model_type = model.child("model_type", None)
    return "" if model_type.value is None else class_of_model(model_type.text())


def _read(path: Path) -> Node:
    node = parse(files.read_text(path), str(path)) if path.is_file() else Node({}, str(path))
    node.object()
    return node


def _token(node: Node, token_id: int, *, special: bool) -> AddedToken:
    """Reads a token: a string with its content, or an object with content and flags."""
    try:
        if isinstance(node.value, str):
            return AddedToken(token_id, node.value, normalized=not special, special=special)
        flags = {name: node.child(name, None) for name in _FLAGS}
        values: dict[str, Any] = {name: child.flag() for name, child in flags.items() if child.value is not None}
        values.setdefault("special", special)
        return AddedToken(token_id, node.child("content").text(), **values)
    except TokenizerFileError:
        raise
    except ValueError as error:
        raise node.fail(str(error)) from error
