# SPDX-License-Identifier: Apache-2.0
"""Small tokenizer files that could make any amount of a text, or take any time for it: bounded, in time and memory."""

import base64
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer import Tokenizer, added_tokens, normalizers
from tokenmill.tokenizer.added_tokens import AddedToken, AddedTokenMatcher
from tokenmill.tokenizer.errors import TextGrowthError
from tokenmill.tokenizer.models import WordLevel
from tokenmill.tokenizer.normalizers.base import Edges
from tokenmill.tokenizer.post_processors import MAX_AROUND, SpecialToken, TemplatePiece, TemplateProcessing
from tokenmill.tokenizer.ragged import text_rows
from tokenmill.tokenizer.text import TextChain, parse_steps
from tokenmill.tokenizer.traced import Traced

WORDS: dict[str, Any] = {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"}
LETTERS: dict[str, Any] = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", -1], ["\u2581", -2]]}
METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}


def replace(pattern: str, content: str, *, is_regex: bool = False) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex" if is_regex else "String": pattern}, "content": content}


def several(role: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", role: list(steps)}


def nested(role: str, step: dict[str, Any], depth: int) -> dict[str, Any]:
    return step if depth == 0 else several(role, step, nested(role, step, depth - 1))


def charsmap(text: str) -> str:
    """A character map with a trie of one unit, and `text` as what it could put in."""
    return base64.b64encode(struct.pack("<II", 4, 0) + text.encode() + b"\0").decode()


def template(n_pieces: int, n_ids: int) -> dict[str, Any]:
    special = {"x": {"id": "x", "ids": [1] * n_ids, "tokens": ["a"] * n_ids}}
    pieces = [{"SpecialToken": {"id": "x", "type_id": 0}}] * n_pieces
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "type": "TemplateProcessing", "single": [*pieces, first], "pair": [*pieces, first, second],
        "special_tokens": special,
    }  # fmt: skip


DOUBLE = replace("a", "aa")
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "a template of a million ids": ({"post_processor": template(1000, 1000)}, r"adds 1000000 tokens to every text"),
    "22 replacements that double": ({"normalizer": several("normalizers", *[DOUBLE] * 22)}, "at most 16 times as many"),
    "22 of them, nested": ({"normalizer": nested("normalizers", DOUBLE, 22)}, "at most 16 times as many"),
    "22 of them, with words": (
        {"normalizer": several("normalizers", *[DOUBLE] * 22), "pre_tokenizer": METASPACE, "model": LETTERS},
        "at most 16 times as many",
    ),
    "22 of a pattern": (
        {"normalizer": several("normalizers", *[replace("[ab]", "aa", is_regex=True)] * 22)},
        "at most 16 times as many",
    ),
    "a replacement of a megabyte": ({"normalizer": replace("a", "b" * 10**6)}, "at most 1024 bytes are allowed"),
    "a replacement by a thousand bytes": ({"normalizer": replace("a", "b" * 1000)}, "at most 16 times as many"),
    "the same of runs": ({"normalizer": replace("a+", "b" * 1000, is_regex=True)}, ""),
    "the same of every place": ({"normalizer": replace("", "b" * 1000)}, "at most 16 times as many"),
    "a megabyte in front": ({"normalizer": {"type": "Prepend", "prepend": "b" * 10**6}}, "at most 1024 bytes"),
    "a kilobyte in front, 200 times": (
        {"normalizer": several("normalizers", *[{"type": "Prepend", "prepend": "b" * 1000}] * 200)},
        "at most 16 times as many",
    ),
    "a map to a megabyte": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap("b" * 10**6)}},
        "a text has 1000000 bytes, allowed are 256",
    ),
    "a hundred thousand steps": (
        {"normalizer": several("normalizers", *[{"type": "NFC"}] * 10**5)},
        "a sequence of 100000 parts, allowed are 256",
    ),
    "22 decoders that double": (
        {"decoder": several("decoders", *[DOUBLE] * 22)}, "at most 16 times as many",
    ),
    "22 decoders after joining": (
        {"decoder": several("decoders", {"type": "Fuse"}, *[DOUBLE] * 22)}, "at most 16 times as many",
    ),
    "a decoder that puts in a megabyte": ({"decoder": replace("a", "b" * 10**6)}, "at most 1024 bytes are allowed"),
    "added tokens that begin alike": (
        {"added_tokens": [{"id": 2 + i, "content": "a" * 2000 + chr(0x4E00 + i)} for i in range(500)]}, "",
    ),
    "pieces of one character": (
        {"model": {**LETTERS, "vocab": [*LETTERS["vocab"], *(["a" * n, -1.0] for n in range(3500, 4000))]}},
        "a piece has 3999 characters, allowed are 512",
    ),
    "pieces of 512": (
        {"model": {**LETTERS, "vocab": [*LETTERS["vocab"], *(["a" * n, -1.0] for n in range(2, 513))]}}, "",
    ),
}  # fmt: skip
"""The fields of a file, and what the error says, at loading or at encoding; "" for none."""
PROGRAM = """
import json, resource, sys
import pyarrow as pa
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
from tokenmill.tokenizer import Tokenizer
for line in sys.stdin:
    name, file = json.loads(line)
    text = "a" * (10_000 if "pattern" in name else 100_000)  # each match of a pattern is found in Python
    try:
        tokenizer = Tokenizer.from_str(file)
        tokenizer.encode_arrow(pa.array([text, text[:9]]))
        tokenizer.decode([1] * 50)
        problem = ""
    except ValueError as error:
        problem = str(error)
    print(json.dumps([name, problem]), flush=True)
"""


