# SPDX-License-Identifier: Apache-2.0
"""WordLevel: the kernel against a dictionary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.reference.model_kernels import look_up_words
from tokenmill.tokenizer.models.wordlevel import WordLevel
from tokenmill.tokenizer.ragged import read_only


def in_kernel(model: WordLevel, words: list[str]) -> list[int]:
    encoded = [word.encode() for word in words]
    lengths = np.array([len(w) for w in encoded], np.int64)
    stops = np.cumsum(lengths)
    data = read_only(np.frombuffer(b"".join([*encoded, bytes(16)]), np.uint8))
    out = np.empty(len(words), np.int32)
    look_up_words(data, stops - lengths, stops, model.tables, out, np.empty(1, np.int64))
    return out.tolist()


words = st.one_of(strategies.texts(), st.text("ab", max_size=3), st.text("ab", min_size=15, max_size=40)).filter(len)


@given(st.sets(words), st.lists(words, min_size=1))
def test_a_word_is_an_entry_or_unknown(entries: set[str], others: list[str]) -> None:
    tokens = ["?", "", *sorted(entries - {"?"})]
    model = WordLevel({token: 3 * i for i, token in enumerate(tokens)}, "?")
    column = [*sorted(entries), *others]
    expected = [model.vocab.get(word, 0) for word in column]
    assert in_kernel(model, column) == expected
    assert [model.tokenize(word) for word in column] == [
        [(i, len(word))] for word, i in zip(column, expected, strict=True)
    ]


def test_what_a_vocabulary_cannot_be() -> None:
    with pytest.raises(ValueError, match="id 0 belongs to two tokens"):
        WordLevel({"<unk>": 0, "a": 0})
