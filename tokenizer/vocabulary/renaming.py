# SPDX-License-Identifier: Apache-2.0
"""`rename`: other names for special tokens, in every place of a tokenizer and of the files beside it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.vocabulary.entries import fixed_ids

_TEMPLATES = ("chat_template", "template")
_NAMED_BY_TOKENS = ("vocab", "special_tokens", "added_tokens_encoder", "added_tokens.json", "vocab.json")
"""What has tokens as keys."""


def rename(tokenizer: Tokenizer, names: Mapping[str, str]) -> Tokenizer:
    """Returns a tokenizer whose special tokens have other names, with the same ids.

    They are renamed in the vocabulary and the added tokens, for unknown and padding ones, in the post-processor, and
    where a normalizer keeps them whole.

    Args:
      tokenizer: any.
      names: old name -> new name; names may be exchanged.

    Raises:
      ValueError: if there is no such special or added token, or a new name is empty, taken or given twice.
    """
    vocab = tokenizer.get_vocab()
    fixed = fixed_ids(tokenizer)
    for old, new in names.items():
        if vocab.get(old) not in fixed:
            raise ValueError(f"there is no special or added token {old!r} to rename; words make other entries")
        if not new or (new in vocab and new not in names):
            raise ValueError(f"{old!r} cannot become {new!r}: that is {'an entry already' if new else 'no name'}")
    if len({*names.values()}) < len(names):
        raise ValueError(f"each new name must be given once, got {list(names.values())!r}")
    renamed = Tokenizer.from_str(json.dumps(_renamed(json.loads(tokenizer.to_str()), names)))
    expected = {names.get(token, token): i for token, i in vocab.items()}
    assert renamed.get_vocab() == expected, "ids changed"
    return renamed.replace(special=tokenizer.special)


def rename_files(files: Mapping[str, bytes], names: Mapping[str, str]) -> dict[str, bytes]:
    """Returns the files of a folder of `transformers` with other names of special tokens, chat templates included.

    Args:
      files: the JSON, `.jinja` and `.txt` files of the folder, by name; others are left out.
      names: as for `rename`, which checks them.
    """
    renamed: dict[str, bytes] = {}
    for name, data in files.items():
        if name.endswith(".json"):
            content = _renamed(json.loads(data), names, name)
            renamed[name] = json.dumps(content, ensure_ascii=False, indent=2).encode()
        elif name == "vocab.txt":
            renamed[name] = "\n".join(names.get(line, line) for line in data.decode().split("\n")).encode()
        elif name.endswith((".jinja", ".txt")):
            renamed[name] = _in_text(data.decode(), names).encode()
    return renamed


def _renamed(node: Any, names: Mapping[str, str], key: str = "") -> Any:
    """Returns JSON with other names of tokens: whole strings, keys of vocabularies, and in the text of templates."""
    if isinstance(node, dict) and key in _NAMED_BY_TOKENS:
        return {names.get(token, token): _renamed(value, names) for token, value in node.items()}
    if isinstance(node, dict):
        return {name: _renamed(value, names, name) for name, value in node.items()}
    if isinstance(node, list):
        return [_renamed(each, names, key) for each in node]
    if not isinstance(node, str) or key == "type":
        return node
    return _in_text(node, names) if key in _TEMPLATES else names.get(node, node)


def _in_text(text: str, names: Mapping[str, str]) -> str:
    longest_first = sorted(names, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda match: names[match[0]], text)