@pytest.fixture(scope="module")
def problems(repository: Path) -> dict[str, str]:
    """What each file leads to, in a process of bounded time and memory."""
    files = ((name, json.dumps({"version": "1.0", "model": WORDS} | fields)) for name, (fields, _) in CASES.items())
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input="\n".join(map(json.dumps, files)), cwd=repository, capture_output=True,
        text=True, timeout=600, check=False,
    )  # fmt: skip
    found = dict(map(json.loads, done.stdout.splitlines()))
    assert done.returncode == 0, (list(CASES)[len(found)], done.stderr[-2000:])
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_small_file_takes_bounded_time_and_memory(problems: dict[str, str], name: str) -> None:
    expected = CASES[name][1]
    assert expected in problems[name]
    assert bool(expected) == bool(problems[name])
    assert len(problems[name]) < 1000


def words(**parts: Any) -> Tokenizer:
    return Tokenizer(model=WordLevel({"[UNK]": 0, "a": 1}, "[UNK]"), **parts)


@pytest.mark.parametrize(
    ("normalizer", "good", "bad"),
    [
        (normalizers.Replace("a", "b" * 30), "xa" * 9, "a" * 99),
        (normalizers.Replace("[a]", "b" * 30, is_regex=True), "xa" * 9, "a" * 99),
        (normalizers.Sequence([normalizers.Replace("a", "aa")] * 5), "xa" * 9, "a" * 99),
        (normalizers.Sequence([normalizers.Replace("x", ""), normalizers.Replace("a", "b" * 30)]), "a" * 9, "xa" * 99),
    ],
)
def test_a_text_grows_too_much_whatever_is_beside_it(normalizer: Any, good: str, bad: str) -> None:
    tokenizer = words(normalizer=normalizer)
    long = "x" * 10_000
    for texts in ([bad], [long, bad], [bad, long], [good, bad]):
        with pytest.raises(TextGrowthError, match="allowed"):
            tokenizer.encode_arrow(texts)
    with pytest.raises(TextGrowthError):
        tokenizer.encode(bad)
    for texts in ([good], [good, long], [long]):
        assert [tokenizer.encode(text).ids for text in texts] == tokenizer.encode_arrow(texts).to_pylist()


def test_a_text_step_makes_too_much_of_a_text() -> None:
    chain = TextChain(parse_steps([{"regex": {"pattern": "a", "replace": "b" * 30}}]))
    assert chain.apply(["a" * 9, None])[0].to_pylist() == ["b" * 270, None]
    with pytest.raises(TextGrowthError, match="make 2970 bytes of 99; at most 16 times as many"):
        chain.apply(["x" * 10_000, "a" * 99])
    with pytest.raises(TextGrowthError, match="make 2970 bytes of 99"):
        chain.trace(Traced.original(text_rows(["a" * 99])), Edges.of(1))


def test_a_template_may_have_as_many_tokens_as_real_ones() -> None:
    def of(n: int) -> TemplateProcessing:
        pieces = (TemplatePiece("x", 0, False), TemplatePiece("A", 0, True))
        pair = (*pieces, TemplatePiece("B", 0, True))
        return TemplateProcessing(pieces, pair, {"x": SpecialToken((1,) * n, ("a",) * n)})

    assert len(words(post_processor=of(MAX_AROUND)).encode("a").ids) == MAX_AROUND + 1
    with pytest.raises(ValueError, match="adds 1025 tokens to every text, allowed are 1024"):
        of(MAX_AROUND + 1)


ALPHABET = "abé<"


@given(
    st.lists(st.text(ALPHABET, min_size=1, max_size=6), min_size=1, max_size=8, unique=True),
    st.lists(st.text(ALPHABET + " ", max_size=40), min_size=1, max_size=4),
    st.sampled_from(["split", "plain", "error"]),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_long_added_tokens_are_found_as_short_ones(
    contents: list[str], texts: list[str], special: Any, flags: tuple[bool, bool, bool]
) -> None:
    names = dict(zip(("single_word", "lstrip", "rstrip"), flags, strict=True))
    tokens = [AddedToken(i, content, special=i % 3 == 0, **names) for i, content in enumerate(contents)]

    def cut(most_steps: int) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(added_tokens, "_MOST_STEPS", most_steps)
            matcher = AddedTokenMatcher(tokens, contents, special)
        try:
            found = matcher.cut(text_rows(texts))
        except ValueError as error:
            return str(error)
        return found and (found.tokens.tolist(), found.rows.offsets.tolist(), found.row_segments.tolist())

    assert cut(0) == cut(1000)
