# SPDX-License-Identifier: Apache-2.0
"""Vocabularies as columns against lists and dicts."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.models.vocabulary import (
    Tokens,
    Vocabulary,
    padded_bytes,
)

LETTERS = "ab\0é▁玫😀"
texts = st.text(LETTERS, max_size=30)


def test_a_token_that_is_no_text() -> None:
    with pytest.raises(ValueError, match=r"'b\\ud800' is no text, it holds a surrogate"):
        Tokens.of(["a", "b\ud800"])
    for broken in (b"\xff", "é".encode()[:1], b"\xed\xa0\x80"):
        values, offsets = padded_bytes([b"a", broken, "é".encode()])
        assert Tokens(values, offsets).first_broken() == 1
    # A character cut in two is none, though all of it is there.
    assert Tokens(*padded_bytes(["é".encode()[:1], "é".encode()[1:]])).first_broken() == 0


@given(st.lists(st.text(LETTERS, min_size=1, max_size=20), max_size=20, unique=True), st.lists(texts, max_size=10))
def test_a_vocabulary_is_a_dict(tokens: list[str], others: list[str]) -> None:
    expected = {token: 7 * i % 1000 for i, token in enumerate(tokens)}
    vocab = Vocabulary(Tokens.of(tokens), np.array(list(expected.values()), np.int32))
    assert vocab.find([*tokens, *others]).tolist() == [expected.get(text, -1) for text in [*tokens, *others]]
    for token in [*tokens, *others, "\ud800"]:
        assert vocab.find_one(token) == expected.get(token, -1)
        assert vocab.get(token, -1) == expected.get(token, -1)
        assert (token in vocab) == (token in expected)
    assert 1 not in vocab
    assert vocab == expected
    assert expected == vocab
    assert len(vocab) == len(expected)
    assert (list(vocab), list(vocab.values()), list(vocab.items())) == (
        list(expected), list(expected.values()), list(expected.items()),
    )  # fmt: skip
    for each in (vocab, Vocabulary.of(expected)):
        assert each.tokens == tokens
        assert each.ids.tolist() == list(expected.values())
        values, offsets, ids = each.words
        assert [values[a:b].tobytes().decode() for a, b in itertools.pairwise(offsets)] == tokens
        assert ids.tolist() == list(expected.values())


@pytest.mark.parametrize("tokens, message", [(["a", ""], "token 1 is empty"), (["a", "b", "a"], "stands twice")])
def test_what_is_no_vocabulary(tokens: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Vocabulary(Tokens.of(tokens), np.arange(len(tokens), dtype=np.int32))
    assert Tokens.of(tokens).numbered is None
    assert Vocabulary.of(dict.fromkeys(tokens, 0)).words[2].size == len({*tokens} - {""})


def test_tokens_that_are_made_to_collide_are_refused() -> None:
    # Eight bytes are their own key, and what a hash multiplies with can be divided by: the upper half is always zero.
    inverse = pow(0x9E3779B97F4A7C15, -1, 1 << 64)
    found = [(i * inverse % (1 << 64) ^ 8).to_bytes(8, "little") for i in range(1, 3001)]
    with pytest.raises(ValueError, match="look made to collide"):
        _ = Tokens(*padded_bytes(found)).numbered


def test_regular_tokens_that_collide_are_found_all_the_same() -> None:
    vocab = Vocabulary.of({f"token{i}": i for i in range(20_000)})
    with pytest.raises(ValueError, match="look made to collide"):
        _ = vocab.table
    assert vocab.find(["token7", "token", "token19999"]).tolist() == [7, -1, 19999]
    assert pickle.loads(pickle.dumps(vocab)).find_one("token8") == 8


def test_what_is_added_is_found_by_its_prefix() -> None:
    tokenizer = Tokenizer.for_bert(["[UNK]", "un", "##un", "unit", "up"])
    assert tokenizer.tokens_with_prefix("un") == {"un": 1, "unit": 3}
    assert list(tokenizer.tokens_with_prefix("")) == ["##un", "[UNK]", "un", "unit", "up"]
    tokenizer.add_tokens(["under"])
    assert tokenizer.tokens_with_prefix("un") == {"un": 1, "under": 5, "unit": 3}
    assert tokenizer.tokens_with_prefix("x") == {}
