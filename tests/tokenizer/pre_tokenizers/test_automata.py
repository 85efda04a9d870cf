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

from tests.reference.spellings import DEEPSEEK, NANOCHAT, PATTERNS
from tests.strategies import FEWER
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.models.bpe import BPE, BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import (
    ByteLevel,
    Digits,
    PreTokenizer,
    Punctuation,
    Sequence,
    Split,
    Whitespace,
    patterns,
)  # fmt: skip
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS
from tokenmill.tokenizer.pre_tokenizers.pattern_automata import find_automaton
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import NotRegularError, parse
from tokenmill.tokenizer.pre_tokenizers.sequence import scanner_of
from tokenmill.tokenizer.pre_tokenizers.tables import ALL, NONE, CodePoints
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


@pytest.mark.parametrize("pattern", KNOWN)
def test_known_patterns_make_small_automata(pattern: str) -> None:
    tables = find_automaton(pattern)
    assert tables is not None
    n_kinds = tables.starts.shape[1] // 2
    assert 3 <= n_kinds <= 29
    assert 4 <= tables.transitions.size // (2 * (n_kinds + 2)) <= 35


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


STEPS: dict[str, tuple[PreTokenizer, ...]] = {
    "Falcon": (Punctuation("contiguous"), ByteLevel(False), Digits(), *splits("[0-9][0-9][0-9]")),
    "DeepSeek Coder": (*splits(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"), Digits(True)),
    "DeepSeek": splits(*DEEPSEEK),
    "StarCoder": (Digits(True), ByteLevel(False)),
    "gives up": splits(r"\n", "abcdef|a", r"\s+(?!\S)|\s", "é{3}"),
    "long loops": splits(r"\n", "[a-z]+", "中+", r"\s+"),
}  # fmt: skip
MIXED = st.lists(
    st.one_of(st.sampled_from(CHUNKS), TEXT, st.sampled_from(["中文，", "的²½", "𝟘", "abc" * 40, "中" * 40, "abcdef"])),
    max_size=20,
).map("".join)


@pytest.mark.parametrize("name", STEPS)
@given(rows=st.lists(MIXED, max_size=4))
@example(rows=["中" * 50 + "\nab" * 20 + "𝟘中", "abcde" * 30, "a" * 200 + "中" * 100, "x", "1234567 12 '"])
def test_several_patterns_in_one_pass(name: str, rows: list[str]) -> None:
    check_fused_words(STEPS[name], rows, split(Sequence(STEPS[name]), *rows))


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


@given(rows=st.lists(st.lists(TEXT, max_size=8).map("".join), max_size=4))
def test_encoding_with_automata_is_encoding_their_words(rows: list[str]) -> None:
    steps = Split(r"\s?[a-c]+|\p{N}{1,2}", "isolated", is_regex=True), Punctuation()
    # An added step that does nothing keeps the same cuts from running in one kernel.
    apart = (*steps, Split("(?!ab)(?=cd)x", "isolated", is_regex=True))
    one, staged = tokenizer_of(*steps), tokenizer_of(*apart)
    assert "encode_joined_bpe" in one.explain()
    assert "encode_found_bpe" in staged.explain()
    for column in (pa.array(texts, pa.large_string()) for texts in (rows, [row * 30 for row in rows])):
        assert one.encode_arrow(column).to_pylist() == staged.encode_arrow(column).to_pylist()


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


RANGES = st.lists(st.tuples(st.integers(0, 0x10FFFF), st.integers(0, 40)), max_size=5)


@given(left=RANGES, right=RANGES)
@example(left=[(0, 40), (0x10FFFF - 40, 40)], right=[(0, 0)])
def test_sets_of_code_points(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    a, b = ({c for first, n in runs for c in range(first, min(first + n, 0x10FFFF) + 1)} for runs in (left, right))
    mine = [CodePoints.of((first, min(first + n, 0x10FFFF)) for first, n in runs) for runs in (left, right)]
    near = sorted({c for x in a | b | {0, 0x10FFFF} for c in (x - 1, x, x + 1) if 0 <= c <= 0x10FFFF})

    def members(found: CodePoints) -> set[int]:
        return {c for c, is_in in zip(near, found.has(np.array(near, np.int32)).tolist(), strict=True) if is_in}

    assert [members(each) for each in mine] == [a, b]
    assert members(mine[0] | mine[1]) == a | b
    assert members(mine[0] & mine[1]) == a & b
    assert members(~mine[0]) == {*near} - a
    assert ~~mine[0] == mine[0]
    assert (mine[0] | ~mine[0], mine[0] & ~mine[0]) == (ALL, NONE)


def test_spelled_bytes_of_ideographs_are_letters_of_several_kinds() -> None:
    # Behind ByteLevel the middle byte of 中 is spelled as a symbol, so \w+ must not skip the character as a whole.
    rows = ["中" * 40, "\t中々ー" * 9, "中"]
    spelled = ["".join(BYTE_ALPHABET[byte] for byte in row.encode()) for row in rows]
    words = [regex.findall(r"\w+|[^\w\s]+", row) for row in spelled]
    expected = [[bytes(BYTE_ALPHABET.index(c) for c in word) for word in row] for row in words]
    check_fused_words((ByteLevel(add_prefix_space=False, use_regex=False), Whitespace()), rows, expected)
