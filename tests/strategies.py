# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies: hostile text, vocabularies, and ways to cut a column into batches."""

import pyarrow as pa
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


CODE_POINTS = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
"""Every character. One string for all tests: as lists of strings, one in each module, they took half a gigabyte."""

# Behind the surrogates, which are no characters. Planes 4 to 13 have nothing assigned in any version of Unicode, and 15
# and 16 are for private use.
_UNIFORM = [range(0x40000, 0xE0000), range(0xF0000, 0x110000)]
UNIFORM_PLANES = "".join(CODE_POINTS[plane.start - 0x800 : plane.stop - 0x800] for plane in _UNIFORM)
"""The 786,432 code points of the planes that hold nothing or are for private use: enough to meet each of them once."""
OTHER_PLANES = CODE_POINTS[: 0x40000 - 0x800] + CODE_POINTS[0xE0000 - 0x800 : 0xF0000 - 0x800]
"""Every character that is not in `UNIFORM_PLANES`."""


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


def wordpiece_vocabs() -> st.SearchStrategy[list[str]]:
    """Small WordPiece vocabularies over few characters, so that matches, near matches and gaps all happen."""
    letters = st.sampled_from("abcé玫Ⰻ7")
    pieces = st.text(letters, min_size=1, max_size=4)
    entries = st.one_of(pieces, pieces.map("##{}".format))
    byte_tokens = st.sets(st.sampled_from([f"<0x{b:02X}>" for b in (0xC3, 0xA9, 0xE2, 0xB0, 0x8B, 0xE7, 0x8E, 0xAB)]))
    return st.builds(
        lambda pieces, tokens: ["[UNK]", "<0xE2>", *sorted((pieces | tokens) - {"<0xE2>"})],
        st.sets(entries, max_size=25),
        byte_tokens,
    )


def small_words() -> st.SearchStrategy[str]:
    """Texts over the characters of `wordpiece_vocabs`, with spaces."""
    return st.text(st.sampled_from("abcé玫Ⰻ7x \u0301"), max_size=40)
