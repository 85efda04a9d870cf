# SPDX-License-Identifier: Apache-2.0
"""The character sets of text steps, in one version of Unicode, `UNICODE_VERSION`, whatever the Python version."""

import functools

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.classes import N_CODE_POINTS
from tokenmill.tokenizer.ragged import read_only
from tokenmill.tokenizer.unicode import data
from tokenmill.tokenizer.unicode import tables as unicode_tables

UNICODE_VERSION = data.TEXT_VERSION

PYTHON_SPACES = frozenset("\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000").union(
    map(chr, range(0x2000, 0x200B))
)
"""The white space of `str.isspace`, `str.strip` and `\\s` of `re`: Unicode's, and four separators of files."""

SPACES = PYTHON_SPACES - frozenset("\x1c\x1d\x1e\x1f")
"""Unicode's White_Space."""


@functools.cache
def members(name: str) -> npt.NDArray[np.bool_]:
    """Returns which code points are in a set of characters of `unicode.data`, bool[0x110000]: `members("latin")`."""
    return read_only(data.members(f"text/{name}"))


@functools.cache
def table_of(characters: frozenset[str]) -> npt.NDArray[np.bool_]:
    """Returns which code points are in a set of characters, bool[0x110000]."""
    member = np.zeros(N_CODE_POINTS, np.bool_)
    member[[ord(c) for c in characters]] = True
    return read_only(member)


@functools.cache
def case_folds() -> dict[int, str]:
    """Returns the full default case folding: code point -> text, for characters that it changes."""
    folds = unicode_tables.lowercase() | data.texts("text/case_folds")
    return {c: text for c, text in folds.items() if text != chr(c)}


@functools.cache
def digit_values() -> dict[int, str]:
    """Returns code point -> ASCII digit, for the decimal digits of all scripts except ASCII's."""
    zeros = np.flatnonzero(members("zeros")).tolist()
    return {zero + i: str(i) for zero in zeros if zero != ord("0") for i in range(10)}


@functools.cache
def emoji_names() -> dict[str, str]:
    """Returns character -> Unicode name, for pictographs and emoji modifiers."""
    characters = map(chr, data.array("text/emoji").tolist())
    return dict(zip(characters, data.names("text/emoji_names"), strict=True))
