# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies: hostile text, vocabularies, and ways to cut a column into batches."""

import os
import unicodedata

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

# Where normalizers and scanners go wrong: case, accents, reordering, Hangul, CJK, spaces, controls, format characters,
# noncharacters, unassigned, private use, emoji sequences, music (decomposes into combining characters that survive).
_TROUBLE = (
    "aAzZ09éÉßİıſKÅΣςσ"
    "\u0300\u0301\u0316\u0323\u0334\u0345\u0344\u093c\u094d\u1b44\u302e\u302f"
    "\U0001d15e\U0001d160\U0001d165\U0001d166\U0001d16d\U0001d1bb\u08d4\u07fd\U0001e000\U0001e94a\u20d0\u0900"
    "가각힣각中文\uf900\ufa0e\u3400\u9fff\U0002a6df\U0002f800\u3007々"
    " \t\n\r\v\f\x85\xa0\u1680\u2003\u2028\u2029\u3000"
    "\x00\x01\x1f\x7f\xad\u200b\u200d\u200e\u2060\ufeff\ufffd\ufffe\U000e0001\U000f0000"
    "!#@[]_`{|}~¡«·؟。、「」；\u037e\u1fef\u226e\u2260"
    "🧑\u200d🔬👨🏽🇩🇪ﬁﷺ𝖟ᴤⰋ玫"
)


EXHAUSTIVE = "TOKENMILL_EXHAUSTIVE" in os.environ
"""Whether tests try all of what they else try a part of; see CONTRIBUTING.md."""

THOROUGH = EXHAUSTIVE or "TOKENMILL_THOROUGH" in os.environ
"""Whether they try the larger part of it, as every night."""

FEWER = settings(max_examples=-(-settings.default.max_examples // 3))
"""For a property that is tried with each of dozens of parameters."""

CODE_POINTS = np.r_[:0xD800, 0xE000:0x110000].astype("<u4").tobytes().decode("utf-32-le")
"""Every character. One string for all tests: as lists of strings, one in each module, they took half a gigabyte."""


def _plane(number: int) -> str:
    return CODE_POINTS[number * 0x10000 - 0x800 :][:0x10000]  # behind the surrogates, which are no characters


def _of_each_kind(characters: str) -> str:
    """The first and the last of neighbours that are of one kind to Unicode, and one in 61 between; or all of them."""
    if EXHAUSTIVE:
        return characters
    kinds = [(unicodedata.category(c), unicodedata.decomposition(c)) for c in characters]
    ends = {0, len(kinds)} | {i for i in range(1, len(kinds)) if kinds[i - 1] != kinds[i]}
    return "".join(c for i, c in enumerate(characters) if i % 61 == 0 or i in ends or i + 1 in ends)


# Planes 4 to 13 have nothing assigned in any version of Unicode, and 15 and 16 are for private use.
UNIFORM_PLANES = "".join(
    plane if EXHAUSTIVE else plane[::61] + plane[-2:] for plane in map(_plane, (*range(4, 14), 15, 16))
)
"""Of the 786,432 code points of the planes that hold nothing or are for private use: enough to meet each once."""
_IDEOGRAPHS_AND_TAGS = "".join(map(_of_each_kind, map(_plane, (2, 3, 14))))
OTHER_PLANES = CODE_POINTS[: 0x20000 - 0x800] + _IDEOGRAPHS_AND_TAGS
"""Of what is not in `UNIFORM_PLANES`: the planes 0 and 1 whole, and of ideographs and tags some of each kind."""
OF_EACH_KIND = _of_each_kind(CODE_POINTS[: 0x20000 - 0x800]) + _IDEOGRAPHS_AND_TAGS
"""The same, but for some of each kind of the planes 0 and 1 too."""
TRIED = (OTHER_PLANES if THOROUGH else OF_EACH_KIND) + UNIFORM_PLANES
"""What to try of `CODE_POINTS` where a character takes time."""


def characters() -> st.SearchStrategy[str]:
    """Any character, the troublesome ones often."""
    return st.one_of(
        st.sampled_from(_TROUBLE),
        st.characters(codec="utf-8"),
        st.characters(codec="utf-8", max_codepoint=0x7F),
    )


def texts(max_size: int = 60) -> st.SearchStrategy[str]:
    """Hostile text: any characters; long words; one character many times; ordinary words with something in them."""
    ordinary = st.sampled_from(["the ", "unaffable ", "Token", "TEXT", "3Ⰻ7", "玫瑰花", " ", "x" * 99, "y" * 101])
    return st.one_of(
        st.text(characters(), max_size=max_size),
        st.lists(st.one_of(ordinary, st.text(characters(), max_size=4)), max_size=12).map("".join),
        st.builds(lambda c, n: c * n, characters(), st.integers(0, 300)),
    )


def text_columns(max_rows: int = 8) -> st.SearchStrategy[pa.Array]:
    """Text columns of every kind an Arrow user may have: both widths, views, dictionaries, slices, nulls."""
    rows = st.lists(st.one_of(texts(), st.none()), max_size=max_rows)
    kinds = st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])

    def build(values: list[str | None], kind: pa.DataType, skip: int) -> pa.Array:
        if pa.types.is_dictionary(kind):
            array = pa.array(values, pa.string()).dictionary_encode()
        else:
            array = pa.array(values, kind)
        return array.slice(min(skip, len(array)))

    return st.builds(build, rows, kinds, st.integers(0, 3))
