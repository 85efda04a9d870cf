# SPDX-License-Identifier: Apache-2.0
"""`vocab.txt`, BERT's format: one token per line, whose id is the number of the line."""

import re
from collections.abc import Iterable, Mapping

from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.unicode import tables as unicode_tables

_SPECIAL = re.compile(r"\[.*\]|<.*>", re.DOTALL)
"""Tokens such as `[CLS]` and `<S>`, whose capitals say nothing of the text that a vocabulary is for."""


def read(text: str, source: str) -> dict[str, int]:
    r"""Returns token -> id from the text of a `vocab.txt`.

    Only line ends (`\n`, `\r\n`) are cut off. HF's reader also cuts other white space off the end of a line. Words of
    BERT's pre-tokenizer contain none, so ids are the same, but here such tokens keep their text.

    Raises:
      TokenizerFileError: if a token is on two lines, of which readers choose different ones, or all lines are empty.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    vocab: dict[str, int] = {}
    for number, line in enumerate(lines):
        token = line.removesuffix("\r")
        if token in vocab:
            raise TokenizerFileError(
                f"{source}, line {number + 1}: token {token!r} stands already on line {vocab[token] + 1}; "
                "every token has one id"
            )
        vocab[token] = number
    if not any(vocab):
        raise TokenizerFileError(f"{source}: no tokens; expected one per line")
    return vocab


def assume_case(vocab: Iterable[str], source: str) -> tuple[bool, tuple[str, ...]]:
    """Returns (whether text is to be lower-cased, lines that say so if it is not), of a vocabulary that does not say.

    Entries with capitals, special tokens aside, are never made of text in lower case, so they prove a cased one.
    """
    capitals = {*map(chr, unicode_tables.lowercase())}
    cased = [token for token in vocab if not capitals.isdisjoint(token) and not _SPECIAL.fullmatch(token)]
    if not cased:
        return True, ()
    entries = "entry has" if len(cased) == 1 else "entries have"
    said = f"{source}: {len(cased):,} {entries} capitals, such as {cased[0][:40]!r}, so text is not lower-cased; "
    return False, (f"{said}to lower-case it, pass lowercase=True (tokenizer.lowercase in a config)",)


def write(vocab: Mapping[str, int], source: str) -> str:
    """Returns the text of a `vocab.txt`.

    Raises:
      ValueError: if ids have gaps or a token contains a line end, which the format cannot represent.
    """
    by_id = sorted(vocab.items(), key=lambda item: item[1])
    for position, (token, token_id) in enumerate(by_id):
        if token_id != position:
            raise ValueError(
                f"{source}: vocab.txt cannot hold a gap in the ids, but no token has id {position}; "
                "save as tokenizer.json"
            )
        if "\n" in token or token.endswith("\r"):
            raise ValueError(f"{source}: vocab.txt cannot hold token {token!r} with a line end; save as tokenizer.json")
        if position == 0 and token.startswith("\ufeff"):
            raise ValueError(f"{source}: vocab.txt cannot begin with token {token!r}; save as tokenizer.json")
    return "".join(f"{token}\n" for token, _ in by_id)
