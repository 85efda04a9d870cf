# SPDX-License-Identifier: Apache-2.0
"""Pre-tokenizers against HF tokenizers and tiktoken: the same pre-tokens, from the same characters."""

import itertools
import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests import strategies
from tests.reference.spellings import PATTERNS
from tests.reference.tracing import traced_words
from tests.strategies import texts
from tokenmill.tokenizer import pre_tokenizers as ours
from tokenmill.tokenizer.pre_tokenizers import patterns, tables
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS as NAMED
from tokenmill.tokenizer.pre_tokenizers.pattern_automata import find_automaton
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Characters, parse
from tokenmill.tokenizer.ragged import text_rows
from tokenmill.tokenizer.unicode import data as unicode_data

hf = pytest.importorskip("tokenizers")
theirs = pytest.importorskip("tokenizers.pre_tokenizers")
tiktoken = pytest.importorskip("tiktoken")

from tests.parity import families  # noqa: E402

pytestmark = pytest.mark.parity

# Code points of every kind, few enough to try in many contexts.
SOME_CHARACTERS = sorted(
    {
        *map(chr, range(0x600)),
        *map(chr, range(0x1F00, 0x2100)),
        *map(chr, range(0x3000, 0x3110)),
        *random.Random(7).sample(strategies.CODE_POINTS, 1000),
    }
)
CONTEXTS = ("a{c}b {c} {c}1 ", "'{c} 'l{c} 'r{c} ", "A{c}a{c}A{c} \n", ".{c}1{c}\n{c}", "{c}{c} {c}\t{c}A ")
TIKTOKEN_PATTERNS = {
    "gpt2": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
    "cl100k_tiktoken": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
    "o200k": "|".join(
        [
            r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
            r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
            r"""\p{N}{1,3}""",
            r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
            r"""\s*[\r\n]+""",
            r"""\s+(?!\S)""",
            r"""\s+""",
        ]
    ),
    "kimi_k2": families._KIMI,
}
BEHAVIORS = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
GPT2_ALPHABET = {b: chr(b) for b in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))}
GPT2_ALPHABET |= {b: chr(256 + n) for n, b in enumerate(b for b in range(256) if b not in GPT2_ALPHABET)}


def split(pre_tokenizer: ours.PreTokenizer, *rows: str) -> list[list[str]]:
    """The pre-tokens of a column, each row the start of a document."""
    words = pre_tokenizer.split_rows(text_rows(list(rows)), np.ones(len(rows), np.bool_))
    offsets = words.row_offsets.tolist()
    return [[words.word(i).decode() for i in range(a, b)] for a, b in itertools.pairwise(offsets)]


def spans(pre_tokenizer: ours.PreTokenizer, text: str) -> list[tuple[str, tuple[int, int]]]:
    return traced_words(pre_tokenizer, text)


def scan(pattern: str, text: str) -> list[str]:
    """The matches of a pattern, the rest dropped."""
    return split(ours.Split(pattern, "removed", invert=True, is_regex=True), text)[0]


def hf_matches(pattern: str) -> Callable[[str], list[str]]:
    """What HF finds."""
    splitter = theirs.Split(hf.Regex(pattern), "removed", invert=True)
    return lambda text: [word for word, _ in splitter.pre_tokenize_str(text)]


