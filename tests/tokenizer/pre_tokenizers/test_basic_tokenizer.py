# SPDX-License-Identifier: Apache-2.0
"""BertNormalizer and BertPreTokenizer against a plain writing of BERT's BasicTokenizer, as transformers has it."""

import string
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer import BertNormalizer, BertPreTokenizer
from tokenmill.tokenizer.ragged import text_rows

_OLD = unicodedata.ucd_3_2_0
STABLE = [
    chr(c)
    for c in range(0x110000)
    if not 0xD800 <= c < 0xE000
    and _OLD.category(chr(c)) != "Cn"
    and _OLD.category(chr(c)) == unicodedata.category(chr(c))
]
"""Characters whose category was the same in all versions of Unicode that anybody uses."""

DIFFERENCES = {
    "Σ": "the original lower-cases whole texts, so that a last sigma becomes ς; HF, and we, character by character",
}
"""What is left out of the texts here, and why."""

_CJK = [
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
]  # fmt: skip


def basic_tokens(text: str, lowercase: bool) -> list[str]:
    cleaned = ""
    for char in text:
        is_control = char not in "\t\n\r" and unicodedata.category(char).startswith("C")
        if char in "\0\ufffd" or is_control:
            continue
        is_space = char in " \t\n\r" or unicodedata.category(char) == "Zs"
        is_cjk = any(first <= ord(char) <= last for first, last in _CJK)
        cleaned += " " if is_space else f" {char} " if is_cjk else char
    tokens = []
    for word in cleaned.split():
        if lowercase:
            word = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in word if unicodedata.category(c) != "Mn")
        piece = ""
        for char in word:
            if char in string.punctuation or unicodedata.category(char).startswith("P"):
                tokens += [piece, char]
                piece = ""
            else:
                piece += char
        tokens.append(piece)
    return [token for token in " ".join(tokens).split() if token]


def our_tokens(text: str, lowercase: bool) -> list[str]:
    rows = text_rows([BertNormalizer(lowercase=lowercase).normalize_str(text)])
    words = BertPreTokenizer().split_rows(rows, np.ones(1, np.bool_))
    return [words.values[a:b].tobytes().decode() for a, b in zip(words.starts, words.stops, strict=True)]


_WORDS = [
    "Hello", "CAFÉ", "naïve", "玫瑰花", "don't", "a_b", "  ", "\u0301", "Ωmega", "हिन्दी", "ไทย", "가각", "x\u200dy",
]  # fmt: skip


@pytest.mark.parametrize("lowercase", [True, False])
@given(text=st.lists(st.one_of(st.sampled_from(_WORDS), st.sampled_from(STABLE)), max_size=20).map("".join))
def test_words_are_those_of_the_original(lowercase: bool, text: str) -> None:
    text = "".join(c for c in text if c not in DIFFERENCES)
    assert our_tokens(text, lowercase) == basic_tokens(text, lowercase)


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_character_is_treated_as_in_the_original(lowercase: bool) -> None:
    characters = [c for c in STABLE if c not in DIFFERENCES]
    text = " ".join(f"a{c}b" for c in characters)
    assert our_tokens(text, lowercase) == basic_tokens(text, lowercase)
