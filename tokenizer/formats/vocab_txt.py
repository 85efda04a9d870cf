# SPDX-License-Identifier: Apache-2.0
"""`vocab.txt`, BERT's format: one token per line, whose id is the number of the line."""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.unicode import tables as unicode_tables

_SPECIAL = re.compile(r"\[.*\]|<.*>", re.DOTALL)
"""Tokens such as `[CLS]` and `<S>`, whose capitals say nothing of the text that a vocabulary is for."""


def read(text: str, source: str) -> dict[str, int]:
    r"""Returns token -> id from the text of a `vocab.txt`.

    Only line ends (`\n`, `\r\n`) are cut off, as by transformers; a token on several lines has the id of the last. HF's
    reader also cuts other white space off the end of a line. Words of BERT's pre-tokenizer contain none, so ids differ
    only where two lines are equal without it.

    Raises:
      TokenizerFileError: if all lines are empty.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    vocab = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    if not any(vocab):
        raise TokenizerFileError(f"{source}: no tokens; expected one per line")
    return vocab


def say_repeated(vocab: Mapping[str, int], source: str) -> tuple[str, ...]:
    """Returns a line that says which ids belong to no token, because those of their lines come again, if any do."""
    free = np.flatnonzero(np.bincount(list(vocab.values())) == 0)
    if not free.size:
        return ()
    lines = f"{source}: {free.size:,} lines have a token that comes again below, as line {free[0] + 1} has"
    return (f"{lines}; a token has the id of its last line, as in HF, and the others belong to none",)


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