def tiktoken_split(pattern: str, text: str) -> list[str]:
    """What tiktoken cuts a text into, seen by giving it a vocabulary that has every substring."""
    data = text.encode()
    parts = {data[a:b] for a in range(len(data)) for b in range(a + 1, len(data) + 1)} | {
        bytes([b]) for b in range(256)
    }
    ranks = {part: i for i, part in enumerate(sorted(parts, key=lambda part: (len(part), part)))}
    encoding = tiktoken.Encoding("every substring", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return [encoding.decode_single_token_bytes(i).decode() for i in encoding.encode_ordinary(text)]


def in_contexts(characters: Sequence[str], contexts: Iterable[str] = CONTEXTS) -> Iterable[str]:
    """Texts with every character in every context, not too long: HF and the reference implementations are slow on long
    ones."""
    for context in contexts:
        for i in range(0, len(characters), 100):
            yield "".join(context.replace("{c}", c) for c in characters[i : i + 100])


def every_code_point() -> Iterable[str]:
    """Texts with every character between others."""
    yield from in_contexts(strategies.OTHER_PLANES, CONTEXTS[:1])
    yield from in_contexts(strategies.UNIFORM_PLANES, ["{c} "])


def tricky_texts() -> st.SearchStrategy[str]:
    """What patterns turn on: case, contractions, marks, runs of numbers, and white space of every length and kind."""
    parts = (
        "a B é É 中 文 々 〇 ⺀ ʰ ǅ ́ ः 1 12 1234 ٣ Ⅷ ² ! !! / ' 's 'S 'ſ 'll 'RE 'x \r \n \r\n \t \u3000 \xa0 \x85 "
        "\u200b \ufeff \x00 _ の ー ・ ゠ ゛ ᴤ 🧑 ️ hello World USA iPhone abcdefgh abcdefghi "
        "<|endoftext|> <|STARTOFTEXT|>"
    )
    spaces = [" ", "  ", "   ", " " * 8, " " * 9]
    return st.lists(st.sampled_from([*parts.split(" "), *spaces]), max_size=14).map("".join)


# --- character properties


def test_every_category_is_that_of_hf_and_tiktoken() -> None:
    everything = strategies.CODE_POINTS
    # HF is slow on long texts.
    parts = [everything[i : i + 20000] for i in range(0, len(everything), 20000)]
    ranks = {bytes([b]): b for b in range(256)}
    cases = (
        r"\p{L}", r"\p{N}", r"\s", r"\p{M}", r"[\p{P}\p{S}]", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]",
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]",
    )  # fmt: skip
    for pattern in cases:
        node = parse(pattern)
        assert isinstance(node, Characters)
        mine = "".join(c for c in everything if node.members.has(np.array([ord(c)]))[0])
        encoding = tiktoken.Encoding("bytes", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        assert bytes(encoding.encode_ordinary(everything)).decode() == mine, pattern
        assert "".join("".join(hf_matches(f"(?:{pattern})+")(part)) for part in parts) == mine, pattern


def test_categories_and_scripts_are_what_hf_says() -> None:
    runs = {name: tables.category_runs(name) for name in unicode_data.names("patterns/category_names")}
    runs |= {name: tables.script_runs(name) for name in ("Han", "Latin", "Common", "Inherited", "Khmer")}
    for name, found in runs.items():
        is_member = np.zeros(0x110000, np.bool_)
        for first, last in found:
            is_member[first : last + 1] = True
        members = "".join(c for c in strategies.TRIED if is_member[ord(c)])
        assert "".join(hf_matches(rf"\p{{{name}}}")(strategies.TRIED)) == members, name


NAMED_SETS = (
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
)  # fmt: skip
CLASSES = [rf"\p{{{name}}}" for name in (*NAMED_SETS, "XDigit", "Assigned")]
CLASSES += [f"[[:{sign}{name}:]]" for name in NAMED_SETS for sign in ("", "^")]
CLASSES += [r"[^[:punct:][:alnum:]\s]", r"[\p{Word}]", r"\P{Alpha}", r"[a-z[:^alpha:]]", "[[:alpha:]&&[^a-m]]"]


@pytest.mark.parametrize("pattern", CLASSES)
def test_sets_by_the_names_of_posix_are_those_of_hf(pattern: str) -> None:
    tried = strategies.TRIED.replace("ʕ", "")  # small in Oniguruma, no longer in the newer Unicode of `regex`
    mine = "".join(tried[a:b] for a, b, is_match in patterns.find_segments(pattern, tried) if is_match)
    assert "".join(hf_matches(pattern)(tried)) == mine


# --- scanners


@pytest.mark.parametrize("name", sorted(set(PATTERNS.values())))
def test_scanners_equal_hf_on_every_code_point(name: str) -> None:
    pattern = next(pattern for pattern, family in PATTERNS.items() if family == name)
    expected = hf_matches(pattern)
    for text in every_code_point():
        assert scan(pattern, text) == expected(text)


@pytest.mark.parametrize("name", sorted(set(PATTERNS.values())))
@given(text=st.one_of(tricky_texts(), texts()))
@example(text="a\n  \u3000\nb")  # one word of white space, of which a part is beyond ASCII
def test_scanners_equal_hf_and_regex(name: str, text: str) -> None:
    pattern = next(pattern for pattern, family in PATTERNS.items() if family == name)
    found = scan(pattern, text)
    assert found == hf_matches(pattern)(text)
    segments = patterns.find_segments(pattern, text)
    assert found == [text[a:b] for a, b, is_match in segments if is_match]


@pytest.mark.parametrize(
    "name, scanner",
    [("r50k_base", "gpt2"), ("cl100k_base", "cl100k_tiktoken"), ("o200k_base", "o200k"), ("kimi_k2", "kimi_k2")],
)
@given(text=st.one_of(tricky_texts(), texts(12)).filter(lambda text: len(text.encode()) <= 80))
@example(text="a \n  ")
@example(text="a\n  \u3000\nb")
@example(text="12345")
def test_named_patterns_mean_the_same_to_hf_as_to_tiktoken(name: str, scanner: str, text: str) -> None:
    mine, yours = regex_split(NAMED[name], "isolated")
    expected = tiktoken_split(TIKTOKEN_PATTERNS[scanner], text)
    assert split(mine, text)[0] == [word for word, _ in yours.pre_tokenize_str(text)] == expected


SMILES = r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>|\*|\$|\%[0-9]{2}|[0-9])"
AUTOMATA = {
    "like Kimi": NAMED["kimi_k2"].replace("{1,3}", "{1,2}"), "molecules": SMILES,
    "Kimi": families._KIMI, "Tekken": families._TEKKEN, "BLOOM": families._BLOOM,
    "words": r"\b\w+\b|^\W|(?<=\s)\S$", "lines": r"^.+$|\n",
    "any case": r"(?i)the|[a-k]+|[0-9]",
    "lazy": r"<.+?>|\p{L}{2,4}?(?=\p{L})|\p{L}++", "ungreedy": r"(?:ab|a)(?:c|bcd)??\s*+|.{2}+",
}  # fmt: skip


