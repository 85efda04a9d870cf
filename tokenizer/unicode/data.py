# SPDX-License-Identifier: Apache-2.0
"""Reads `data.npz`, which has the character data of Unicode and of several libraries.

`bert/`, `patterns/` and `normalization/` are the behaviour of HF tokenizers on every code point. They are of several
versions of Unicode, because HF tokenizers has several sources of such data. `text/` and `scripts/` are of
`TEXT_VERSION` and have what the others lack. `CONTENTS` describes each array. An array is read when it is first asked
for.

The arrays are int32 of one of four kinds, except names, which are UTF-8, uint8[n], one on a line:

- runs, [n, 2]: the first and the last of consecutive code points, ascending;
- numbered runs, [n, 3]: the same with a number in front, of a name or a class;
- pairs, [n, 3]: two characters, and the one that they compose into, ascending;
- texts, [n]: a character, the length of its text, and that text, one character after the other, ascending.
"""

import functools
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PATH = Path(__file__).with_name("data.npz")
N_CODE_POINTS = 0x110000

UNICODE_VERSIONS = {"categories": "8.0.0", "decompositions": "9.0.0", "lowercase": "17.0.0"}
"""The Unicode versions of `bert/`. Results depend on them, so they are in every manifest."""

TEXT_VERSION = "18.0.0"
"""The Unicode version of `text/` and `scripts/`."""

SINCE_18 = (
    (0x558, 0x558), (0x58B, 0x58C), (0x5C8, 0x5C9), (0xB53, 0xB54), (0x1ADE, 0x1ADF), (0x1AEC, 0x1AF0),
    (0x208F, 0x208F), (0x209D, 0x209F), (0x20C2, 0x20C4), (0x2E60, 0x2E63), (0xA7DD, 0xA7DD), (0xA7E2, 0xA7E2),
    (0xAB6C, 0xAB6D), (0x107BB, 0x107BF), (0x10EC9, 0x10ECF), (0x10ED9, 0x10EEE), (0x10EF0, 0x10EF9),
    (0x11B0A, 0x11B0A), (0x11DF0, 0x11DF1), (0x1246F, 0x1246F), (0x12475, 0x1247F), (0x12550, 0x12686),
    (0x18CD6, 0x18CDA), (0x18D1F, 0x18D20), (0x18E00, 0x19191), (0x191A0, 0x191D2), (0x1B123, 0x1B128),
    (0x1B168, 0x1B168), (0x1CED2, 0x1CED4), (0x1CEDD, 0x1CEDF), (0x1CEF1, 0x1CEFD), (0x1D127, 0x1D128),
    (0x1D1EB, 0x1D1FF), (0x1D250, 0x1D281), (0x1D6A6, 0x1D6A6), (0x1DB00, 0x1DB1C), (0x1DF1F, 0x1DF24),
    (0x1DF2B, 0x1DF81), (0x1DF90, 0x1DF96), (0x1DFCD, 0x1DFFF), (0x1F1AE, 0x1F1AE), (0x1F6D9, 0x1F6D9),
    (0x1F7DA, 0x1F7DB), (0x1F7F1, 0x1F7FF), (0x1FA8B, 0x1FA8D), (0x1FACC, 0x1FACC), (0x1FADD, 0x1FADD),
    (0x1FAEB, 0x1FAEB), (0x1FAF9, 0x1FAFA), (0x2B81E, 0x2B81E), (0x3D000, 0x3FC3F),
)  # fmt: skip
"""Runs: the characters of Unicode 18.0 that 17.0 does not have."""

