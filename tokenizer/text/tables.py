# SPDX-License-Identifier: Apache-2.0
"""What text steps know of characters, in one version of Unicode whatever the Python, lowered to arrays.

`UNICODE_VERSION` says which. What Unicode has once decided about normal forms and case folding it never changes, so
Python's `unicodedata`, of an older version, gives the same answers on all characters that it knows.
"""

import functools

import numpy as np
import numpy.typing as npt

from tokenizer.kernels.classes import N_CODE_POINTS
from tokenizer.normalizers import tables
from tokenizer.normalizers.tables import NormalForm
from tokenizer.ragged import read_only
from tokenizer.unicode import data
from tokenizer.unicode import tables as unicode_tables

UNICODE_VERSION = data.TEXT_VERSION

PYTHON_SPACES = frozenset("\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000").union(
    map(chr, range(0x2000, 0x200B))
)
"""What `str.isspace`, `str.strip` and `\\s` of `re` take for white space: Unicode's, and four separators of files."""

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
def canonical() -> dict[int, str]:
    """Returns the full canonical decompositions, Hangul left out."""
    return unicode_tables.decompositions() | data.texts("text/canonical")


@functools.cache
def combining() -> npt.NDArray[np.uint8]:
    """Returns the canonical combining classes, uint8[0x110000]."""
    # No character has a class in both.
    return read_only(unicode_tables.combining_classes() | data.numbers("text/combining_classes"))


@functools.lru_cache(maxsize=4)
def normal_form(compatible: bool, composes: bool) -> NormalForm:
    """Lowers one of the four normal forms."""
    mapping = canonical()
    if compatible:
        mapping = tables.compatibility() | canonical_additions() | data.texts("text/compatibility")
    composed = tables.compositions() | data.compositions("text/compositions")
    return tables.lower_normal_form(mapping, canonical(), combining(), composed, composes)


def canonical_additions() -> dict[int, str]:
    """Returns the canonical decompositions that HF tokenizers does not know yet."""
    return data.texts("text/canonical")


@functools.cache
def case_folds() -> dict[int, str]:
    """Returns the full default case folding: code point -> text, where it changes something."""
    folds = unicode_tables.lowercase() | data.texts("text/case_folds")
    return {c: text for c, text in folds.items() if text != chr(c)}


@functools.cache
def digit_values() -> dict[int, str]:
    """Returns the decimal digits of all scripts but ASCII's: code point -> its ASCII digit."""
    zeros = np.flatnonzero(members("zeros")).tolist()
    return {zero + i: str(i) for zero in zeros if zero != ord("0") for i in range(10)}


@functools.cache
def emoji_names() -> dict[str, str]:
    """Returns the Unicode names of pictographs and emoji modifiers: character -> name."""
    characters = map(chr, data.array("text/emoji").tolist())
    return dict(zip(characters, data.names("text/emoji_names"), strict=True))