@pytest.mark.parametrize("name", AUTOMATA)
@given(text=st.one_of(tricky_texts(), texts(), st.text("abcdABCD <>[]\n\r12BrCl中ſK", max_size=30)))
def test_automata_equal_hf(name: str, text: str) -> None:
    assert find_automaton(AUTOMATA[name]) is not None
    for behavior in BEHAVIORS:
        mine, yours = regex_split(AUTOMATA[name], behavior)
        assert split(mine, text)[0] == [word for word, _ in yours.pre_tokenize_str(text)]


# --- components


def regex_split(pattern: str, behavior: str, invert: bool = False) -> tuple[ours.PreTokenizer, "theirs.PreTokenizer"]:
    mine = ours.Split(pattern, behavior, invert, is_regex=True)  # type: ignore[arg-type]
    return mine, theirs.Split(hf.Regex(pattern), behavior, invert)


def deepseek_splits() -> tuple[ours.PreTokenizer, "theirs.PreTokenizer"]:
    return sequence(*(regex_split(pattern, "isolated") for pattern in families._DEEPSEEK))


def sequence(
    *pairs: tuple[ours.PreTokenizer, "theirs.PreTokenizer"],
) -> tuple[ours.PreTokenizer, "theirs.PreTokenizer"]:
    return ours.Sequence(tuple(mine for mine, _ in pairs)), theirs.Sequence([yours for _, yours in pairs])


