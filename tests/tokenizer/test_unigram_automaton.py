# SPDX-License-Identifier: Apache-2.0
"""The automaton that finds all pieces ending at a place, against comparing every piece with the text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer.engines.sentencepiece_tables import ScoredUnigram, scored_unigram
from tokenizer.kernels import unigram_automaton as automaton
from tokenizer.kernels.sentencepiece_unigram import LONGEST_EXACT
from tokenizer.models import Unigram
from tokenizer.models.unigram import PieceType

WORDS = st.text("abé玫", min_size=1, max_size=6)


def lowered(pieces: dict[str, float]) -> ScoredUnigram:
    vocab = [("<unk>", 0.0), *pieces.items()]
    return scored_unigram(Unigram(vocab, 0, False, [PieceType.UNKNOWN] + [PieceType.NORMAL] * len(pieces)))


def pieces_ending(model: ScoredUnigram, text: bytes) -> list[list[tuple[int, int, float]]]:
    """Walks the automaton; returns `(id, bytes, score)` of the pieces that end after each byte, in its order."""
    states, found = model.states.tolist(), []
    state = 0

    def child(state: int, byte: int) -> int:
        place = ((states[2 * state] >> automaton.STATE_BASE_SHIFT) & automaton.STATE_MASK) ^ byte
        return place if states[2 * place] & automaton.LABEL_MASK == byte else 0

    for byte in text:
        while state and not child(state, byte):
            state = (states[2 * state] >> automaton.FALLBACK_SHIFT) & automaton.STATE_MASK
        state = child(state, byte)
        here, end = [], state
        while end:
            info = states[2 * end + 1]
            if info & automaton.IS_PIECE:
                score = np.array([info >> automaton.SCORE_SHIFT & 0xFFFFFFFF], np.uint32).view(np.float32)[0]
                here.append((int(model.pieces[end]), states[2 * end] >> automaton.LENGTH_SHIFT, float(score)))
            end = info & automaton.STATE_MASK
        found.append(here)
    return found


@given(st.dictionaries(WORDS, st.floats(-30, 30, width=32), min_size=1, max_size=30), st.lists(WORDS, max_size=10))
def test_the_pieces_that_end_at_each_place(pieces: dict[str, float], words: list[str]) -> None:
    text = "".join(words)
    expected = []
    for stop in range(1, len(text) + 1):
        nothing: list[list[tuple[int, int, float]]] = [[] for _ in text[stop - 1].encode()[1:]]
        here = [
            (i, len(piece.encode()), score)
            for i, (piece, score) in enumerate(pieces.items(), 1)
            if text[:stop].endswith(piece)
        ]
        expected += [*nothing, sorted(here, key=lambda found: -found[1])]
    assert pieces_ending(lowered(pieces), text.encode()) == expected


@pytest.mark.parametrize("length", [LONGEST_EXACT, LONGEST_EXACT + 1, 50_000])
def test_pieces_that_fit_into_no_part_are_left_out(length: int) -> None:
    model = lowered({"a" * length: -1.0, "aa": -2.0, "b": -3.0})
    longest = max(n for here in pieces_ending(model, b"a" * length) for _, n, _ in here)
    assert longest == (length if length <= LONGEST_EXACT else 2)
