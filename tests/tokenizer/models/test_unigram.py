# SPDX-License-Identifier: Apache-2.0
"""Unigram: the kernel against its reference implementation, worked examples, n-best and sampling."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import model_kernels as kernels
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.errors import UnknownCharacterError
from tokenmill.tokenizer.models.unigram import PieceType, Unigram, new_unigram_scratch
from tokenmill.tokenizer.pre_tokenizers import ByteLevel, Digits, Metaspace, PreTokenizer, Whitespace
from tokenmill.tokenizer.ragged import read_only

LETTERS = "abcé玫Ⰻ▁"
SCORES = st.one_of(st.sampled_from([0.0, -1.0, -2.0, -0.5, 3.0, -30.0]), st.floats(-20, 2, width=32))


def encode(model: Unigram, words: list[str]) -> list[list[int]]:
    """The kernel on several words."""
    encoded = [word.encode() for word in words]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    values = read_only(np.frombuffer(b"".join(encoded) + bytes(1), np.uint8))
    out, out_offsets = np.empty(values.size, np.int32), np.empty(len(words) + 1, np.int64)
    n = max(map(len, encoded), default=0)
    scratch, ends = new_unigram_scratch(n), np.empty(n + 1, np.int64)
    kernels.encode_words(values, offsets[:-1], offsets[1:], model.tables, scratch, ends, out, out_offsets)
    return [out[a:b].tolist() for a, b in itertools.pairwise(out_offsets)]


@st.composite
def models(draw: st.DrawFn) -> Unigram:
    """Small vocabularies over few characters, under both rules, with and without byte pieces."""
    pieces = draw(st.lists(st.text(st.sampled_from(LETTERS), min_size=1, max_size=4), max_size=20, unique=True))
    vocab = [("<unk>", 0.0)] + [(piece, draw(SCORES)) for piece in pieces]
    types = [PieceType.UNKNOWN] + [
        draw(st.sampled_from([PieceType.NORMAL, PieceType.NORMAL, PieceType.USER_DEFINED, PieceType.UNUSED]))
        for _ in pieces
    ]
    fallback = draw(st.booleans())
    if fallback:
        vocab += [(f"<0x{b:02X}>", 0.0) for b in range(256) if draw(st.booleans()) or b > 0x20]
        types += [PieceType.BYTE] * (len(vocab) - len(types))
    return Unigram(vocab, 0, fallback, draw(st.sampled_from([None, types])))


WORDS = st.text(st.sampled_from(LETTERS + "xy"), min_size=1, max_size=30)


@given(models(), st.lists(st.one_of(WORDS, st.just("a<unk>b")), min_size=1, max_size=8))
def test_the_kernel_agrees_with_its_reference_implementation(model: Unigram, words: list[str]) -> None:
    assert encode(model, words) == [[i for i, _ in model.tokenize(word)] for word in words]


@pytest.mark.parametrize("steps", [None, Whitespace(), Metaspace(), ByteLevel(), Digits()])
def test_without_an_unknown_token_nothing_is_given_for_an_unknown_character(steps: PreTokenizer | None) -> None:
    model = Unigram([("a", -1.0), ("\u2581", -1.0), ("\u0120", -1.0), (" ", -1.0)])
    tokenizer = Tokenizer(model=model, pre_tokenizer=steps)
    tally = tokenizer.new_tally()
    for encode_it in (tokenizer.encode, lambda text: tokenizer.encode_arrow(["aa", text], tally=tally)):
        with pytest.raises(UnknownCharacterError, match="which has no unknown token"):
            encode_it("a x")
        encode_it("a a")
    assert tally.n_words == sum(tokenizer.encode("aa").word_ids[-1:] + tokenizer.encode("a a").word_ids[-1:]) + 2


def every_path(model: Unigram, word: str) -> list[float]:
    """Scores of all paths, by recursion."""
    if not word:
        return [0.0]
    return [score + rest for stop, _, score in model._edges(word, 0) for rest in every_path(model, word[stop:])]


@given(models(), st.text(st.sampled_from("abcéx"), min_size=1, max_size=8), st.integers(1, 12))
def test_nbest_is_the_best_of_all_paths(model: Unigram, word: str, n: int) -> None:
    expected = sorted(every_path(model, word), reverse=True)[:n]
    assert np.allclose([path.score for path in model.nbest(word, n)], expected, atol=1e-6)


def test_sampling_follows_the_weights() -> None:
    vocab = [("<unk>", 0.0), ("a", -1.0), ("b", -1.5), ("ab", -2.0), ("abc", -4.0), ("c", -1.2), ("é", -2.0)]
    model, word, n = Unigram(vocab, 0), "abcéxab", 4000
    paths = model.nbest(word, 100)
    for alpha, nbest_size in ((0.0, -1), (0.5, -1), (2.0, -1), (0.5, 2), (0.5, 3)):
        chosen = paths if nbest_size < 0 else paths[:nbest_size]
        weights = np.exp([alpha * path.score for path in chosen])
        counts = Counter(tuple(model.sample(word, alpha, seed, nbest_size)) for seed in range(n))
        assert set(counts) <= {path.pieces for path in chosen}
        for path, share in zip(chosen, weights / weights.sum(), strict=True):
            assert abs(counts[path.pieces] / n - share) < 5 * math.sqrt(share * (1 - share) / n) + 1e-9


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([],), "has 1..16777216 pieces, got 0"),
        (([("a", math.nan)],), "score of piece 'a' must be finite"),
        (([("a", 0.0)], 1), "unk_id must be in 0..0, got 1"),
        (([("a", 0.0)], 0, False, [1, 1]), "one entry per piece, got 2 for 1"),
        (([("u", 0.0), ("a", 0.0), ("a", 1.0)], 0, False, [2, 1, 1]), "piece 'a' stands twice"),
    ],
)
def test_what_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Unigram(*arguments)