def byte_level(prefix: bool, use_regex: bool) -> tuple[ours.PreTokenizer, "theirs.PreTokenizer"]:
    return ours.ByteLevel(prefix, use_regex=use_regex), theirs.ByteLevel(prefix, use_regex=use_regex)


def metaspace(replacement: str, scheme: str, split: bool) -> tuple[ours.PreTokenizer, "theirs.PreTokenizer"]:
    mine = ours.Metaspace(replacement, scheme, split)  # type: ignore[arg-type]
    return mine, theirs.Metaspace(replacement, scheme, split)


QWEN2 = next(pattern for pattern, name in PATTERNS.items() if name == "qwen2")
CLIP = next(pattern for pattern, name in PATTERNS.items() if name == "clip")
SCHEMES = ("always", "never", "first")
SCRIPTS = ours.UnicodeScripts(), theirs.UnicodeScripts()
SPACES = ours.WhitespaceSplit(), theirs.WhitespaceSplit()
PAIRS = {
    "Bert": (ours.BertPreTokenizer(), theirs.BertPreTokenizer()),
    "Whitespace": (ours.Whitespace(), theirs.Whitespace()),
    "WhitespaceSplit": (ours.WhitespaceSplit(), theirs.WhitespaceSplit()),
    "UnicodeScripts": (ours.UnicodeScripts(), theirs.UnicodeScripts()),
    **{f"Digits {each}": (ours.Digits(each), theirs.Digits(each)) for each in (False, True)},
    **{f"Punctuation {b}": (ours.Punctuation(b), theirs.Punctuation(b)) for b in BEHAVIORS},  # type: ignore[arg-type]
    **{f"CharDelimiterSplit {c!r}": (ours.CharDelimiterSplit(c), theirs.CharDelimiterSplit(c)) for c in "a é中"},
    **{f"FixedLength {n}": (ours.FixedLength(n), theirs.FixedLength(n)) for n in (1, 2, 5)},
    **{f"Metaspace {r} {p} {s}": metaspace(r, p, s) for r in "▁_" for p in SCHEMES for s in (True, False)},
    **{
        f"Split literal {p!r} {b} {i}": (ours.Split(p, b, i), theirs.Split(p, b, i))  # type: ignore[arg-type]
        for p in (" ", "aa", "aab", "中", ".") for b in BEHAVIORS for i in (False, True)
    },
    **{
        f"Split regex {p!r} {b} {i}": regex_split(p, b, i)
        for p in (r"\s+", r"\w+|[^\w\s]+", "a*", "(?=b)") for b in BEHAVIORS for i in (False, True)
    },
    **{f"Split nothing {b}": (ours.Split("", b), theirs.Split("", b)) for b in BEHAVIORS},  # type: ignore[arg-type]
    **{f"Split qwen2 {b} {i}": regex_split(QWEN2, b, i) for b in BEHAVIORS for i in (False, True)},
    **{f"Split clip {b} {i}": regex_split(CLIP, b, i) for b in BEHAVIORS for i in (False, True)},
    "scripts, then Metaspace": sequence(SCRIPTS, metaspace("▁", "first", True)),
    "spaces, then Metaspace": sequence(SPACES, metaspace("▁", "always", True)),
    "spaces, then Metaspace first": sequence(SPACES, metaspace("▁", "first", True)),
}  # fmt: skip
BYTE_LEVEL = {
    **{f"ByteLevel {p} {r}": byte_level(p, r) for p in (False, True) for r in (False, True)},
    "DeepSeek": sequence(deepseek_splits(), byte_level(False, False)),
    "StarCoder": sequence((ours.Digits(True), theirs.Digits(True)), byte_level(False, True)),
    "StarCoder with prefix": sequence((ours.Digits(True), theirs.Digits(True)), byte_level(True, True)),
    "CLIP": sequence(regex_split(CLIP, "removed", True), byte_level(False, True)),
    "Qwen2": sequence(regex_split(QWEN2, "isolated"), byte_level(False, False)),
    "Falcon": sequence(
        (ours.Punctuation("contiguous"), theirs.Punctuation("contiguous")),
        byte_level(False, True),
        (ours.Digits(False), theirs.Digits(False)),
        regex_split("[0-9][0-9][0-9]", "isolated"),
    ),
}


