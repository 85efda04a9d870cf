# SPDX-License-Identifier: Apache-2.0
"""The character tables against HF tokenizers, on every code point, and against the Unicode database by its version."""

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

import pyarrow as pa  # noqa: E402
from tokenizers import normalizers, pre_tokenizers  # noqa: E402

from tests import strategies  # noqa: E402
from tests.reference import bert as reference  # noqa: E402
from tokenmill.tokenizer import UNICODE_VERSIONS, BertNormalizer, BertPreTokenizer, Tokenizer  # noqa: E402
from tokenmill.tokenizer.unicode import tables as unicode_tables  # noqa: E402

pytestmark = pytest.mark.parity

OPTIONS = [
    {"clean_text": clean, "handle_chinese_chars": cjk, "strip_accents": strip, "lowercase": lower}
    for clean in (True, False)
    for cjk in (True, False)
    for strip in (True, False)
    for lower in (True, False)
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(k for k, v in o.items() if v) or "nothing")
def test_the_normalizer_on_every_code_point(options: dict[str, bool]) -> None:
    theirs = normalizers.BertNormalizer(**options)
    texts = [f"a{c}b" for c in strategies.TRIED]
    ours = BertNormalizer(**options).normalize_arrow(pa.array(texts)).to_pylist()
    different = [t for t, o in zip(texts, ours, strict=True) if o != theirs.normalize_str(t)]
    assert different == []


def test_words_on_every_code_point() -> None:
    theirs = pre_tokenizers.BertPreTokenizer()
    for options in OPTIONS[:: len(OPTIONS) - 1]:
        normalizer = normalizers.BertNormalizer(**options)
        counter = Tokenizer(
            model=None, normalizer=BertNormalizer(**options), pre_tokenizer=BertPreTokenizer()
        ).new_word_counter()
        texts = [f"x{ord(c):x} a{c}b {c}" for c in strategies.TRIED]
        counter.update(pa.array(texts))
        expected: dict[bytes, int] = {}
        for text in texts:
            for word, _ in theirs.pre_tokenize_str(normalizer.normalize_str(text)):
                expected[word.encode()] = expected.get(word.encode(), 0) + 1
        got = dict(zip(*(column.to_pylist() for column in counter.to_table().columns), strict=True))
        assert got == expected


def test_decomposition_on_every_code_point() -> None:
    theirs = normalizers.NFD()
    assert [c for c in strategies.CODE_POINTS if unicode_tables.decompose(ord(c)) != theirs.normalize_str(c)] == []


def test_canonical_order_of_every_pair_of_classes() -> None:
    theirs = normalizers.NFD()
    classes = unicode_tables.combining_classes()
    samples = {int(classes[ord(c)]): c for c in strategies.CODE_POINTS if classes[ord(c)]}
    pairs = [a + b for a in samples.values() for b in samples.values()]
    assert [p for p in pairs if reference.nfd(p) != theirs.normalize_str(p)] == []
    # And every combining character against one class below it and one above.
    odd = [c for c in strategies.CODE_POINTS if classes[ord(c)]]
    texts = [x + c + y for c in odd for x, y in (("\u0334", "\u0345"), ("\u0345", "\u0334"))]
    assert [t for t in texts if reference.nfd(t) != theirs.normalize_str(t)] == []


def test_the_tables_agree_with_the_named_unicode_versions_on_all_older_characters() -> None:
    """What is assigned since then differs, and must: those characters are unassigned in the named version."""
    newer = pytest.importorskip("unicodedata2", reason="needs the test group: unicodedata2")
    assert UNICODE_VERSIONS == {
        "categories": "8.0.0", "decompositions": "9.0.0", "lowercase": "17.0.0",
    }  # fmt: skip
    marks, punctuation = (unicode_tables.property_table(n) for n in ("nonspacing_marks", "punctuation"))
    # Characters whose category Unicode has changed since 8.0; the list may neither grow nor shrink.
    changed_marks = {c for c in strategies.CODE_POINTS if marks[ord(c)] and newer.category(c) != "Mn"}
    assert changed_marks == {"\u1734", "\U0001171e"}
    changed_punctuation = {
        c
        for c in strategies.CODE_POINTS
        if punctuation[ord(c)] and ord(c) > 127 and not newer.category(c).startswith("P")
    }
    assert changed_punctuation == {"\u166d", "\U000111c9"}
