# SPDX-License-Identifier: Apache-2.0
"""Calls with a few texts, whose arrays are kept, give what columns give: in any order, and in several threads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.tokenizer.test_offsets import TOKENIZERS
from tokenmill.tokenizer.engines.few import MOST_BYTES, MOST_TEXTS

TEXTS = st.lists(strategies.texts(30) | st.text("abthe é玫😀\u0130\u212a<s>", max_size=30), max_size=5)
FEW = ("trimmed", "with a prefix", "NFC", "BERT")


@pytest.mark.parametrize("name", TOKENIZERS)
@strategies.FEWER
@given(texts=TEXTS)
def test_few_texts_have_the_ids_of_columns(name: str, texts: list[str]) -> None:
    for special in ("plain", "split"):
        tokenizer = TOKENIZERS[name].replace(special=special)
        expected = tokenizer.encode_arrow(texts).to_pylist()
        assert [each.ids for each in tokenizer.encode_batch(texts, add_special_tokens=False)] == expected
        assert [tokenizer.encode(text, add_special_tokens=False).ids for text in texts] == expected


@pytest.mark.parametrize("name", FEW)
def test_few_texts_need_no_column(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = TOKENIZERS[name].replace()
    expected = [tokenizer.encode_arrow(texts).to_pylist() for texts in (["the ab"], ["", "ab"], [])]
    plan = tokenizer._plan
    monkeypatch.setattr(plan, "encode", None)
    assert [plan.encode_few(texts) for texts in (["the ab"], ["", "ab"])] == expected[:2]
    assert plan.encode_few(["a"] * (MOST_TEXTS + 1)) is None
    assert plan.encode_few(["a" * MOST_BYTES, "a" * 10]) is None


def test_half_a_surrogate_pair_is_an_error() -> None:
    for name in FEW:
        with pytest.raises(ValueError, match="row 0 is not text"):
            TOKENIZERS[name].encode("\ud800")
