# SPDX-License-Identifier: Apache-2.0
"""Tokens as runs of text: what is shown of bytes, of special and unknown tokens, and in a notebook."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer import BPE, Tokenizer, decoders
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import ByteLevel
from tokenmill.tokenizer.token_runs import runs_of


def shown(*pieces: bytes) -> list[str]:
    return [run.text for run in runs_of([(i, "ordinary", piece) for i, piece in enumerate(pieces)])]


@pytest.fixture
def byte_level() -> Tokenizer:
    vocab = {character: i for i, character in enumerate(BYTE_ALPHABET)}
    return Tokenizer(
        model=BPE(vocab, ()), pre_tokenizer=ByteLevel(add_prefix_space=False), decoder=decoders.ByteLevel()
    )


def test_what_does_not_print_is_escaped_and_accents_stand_alone() -> None:
    assert shown(b"\n\t", "\u202e\u200b".encode(), b"\x1b[31m") == [r"\n\t", r"\u202e\u200b", r"\x1b[31m"]
    assert shown(b"e", "\u0301".encode()) == ["e", "◌\u0301"]


@given(st.lists(st.binary(max_size=5).map(lambda data: data.replace(b"=", b"-"))))
def test_runs_hold_every_byte_and_show_every_character_once(pieces: list[bytes]) -> None:
    runs = runs_of([(i, "ordinary", piece) for i, piece in enumerate(pieces)])
    assert [run.data for run in runs] == pieces
    whole = b"".join(pieces).decode("utf-8", "ignore")
    said = re.sub("‹[0-9a-f ]+›=?", "", "".join(run.text for run in runs)).replace("◌", "")
    assert said == "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in whole)


def test_an_encoding_shows_itself_in_a_notebook(byte_level: Tokenizer) -> None:
    encoding = byte_level.encode("你 <b>\n&")
    page = encoding._repr_html_()
    for text in ("‹e4›", "‹a0›=你", "&lt;", r"\n", "&amp;", "bytes e4", "9 tokens"):
        assert text in page
    assert "<b>" not in page
    assert "Ġ" not in page
    long = byte_level.encode("<" * 5000)
    assert long._repr_html_().count("&lt;") == 1000
    assert "4000 more not shown" in long._repr_html_()
    assert len(long._repr_html_()) < 300_000
