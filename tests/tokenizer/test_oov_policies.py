# SPDX-License-Identifier: Apache-2.0
"""What OOV policies of WordPiece lose: `contain` and `char` nothing that the vocabulary knows."""

import dataclasses
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import texts
from tokenmill.tokenizer import Tokenizer, WordPiece

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##b", "3", "##7", "朵"]


def lost(tokenizer: Tokenizer, policy: str, column: list[str]) -> Counter[str]:
    """Returns how often each character is lost to unknown tokens."""
    model = tokenizer.model
    assert isinstance(model, WordPiece)
    tokenizer = tokenizer.replace(model=dataclasses.replace(model, oov_policy=policy))
    tally = tokenizer.new_tally()
    tokenizer.encode_arrow(pa.array(column, pa.string()), tally=tally)
    characters, counts = tally.oov_characters()
    return Counter(dict(zip(map(chr, characters.tolist()), counts.tolist(), strict=True)))


def unknown(tokenizer: Tokenizer, column: list[str]) -> Counter[str]:
    """Returns the characters of words that are no entry, neither at the beginning of a word nor inside one."""
    counter, found, vocab = tokenizer.new_word_counter(), Counter[str](), tokenizer.get_vocab()
    counter.update(pa.array(column, pa.string()))
    for word, n in zip(*counter.to_table().to_pydict().values(), strict=True):
        for character in word.decode():
            if character not in vocab and f"##{character}" not in vocab:
                found[character] += n
    return found


@given(st.lists(st.one_of(texts(), st.text("ab3朵7Ⰻж ", max_size=20)), max_size=6))
def test_contain_and_char_lose_the_least_possible(column: list[str]) -> None:
    tokenizer = Tokenizer.for_bert({token: i for i, token in enumerate(VOCAB)})
    for policy in ("contain", "char"):
        assert lost(tokenizer, policy, column) == unknown(tokenizer, column)
    assert lost(tokenizer, "word", column) >= unknown(tokenizer, column)


@pytest.mark.parity
@pytest.mark.parametrize("vocab", ["bert-base-uncased", "bert-base-cased", "bert-base-chinese"])
def test_contain_loses_no_character_that_a_vocabulary_knows(
    shared_data: Path, declarations: dict[str, str], vocab: str
) -> None:
    tokenizer = Tokenizer.from_file(str(shared_data / "vocab" / f"{vocab}.txt"), lowercase="uncased" in vocab)
    column = list(declarations.values())
    assert lost(tokenizer, "contain", column) == unknown(tokenizer, column) < lost(tokenizer, "word", column)
