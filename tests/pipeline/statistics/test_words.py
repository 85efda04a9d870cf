# SPDX-License-Identifier: Apache-2.0
"""Spaced words against `str.split`, and what tokenizers make of them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import CODE_POINTS, texts
from tokenmill.pipeline.statistics import words
from tokenmill.tokenizer import Tokenizer

TOKENIZER = Tokenizer.for_bert(["[PAD]", "[UNK]", "a", "b", "ab", "##b"])
SPACES = "".join(c for c in CODE_POINTS if c.isspace())


@given(
    st.lists(st.one_of(texts(), st.text(SPACES + "aé中😀\u3001\u2010\u1681\u205e", max_size=200)), max_size=8),
    st.data(),
)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_words_and_characters_are_those_of_python(kind, rows, data):
    skipped = data.draw(st.integers(0, len(rows)))
    column = pa.array(rows, kind)[skipped:]
    n_characters, n_words = words.count(column)
    assert n_characters.tolist() == [len(text) for text in rows[skipped:]]
    assert n_words.tolist() == [len(text.split()) for text in rows[skipped:]]
    split, of = words.split(column)
    assert [*zip(of.tolist(), split.to_pylist(), strict=True)] == [
        (i, word) for i, text in enumerate(rows[skipped:]) for word in text.split()
    ]


@pytest.mark.parametrize("text", ["a  ", "  ", " a \u2003", "\u3000"])
def test_what_is_behind_a_text_does_not_matter(text):
    for behind in (b"", b" ", b"x", b"\x80"):
        data = pa.py_buffer(text.encode() + behind)
        offsets = pa.py_buffer(np.array([0, len(text.encode())]))
        column = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, data])
        assert words.count(column)[1].tolist() == [len(text.split())]
        assert words.split(column)[0].to_pylist() == text.split()
        assert words.join(column).to_pylist() == ["".join(text.split())]


def test_every_character_at_every_place_of_a_block():
    before = ["a" * n for n in range(60, 67)]
    for start in range(0, len(CODE_POINTS), 1 << 16):
        rows = [f"{before[i % 7]}{c}b" for i, c in enumerate(CODE_POINTS[start : start + (1 << 16)])]
        assert words.count(pa.array(rows))[1].tolist() == [len(text.split()) for text in rows]
    for space in SPACES:
        rows = [f"{'a' * n}{space}{space}b{space}" for n in range(58, 132)]
        assert words.count(pa.array(rows))[1].tolist() == [2] * len(rows)


class Choosy:
    """A tokenizer that cannot do with one letter."""

    unk_token_id = 1

    def encode_bare(self, column):
        if any("x" in text for text in column.to_pylist()):
            raise TimeoutError
        return TOKENIZER.encode_bare(column)


def test_a_word_that_fails_costs_no_other():
    column = pa.array(["a", "x", "abb", "c", "xx"], pa.large_string())
    sizes, n_unknown = words.encode_each(Choosy(), column)
    assert sizes.tolist() == [1, -1, 2, 1, -1]
    assert n_unknown.tolist() == [0, -1, 0, 1, -1]
    assert words.encode(Choosy(), column).is_whole.tolist() == [True, False, False, False, False]
    assert words.encode_each(TOKENIZER, column[:0])[0].tolist() == []
