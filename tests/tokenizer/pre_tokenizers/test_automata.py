# SPDX-License-Identifier: Apache-2.0
"""Patterns as automata: the matches that a backtracking engine finds, in bounded time, behind and beside each other."""

import itertools
import time

import numpy as np
import pyarrow as pa
import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from tests.reference.spellings import NANOCHAT, PATTERNS
from tests.strategies import FEWER
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.models.bpe import BPE, BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import (
    ByteLevel,
    Digits,
    PreTokenizer,
    Sequence,
    Split,
    Whitespace,
    patterns,
)  # fmt: skip
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS
from tokenmill.tokenizer.pre_tokenizers.pattern_automata import find_automaton
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import NotRegularError, parse
from tokenmill.tokenizer.pre_tokenizers.sequence import scanner_of
from tokenmill.tokenizer.ragged import text_rows

CHARACTERS = (
    "a", "b", "ab", r"\p{L}", r"\p{Lu}", r"\p{N}", r"\p{M}", r"\P{L}", r"\s", r"\S", r"\w", r"\W", r"\d", r"\h", ".",
    "[a-c]", "[^ab]", r"[\w&&[^a]]", r"[^\p{L}\p{N}\r\n]", "[[a-b]c]", "[-a]", "[]a]",
    r"\x61", r"\x{e9}", r"\u4e2d", r"\n",
    r"\.", "'", " ", "é", "1", "中",
)  # fmt: skip
LOOKS = (
    r"(?!\S)", r"(?=\s)", "$", "^", r"\b", r"\B", "(?<=a)", r"(?<!\s)", r"(?=\s|$)", r"\A", r"\z", "(?!a|b)",
    r"(?<=\s|^)", r"(?=\p{L})", r"(?![a-z])",
)  # fmt: skip
LOOPS = ("+", "*", "?", "+?", "*?", "??", "{2}", "{1,3}", "{2,}", "{,2}", "{1,3}?", "{2}?", "{1,2}+", "++", "?+", "*+")
TEXT = st.text(st.sampled_from("aabbcABSk'sld \n\r\t12é中É.-ſK,_\u0301ʰǅ٣\u3000\x85🧑"), max_size=40)


KNOWN = (
    *PATTERNS, TIKTOKEN_PATTERNS["tekken"], TIKTOKEN_PATTERNS["kimi_k2"], r" ?[^(\s|[.,!?…。，、।۔،])]+",
    NANOCHAT,
)  # fmt: skip
"""The patterns of scanners, and those of Tekken, Kimi K2, BLOOM and nanochat."""


def expressions() -> st.SearchStrategy[str]:
    """Patterns of all that automata can do, and some of what they cannot."""
    some = st.one_of(
        st.sampled_from(CHARACTERS),
        st.builds("(?:{}){}".format, st.sampled_from(CHARACTERS), st.sampled_from(LOOPS)),
        st.sampled_from(LOOKS),
        st.lists(st.sampled_from(["'s", "a", "'ll", "k", "[sd]"]), min_size=1).map("|".join).map("(?i:{})".format),
    )  # fmt: skip
    return st.recursive(
        some,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.builds("(?:{}){}".format, st.lists(inner, min_size=1, max_size=3).map("|".join), st.sampled_from(LOOPS)),
        ),
        max_leaves=8,
    )


def split(pre_tokenizer: PreTokenizer, *rows: str) -> list[list[bytes]]:
    words = pre_tokenizer.split_rows(text_rows(list(rows)), np.ones(len(rows), np.bool_))
    return [[words.word(i) for i in range(a, b)] for a, b in itertools.pairwise(words.row_offsets.tolist())]


def segments(pattern: str, text: str) -> list[bytes]:
    """The reference implementation's answer: matches and what lies between, of the `regex` package."""
    return [text[a:b].encode() for a, b, _ in patterns.find_segments(pattern, text)]


ALTERNATIVES = st.tuples(expressions(), st.sampled_from(CHARACTERS), expressions()).map("".join)


def tokenizer_of(*steps: PreTokenizer) -> Tokenizer:
    vocab = {c: i for i, c in enumerate(BYTE_ALPHABET)} | {"ab": 256, "Ġa": 257}
    model = BPE(vocab, [("a", "b"), ("Ġ", "a")], byte_level=True)
    return Tokenizer(model=model, pre_tokenizer=Sequence((*steps, ByteLevel(False, use_regex=False))))


