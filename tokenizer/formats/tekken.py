# SPDX-License-Identifier: Apache-2.0
"""Mistral's `tekken.json`: ranks as tiktoken's, behind the special tokens, and the pattern that splits text.

Source: mistral-common 1.13 `tokens/tokenizers/tekken.py`.
"""

import base64
import binascii
import dataclasses

from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.formats import tiktoken_ranks
from tokenmill.tokenizer.formats.json_node import Node
from tokenmill.tokenizer.models.ids import MAX_ID
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.post_processors import template_of

_MAX_SPECIAL = 1 << 16
_OLDER_SPECIAL = (
    "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] "
    "[IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]"
).split()
"""Those of files that do not list them, up to version 7."""


def looks_like(root: Node) -> bool:
    """Whether a JSON file is a `tekken.json`."""
    fields = root.value
    vocab = fields.get("vocab") if isinstance(fields, dict) else None
    return isinstance(vocab, list) and bool(vocab) and isinstance(vocab[0], dict) and "token_bytes" in vocab[0]


def read(root: Node) -> Parts:
    """Returns the parts of a tokenizer, which puts `<s>` in front of a text.

    Raises:
      TokenizerFileError: if the file is broken; the message says where.
    """
    config = root.child("config")
    n_special, size = config.child("default_num_special_tokens"), config.child("default_vocab_size")
    if not 0 <= n_special.integer() <= _MAX_SPECIAL:
        raise n_special.fail(f"must be in 0..{_MAX_SPECIAL}, got {n_special.value}")
    vocab, n_ranks = root.child("vocab"), size.integer() - n_special.integer()
    if not 0 < n_ranks <= min(len(vocab.as_(list, "a list")), MAX_ID):
        raise size.fail(f"must be that of special tokens and at most {len(vocab.value)} others, got {size.value}")
    tokens, ids = _tokens(vocab, n_ranks), range(n_special.value, size.value)
    parts = tiktoken_ranks.parts_of(tokens, ids, config.child("pattern").text(), root.path)
    added = _special(root, n_special.value)
    start = next((token for token in added if token.content == "<s>"), None)
    layout = None
    if start is not None:
        layout = template_of(("<s> A", "<s> A <s>:1 B:1"), {"<s>": (start.id, "<s>")}.__getitem__)
    return dataclasses.replace(parts, post_processor=layout, added_tokens=added)


def _tokens(vocab: Node, n: int) -> list[bytes]:
    found = []
    for rank, entry in enumerate(vocab.value[:n]):
        try:
            found.append(base64.b64decode(entry["token_bytes"], validate=True))
            if type(entry["rank"]) is not int or entry["rank"] != rank:
                raise ValueError(f"rank is {entry['rank']!r}")
        except (TypeError, KeyError, binascii.Error, ValueError) as error:
            raise vocab.fail(f"entry {rank} must have its token in base64, and this rank: {str(error)[:80]}") from error
    return found


def _special(root: Node, n: int) -> list[AddedToken]:
    names = dict(enumerate(_OLDER_SPECIAL[:n]))
    listed = root.child("special_tokens", None)
    if listed.value is not None:
        names = {each.child("rank").integer(): each.child("token_str").text() for each in listed.items()}
        if not set(names) <= set(range(n)) or len(names) != len(listed.value):
            raise listed.fail(f"ranks must be different and in 0..{n - 1}, got {str(sorted(names))[:80]}")
    return [AddedToken(i, names.get(i, f"<SPECIAL_{i}>")) for i in range(n)]
