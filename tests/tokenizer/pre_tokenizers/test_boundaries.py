# SPDX-License-Identifier: Apache-2.0
"""Rules that are derived from automata, against the `regex` package: every start told is one, and none is left out."""

import bisect
import itertools
import platform
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.reference.spellings import DEEPSEEK, NANOCHAT, SPELLINGS
from tests.strategies import EXHAUSTIVE
from tokenmill.tokenizer.compiling.kernel import kernel
from tokenmill.tokenizer.kernels import blocks
from tokenmill.tokenizer.kernels.automata import known_word
from tokenmill.tokenizer.kernels.blocks import AT_SEGMENT, AT_START, BLOCK, INSIDE, STRIDE, find_boundaries
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import (
    BertPreTokenizer,
    ByteLevel,
    Digits,
    PreTokenizer,
    Punctuation,
    Sequence,
    Split,
    Whitespace,
    WhitespaceSplit,
    patterns,
    scanner_of,
)
from tokenmill.tokenizer.pre_tokenizers.known_patterns import GPT2_PATTERN, TIKTOKEN_PATTERNS
from tokenmill.tokenizer.pre_tokenizers.pattern_automata import find_automaton
from tokenmill.tokenizer.pre_tokenizers.scanners import Scanner

RUBY = TIKTOKEN_PATTERNS["cl100k_base"].replace("{1,3}", "{1,3}+")
CLIP = SPELLINGS["clip"][0]
DIVIDES = {
    **{family: (spellings[0],) for family, spellings in SPELLINGS.items() if family != "clip"},
    **{name: (TIKTOKEN_PATTERNS[name],) for name in ("cl100k_base", "qwen", "tekken", "kimi_k2")},
    "BLOOM": (r" ?[^(\s|[.,!?…。，、।۔،])]+",), "nanochat": (NANOCHAT,), "ruby": (RUBY,),
    "lines": (r"\n",), "numbers": (r"\p{N}{1,3}",), "few": (r"(?:a|aa)+s?|'\s+",),
    "StarCoder": (r"\p{N}", GPT2_PATTERN), "DeepSeek": DEEPSEEK,
    "gives back": (r"\n", "abcdef|a", r"\s+(?!\S)|\s", "é{3}"),
}  # fmt: skip
"""Patterns that divide a text, one after the other."""
BEHIND_BYTES = {"Falcon": ([r"[!-/:-@\[-`{-~]+", GPT2_PATTERN], [r"\d+", "[0-9][0-9][0-9]"])}
"""Patterns, and patterns that read the spelling of bytes behind them."""
KEEPS = {
    "clip": CLIP, "with literals": r"<\|startoftext\|>|<\|endoftext\|>|" + CLIP, "nonspace": r"[^\s]+",
    "words": r"\w+|[^\w\s]+", "signs": r"[!-/:-@\[-`{-~]|[^!-/:-@\[-`{-~\s]+",
}  # fmt: skip
"""Patterns of what is kept."""
FEW_CHARACTERS = "aR'1 \n./é"
HOSTILE = st.text(
    alphabet="aabsStTdBEl '' \n\n\r\t\v\x1c\x1f //.,(-0123é\u3000\xa0\x85中\u0301ſ\x00\x7f<|", min_size=1, max_size=90
)
WORDS = (
    "the", " the", "The", "camelCase", "HTTPServer", "don't", "WE'LL", "'tis", "'re", "'Rex", " 12", "12345", "3rd",
    "(x)", "f(", "):", "\n", "\n\n", "    ", "\n        ", "  \n", "\t", "\t\tx", "...", ".foo", "_bar", "//", "/\n/",
    "\r\n", "naïve", "abcdef", "aaa", "<|startoftext|>",
)  # fmt: skip
WORDY = st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map("".join)


@kernel
def told(data, i, end, rules, what, masks):
    if what == INSIDE:
        masks[0], masks[1], masks[2] = find_boundaries(data, i, end, rules, INSIDE)
    else:
        masks[0], masks[1], masks[2] = find_boundaries(data, i, end, rules, what)


@kernel
def known(data, i, end, cuts):
    return known_word(data, i, end, cuts)


def _split(pattern: str, *, keeps: bool = False) -> Split:
    return Split(pattern, "removed" if keeps else "isolated", invert=keeps, is_regex=True)


def _scanner(*steps: PreTokenizer) -> Scanner:
    scanner = scanner_of(Sequence(steps))
    assert scanner is not None
    return scanner


RAW = ByteLevel(False, use_regex=False)
SCANNERS = {name: _scanner(*map(_split, each)) for name, each in DIVIDES.items()}
SCANNERS |= {name: _scanner(*map(_split, a), RAW, *map(_split, b)) for name, (a, b) in BEHIND_BYTES.items()}
SCANNERS |= {name: _scanner(_split(pattern, keeps=True)) for name, pattern in KEEPS.items()}