CHUNKS = (
    "don't", "we'll", "I'd", "'re", "'rx", "  ", "\n\n", "\n    ", "\r\n", "12345", "9", "...", "!?", "Hello", "WORLD",
    "camelCase", "x", " a", " b", "é", "中文", "  é", " \n \n", "\t\t", "a_b", "-", "' s", "//", "\n/", "aab", "ABs",
)  # fmt: skip
ENGLISH = st.lists(st.sampled_from(CHUNKS), max_size=60).map("".join)


def check_fused_words(steps: tuple[PreTokenizer, ...], rows: list[str], expected: list[list[bytes]]) -> None:
    """Compares the words that a kernel finds as it encodes: first bytes of words have ids of their own."""
    vocab = {c: i for i, c in enumerate(BYTE_ALPHABET)} | {"##" + c: 256 + i for i, c in enumerate(BYTE_ALPHABET)}
    model = BPE(vocab, [], continuing_subword_prefix="##", byte_level=True)
    if not any(isinstance(step, ByteLevel) for step in steps):
        steps = (*steps, ByteLevel(False, use_regex=False))
    tokenizer = Tokenizer(model=model, pre_tokenizer=Sequence(steps))
    assert "encode_found" not in tokenizer.explain()
    ids = tokenizer.encode_arrow(pa.array(rows, pa.large_string())).to_pylist()
    assert [[b"".join(word) for word in _words(row)] for row in ids] == expected


def check_words_of_pattern(pattern: str, rows: list[str]) -> None:
    expected = [[part for part in segments(pattern, row) if part] for row in rows]
    check_fused_words((Split(pattern, "isolated", is_regex=True),), rows, expected)


def _words(ids: list[int]) -> list[list[bytes]]:
    words: list[list[bytes]] = []
    for token in ids:
        if token < 256:
            words.append([])
        words[-1].append(bytes([token % 256]))
    return words


@pytest.mark.parametrize("pattern", KNOWN)
@FEWER
@given(rows=st.lists(ENGLISH | TEXT, max_size=3))
def test_words_of_known_patterns_are_found_by_an_automaton(pattern: str, rows: list[str]) -> None:
    check_words_of_pattern(pattern, rows)
    steps = Split(pattern, "isolated", is_regex=True), Digits(True)
    words = ([word for word in segments(pattern, row) if word] for row in rows)
    expected = [[part for word in row for part in split(Digits(True), word.decode())[0]] for row in words]
    assert split(Sequence(steps), *rows) == expected


