# SPDX-License-Identifier: Apache-2.0
"""Pre-tokenizers: the contract of every component, scanners in bounded time, and what is refused."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import splitting
from tests.reference.spellings import SPELLINGS
from tests.reference.tracing import traced_words
from tests.strategies import text_columns, texts
from tokenmill.tokenizer.compositions import named_pre_tokenizer
from tokenmill.tokenizer.pre_tokenizers import (
    BertPreTokenizer,
    ByteLevel,
    CharDelimiterSplit,
    Digits,
    FixedLength,
    Metaspace,
    PreTokenizer,
    Punctuation,
    Sequence,
    Split,
    UnicodeScripts,
    Whitespace,
    WhitespaceSplit,
    patterns,
    scanner_of,
)
from tokenmill.tokenizer.pre_tokenizers.split import BEHAVIORS
from tokenmill.tokenizer.ragged import Ragged, read_only, text_rows

ALL = (
    BertPreTokenizer(), ByteLevel(), ByteLevel(add_prefix_space=False), CharDelimiterSplit("é"), Digits(),
    FixedLength(3), Metaspace(), Metaspace(prepend_scheme="first", split=False), Punctuation("merged_with_previous"),
    Sequence((WhitespaceSplit(), Punctuation(), Metaspace(prepend_scheme="first"))), Split("the", "merged_with_next"),
    Split(r"\w\W?", "isolated", is_regex=True), UnicodeScripts(), Whitespace(),
)  # fmt: skip


def split(pre_tokenizer: PreTokenizer, *rows: str, is_first: bool = True) -> list[list[str]]:
    words = pre_tokenizer.split_rows(text_rows(list(rows)), np.full(len(rows), is_first))
    return [[words.word(i).decode() for i in range(a, b)] for a, b in itertools.pairwise(words.row_offsets.tolist())]


def _families() -> dict[str, PreTokenizer]:
    found: dict[str, PreTokenizer] = {}
    for family, spellings in SPELLINGS.items():
        keeps = family == "clip"
        found[family] = Split(spellings[0], "removed" if keeps else "isolated", invert=keeps, is_regex=True)
    ruby = SPELLINGS["cl100k_tiktoken"][0].replace("{1,3}", "{1,3}+")
    found["ruby"] = Split(ruby, "isolated", is_regex=True)
    return found | {"nonspace": WhitespaceSplit(), "words": Whitespace(), "bert": BertPreTokenizer()}


FAMILIES = _families()


def scan(name: str, text: bytes, start: int = 0, stop: int | None = None) -> list[bytes]:
    offsets = np.array([start, len(text) if stop is None else stop])
    rows = Ragged(read_only(np.frombuffer(text, np.uint8)), read_only(offsets))
    words = FAMILIES[name].split_rows(rows, np.ones(1, np.bool_))
    return [words.word(i) for i in range(words.n_words)]


@pytest.mark.parametrize("pre_tokenizer", ALL, ids=repr)
@given(column=text_columns())
def test_columns_of_every_kind_are_cut_as_their_rows_are(pre_tokenizer: PreTokenizer, column: pa.Array) -> None:
    is_first = np.arange(len(column)) % 2 == 0
    words = pre_tokenizer.split_rows(text_rows(column), is_first)
    assert words.row_offsets.tolist()[0] == 0
    assert (words.stops > words.starts).all()
    for row, text in enumerate(column.to_pylist()):
        expected = traced_words(pre_tokenizer, text or "", is_first=bool(is_first[row]))
        found = range(words.row_offsets[row], words.row_offsets[row + 1])
        assert [words.word(i).decode() for i in found] == [word for word, _ in expected]


@given(
    st.lists(st.text("ab é中\n", max_size=12), max_size=4),
    st.sampled_from(["a", "ab", "aa", "é ", "a b a", r"a+", r"[ab]", r"\s+", r"\w", r"a|ba", r"\p{Han}"]),
    st.sampled_from(sorted(BEHAVIORS)),
    st.booleans(),
)
def test_splits_equal_the_reference_implementation(rows: list[str], pattern: str, behavior: Any, invert: bool) -> None:
    expected = [splitting.split(row, pattern, behavior, invert=invert) for row in rows]
    assert split(Split(pattern, behavior, invert, is_regex=True), *rows) == expected
    if pattern.strip("ab é") == "":
        assert split(Split(pattern, behavior, invert), *rows) == expected


@pytest.mark.parametrize("name", FAMILIES)
@given(text=texts())
def test_scanners_cover_the_text_and_see_nothing_beyond_its_end(name: str, text: str) -> None:
    encoded = text.encode()
    found = scan(name, encoded) if encoded else []
    assert all(found)
    scanner = scanner_of(FAMILIES[name])
    assert scanner is not None
    assert scanner.drops_spaces == scanner.are_apart
    kept = [a for a, _, is_match in patterns.find_segments(r"\s", text) if not (is_match and scanner.are_apart)]
    ends = {a: b for a, b, _ in patterns.find_segments(r"\s", text)}
    assert b"".join(found).decode() == "".join(text[a : ends[a]] for a in kept)
    if encoded:
        # What stands around a row in its column has no say.
        for around in (b"a", b" ", b"s", b"\n", b"1", "é".encode()):
            column = around * 9 + encoded + around * 9
            assert scan(name, column, len(around) * 9, len(around) * 9 + len(encoded)) == found


def test_words_of_code_are_indentations_digits_and_parts_of_names() -> None:
    found = traced_words(named_pre_tokenizer("code"), "def parseHTTP_v2(x):\n    return  x == 120")
    expected = "def| parse|HTTP|_v|2|(x|):|\n    |return| | x| ==| |1|2|0"
    assert "|".join(word for word, _ in found) == expected


def test_metaspace_behind_byte_level_is_refused_at_once() -> None:
    for metaspace in (Metaspace(), Metaspace(prepend_scheme="first", split=False)):
        with pytest.raises(ValueError, match=r"Metaspace.* cannot come after ByteLevel: .* put it before"):
            Sequence((Sequence((ByteLevel(),)), metaspace))
    never = Sequence((ByteLevel(False), Metaspace(prepend_scheme="never", split=False)))
    assert split(never, "a b") == [["a", " b"]]


def test_a_pattern_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MATCH_SECONDS", 0.2)
    with pytest.raises(TimeoutError, match="did not finish on a text of 41 characters"):
        split(Split(r"^(?:a|aa)+(?=bb)$", "isolated", is_regex=True), "a" * 40 + "c")


@pytest.mark.parametrize(
    "make, arguments, message",
    [
        (Split, ("a", "sideways"), "behavior must be one of removed, isolated, .*, got 'sideways'"),
        (Split, ("(a", "isolated", False, True), "is no regular expression"),
        (Split, ("a)", "isolated", False, True), "unmatched '\\)' at position 1"),
        (Split, ("[a", "isolated", False, True), "does not end"),
        (Split, ("a\\", "isolated", False, True), "ends in a backslash"),
        (Split, (r"(?<n>a)\g<n>", "isolated", False, True), r"has \\g \(a call of a group\) at position 7"),
        (Split, (r"(?~a)", "isolated", False, True), "a group of an unknown kind at position 0"),
        (Split, (r"[[:letters:]]", "isolated", False, True), "a POSIX bracket of an unknown kind at position 1"),
        (Split, (r"(?x: a )", "isolated", False, True), "extended syntax"),
        (Punctuation, ("nowhere",), "behavior must be one of"),
        (CharDelimiterSplit, ("ab",), "delimiter must be one character, got 'ab'"),
        (FixedLength, (0,), "length must be at least 1, got 0"),
        (Metaspace, ("__",), "replacement must be one character, got '__'"),
        (Metaspace, ("_", "sometimes"), "prepend_scheme must be always, never or first, got 'sometimes'"),
        (Sequence, (("Whitespace",),), "pretokenizers must be pre-tokenizers, got 'Whitespace'"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(*arguments)