def _cut(pattern: str, text: str) -> Iterator[str]:
    return (text[a:b] for a, b, _ in patterns.find_segments(pattern, text))


def starts_and_stops(name: str, text: str) -> tuple[list[int], list[int]]:
    """Returns where pre-tokens begin and end, in bytes."""
    if name in KEEPS:
        spans = [(a, b) for a, b, is_match in patterns.find_segments(KEEPS[name], text) if is_match]
        return [len(text[:a].encode()) for a, _ in spans], [len(text[:b].encode()) for _, b in spans]
    plain, spelled = BEHIND_BYTES.get(name, (DIVIDES.get(name, ()), ()))
    pieces = [text]
    for pattern in plain:
        pieces = [part for piece in pieces for part in _cut(pattern, piece)]
    pieces = ["".join(BYTE_ALPHABET[b] for b in piece.encode()) for piece in pieces]
    for pattern in spelled:
        pieces = [part for piece in pieces for part in _cut(pattern, piece)]
    bounds = [0, *itertools.accumulate(map(len, pieces))]
    return bounds[:-1], bounds[1:]


def check(name: str, text: str, after: str = "") -> int:
    """Checks a text, alone or before another one that must have no say; returns how many starts were told.

    Where words are joined, the next block begins STRIDE bytes further if so much is known.
    """
    scanner = SCANNERS[name]
    data = np.frombuffer(text.encode() + after.encode().ljust(2 * BLOCK, b"x"), np.uint8)
    masks = np.zeros(3, np.uint64)
    at, what, n = 0, AT_SEGMENT if scanner.are_apart else AT_START, STRIDE
    found: list[int] = []
    second: list[int] = []
    while n == STRIDE:
        told(data, at, len(text.encode()), scanner.rules, what, masks)
        n = STRIDE if int(masks[2]) >> STRIDE & 1 and not scanner.are_apart else BLOCK
        for places, mask in zip((found, second), masks.tolist(), strict=False):
            places += [at + k for k in range(n) if mask >> k & 1]
        at, what = at + STRIDE, INSIDE
    starts, stops = starts_and_stops(name, text)
    assert found == starts[: len(found)], (text, found, starts)
    if scanner.are_apart:
        assert second == stops[: len(second)], (text, second, stops)
        assert len(second) >= len(found) - 1, text
    elif scanner.automata.spelled.size > 1:
        first_cuts = [0, *itertools.accumulate(len(part.encode()) for part in _cut((*DIVIDES.get(name, ()),
            *BEHIND_BYTES.get(name, ([], []))[0])[0], text))]  # fmt: skip
        assert second == [k for k in first_cuts[1:] if k in found], text
    return len(found)


@pytest.mark.parametrize("name", SCANNERS)
def test_short_texts_of_few_characters(name: str) -> None:
    for text in map("".join, itertools.product(FEW_CHARACTERS, repeat=5 if EXHAUSTIVE else 3)):
        check(name, text, "x")
        check(name, f"b{text}b", " \n")


@pytest.mark.parametrize("name", SCANNERS)
@settings(max_examples=400 if EXHAUSTIVE else 40, deadline=None)
@given(text=HOSTILE | WORDY, after=st.sampled_from(["", " ", "\n", "  \n", "s", "1", "'s", "é"]))
@example(text="foo  \n  bar  \n\n  baz", after="")
@example(text="a.b..c ..d .e\n.f", after="")
@example(text="a\n   ", after="b")
@example(text="a" * 90, after="")
@example(text=" " * 90, after="")
@example(text="ab " * 18 + "    \n" * 9, after="")
@example(text="ab " * 17 + "ab   " * 30 + " ", after="b")
def test_every_start_told_is_the_next_one_of_the_pattern(name: str, text: str, after: str) -> None:
    check(name, text, after)


def check_known_words(name: str, text: str) -> int:
    """Checks what the kinds of two characters say of each segment of a text; returns how many of these are known."""
    cuts = SCANNERS[name].new_cuts()
    value = text.encode()
    data = np.frombuffer(value + bytes(BLOCK), np.uint8)
    starts, stops = starts_and_stops(name, text)
    kept = dict(zip(starts, stops, strict=True))
    bounds = sorted({0, *starts, *stops, len(value)})
    n_known = 0
    for i, stop in itertools.pairwise(bounds):
        cuts.root[0] = 0
        after, is_kept = known(data, i, len(value), cuts)
        if after == i:
            continue
        n_known += 1
        assert (after, is_kept) == (stop, kept.get(i) == stop), (text, i)
        if name not in KEEPS and cuts.root[0] > 0:
            assert cuts.root[0] == stop
            anew, _ = starts_and_stops(name, value[stop:].decode())
            assert [stop + k for k in anew] == starts[bisect.bisect_left(starts, stop) :], (text, i)
    return n_known