@given(
    alternatives=st.lists(ALTERNATIVES, min_size=1, max_size=3),
    rows=st.lists(st.one_of(ENGLISH, TEXT, st.lists(TEXT, max_size=6).map("".join)), max_size=3),
)
@example(alternatives=[r"a+\b", "b"], rows=["aab", "aa b"])
@example(alternatives=[r"\p{Lu}\p{Ll}+", r"\s+$", r"\s"], rows=["Ab  ", "  A", " \n "])
@example(alternatives=[r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"], rows=["a\n        b\n   \n c", "   a"])
@example(alternatives=["(?<=a)b+", r"\b[a-c]+", "aab$"], rows=["aabbccaab", "ab" * 40, ""])
@example(alternatives=["(?=(?<=a))b"], rows=["aabb ab", "ab"])
@example(alternatives=["a(?=b|(?<=a))"], rows=["bba", "ba a"])
def test_automata_find_what_backtracking_finds(alternatives: list[str], rows: list[str]) -> None:
    pattern = "|".join(alternatives)
    try:
        expected = [[part for part in segments(pattern, row) if part] for row in rows]
    except ValueError:
        assert find_automaton(pattern) is None
        return
    assert split(*splits(pattern), *rows) == expected
    if find_automaton(pattern) is not None and scanner_of(*splits(pattern)) is not None:
        check_fused_words(splits(pattern), rows, expected)


def splits(*expressions: str) -> tuple[PreTokenizer, ...]:
    return tuple(Split(expression, "isolated", is_regex=True) for expression in expressions)


MIXED = st.lists(
    st.one_of(st.sampled_from(CHUNKS), TEXT, st.sampled_from(["中文，", "的²½", "𝟘", "abc" * 40, "中" * 40, "abcdef"])),
    max_size=20,
).map("".join)


@given(
    steps=st.lists(st.one_of(ALTERNATIVES, st.sampled_from([r"\s", "a", "b+", r"\p{N}{1,3}"])), min_size=2, max_size=4),
    n_plain=st.integers(1, 4),
    rows=st.lists(MIXED, max_size=3),
)
def test_any_patterns_in_one_pass(steps: list[str], n_plain: int, rows: list[str]) -> None:
    if any(find_automaton(step) is None for step in steps):
        return
    every = (*splits(*steps[:n_plain]), ByteLevel(False, use_regex=False), *splits(*steps[n_plain:]))
    if scanner_of(Sequence(every)) is None:
        return
    check_fused_words(every, rows, split(Sequence(every), *rows))


def test_patterns_in_bounded_time() -> None:
    long = "a" * 200_000
    assert split(Split("(?:a|aa)+", "isolated", is_regex=True), long) == [[long.encode()]]
    assert len(split(Split("b|a{1,3}", "isolated", is_regex=True), long)[0]) == 66_667
    with pytest.raises(TimeoutError, match="pattern 'a\\*b' did not finish on a text: 1073741824 looks"):
        split(Split("a*b", "isolated", is_regex=True), "b", long)
    with pytest.raises(TimeoutError, match="did not finish on a text"):
        split(Split("a*b|a", "isolated", is_regex=True), long)
    one = tokenizer_of(Split("a*b", "isolated", is_regex=True))
    # Nothing is counted of a text that is given up.
    tally = one.new_tally()
    with pytest.raises(TimeoutError):
        one.encode_arrow(pa.array(["b", long], pa.large_string()), tally=tally)
    assert tally.n_words == 0
    with pytest.raises(TimeoutError, match="did not finish on a text"):
        one.encode_arrow(pa.array([long], pa.large_string()))
    assert one.encode("aab" * 1000).ids == [97, 256] * 1000


@pytest.mark.parametrize(
    "pattern",
    [
        "a*", "a(?=bc)", "(?>ab)", r"(a)\1", r"\p{Alphabetic}", "(?i:ß)", "(?i:ss)", "(?i:[^a])", "(?:a|b)++",
        "(?:a*)*b",
        "a{1000}{9}",
        "(?:" * 60 + "a" + ")" * 60,
        r"\R", "(?x: a)", "[[:alpha:]]", "a)", "(a", "[a", "a\\", "+a", "[b-a]", r"\xff",
    ],
)  # fmt: skip
def test_what_is_not_read_is_left_to_others(pattern: str) -> None:
    assert find_automaton(pattern) is None


def test_patterns_are_built_or_given_up_in_bounded_time() -> None:
    patterns_of_all_sizes = (
        "[" + "".join(chr(0x4E00 + 2 * k) for k in range(9000)) + "]",
        "".join(f"[{chr(0x4E00 + k)}-{chr(0x5E00 + k)}]" for k in range(1900)),
        "[" + "&&".join([r"\p{L}"] * 1400) + "]", "|".join(["(?<=a)b"] * 1000), "a?" * 1500 + "b", ".{1,40}.{1,40}x",
    )  # fmt: skip
    for pattern in patterns_of_all_sizes:
        began = time.process_time()
        find_automaton(pattern)
        assert time.process_time() - began < 5, pattern[:50]


def test_patterns_with_too_many_states_are_left_to_others() -> None:
    assert parse("(?:a|b)*a(?:a|b){12}c") is not None
    assert find_automaton("(?:a|b)*a(?:a|b){12}c") is None
    with pytest.raises(NotRegularError):
        parse("a{100000000000000000000}")


def test_spelled_bytes_of_ideographs_are_letters_of_several_kinds() -> None:
    # Behind ByteLevel the middle byte of 中 is spelled as a symbol, so \w+ must not skip the character as a whole.
    rows = ["中" * 40, "\t中々ー" * 9, "中"]
    spelled = ["".join(BYTE_ALPHABET[byte] for byte in row.encode()) for row in rows]
    words = [regex.findall(r"\w+|[^\w\s]+", row) for row in spelled]
    expected = [[bytes(BYTE_ALPHABET.index(c) for c in word) for word in row] for row in words]
    check_fused_words((ByteLevel(add_prefix_space=False, use_regex=False), Whitespace()), rows, expected)
