# SPDX-License-Identifier: Apache-2.0
"""RWKV's vocabulary: the longest token at every place, as its program finds it; and broken files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tokenmill.tokenizer import Tokenizer, TokenizerFileError

TOKENS = [bytes([b]) for b in range(256)]
TOKENS += [b"the", b"th", b" the", b"\n\n", "é".encode(), "玫瑰".encode(), "玫".encode()[:2], b"''\"", b"a\\", b" " * 8]


def lines(tokens: list[bytes]) -> str:
    found = []
    for i, token in enumerate(tokens, 1):
        try:
            literal = repr(token.decode())
        except UnicodeDecodeError:
            literal = repr(token)
        found.append(f"{i} {literal} {len(token)}\n")
    return "".join(found)


def longest(text: str) -> list[int]:
    """The reference implementation."""
    data, ids = text.encode(), []
    while data:
        token = max((token for token in TOKENS if data.startswith(token)), key=len)
        ids.append(TOKENS.index(token) + 1)
        data = data[len(token) :]
    return ids


def test_the_longest_token_again_and_again(tmp_path: Path) -> None:
    (tmp_path / "rwkv.txt").write_text(lines(TOKENS), encoding="utf-8")
    tokenizer = Tokenizer.from_file(tmp_path / "rwkv.txt")
    assert tokenizer.id_to_token(0) == "<|rwkv_tokenizer_end_of_text|>"
    again = Tokenizer.from_str(tokenizer.to_str())

    @given(st.lists(strategies.texts(40) | st.text(st.sampled_from("the é玫瑰\n'\"a\\"), max_size=40), max_size=5))
    def check(texts: list[str]) -> None:
        expected = [longest(text) for text in texts]
        assert tokenizer.encode_arrow(texts).to_pylist() == again.encode_arrow(texts).to_pylist() == expected
        assert [encoding.ids for encoding in tokenizer.encode_batch(texts)] == expected
        assert [tokenizer.decode(ids) for ids in expected] == texts

    check()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lines(TOKENS[:9]), r"every byte must be a token, but b'\\t' is not"),
        (lines([*TOKENS, b"the"]), "line 267: a token is empty, not of its length, or there twice"),
        (lines(TOKENS) + "999 'ab' 3\n", "line 267: a token is empty, not of its length"),
        (lines(TOKENS) + "999 '' 0\n", "line 267: a token is empty"),
        (lines(TOKENS) + "5 'zzz' 3\n", "id 5 "),
        (lines(TOKENS) + "999 'a' + 'b' 2\n", "line 267: 'a' . 'b' is no string of Python"),
        (lines(TOKENS) + "999 'a', 'b' 2\n", "line 267: 'a', 'b' is no string of Python"),
        (lines(TOKENS) + "999 'a'" + "+(" * 9000 + "'b' 2\n", "line 267: .* is no string of Python"),
        (lines(TOKENS) + "999 'a'" + "+-" * 90000 + "'b' 2\n", "line 267: .* is no string of Python"),
        (lines(TOKENS) + "999 '\\' 1\n", "line 267: .* is no string of Python"),
        (lines(TOKENS) + "nothing\n", "line 267: expected an id, a token, a length, got 'nothing'"),
    ],
)  # fmt: skip
def test_broken_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rwkv.txt").write_text(text, encoding="utf-8")
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_file(tmp_path / "rwkv.txt")
