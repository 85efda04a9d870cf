# SPDX-License-Identifier: Apache-2.0
"""tiktoken's ranks, a token in base64 and its rank a line; Mistral's `tekken.json`, which says the rest, too.

Source: mistral-common 1.13 `tokens/tokenizers/tekken.py`.
"""

import base64
import binascii
import dataclasses
import re
from collections.abc import Sequence

from tokenmill.tokenizer import decoders
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import files
from tokenmill.tokenizer.formats.bpe_files import split_to_bytes
from tokenmill.tokenizer.formats.json_node import Node
from tokenmill.tokenizer.models import BPE
from tokenmill.tokenizer.models.vocabulary import MAX_ID, padded_bytes
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.post_processors import template_of
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS

_NAME = re.compile(r"[\w.-]*")
_OF_TIKTOKEN = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}\+|[$^]|\(\?[a-zA-Z]*[msUx]", re.DOTALL)
"""What means something else, or nothing, to HF; escapes and sets of characters come first, to be passed over."""


def read(text: str, source: str, pattern: str | None) -> Parts:
    """Returns the parts of a tokenizer; pattern: as for `parts_of`, since the file does not say.

    Raises:
      TokenizerFileError: if there is no pattern, a line is something else, or the ranks are no vocabulary.
    """
    if pattern is None or (pattern not in TIKTOKEN_PATTERNS and _NAME.fullmatch(pattern)):
        raise TokenizerFileError(
            f"{source}: tiktoken's ranks do not say how text is split; pass pattern= (tokenizer.pattern in a config), "
            f"the regular expression, called pat_str in programs, or one of {', '.join(TIKTOKEN_PATTERNS)}, got "
            f"{pattern!r}"
        )
    return parts_of(*read_lines(text, source), pattern, source)


def parts_of(tokens: Sequence[bytes], ids: Sequence[int], pattern: str, source: str) -> Parts:
    """Returns the parts of a tokenizer that has these tokens.

    Args:
      tokens: the tokens; ids: their ids, which are also their ranks.
      pattern: what splits text: one of the names of `TIKTOKEN_PATTERNS`, or a regular expression as tiktoken has it.
        Text that it does not match becomes words of its own; tiktoken loses it.
      source: what messages call the file.

    Raises:
      TokenizerFileError: if the ranks are no vocabulary, or the pattern is no regular expression.
    """
    with files.named_in_errors(source):
        model = BPE.from_ranked_tokens(*padded_bytes(tokens), ids)
        return Parts(model=model, pre_tokenizer=split_to_bytes(_in_hf(pattern)), decoder=decoders.ByteLevel())


def _in_hf(pattern: str) -> str:
    r"""Returns a pattern of tiktoken's in the spelling that means the same to HF.

    `{1,3}+` is possessive in tiktoken, which makes no difference at the end of an alternative; `$` is the end of the
    text there, and of a line in HF.

    >>> _in_hf(r"\p{N}{1,3}+|\s++$")
    '\\p{N}{1,3}|\\s++\\z'
    """
    if pattern in TIKTOKEN_PATTERNS:
        return TIKTOKEN_PATTERNS[pattern]

    def spelled(found: re.Match[str]) -> str:
        text = found[0]
        if text.endswith("}+") and found.end() < len(pattern) and pattern[found.end()] != "|":
            raise ValueError(f"pattern {pattern[:200]!r}: {text} is possessive; write (?>...) around what it is of")
        if text.startswith("(?"):
            raise ValueError(f"pattern {pattern[:200]!r}: of the flags in {text!r} only i means the same to HF")
        return text[:-1] if text.endswith("}+") else {"$": r"\z", "^": r"\A"}.get(text, text)

    return _OF_TIKTOKEN.sub(spelled, pattern)


def read_lines(text: str, source: str) -> tuple[list[bytes], list[int]]:
    """Returns the tokens and the numbers of lines, whatever their line ends; empty lines are passed over.

    An empty token, which Whisper's file has, is left out, and its rank stays free.

    Raises:
      TokenizerFileError: if a line is something else; the message says which.
    """
    tokens, ids = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line:
            continue
        encoded, _, rank = line.partition(" ")
        try:
            if encoded == "=":  # in Whisper's file; an empty token, which no text becomes
                int(rank)
                continue
            tokens.append(binascii.a2b_base64(encoded, strict_mode=True))
            ids.append(int(rank))
        except (binascii.Error, ValueError) as error:
            raise TokenizerFileError(
                f"{source}, line {number}: expected base64 and a rank, got {line[:80]!r}"
            ) from error
    return tokens, ids


# Mistral's files.

_MAX_SPECIAL = 1 << 16
_OLDER_SPECIAL = (
    "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] "
    "[IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]"
).split()
"""Those of files that do not list them, up to version 7."""


def is_tekken(root: Node) -> bool:
    """Whether a JSON file is a `tekken.json`."""
    fields = root.value
    vocab = fields.get("vocab") if isinstance(fields, dict) else None
    return isinstance(vocab, list) and bool(vocab) and isinstance(vocab[0], dict) and "token_bytes" in vocab[0]


def read_tekken(root: Node) -> Parts:
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
    tokens, ids = _tekken_tokens(vocab, n_ranks), range(n_special.value, size.value)
    parts = parts_of(tokens, ids, config.child("pattern").text(), root.path)
    added = _tekken_special(root, n_special.value)
    start = next((token for token in added if token.content == "<s>"), None)
    layout = None
    if start is not None:
        layout = template_of(("<s> A", "<s> A <s>:1 B:1"), {"<s>": (start.id, "<s>")}.__getitem__)
    return dataclasses.replace(parts, post_processor=layout, added_tokens=added)


def _tekken_tokens(vocab: Node, n: int) -> list[bytes]:
    found = []
    for rank, entry in enumerate(vocab.value[:n]):
        try:
            found.append(base64.b64decode(entry["token_bytes"], validate=True))
            if type(entry["rank"]) is not int or entry["rank"] != rank:
                raise ValueError(f"rank is {entry['rank']!r}")
        except (TypeError, KeyError, binascii.Error, ValueError) as error:
            raise vocab.fail(f"entry {rank} must have its token in base64, and this rank: {str(error)[:80]}") from error
    return found


def _tekken_special(root: Node, n: int) -> list[AddedToken]:
    names = dict(enumerate(_OLDER_SPECIAL[:n]))
    listed = root.child("special_tokens", None)
    if listed.value is not None:
        names = {each.child("rank").integer(): each.child("token_str").text() for each in listed.items()}
        if not set(names) <= set(range(n)) or len(names) != len(listed.value):
            raise listed.fail(f"ranks must be different and in 0..{n - 1}, got {str(sorted(names))[:80]}")
    return [AddedToken(i, names.get(i, f"<SPECIAL_{i}>")) for i in range(n)]
