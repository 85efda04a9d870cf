# SPDX-License-Identifier: Apache-2.0
"""CLIP's tokenizer with the clean-up of OpenAI's code, against a plain writing of that code."""

import gzip
import html
import re
import unicodedata

import ftfy
import pyarrow as pa
import pytest
import regex
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.strategies import texts
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.formats import bpe_files
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.text import TextTokenizer

MERGES = ["t h", "th e</w>", "c a", "ca t</w>", "Î £", "a n", "an d</w>", "Ï Ĥ</w>", "& #"]
PATTERN = regex.compile(
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", regex.IGNORECASE
)

DIFFERENCES = {
    "<|startoftext|>": "OpenAI takes the text of a special token in a document for the token; here it stays text",
    "<|endoftext|>": "likewise",
    "ſ": "OpenAI's pattern ignores case, so that 'ſ is split off like 's",
    "\u0345": "and this mark is a letter, because its upper case is one",
}
"""What a text must not hold, cleaned, for its ids to be OpenAI's, and why; besides, letters and numbers that are newer
than the Unicode of HF's patterns are split otherwise."""


def clean(text: str) -> str:
    text = html.unescape(html.unescape(ftfy.fix_text(text))).strip()
    return re.sub(r"\s+", " ", text).strip().lower()


class SimpleTokenizer:
    """What OpenAI's class of this name does, in few words: the pattern, then merges by rank until none is left."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocab = tokenizer.get_vocab()
        self.ranks = {pair: i for i, pair in enumerate(tokenizer.model.merges)}

    def encode(self, text: str) -> list[int]:
        ids = []
        for token in PATTERN.findall(clean(text)):
            symbols = [BYTE_ALPHABET[b] for b in token.encode()]
            symbols[-1] += "</w>"
            while len(symbols) > 1:
                pairs = [(self.ranks.get((a, b), len(self.ranks)), a, b) for a, b in zip(symbols, symbols[1:])]  # noqa: B905, RUF007
                rank, left, right = min(pairs, key=lambda pair: pair[0])
                if rank == len(self.ranks):
                    break
                merged, i = [], 0
                while i < len(symbols):
                    both = symbols[i : i + 2] == [left, right]
                    merged.append(left + right if both else symbols[i])
                    i += 1 + both
                symbols = merged
            ids += [self.vocab[symbol] for symbol in symbols]
        return ids


@pytest.fixture(scope="module")
def small() -> Tokenizer:
    data = gzip.compress(("#version: 0.2\n" + "\n".join(MERGES)).encode())
    return Tokenizer.from_parts(bpe_files.read_clip(data, "small"))


def differs(text: str) -> bool:
    """Whether a text has something of `DIFFERENCES` in it after it was cleaned."""
    cleaned = clean(text)
    newer = any(regex.match(r"[\p{L}\p{N}]", c) and unicodedata.category(c) == "Cn" for c in cleaned)
    return newer or any(known in cleaned for known in DIFFERENCES)


_PIECES = [
    "The cat", "ΑΣ", "Σ", "ΑΣΑ", "İ", "&amp;amp;", "e&#x301;", "schÃ¶n", "“it’s”", "ﬁ", "CAT's", "  \n", "\x1c", "ＡＢ",
    "7८",
]  # fmt: skip


@given(text=st.one_of(texts(), st.lists(st.one_of(st.sampled_from(_PIECES), texts(5)), max_size=8).map("".join)))
def test_ids_are_those_of_openai_with_its_clean_up(text: str, small: Tokenizer) -> None:
    ours = TextTokenizer.for_clip(small)
    assume(not differs(text))
    expected = SimpleTokenizer(small).encode(text)
    assert ours.encode_arrow(pa.array([text])).ids[0].as_py() == expected
    assert ours.encode(text, add_special_tokens=False).ids == expected