def as_hf(name: str, text: str) -> list[tuple[str, tuple[int, int]]]:
    """HF's answer; where its last step spells bytes, the spelling."""
    pairs = PAIRS | BYTE_LEVEL
    return list(pairs[name][1].pre_tokenize_str(text))


def check(name: str, text: str) -> None:
    mine = (PAIRS | BYTE_LEVEL)[name][0]
    found = spans(mine, text)
    assert split(mine, text, "", text) == [[word for word, _ in found], [], [word for word, _ in found]]
    if name in BYTE_LEVEL:
        found = [("".join(GPT2_ALPHABET[b] for b in word.encode()), span) for word, span in found]
    assert found == as_hf(name, text)


@pytest.mark.parametrize("kind", sorted({name.split()[0] for name in PAIRS | BYTE_LEVEL} - {"Falcon"}))
@given(text=st.one_of(tricky_texts(), texts(), st.text("aab .中\n", max_size=20)))
@example(text="中・の゛゠ \u3040\u3097中\u3040\u3040・\u3040の")
def test_components_equal_hf(kind: str, text: str) -> None:
    for name in PAIRS | BYTE_LEVEL:
        if name.split()[0] == kind:
            check(name, text)


@pytest.mark.parametrize(
    "name", ["Bert", "Whitespace", "WhitespaceSplit", "UnicodeScripts", "Digits False", "DeepSeek", "StarCoder"]
)
def test_components_equal_hf_on_all_kinds_of_characters(name: str) -> None:
    for text in in_contexts(SOME_CHARACTERS, CONTEXTS[:2]):
        check(name, text)


@pytest.mark.parametrize(
    "name",
    ["Bert", "Whitespace", "WhitespaceSplit", "UnicodeScripts", "Digits True", "Punctuation isolated", "DeepSeek",
     "StarCoder"],
)  # fmt: skip
def test_components_equal_hf_on_every_code_point(name: str) -> None:
    for text in every_code_point():
        assert [(w, s) for w, s in spans((PAIRS | BYTE_LEVEL)[name][0], text)] == [
            (text[a:b], (a, b)) for _, (a, b) in as_hf(name, text)
        ]


# --- patterns that no scanner covers

FOREIGN = (
    r"\p{N}{1,3}+", r"(ab|c){2}+", r"a{2}?", r"[\p{L}&&[^a-c]]+", r"[^\P{L}]+", r"(?i:'s|STRASSE)", r"(?<=a)b|^.|.$",
    r"(?m:a.b)", r"[[a-c]1]+|\h+", r" ?[^(\s|[.,!?…])]+", r"\S+\s?", r"[\s\d]{2,}", r"\p{^Lu}+", r"a\z|b\Z",
    r"\b\w", r"[a\-z]|[+--]", "(?>a|ab)c", "(?i)é", "[[:space:]]+", r"[^[:punct:]\s]+|[[:^alpha:]]",
)  # fmt: skip


@pytest.mark.parametrize("pattern", FOREIGN)
@given(text=st.one_of(tricky_texts(), texts(), st.text("ab'sS1-+cz\n ", max_size=20)))
def test_foreign_patterns_equal_hf(pattern: str, text: str) -> None:
    mine, yours = regex_split(pattern, "isolated")
    assert spans(mine, text) == yours.pre_tokenize_str(text)
    # The reference implementation, which has the last word where there is no automaton.
    expected = [word for word, _ in yours.pre_tokenize_str(text)]
    assert [text[a:b] for a, b, _ in patterns.find_segments(pattern, text) if a < b] == expected
