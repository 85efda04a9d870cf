# SPDX-License-Identifier: Apache-2.0
"""Sampling and n-best through `Tokenizer`: reproducible, of the distribution that the original library draws from."""

import collections
import json

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")
spm = pytest.importorskip("sentencepiece", reason="needs the test group: sentencepiece")

import pyarrow as pa  # noqa: E402

from tests.parity import families  # noqa: E402
from tests.parity.test_sentencepiece_tokenizers import load, train  # noqa: E402
from tokenmill.tokenizer import Sampling, Tokenizer  # noqa: E402

pytestmark = pytest.mark.parity
N = 8000


@pytest.fixture(scope="module")
def unigram() -> tuple[Tokenizer, "spm.SentencePieceProcessor"]:
    data = train("unigram", {"user_defined_symbols": ["<sep>"]})
    return load(data), spm.SentencePieceProcessor(model_proto=data)


@pytest.fixture(scope="module")
def gpt2() -> Tokenizer:
    return Tokenizer.from_str(families.family("gpt2"))


def drawn(tokenizer: Tokenizer, text: str, **options: float) -> collections.Counter[tuple[int, ...]]:
    rows = tokenizer.encode_arrow(pa.array([text] * N), sampling=Sampling(7, **options))  # type: ignore[arg-type]
    return collections.Counter(map(tuple, rows.to_pylist()))


def assert_alike(a: collections.Counter[tuple[int, ...]], b: collections.Counter[tuple[int, ...]]) -> None:
    """Total variation of two samples of N is within what chance allows."""
    distance = sum(abs(a[k] - b[k]) for k in a | b) / (2 * N)
    assert distance < 3 * (len(a | b) / N) ** 0.5


@pytest.mark.parametrize(("alpha", "nbest_size"), [(0.1, -1), (1.0, -1), (0.0, 4), (0.5, 8)])
def test_unigram_draws_from_the_distribution_of_sentencepiece(
    unigram: tuple[Tokenizer, "spm.SentencePieceProcessor"], alpha: float, nbest_size: int
) -> None:
    ours, theirs = unigram
    spm.set_random_generator_seed(5)
    for text in ("tokens", "the mill"):
        got = drawn(ours, text, alpha=alpha, nbest_size=nbest_size)
        expected = collections.Counter(
            tuple(theirs.encode(text, enable_sampling=True, alpha=alpha, nbest_size=nbest_size)) for _ in range(N)
        )
        assert_alike(got, expected)
        for size in (0, 1):
            assert drawn(ours, text, alpha=alpha, nbest_size=size) == {tuple(theirs.encode(text)): N}


def test_nbest_is_that_of_sentencepiece(unigram: tuple[Tokenizer, "spm.SentencePieceProcessor"]) -> None:
    ours, theirs = unigram
    for text in ("tokens", "unaffable mill", "玫瑰花 x", "wheels  do"):
        assert ours.nbest_encode(text, 10) == theirs.nbest_encode(text, nbest_size=10)
    assert ours.nbest_encode("", 3) == [[]]


@pytest.mark.parametrize("dropout", [0.0, 0.3, 1.0])
def test_dropout_draws_from_the_distribution_of_hf(gpt2: Tokenizer, dropout: float) -> None:
    fields = json.loads(families.family("gpt2"))
    fields["model"]["dropout"] = dropout
    theirs = hf.Tokenizer.from_str(json.dumps(fields))
    text = "the mills"
    got = drawn(gpt2, text, dropout=dropout)
    expected = collections.Counter(tuple(e.ids) for e in theirs.encode_batch([text] * N))
    assert_alike(got, expected)
    if dropout in (0.0, 1.0):
        assert got == expected
    # A rate in the file is what is used where none is asked for.
    assert drawn(Tokenizer.from_str(json.dumps(fields)), text) == got


def test_a_rate_of_0_merges_nothing_that_is_an_entry() -> None:
    model = hf.models.BPE({"a": 0, "b": 1, "ab": 2}, [], ignore_merges=True)
    for dropout in (None, 0.0, 1e-6):
        model.dropout = dropout
        theirs = hf.Tokenizer(model)
        ours = Tokenizer.from_str(theirs.to_str())
        for sampling in (Sampling(), Sampling(dropout=dropout)):
            assert ours.encode_arrow(["ab"], sampling=sampling).to_pylist() == [theirs.encode("ab").ids]


def test_what_cannot_be_drawn(gpt2: Tokenizer) -> None:
    word_level = Tokenizer.from_str(families.family("word level"))
    with pytest.raises(ValueError, match="sampling is for BPE and Unigram"):
        word_level.encode_arrow(pa.array(["a"]), sampling=Sampling())
    with pytest.raises(ValueError, match="n-best is for Unigram models of sentencepiece"):
        gpt2.nbest_encode("a", 2)
    with pytest.raises(ValueError, match="either tally= or sampling="):
        gpt2.encode_arrow(pa.array(["a"]), tally=gpt2.new_tally(), sampling=Sampling())
    for options, message in (({"seed": -1}, "seed"), ({"alpha": -0.1}, "alpha"), ({"dropout": 1.5}, "dropout")):
        with pytest.raises(ValueError, match=f"{message} must be"):
            Sampling(**options)  # type: ignore[arg-type]
