# SPDX-License-Identifier: Apache-2.0
"""Rows that hold one of a set of characters, found as plain Python finds them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.text.base import CharacterSet

_CHARACTERS = "a \n\t\x00\x1f\x7f\x80\xa0é\u07ff\u0800\u200b…、漢\ufffd\uffff\U00010000😀\U0010ffff"


def _set_of(characters: str) -> CharacterSet:
    members = np.zeros(0x110000, np.bool_)
    members[[ord(c) for c in characters]] = True
    return CharacterSet.of(members)


def _rows_of(texts: list[str], before: bytes = b"", after: bytes = b"") -> Ragged:
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([len(before), *map(len, encoded)]).astype(np.int64)
    return Ragged(np.frombuffer(before + b"".join(encoded) + after, np.uint8), offsets)


@given(
    st.lists(st.text(st.sampled_from(_CHARACTERS), max_size=150), max_size=12),
    st.text(st.sampled_from(_CHARACTERS), max_size=4),
    st.integers(0, 130),
    st.integers(0, 130),
)
def test_rows_with(texts: list[str], wanted: str, n_before: int, n_after: int) -> None:
    # What stands before and after the rows in the same buffer is full of what is wanted, and must not count.
    around = (wanted or "x")[0].encode()
    rows = _rows_of(texts, around * n_before, around * n_after)
    assert _set_of(wanted).rows_with(rows).tolist() == [any(c in wanted for c in text) for text in texts]


@pytest.mark.parametrize("character", _CHARACTERS)
def test_found_at_every_place_of_a_block(character: str) -> None:
    texts = [fill * n + character + fill * (140 - n) for fill in "x語" for n in range(140)]
    texts = [text for t in texts for text in (t, t.replace(character, "y"))]
    assert _set_of(character).rows_with(_rows_of(texts)).tolist() == [character in text for text in texts]
