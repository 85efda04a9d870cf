# SPDX-License-Identifier: Apache-2.0
"""Scores in a `tokenizer.json`: the numbers that HF tokenizers reads, which are not always the nearest ones."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.formats.json_numbers import float_text, read_float
from tokenmill.tokenizer.models import Unigram

tokenizers = pytest.importorskip("tokenizers", reason="HF tokenizers is an extra for tests")

_DIGITS = st.text("0123456789", min_size=1, max_size=25)


@st.composite
def numbers(draw: st.DrawFn) -> str:
    """A number as JSON has it, with a point, an exponent or both, mostly one that a program wrote."""
    if draw(st.booleans()):
        return repr(draw(st.floats(-1e6, 1e6)))
    whole = draw(_DIGITS).lstrip("0") or "0"
    point, exponent = draw(st.one_of(st.just(""), _DIGITS)), draw(st.one_of(st.none(), st.integers(-350, 250)))
    if exponent is None:
        point = point or "0"
    return draw(st.sampled_from(["", "-"])) + whole + (f".{point}" if point else "") + _exponent(draw, exponent)


def _exponent(draw: st.DrawFn, exponent: int | None) -> str:
    if exponent is None:
        return ""
    plus = draw(st.sampled_from(["", "+"])) if exponent >= 0 else ""
    return draw(st.sampled_from("eE")) + plus + str(exponent)


def file_of(scores: list[str]) -> str:
    """A `tokenizer.json` of a Unigram model with these scores, as they are spelled."""
    vocab = ",".join(f'["p{i}",{score}]' for i, score in enumerate(scores))
    parts = '"added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null'
    model = f'{{"type":"Unigram","unk_id":0,"vocab":[{vocab}],"byte_fallback":false}}'
    return f'{{"version":"1.0","truncation":null,"padding":null,{parts},"model":{model}}}'


def scores_in(text: str) -> list[float]:
    return [score for _, score in json.loads(text)["model"]["vocab"]]


@given(st.lists(numbers(), min_size=1, max_size=20))
@example(["-2.0122294425964355", "-13.755867004394531", "-1.8446744073709551616999", "-18446744073709551615.95"])
@example(["12345678901234567890123e-20", "1234567890123456789012345678.5"])
@example(["1e-400", "1111111111111111111111.1111", "-0.0", "0e999"])
def test_numbers_are_those_that_hf_reads(texts: list[str]) -> None:
    # HF writes the numbers it has read as Python does, each as itself.
    expected = scores_in(tokenizers.Tokenizer.from_str(file_of(texts)).to_str())
    assert [read_float(text) for text in texts] == expected
    assert [score for _, score in Tokenizer.from_str(file_of(texts)).model.vocab] == expected


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20))
@example([-2.0122294425964355, 5e-324, -0.0, 1.7e308, 1e-300])
def test_hf_reads_the_scores_that_are_written(scores: list[float]) -> None:
    ours = Tokenizer(model=Unigram([(f"p{i}", score) for i, score in enumerate(scores)], unk_id=0))
    written = scores_in(tokenizers.Tokenizer.from_str(ours.to_str()).to_str())
    for score, text, theirs in zip(scores, map(float_text, scores), written, strict=True):
        assert read_float(text) == theirs
        assert theirs == score or abs(theirs - score) <= 2 * math.ulp(score)
    assert scores_in(tokenizers.Tokenizer.from_str(ours.to_str(pretty=True)).to_str()) == written


def test_nearly_every_score_can_be_written() -> None:
    scores = [-(i + 0.5) * math.pi / 1000 for i in range(10_000)]
    n_lost = sum(read_float(float_text(score)) != score for score in scores)
    assert n_lost <= 40


def test_too_large_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="too large for a number of 64 bits"):
        Tokenizer.from_str(file_of(["1e309"]))


def test_cuts_that_score_the_same_are_decided_as_in_hf() -> None:
    # Two ways to cut a line of stars, of the same pieces in another order: rounding decides.
    pieces = '["<unk>",0],["*",-7.911023139953613],["**",-9.218769073486328],["***",-11.030418395996094]'
    text = file_of(["0"]).replace('["p0",0]', pieces)
    ours, theirs = Tokenizer.from_str(text), tokenizers.Tokenizer.from_str(text)
    for n in range(1, 200):
        assert ours.encode("*" * n).ids == theirs.encode("*" * n).ids
