# SPDX-License-Identifier: Apache-2.0
"""Decoders: what they make of tokens, and which of them work token by token."""

import pytest

from tokenmill.tokenizer import decoders

LLAMA = decoders.Sequence(
    (decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0))
)


def test_wordpiece_with_byte_tokens_decodes_the_row_as_one() -> None:
    decoder = decoders.WordPiece(byte_tokens=True)
    assert decoder.decode(["a", "<0xE2>", "<0x82>", "<0xAC>", "##b", "<0xFF>", "c"]) == "a€b\ufffd c"
    assert decoders.WordPiece().decode(["a", "<0xE2>"]) == "a <0xE2>"


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.BPEDecoder(),
        decoders.CTC(),
        decoders.Sequence((decoders.Fuse(), decoders.Replace(" ", "_"))),
        decoders.Sequence((decoders.ByteFallback(), decoders.Replace("€", "_"))),
        decoders.Sequence((decoders.ByteFallback(), decoders.Fuse(), decoders.Strip("€", 1, 0))),
        decoders.Sequence((decoders.Fuse(), decoders.Strip(" ", 2, 0))),
        decoders.Sequence((decoders.Fuse(), decoders.Strip(" ", 0, 1))),
        decoders.Sequence((decoders.Fuse(), decoders.Strip(" ", 1, 0), decoders.Strip(" ", 1, 0))),
        decoders.Sequence((decoders.ByteFallback(), decoders.ByteLevel())),
        decoders.Sequence((decoders.WordPiece(byte_tokens=True), decoders.Fuse())),
    ],
    ids=repr,
)
def test_what_needs_whole_rows_says_so(decoder: decoders.Decoder) -> None:
    assert not decoder.is_per_token
    assert decoder.token_texts(["a"]) is None
    with pytest.raises(ValueError, match="decode whole rows"):
        decoder.token_text("a", first=True)


def test_an_empty_token_needs_whole_rows_where_it_tells() -> None:
    assert LLAMA.is_per_token
    assert LLAMA.token_texts(["a", ""]) is None
    assert decoders.ByteFallback().token_texts(["a", ""]) is None
    assert decoders.Metaspace().token_texts(["▁", ""]) == ([b"", b""], [b" ", b""])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: decoders.Metaspace("ab"), "replacement must be one character, got 'ab'"),
        (lambda: decoders.Metaspace(prepend_scheme="last"), "prepend_scheme must be always, never or first"),  # type: ignore[arg-type]
        (lambda: decoders.Strip("", 1, 0), "content must be one character, got ''"),
        (lambda: decoders.Strip(" ", 0, -1), "stop must not be negative, got -1"),
        (lambda: decoders.Replace("(", "", is_regex=True), "no regular expression"),
    ],
)
def test_bad_fields_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
