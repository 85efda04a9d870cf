# SPDX-License-Identifier: Apache-2.0
"""What the training of a Unigram model is made of: sorted suffixes, seeds, expected counts, best paths."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.word_counts import small_marked, table
from tokenmill.tokenizer.trainers.unigram_em import expect, match
from tokenmill.tokenizer.trainers.unigram_seeds import Text, lay_out, sort_suffixes
from tokenmill.tokenizer.trainers.word_counts import words_as_code_points


def text_of(counts: Mapping[str, int], alphabet: str | None = None) -> Text:
    words = words_as_code_points(table(list(counts.items())))
    known = sorted(set("".join(counts) if alphabet is None else alphabet))
    return lay_out(words, np.array([ord(character) for character in known], np.int32))


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