CONTENTS: Mapping[str, str] = {
    "bert/dropped": "runs: clean-up removes these, NUL, U+FFFD, Cc, Cf and Co except tab and line ends",
    "bert/spaces": "runs: white space, which separates words",
    "bert/punctuation": "runs: P*, and every other printable ASCII symbol",
    "bert/cjk": "runs: ideographs, each a word of its own when CJK isolation is on",
    "bert/nonspacing_marks": "runs: Mn without a canonical decomposition, stripped as accents",
    "bert/decompositions": "texts: full canonical decompositions, Hangul syllables left out",
    "bert/word_characters": "runs: part of a word, for single_word added tokens",
    "bert/combining_classes": "numbered runs: canonical combining classes other than 0",
    "bert/lowercase": "texts: full lower-case mappings; context is ignored, final sigma too",
    "patterns/categories": "numbered runs: general categories in patterns (\\p{L}), Unicode 16.0; tiktoken agrees",
    "patterns/category_names": "names of their numbers",
    "patterns/categories_17": "numbered runs: those of Unicode 17.0, of HF tokenizers 1.0, where they are others",
    "patterns/words": "runs: what [\\w] matches in a pattern of `Split`",
    "patterns/words_alone": "runs: what \\w adds to that",
    "patterns/scripts": "numbered runs: scripts in patterns (\\p{Han}), Unicode 16.0",
    "patterns/script_names": "names of their numbers; others for one behind the first, with spaces between",
    "patterns/whitespace_words": "runs: what \\w matches in `Whitespace`, of another library, Unicode 16.0",
    "patterns/numeric": "runs: what `Digits` takes for a digit, Unicode 17.0",
    "patterns/unicode_scripts": "numbered runs: one script each to `UnicodeScripts`, Unicode 9.0, numbered from 1",
    "normalization/compatibility": "texts: full compatibility decompositions other than the canonical, Unicode 9.0",
    "normalization/compositions": "pairs: Unicode 9.0, Hangul left out",
    "normalization/combining_marks": "runs: Mn, Mc and Me, Unicode 9.0",
    "normalization/graphemes": "numbered runs: what characters are to graphemes, Unicode 17.0, as far as that decides "
    "about graphemes of less than six bytes",
    "normalization/grapheme_names": "names of their numbers; CR and LF left out",
    "text/canonical": "texts: canonical decompositions that `bert/` lacks",
    "text/compatibility": "texts: compatibility decompositions that `normalization/` lacks",
    "text/compositions": "pairs that `normalization/` lacks",
    "text/combining_classes": "numbered runs: canonical combining classes that `bert/` lacks",
    "text/case_folds": "texts: full default case folding where it differs from the lower case of `bert/`",
    "text/full_width": "texts: full-width forms and what they stand for",
    "text/nonspacing_marks": "runs: general category Mn",
    "text/punctuation": "runs: general categories P*",
    "text/latin": "runs: script Latin",
    "text/extended_pictographic": "runs: may be emoji; some are reserved",
    "text/emoji_presentation": "runs: emoji unless a variation selector follows",
    "text/grapheme_extend": "runs: join the grapheme before them",
    "text/zeros": "runs: zeros of decimal digits; one to nine follow each",
    "text/emoji": "int32[n]: pictographs and emoji modifiers",
    "text/emoji_names": "names of these",
    "scripts/scripts": "numbered runs: scripts",
    "scripts/script_names": "names of their numbers, in capitals and one word",
}
"""Name of an array -> its description."""


@functools.cache
def _archive() -> Any:
    # Read into memory, so that forked processes do not share a file position.
    return np.load(io.BytesIO(PATH.read_bytes()), allow_pickle=False)


@functools.cache
def array(name: str) -> npt.NDArray[Any]:
    """Returns an array of `CONTENTS`, read-only.

    Raises:
      KeyError: if there is no array of that name.
    """
    found: npt.NDArray[Any] = _archive()[name]
    found.flags.writeable = False
    return found


def runs(name: str) -> list[tuple[int, int]]:
    """Returns runs, both ends included: `runs("bert/cjk")[0] == (0x3400, 0x4dbf)`."""
    return [(first, last) for first, last in array(name).tolist()]


def members(name: str) -> npt.NDArray[np.bool_]:
    """Returns which code points are in runs, bool[0x110000], a new array."""
    return _members(array(name))


def texts(name: str) -> dict[int, str]:
    """Returns the text of each character that has one: `texts("bert/lowercase")[0x41] == "a"`."""
    return texts_of(array(name))


def texts_of(numbers: npt.NDArray[np.int32]) -> dict[int, str]:
    """Returns character -> text from an array of that kind."""
    found, i = {}, 0
    flat = numbers.tolist()
    while i < len(flat):
        character, n = flat[i], flat[i + 1]
        found[character] = "".join(map(chr, flat[i + 2 : i + 2 + n]))
        i += 2 + n
    return found


def compositions(name: str) -> dict[tuple[str, str], str]:
    """Returns pair of characters -> the character that they compose into."""
    return {(chr(first), chr(second)): chr(both) for first, second, both in array(name).tolist()}


def numbers(name: str) -> npt.NDArray[np.uint8]:
    """Returns the number of each code point in numbered runs, uint8[0x110000], a new array; 0 for those in none."""
    found = np.zeros(N_CODE_POINTS, np.uint8)
    for number, first, last in array(name).tolist():
        found[first : last + 1] = number
    return found


def names(name: str) -> list[str]:
    """Returns names, in the order of their numbers."""
    return array(name).tobytes().decode().split("\n")


def runs_of_number(name: str, number: int) -> list[tuple[int, int]]:
    """Returns the runs of one number among numbered runs, both ends included."""
    found = array(name)
    return [(first, last) for first, last in found[found[:, 0] == number, 1:].tolist()]


def members_of_number(name: str, number: int) -> npt.NDArray[np.bool_]:
    """Returns which code points are in the runs of one number, bool[0x110000], a new array."""
    found = array(name)
    return _members(found[found[:, 0] == number, 1:])


def before_18(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns a table of the code points of `text/`, with 0 for what is new in Unicode 18.0; changes it."""
    for first, last in SINCE_18:
        table[first : last + 1] = 0
    return table


def _members(found: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    member = np.zeros(N_CODE_POINTS, np.bool_)
    for first, last in found.tolist():
        member[first : last + 1] = True
    return member
