# SPDX-License-Identifier: Apache-2.0
"""Two texts that mix scripts, under every OOV policy: what an unknown character costs."""

import pyarrow as pa
import pytest

from tokenmill.tokenizer import Tokenizer

CHINESE = list("玫瑰花朵向日葵六月四")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
VOCAB = ["[UNK]", *BYTES, *CHINESE, "3", "7", "l", "r", "i", "##l", "##7", "##i"]


def tokens(text: str, oov: str, *more: str) -> list[str]:
    tokenizer = Tokenizer.for_bert([*VOCAB, *more], oov=oov)
    encoding = tokenizer.encode(text)
    column = tokenizer.encode_arrow(pa.array([text]))
    assert column.to_pylist() == [encoding.ids]
    return encoding.tokens


@pytest.mark.parametrize(
    ("oov", "expected"),
    [
        ("word", "玫 瑰 花 [UNK] 朵 向 日 葵 [UNK] 朵"),
        ("contain", "玫 瑰 花 [UNK] ##l [UNK] 朵 向 日 葵 3 [UNK] ##7 朵"),
        ("char", "玫 瑰 花 [UNK] l [UNK] 朵 向 日 葵 3 [UNK] 7 朵"),
        (
            "byte",
            "玫 瑰 花 <0xF0> <0x9D> <0x96> <0x9F> ##l <0xE1> <0xB4> <0xA4> 朵 向 日 葵 3 <0xE2> <0xB0> <0x8B> ##7 朵",
        ),
    ],
)
def test_unknown_letters_among_known_ones(oov: str, expected: str) -> None:
    # The kernel lower-cases Ⰻ, U+2C0B, into ⰻ, U+2C3B, before it looks it up.
    expected = expected.replace("<0xE2> <0xB0> <0x8B>", "<0xE2> <0xB0> <0xBB>")
    assert tokens("玫瑰花𝖟lᴤ朵向日葵3Ⰻ7朵", oov) == expected.split()


@pytest.mark.parametrize("oov", ["word", "contain", "char", "byte"])
def test_a_word_that_the_vocabulary_has_is_never_taken_apart(oov: str) -> None:
    assert tokens("六月四ri", oov, "ri") == ["六", "月", "四", "ri"]


@pytest.mark.parametrize(
    ("oov", "expected"), [("word", "r ##i"), ("contain", "r ##i"), ("char", "r i"), ("byte", "r ##i")]
)
def test_a_word_that_it_lacks_is_made_of_pieces(oov: str, expected: str) -> None:
    assert tokens("六月四ri", oov) == ["六", "月", "四", *expected.split()]