OTHER_SCRIPTS = st.text(
    ["\u6f22", "\u5b57", "\u9fa6", "\u3042", "\u3002", "\uff0c", "\uff11", "\u3000", "\xe9", "\u0301", *" \na1.'T"],
    max_size=25,
)


@pytest.mark.parametrize("name", SCANNERS)
@settings(max_examples=400 if EXHAUSTIVE else 40, deadline=None)
@given(text=OTHER_SCRIPTS | HOSTILE)
@example(text="\u6f22" * 40 + "\uff0c" + "\u5b57" * 16 + "\u3002\n\u6f22\n")
def test_words_that_two_characters_tell_are_those_of_the_pattern(name: str, text: str) -> None:
    check_known_words(name, text)


@given(
    pieces=st.lists(st.sampled_from(["a", "b", "[ab]", r"\s", "'", r"\p{L}", r"\d", "."]), min_size=1, max_size=3),
    loops=st.lists(st.sampled_from(["", "+", "*", "?", "{1,3}", "(?!b)", r"(?=\s)"]), min_size=3, max_size=3),
    other=st.sampled_from(["", "|a", r"|\s+", "|b+|'", r"|\w+"]), text=st.text("aab '\n1é.漢", max_size=150),
    keeps=st.booleans(),
)  # fmt: skip
def test_any_pattern(pieces: list[str], loops: list[str], other: str, text: str, keeps: bool) -> None:
    pattern = "".join(itertools.chain(*zip(pieces, loops, strict=False))) + other
    scanner = scanner_of(_split(pattern, keeps=keeps)) if find_automaton(pattern) is not None else None
    if scanner is None or not text:
        return
    (KEEPS if keeps else DIVIDES)["any"] = pattern if keeps else (pattern,)  # type: ignore[assignment]
    SCANNERS["any"] = scanner
    try:
        check("any", text)
        check_known_words("any", text)
    finally:
        del (KEEPS if keeps else DIVIDES)["any"], SCANNERS["any"]


def test_patterns_that_look_behind_or_read_again_and_again_have_no_rules() -> None:
    for pattern in ("(?<=a)b", r"\bab", "a*b|a", "a*b"):
        assert find_automaton(pattern) is not None
        assert scanner_of(_split(pattern)) is None
    assert scanner_of(Sequence((_split("a"), _split("(?<=a)b")))) is None


def test_only_the_first_step_may_drop_and_what_follows_must_not_cut_the_rest() -> None:
    words = _split(CLIP, keeps=True)
    assert _scanner(words, ByteLevel(False)).are_apart
    for steps in ((words, _split("[a-c]+")), (WhitespaceSplit(), Punctuation()), (Digits(), words)):
        assert scanner_of(Sequence(steps)) is None
    assert scanner_of(Sequence((Split("a", "removed"), ByteLevel(False)))) is None


def test_words_of_steps_are_those_of_their_patterns() -> None:
    for step in (BertPreTokenizer(), Whitespace(), WhitespaceSplit()):
        scanner = scanner_of(step)
        assert scanner is not None
        assert scanner.drops_spaces
    for other in (
        _split(GPT2_PATTERN),
        _split(r"a\s?b", keeps=True),
        _split(r"\s+|a", keeps=True),
        Split(" ", "removed"),
    ):
        scanner = scanner_of(other)
        assert scanner is not None
        assert not scanner.drops_spaces


@kernel
def looked_up(data, tables, masks):
    masks[0], masks[1], masks[2], masks[3], masks[4], masks[5] = blocks._apply(data, 0, tables, 3, 5)


@kernel
def looked_up_by_sixteen(data, tables, masks):
    masks[0], masks[1], masks[2], masks[3], masks[4], masks[5] = blocks._apply(data, 0, tables, 3, 5)


@kernel
def looked_up_one_by_one(data, tables, masks):
    masks[0], masks[1], masks[2], masks[3], masks[4], masks[5] = blocks._apply(data, 0, tables, 3, 5)


def test_processors_with_other_instructions_look_up_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(5)
    tables = chance.integers(0, 256, (blocks.N_TABLES, 16)).astype(np.uint8)
    classes = tables[: blocks.STEPS] & 15
    tables[: blocks.STEPS], tables[blocks.STEPS] = classes, classes[0]
    tables[blocks.STEPS + 1 : blocks.LOOKS] = classes[1:] ^ classes[:-1]
    data = [chance.integers(0, 256, BLOCK).astype(np.uint8) for _ in range(50)]
    triples = [None, "x86_64" if platform.machine().lower() in ("x86_64", "amd64") else None, "none"]
    results = []
    for look_up, triple in zip((looked_up, looked_up_by_sixteen, looked_up_one_by_one), triples, strict=True):
        if triple is not None:
            monkeypatch.setattr(blocks, "_processor", lambda _, triple=triple: (triple, ""))
        for each in data:
            masks = np.zeros(6, np.uint64)
            look_up(each, tables, masks)
            results.append(masks.tolist())
    assert results[:50] == results[50:100] == results[100:]
