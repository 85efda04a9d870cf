# SPDX-License-Identifier: Apache-2.0
"""Runs of tokens joined are the text that decoding gives, for tokenizers of every family and on any text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.parity.families import FAMILIES, family
from tests.strategies import FEWER
from tokenmill.tokenizer import Tokenizer

_PIECES = ["  ", " a", "你好", "😀", "é", "<s>", "\n\n", "the mill", "▁", "Ġ", "…"]
TEXTS = st.lists(st.text(max_size=12) | st.sampled_from(_PIECES), max_size=8).map("".join)
_NOT_UTF8 = re.compile("[\udc80-\udcff\ufffd]+")


def check(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text).ids
    runs = tokenizer.token_runs(ids)
    assert [run.id for run in runs] == ids
    joined = b"".join(run.data for run in runs).decode("utf-8", "surrogateescape")
    decoded = tokenizer.decode(ids, skip_special_tokens=False)
    # Decoders differ in how many U+FFFD they write for bytes of no character.
    assert _NOT_UTF8.sub("\ufffd", joined) == _NOT_UTF8.sub("\ufffd", decoded)


@pytest.mark.parametrize("name", FAMILIES)
def test_runs_are_what_decoding_gives(name: str) -> None:
    tokenizer = Tokenizer.from_str(family(name))
    FEWER(given(TEXTS)(lambda text: check(tokenizer, text)))()
