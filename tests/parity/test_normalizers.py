# SPDX-License-Identifier: Apache-2.0
"""Every normalizer against HF tokenizers: on every code point, on hostile text, and where each character came from."""

import random
from pathlib import Path

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

import pyarrow as pa  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tests import charsmaps, strategies  # noqa: E402
from tests.reference.tracing import traced  # noqa: E402
from tokenmill.tokenizer import normalizers as ours  # noqa: E402
from tokenmill.tokenizer.normalizers import tables  # noqa: E402

theirs = hf.normalizers

pytestmark = pytest.mark.parity

# Blocks where most of what is special lies, and a sample of the others.
FEW = sorted(
    {c for c in strategies.CODE_POINTS if c < "\u3400" or "\ufa00" < c < "\U00010000"}
    | set(strategies.CODE_POINTS[::61])
)
SIMPLE = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel", "Strip", "BertNormalizer"]


@pytest.fixture(scope="module")
def every_byte() -> bytes:
    """Shows every grapheme of less than six bytes, and every character of longer ones, as one `x`."""
    return charsmaps.build({bytes([b]): "x" for b in range(1, 256)})


def assert_same(mine: ours.Normalizer, other: "theirs.Normalizer", texts: list[str]) -> None:
    got = mine.normalize_arrow(pa.array(texts, pa.large_string())).to_pylist()
    different = [(t, g) for t, g in zip(texts, got, strict=True) if g != other.normalize_str(t)]
    assert [(ascii(t), ascii(g), ascii(other.normalize_str(t))) for t, g in different[:5]] == []


def assert_aligned(mine: ours.Normalizer, other: "theirs.Normalizer", text: str) -> None:
    """Compares texts and alignments; a model without merges makes a token, the unknown one, of every character."""
    tokenizer = hf.Tokenizer(hf.models.BPE(vocab={"?": 0}, merges=[], unk_token="?"))
    tokenizer.normalizer = other
    got = traced(mine, text)
    assert got.text == other.normalize_str(text)
    encoding = tokenizer.encode(text)
    assert list(zip(got.starts, got.stops, strict=True)) == encoding.offsets


def pair(name: str) -> tuple[ours.Normalizer, "theirs.Normalizer"]:
    return getattr(ours, name)(), getattr(theirs, name)()


@pytest.mark.parametrize("name", SIMPLE[:-1])  # BertNormalizer: test_unicode_tables.py
def test_every_code_point(name: str) -> None:
    assert_same(*pair(name), [f"{c}a {c}" for c in strategies.TRIED])


@pytest.mark.parametrize("some", [FEW, strategies.TRIED], ids=["few", "all"])
@pytest.mark.parametrize("name", ["NFC", "NFKC"])
def test_code_points_between_marks(name: str, some: list[str]) -> None:
    for around in ("e{}\u0301", "\u1100{}\u11a8", "a\u0323{}\u0301"):
        assert_same(*pair(name), [around.format(c) for c in some])


@pytest.mark.parametrize("name", SIMPLE)
def test_hostile_text(name: str) -> None:
    mine, other = pair(name)

    @given(st.lists(st.one_of(strategies.texts(), st.text(st.sampled_from(charsmaps.MARKS), max_size=30)), max_size=6))
    def check(texts: list[str]) -> None:
        assert_same(mine, other, texts)

    check()


@pytest.mark.parametrize("name", SIMPLE)
def test_where_characters_came_from(name: str) -> None:
    mine, other = pair(name)

    @given(st.one_of(strategies.texts(20), st.text(st.sampled_from(charsmaps.MARKS), max_size=30)))
    def check(text: str) -> None:
        assert_aligned(mine, other, text)

    check()


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a*", "^", "$", r"\A", r"\z", r"\Z", r" {2,}", r"\s+", r"\S", "(a)|b", "(?i)A", "(?<=a)b", "a.", "(?m:a.)",
        r"[\s中]",        r"\h", r"[^a\h]", r"\p{L}+", r"\p{Han}", "a|", "|a", r"[\r\n]", r"\d", r"\w+", r"\bb",
    ],
)  # fmt: skip
def test_replace_an_expression(pattern: str) -> None:
    mine, other = ours.Replace(pattern, "_$1", is_regex=True), theirs.Replace(hf.Regex(pattern), "_$1")
    assert mine.is_fast == (pattern in (r" {2,}", r"\s+"))

    @given(st.text("abA1 \n\r\t\x1c\x85中\u0301\u3000", max_size=20))
    def check(text: str) -> None:
        assert_same(mine, other, [text, "", text[1:]])

    check()


