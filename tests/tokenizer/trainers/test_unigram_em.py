# SPDX-License-Identifier: Apache-2.0
"""What the training of a Unigram model is made of: sorted suffixes, seeds, expected counts, best paths."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.reference import unigram_trainer as reference
from tests.word_counts import small_marked, table
from tokenmill.tokenizer.trainers.kernels import unigram as kernels
from tokenmill.tokenizer.trainers.unigram_em import expect, fixed_point_unit, match
from tokenmill.tokenizer.trainers.unigram_seeds import Text, choose_alphabet, find_seeds, lay_out, sort_suffixes
from tokenmill.tokenizer.trainers.word_counts import CountedWords, words_as_code_points


def text_of(counts: Mapping[str, int], alphabet: str | None = None) -> Text:
    words = words_as_code_points(table(list(counts.items())))
    known = sorted(set("".join(counts) if alphabet is None else alphabet))
    return lay_out(words, np.array([ord(character) for character in known], np.int32))


def expected_counts(pieces: pa.Array, scores: Any, alphabet: Any, words: CountedWords, unit: int) -> Any:
    """The expected count of each piece in some of the words: the E-step of EM, in parts of 1 / `unit`."""
    spelled = np.frombuffer("".join(pieces.to_pylist()).encode("utf-32-le"), np.int32)
    lengths = pc.utf8_length(pieces).to_numpy()
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    numbers = (np.searchsorted(alphabet, spelled) + 1).astype(np.int32)
    text = lay_out(words, alphabet)
    suffixes, common = sort_suffixes(text, int(lengths.max()))
    return expect(text, match(text, suffixes, common, numbers, offsets), scores, unit)


def runs_of(text: Text) -> list[tuple[str, int]]:
    values = text.values.tolist()
    return [
        ("".join(chr(text.alphabet[v - 1]) for v in values[start : stop - 1]), count)
        for (start, stop), count in zip(itertools.pairwise(text.starts.tolist()), text.counts.tolist(), strict=True)
    ]


@given(counts=small_marked(), depth=st.integers(1, 20), skip=st.sampled_from(["", "b"]))
def test_suffixes_are_sorted(counts: dict[str, int], depth: int, skip: str) -> None:
    text = text_of(counts, "".join(set("".join(counts)) - set(skip)))
    assume(text.counts.size)
    suffixes, common = sort_suffixes(text, depth)
    rests = []
    for run, start in zip(runs_of(text), text.starts.tolist(), strict=False):
        rests += [(run[0][i:][:depth], start + i) for i in range(len(run[0]))]
    spelled = dict(zip([place for _, place in rests], [rest for rest, _ in rests], strict=True))
    assert sorted(suffixes.tolist()) == sorted(spelled)
    found = [spelled[place] for place in suffixes.tolist()]
    assert found == sorted(found)
    expected = [
        sum(1 for _ in itertools.takewhile(lambda both: both[0] == both[1], zip(*pair, strict=False)))
        for pair in itertools.pairwise(found)
    ]
    assert common.tolist() == [0, *expected, 0]


def every_cut(text: str) -> list[list[str]]:
    cuts = []
    for mask in range(1 << (len(text) - 1)):
        ends = [i + 1 for i in range(len(text) - 1) if mask >> i & 1]
        cuts.append([text[a:b] for a, b in itertools.pairwise([0, *ends, len(text)])])
    return cuts


scored_pieces = st.dictionaries(
    st.text("abc", min_size=1, max_size=4), st.floats(-12, -0.1, allow_nan=False), min_size=1, max_size=12
)


def lattice_of(text: Text, scores: Mapping[str, float]) -> tuple[Any, np.ndarray]:
    pieces = sorted(scores)
    numbers = {chr(code_point): i + 1 for i, code_point in enumerate(text.alphabet.tolist())}
    spelled = np.array([numbers[c] for piece in pieces for c in piece], np.int32)
    offsets = np.cumsum([0, *map(len, pieces)])
    suffixes, common = sort_suffixes(text, max(map(len, pieces)))
    return match(text, suffixes, common, spelled, offsets), np.array([scores[piece] for piece in pieces])


@given(scores=scored_pieces, words=st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=5))
def test_expected_counts_are_those_of_all_segmentations(scores: dict[str, float], words: list[str]) -> None:
    counts = Counter(words)
    text = text_of(counts, "abc")
    lattice, score_array = lattice_of(text, scores)
    unknown = min(scores.values()) - 10
    wanted: Counter[str] = Counter()
    for word, count in counts.items():
        paths = [
            (math.exp(math.fsum(scores.get(piece, unknown) for piece in cut)), cut)
            for cut in every_cut(word)
            if all(piece in scores or len(piece) == 1 for piece in cut)
        ]
        total = math.fsum(weight for weight, _ in paths)
        for weight, cut in paths:
            for piece in cut:
                wanted[piece] += count * weight / total
    unit = 1 << 40
    expected = expect(text, lattice, score_array, unit)
    for piece, parts in zip(sorted(scores), expected.tolist(), strict=True):
        assert parts / unit == pytest.approx(wanted[piece], abs=1e-9)


@given(scores=scored_pieces, word=st.text("abc", min_size=1, max_size=9), whole=st.booleans())
def test_best_path_is_best_of_all_segmentations(scores: dict[str, float], word: str, whole: bool) -> None:
    unknown = min(scores.values()) - 10
    possible = [
        math.fsum(scores.get(piece, unknown) for piece in cut)
        for cut in every_cut(word)
        if all(piece in scores or len(piece) == 1 for piece in cut)
    ]
    score, path = reference.find_best(scores, word)
    assert score == pytest.approx(max(possible))
    # The kernel counts the pieces of that very path.
    text = text_of({word: 3}, "abc")
    lattice, score_array = lattice_of(text, scores)
    frequencies = np.zeros(len(scores), np.int64)
    room = np.empty(len(word) + 1), np.empty(len(word) + 1, np.int32)
    kernels.count_best(text.starts, text.counts, *lattice, score_array, unknown, *room, frequencies)
    in_path = Counter(piece for piece in path if piece is not None)
    assert frequencies.tolist() == [3 * in_path[piece] for piece in sorted(scores)]


def test_seeds_are_substrings_that_are_followed_by_different_things() -> None:
    counts = {"abcd": 12, "abce": 4, "xabc": 4, "zz": 4, "qrs": 5}
    text = text_of(counts)
    pieces, shares = find_seeds(text, *sort_suffixes(text, 17), depth=17, rules=0, n_seeds=1000)
    spelled, offsets = pieces.spell(text)
    words = ["".join(chr(text.alphabet[v - 1]) for v in spelled[a:b]) for a, b in itertools.pairwise(offsets.tolist())]
    found = {word: share for word, share in zip(words, shares.tolist(), strict=True) if len(word) > 1}
    # "ab" is always followed by "c"; "abcd" and "qrs" always end words, and so do "zz" and "abce", but not 5 times.
    assert found == {"abc": 60, "bc": 40, "abcd": 48, "bcd": 36, "cd": 24, "qrs": 15, "rs": 10}
    assert words == sorted(words)


@given(counts=small_marked(), n_shards=st.integers(1, 5), seed=st.integers(0, 99))
def test_expected_counts_of_shards_add_up_to_the_bit(counts: dict[str, int], n_shards: int, seed: int) -> None:
    rng = random.Random(seed)
    words = list(counts.items())
    whole = words_as_code_points(table(words))
    alphabet = choose_alphabet(whole, 0.9995, "").code_points
    substrings = {w[i:j] for w in counts for i in range(len(w)) for j in range(i + 1, min(len(w), i + 4) + 1)}
    known = set(map(chr, alphabet.tolist()))
    pieces = sorted(piece for piece in substrings if set(piece) <= known and rng.random() < 0.7)
    assume(pieces)
    scores = np.array([-rng.uniform(1, 12) for _ in pieces])
    unit = fixed_point_unit(sum(len(word) * count for word, count in words))
    total = expected_counts(pa.array(pieces, pa.large_string()), scores, alphabet, whole, unit)
    rng.shuffle(words)
    parts = [words[i::n_shards] for i in range(n_shards)]
    shards = [words_as_code_points(table(part)) for part in parts if part]
    added = sum(expected_counts(pa.array(pieces, pa.large_string()), scores, alphabet, s, unit) for s in shards)
    assert np.array_equal(added, total)


def test_a_long_word_underflows_nowhere() -> None:
    rng = random.Random(1)
    scores = {"a": -9.0, "b": -11.0, "c": -2.0, "ab": -5.0, "bca": -4.0, "cccc": -1.0}
    word = "".join(rng.choices("abcd", k=5000))  # "d" is unknown: probabilities of e**-21 each
    text = text_of({word: 7}, "abcd")
    lattice, score_array = lattice_of(text, scores)
    unit = 1 << 30
    expected = dict(zip(sorted(scores), (expect(text, lattice, score_array, unit) / unit).tolist(), strict=True))
    # Every "a" is in one of three pieces, and so on.
    assert expected["a"] + expected["ab"] + expected["bca"] == pytest.approx(7 * word.count("a"), rel=1e-6)
    assert expected["b"] + expected["ab"] + expected["bca"] == pytest.approx(7 * word.count("b"), rel=1e-6)
    # Cut at the unknown characters, which no piece crosses, the same is to be expected.
    parts = Counter(part for part in word.split("d") if part)
    pieces = text_of({part: 7 * count for part, count in parts.items()}, "abcd")
    lattice, score_array = lattice_of(pieces, scores)
    again = expect(pieces, lattice, score_array, unit) / unit
    assert list(expected.values()) == pytest.approx(again.tolist(), rel=1e-6)
