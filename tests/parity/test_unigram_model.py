# SPDX-License-Identifier: Apache-2.0
"""Unigram under HF's rules against HF tokenizers: ids and offsets, on random vocabularies and on whole tokenizers."""

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tests import strategies  # noqa: E402
from tokenmill.tokenizer.models.unigram import Unigram  # noqa: E402

pytestmark = pytest.mark.parity

LETTERS = "abcé玫Ⰻ▁"
SCORES = st.one_of(st.sampled_from([0.0, -1.0, -2.0, -0.5, 100.0, -30.0]), st.floats(-20, 2))


@st.composite
def vocabularies(draw: st.DrawFn) -> tuple[list[tuple[str, float]], int, bool]:
    """Pieces that may stand twice, an unknown token anywhere, some byte pieces or all."""
    pieces = draw(st.lists(st.text(st.sampled_from(LETTERS), max_size=4), max_size=20))
    vocab = [(piece, draw(SCORES)) for piece in pieces]
    unk_id = draw(st.integers(0, len(vocab)))
    vocab.insert(unk_id, ("<unk>", draw(SCORES)))
    fallback = draw(st.booleans())
    if fallback:
        known = draw(st.sampled_from([range(256), sorted({*"xyé玫".encode()}), sorted({*"x玫".encode()})]))
        vocab += [(f"<0x{b:02X}>", draw(SCORES) if b < 8 else -3.0) for b in known]
    return vocab, unk_id, fallback


WORDS = st.one_of(
    st.text(st.sampled_from(LETTERS + "xyz"), min_size=1, max_size=30),
    st.lists(st.sampled_from(["<unk>", "<0xE7>", "a", "x", "玫"]), min_size=1, max_size=6).map("".join),
    strategies.texts(30).filter(bool),
)


@given(vocabularies(), st.lists(WORDS, min_size=1, max_size=6))
def test_ids_and_offsets_on_random_vocabularies(vocabulary: tuple, words: list[str]) -> None:
    ours, theirs = Unigram(*vocabulary), hf.models.Unigram(vocabulary[0], vocabulary[1], byte_fallback=vocabulary[2])
    for word in words:
        expected = theirs.tokenize(word)
        # HF's offsets are bytes here.
        ends = [(token.id, len(word.encode()[: token.offsets[1]].decode())) for token in expected]
        assert ours.tokenize(word) == ends