@pytest.mark.parametrize("content", [" ", "▁", "", "a", "nine bytes"])
@pytest.mark.parametrize(
    "pattern", [r"\s+", r"\s{2,}", " +", " {2,}", " {3,}", "a+", "a{2,}", "中+", "中{2,}", "\u3000{2,}"]
)
def test_replace_runs(pattern: str, content: str) -> None:
    mine, other = ours.Replace(pattern, content, is_regex=True), theirs.Replace(hf.Regex(pattern), content)
    assert mine.is_fast

    @strategies.FEWER
    @given(st.text("aab   \n\x1f~\x85中“\u3000", max_size=40))
    def check(text: str) -> None:
        assert_same(mine, other, [text, "", text[1:]])
        assert_aligned(mine, other, text)

    check()


@pytest.mark.parametrize("some", [FEW, strategies.TRIED], ids=["few", "all"])
def test_graphemes_of_code_points(every_byte: bytes, some: list[str]) -> None:
    mine, other = ours.Precompiled(every_byte), theirs.Precompiled(every_byte)
    for around in (
        "a{}\u0301", "{}a", "{}\u0301\u0301", "\u263a{}\u200d\u263a\u0301", "{}\u20d0\u20d0\u200d\u263a\u0301",
        "क्{}\u0301", "क{}\u20d0\u20d0क\u0301", "{}\u20d0\u20d0्क\u0301", "ᄀ{}\u0301", "가{}\u0301", "각{}\u0301",
        "{}ᅡ\u0301", "{}ᆨ\u0301", "{}가\u0301",
    ):  # fmt: skip
        assert_same(mine, other, [around.format(c) for c in some])


def test_graphemes_of_hostile_text(every_byte: bytes) -> None:
    small = charsmaps.small()

    @given(
        st.lists(st.one_of(st.text(st.sampled_from(charsmaps.GRAPHEMES), max_size=30), strategies.texts()), max_size=6)
    )
    def check(texts: list[str]) -> None:
        for data in (every_byte, small):
            assert_same(ours.Precompiled(data), theirs.Precompiled(data), texts)

    check()


def test_where_characters_came_from_in_a_character_map() -> None:
    small = charsmaps.small()

    @given(st.text(st.sampled_from(charsmaps.GRAPHEMES), max_size=20))
    def check(text: str) -> None:
        assert_aligned(ours.Precompiled(small), theirs.Precompiled(small), text)

    check()


@pytest.mark.parametrize("some", [FEW, strategies.TRIED], ids=["few", "all"])
@pytest.mark.parametrize("model", ["sp-test.model", "xlnet.model", "sp-ja.model"])
def test_character_maps_of_real_models(shared_data: Path, model: str, some: list[str]) -> None:
    data = charsmaps.of_model(shared_data / "vocab" / model)
    mine, other = ours.Precompiled(data), theirs.Precompiled(data)
    assert_same(mine, other, [f"{c}a" for c in some])
    assert_same(mine, other, [f"e{c}\u0301" for c in some])
    chooser = random.Random(0)
    texts = ["".join(chooser.choices(charsmaps.GRAPHEMES + charsmaps.MARKS, k=20)) for _ in range(3000)]
    assert_same(mine, other, texts)
    for text in texts[:100]:
        assert_aligned(mine, other, text)


def test_every_pair_that_might_compose() -> None:
    firsts = sorted(
        {a for a, _ in tables.compositions()} | {chr(c) for c in range(0x1100, 0x1114)} | {"가", "각", "힣"}
    )
    seconds = sorted(
        {b for _, b in tables.compositions()} | {chr(c) for c in range(0x1160, 0x1178)} | {"\u11a7", "\u11c3"}
    )
    texts = [a + b for a in firsts for b in seconds]
    assert_same(*pair("NFC"), texts)
