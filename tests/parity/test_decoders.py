# SPDX-License-Identifier: Apache-2.0
"""Decoders against HF tokenizers: the text of hostile token lists, alone, in sequences, and token by token in columns.

`DIFFERENCES` is the whole list of what is meant to differ.
"""

import random

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tokenizers import decoders as theirs  # noqa: E402

from tests import strategies  # noqa: E402
from tokenmill.tokenizer import decoders as ours  # noqa: E402
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET  # noqa: E402

pytestmark = pytest.mark.parity

DIFFERENCES = {
    "Strip of a whole token": "nothing is left; HF crashes",
}

BYTE_TOKENS = [f"<0x{byte}>" for byte in "E2 82 AC c3 A9 20 41 FF F0 9F 00 +A".split()]
NO_BYTE_TOKENS = [
    "<0x-1>", "<0xé>", "<0x1>", "<0x411>", "<0xGG>", "<0X41>", "<0x4 >", " <0x41>", "<0x41>\n", "<0x٣4>", "<0x++>",
]  # fmt: skip
OTHERS = [
    "", " ", "  ", "\u2581", "\u2581the", "the\u2581\u2581", "##able", "##", "</w>", "the</w>", "</w></w>x", "do not",
    "n't", " n't", "'s", "'", " ' ", ".", " .", "?", ",", "<pad>", "<pad><pad>", "|", "a|b", "Ġthe", "Ċ", "Ġ€", "âĤ¬",
    "â", "Ĥ", "aa", "aaa", "a a", "中",
]  # fmt: skip


def tokens() -> st.SearchStrategy[str]:
    alphabet = st.sampled_from([*BYTE_ALPHABET, " ", "a", "\u2581", "é"])
    return st.one_of(
        st.sampled_from(BYTE_TOKENS),
        st.sampled_from(NO_BYTE_TOKENS),
        st.sampled_from(OTHERS),
        st.text(alphabet, max_size=5),
        st.text(strategies.characters(), max_size=4),
    )


def rows() -> st.SearchStrategy[list[str]]:
    return st.lists(tokens(), max_size=12)


ONE = {
    "wordpiece": (ours.WordPiece(), theirs.WordPiece()),
    "wordpiece plain": (ours.WordPiece("a", False), theirs.WordPiece("a", False)),
    "wordpiece no prefix": (ours.WordPiece(""), theirs.WordPiece("")),
    "byte level": (ours.ByteLevel(), theirs.ByteLevel()),
    "metaspace always": (ours.Metaspace(), theirs.Metaspace()),
    "metaspace first": (ours.Metaspace("a", "first", False), theirs.Metaspace("a", "first", False)),
    "metaspace never": (ours.Metaspace("\u2581", "never"), theirs.Metaspace("\u2581", "never")),
    "bpe": (ours.BPEDecoder(), theirs.BPEDecoder()),
    "bpe no suffix": (ours.BPEDecoder(""), theirs.BPEDecoder("")),
    "byte fallback": (ours.ByteFallback(), theirs.ByteFallback()),
    "fuse": (ours.Fuse(), theirs.Fuse()),
    "strip": (ours.Strip(" ", 1, 0), theirs.Strip(" ", 1, 0)),
    "strip more": (ours.Strip("a", 2, 0), theirs.Strip("a", 2, 0)),
    "replace": (ours.Replace("\u2581", " "), theirs.Replace("\u2581", " ")),
    "replace nothing": (ours.Replace("", "-"), theirs.Replace("", "-")),
    "replace special": (ours.Replace(".", "$1"), theirs.Replace(".", "$1")),
    "replace regex": (ours.Replace(r"\s+|a*", "_", True), theirs.Replace(hf.Regex(r"\s+|a*"), "_")),
    "ctc": (ours.CTC(), theirs.CTC()),
    "ctc plain": (ours.CTC("a", "|", False), theirs.CTC("a", "|", False)),
    "ctc no tokens": (ours.CTC("", "", True), theirs.CTC("", "", True)),
}  # fmt: skip


def chain(names: list[str]) -> tuple[ours.Sequence, theirs.Sequence]:
    return ours.Sequence(tuple(ONE[n][0] for n in names)), theirs.Sequence([ONE[n][1] for n in names])


def as_column(decoder: ours.Decoder, row: list[str]) -> str | None:
    """What a column kernel makes of a row; None if the decoder does not work token by token for these tokens."""
    texts = decoder.token_texts(row)
    if texts is None:
        return None
    joined = b"".join([*texts.first[:1], *texts.later[1:]])
    try:
        return joined.decode()
    except UnicodeDecodeError:
        return decoder.decode(row)


def assert_same(mine: ours.Decoder, other: "theirs.Decoder", row: list[str]) -> None:
    expected = other.decode(row)
    assert mine.decode(row) == expected
    assert as_column(mine, row) in (None, expected)


@pytest.mark.parametrize("name", ONE)
def test_one_decoder(name: str) -> None:
    @given(rows())
    def check(row: list[str]) -> None:
        assert_same(*ONE[name], row)

    check()
    for token in [*BYTE_TOKENS, *NO_BYTE_TOKENS, *OTHERS]:
        for row in ([token], ["x", token], [token, token, "x"]):
            assert_same(*ONE[name], row)
    assert_same(*ONE[name], [])


@given(st.lists(st.sampled_from(sorted(ONE)), max_size=4), rows())
def test_any_chain(names: list[str], row: list[str]) -> None:
    assert_same(*chain(names), row)


@pytest.mark.parametrize("name", ["byte level", "byte fallback"])
def test_bytes_that_are_no_text(name: str) -> None:
    """Every pair of bytes, and strings of bytes with many beginnings of characters."""
    chooser = random.Random(0)
    starts = bytes.fromhex("41 80 8f 90 9f a0 bf c0 c2 df e0 e1 ed ef f0 f1 f4 f5 ff")
    strings = [bytes([a, b]) for a in range(256) for b in range(256)]
    strings += [bytes(chooser.choices(starts, k=chooser.randrange(3, 9))) for _ in range(10000)]
    mine, other = ONE[name]
    for string in strings:
        row = [BYTE_ALPHABET[b] if name == "byte level" else f"<0x{b:02x}>" for b in string]
        assert mine.decode(row) == other.decode(row), string


def test_the_differences_are_these() -> None:
    seen = set()
    try:
        theirs.Strip(" ", 0, 1).decode([""])
    except BaseException:  # HF panics
        seen.add("Strip of a whole token")
    assert ours.Strip(" ", 0, 1).decode([""]) == ""
    assert ours.Strip("a", 1, 1).decode(["a", "aa", "aba"]) == "b"
    assert seen == set(DIFFERENCES)
