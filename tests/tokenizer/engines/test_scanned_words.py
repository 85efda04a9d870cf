# SPDX-License-Identifier: Apache-2.0
"""Steps that come to the words of BERT are run as these."""

import numpy as np
import pyarrow as pa
import pytest

from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.models import WordPiece
from tokenmill.tokenizer.pre_tokenizers import (
    BertPreTokenizer,
    PreTokenizer,
    Punctuation,
    Sequence,
)
from tokenmill.tokenizer.pre_tokenizers import WhitespaceSplit as Spaces
from tokenmill.tokenizer.ragged import text_rows

VOCAB = {word: i for i, word in enumerate(("[UNK]", "a", "b", "ab", "the", "##b"))}


@pytest.mark.parametrize("steps", [(Spaces(), Punctuation()), (Punctuation(), Spaces())])
def test_white_space_and_punctuation_are_berts_words(steps: tuple[PreTokenizer, ...]) -> None:
    # One after the other, over all of Unicode, between letters and beside their like.
    texts = [f"a{c}b {c}{c}. {c}" for c in map(chr, range(1, 0x110000)) if not "\ud800" <= c <= "\udfff"]
    rows = text_rows(pa.array(texts, pa.large_string()))
    found, expected = (
        pre_tokenizer.split_rows(rows, np.ones(rows.n_rows, np.bool_))
        for pre_tokenizer in (Sequence(steps), BertPreTokenizer())
    )
    for column in ("starts", "stops", "row_offsets"):
        assert np.array_equal(getattr(found, column), getattr(expected, column))
    tok = Tokenizer(model=WordPiece(VOCAB, unk_token="[UNK]"), pre_tokenizer=Sequence(steps))
    assert "bert" in tok.explain()
    assert tok.encode("ab ab.the x").tokens == ["ab", "ab", "[UNK]", "the", "[UNK]"]
