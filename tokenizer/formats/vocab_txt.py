# SPDX-License-Identifier: Apache-2.0
"""`vocab.txt`, BERT's format: one token per line, whose id is the number of the line."""

import re
from collections.abc import Iterable

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
