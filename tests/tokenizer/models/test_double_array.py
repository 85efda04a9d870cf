# SPDX-License-Identifier: Apache-2.0
"""Vocabularies in double arrays hold what they were made of, and nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer import Tokenizer, WordPiece
from tokenmill.tokenizer.models.double_array import double_array
from tokenmill.tokenizer.models.vocabulary import Tokens


@given(st.sets(st.text("abé玫\0\x7f", min_size=1, max_size=6), max_size=60))
def test_words_that_are_entries_have_their_ids_and_no_others(entries: set[str]) -> None:
    vocab = {"[UNK]": 0} | {entry: i for i, entry in enumerate(sorted(entries), 1)}
    others = [other for entry in entries for other in (entry[:-1], entry + "\0", entry[:-1] + "b", entry[1:])]
    words = [word for word in (*entries, *others) if word]
    found = Tokenizer(model=WordPiece(vocab)).encode_arrow(words).to_pylist()
    assert found == [[vocab.get(word, 0)] for word in words]


def test_entries_that_are_too_many_are_refused() -> None:
    entries = Tokens(np.zeros(16, np.uint8), np.array([0, 1 << 28]))  # refused before their bytes are looked at
    with pytest.raises(ValueError, match="must have fewer than 268435456 bytes in all, got 268435456"):
        double_array(entries, np.zeros(1, np.int32))
