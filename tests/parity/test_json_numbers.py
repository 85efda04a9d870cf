# SPDX-License-Identifier: Apache-2.0
"""Scores in a `tokenizer.json`: the nearest numbers, which are not always those that HF tokenizers reads.

`DIFFERENCES` is the whole list of what is meant to differ.
"""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.models import Unigram

tokenizers = pytest.importorskip("tokenizers", reason="HF tokenizers is an extra for tests")

DIFFERENCES = {
    "scores of Unigram": "the nearest numbers of 64 bits; HF reads some with another last digit, which decides between "
    "cuts that score the same, as of a line of stars",
}
STARS = [("<unk>", 0.0), ("*", -7.651592972722763), ("**", -9.788723351135513), ("***", -10.593859586774235)]
"""Two ways to cut a line of stars are of the same pieces in another order: rounding decides."""


def pair_of(pieces: list[tuple[str, float]]) -> tuple[Tokenizer, "tokenizers.Tokenizer"]:
    ours = Tokenizer(model=Unigram(pieces, unk_id=0))
    return ours, tokenizers.Tokenizer.from_str(ours.to_str())


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20))
@example([-2.0122294425964355, 5e-324, -0.0, 1.7e308, 1e-300])
def test_scores_are_written_and_read_exactly_and_by_hf_nearly(scores: list[float]) -> None:
    ours, theirs = pair_of([(f"p{i}", score) for i, score in enumerate(scores)])
    for text in (ours.to_str(), ours.to_str(pretty=True)):
        assert [score for _, score in Tokenizer.from_str(text).model.vocab] == scores
    for score, (_, read) in zip(scores, json.loads(theirs.to_str())["model"]["vocab"], strict=True):
        assert abs(read - score) <= 2 * math.ulp(score)


def test_cuts_that_score_the_same_are_decided_by_the_last_digit() -> None:
    ours, theirs = pair_of(STARS)
    differing = [n for n in range(1, 200) if ours.encode("*" * n).ids != theirs.encode("*" * n).ids]
    assert differing, "scores of Unigram: HF reads the nearest numbers now"
    rounded, same = pair_of([(piece, round(score, 6)) for piece, score in STARS])
    for n in range(1, 200):
        assert rounded.encode("*" * n).ids == same.encode("*" * n).ids
        found, wanted = ours.encode("*" * n).ids, theirs.encode("*" * n).ids
        assert sorted(found) == sorted(wanted), "the same pieces, in another order"
