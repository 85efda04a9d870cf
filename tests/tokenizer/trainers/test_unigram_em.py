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

from tests.word_counts import small_marked, table
from tokenmill.tokenizer.trainers.unigram_em import expect, fixed_point_unit, match
from tokenmill.tokenizer.trainers.unigram_seeds import Text, choose_alphabet, lay_out, sort_suffixes
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
