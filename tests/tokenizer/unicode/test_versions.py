# SPDX-License-Identifier: Apache-2.0
"""BERT and patterns in the Unicode versions of HF tokenizers 0.23 and 1.0.

Against 1.0 itself: `parity/test_unicode_versions.py`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reference.tracing import traced_words
from tokenmill.tokenizer import BertNormalizer, BertPreTokenizer, Tokenizer, WordPiece
from tokenmill.tokenizer.pre_tokenizers import Split
from tokenmill.tokenizer.unicode import data
from tokenmill.tokenizer.unicode import tables as unicode_tables

TAMIL, OGHAM, DECOMPOSED = "\U00011fff", "\u166d", "\U000105c9"  # punctuation in 17 alone, in 8 alone; decomposed in 17
CHANGED = [*map(chr, np.flatnonzero(unicode_tables.punctuation("8") != unicode_tables.punctuation("17")).tolist())]
CHANGED += [*map(chr, data.texts("text/canonical")), *map(chr, np.flatnonzero(data.numbers("text/combining_classes")))]


def bert(unicode: str, **options: Any) -> Tokenizer:
    characters = sorted({*CHANGED, *"abcdefghij\u0307\u030a", "\U000105d2", "\U000105da", "\U0001d165"})
    vocab = dict.fromkeys(["[UNK]", *(form for c in characters for form in (c, f"##{c}"))])
    return Tokenizer(
        model=WordPiece({token: i for i, token in enumerate(vocab)}),
        normalizer=BertNormalizer(**options, unicode=unicode),
        pre_tokenizer=BertPreTokenizer(unicode=unicode),
    )


def test_143_characters_are_punctuation_in_one_of_them() -> None:
    older, newer = (unicode_tables.punctuation(version) for version in ("8", "17"))
    assert [int(n) for n in ((newer & ~older).sum(), (older & ~newer).sum())] == [141, 2]
    assert len(unicode_tables.decompositions("17")) == len(unicode_tables.decompositions("8")) + 21
    python = pytest.importorskip("unicodedata2", reason="needs the test group: unicodedata2")
    since = {c for first, last in data.SINCE_18 for c in range(first, last + 1)}
    for code_point in (c for c in range(0x80, 0x110000) if c not in since):
        assert newer[code_point] == python.category(chr(code_point)).startswith("P"), hex(code_point)


def test_the_version_is_chosen_kept_in_the_file_and_told(tmp_path: Path) -> None:
    bert("8").save(tmp_path / "tokenizer.json")
    assert "unicode" not in (tmp_path / "tokenizer.json").read_text("utf-8")
    older, newer = (Tokenizer.from_file(tmp_path / "tokenizer.json", unicode=version) for version in (None, "17"))
    text = f"a{TAMIL}b"
    assert older.encode(text).tokens == ["a", f"##{TAMIL}", "##b"]
    assert newer.encode(text).tokens == ["a", TAMIL, "b"]
    assert newer.encode(f"a{OGHAM}b").tokens == ["a", f"##{OGHAM}", "##b"]
    assert newer.encode(f"a{DECOMPOSED}").tokens == ["a", "##\U000105d2"]
    assert older.digest != newer.digest
    assert newer.unicode_versions == {"categories": "17.0.0", "decompositions": "17.0.0", "lowercase": "17.0.0"}
    assert "unicode   categories 17.0.0, decompositions 17.0.0, lowercase 17.0.0" in newer.explain()
    assert "unicode   categories 8.0.0, decompositions 9.0.0, lowercase 17.0.0" in older.explain()
    newer.save(tmp_path / "newer.json")
    again = Tokenizer.from_file(tmp_path / "newer.json")
    assert again.encode(text).ids == newer.encode(text).ids
    assert again.digest == newer.digest
    back = Tokenizer.from_file(tmp_path / "newer.json", unicode="8")
    assert back.digest == older.digest


def test_other_versions_and_other_tokenizers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unicode must be '8', as HF tokenizers 0\.23, or '17', as 1\.0, got '16'"):
        BertPreTokenizer(unicode="16")
    bert("8").replace(pre_tokenizer=None).save(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match="unicode must be '8'"):
        Tokenizer.from_file(tmp_path / "tokenizer.json", unicode="16")
    for normalizer, pre_tokenizer in (("nfkc", "gpt2"), ("none", "whitespace"), ("nmt_nfkc", "metaspace")):
        Tokenizer.untrained(normalizer, pre_tokenizer).save(tmp_path / "tokenizer.json")
        with pytest.raises(
            ValueError, match="unicode='17' is served for BertNormalizer, BertPreTokenizer and patterns"
        ):
            Tokenizer.from_file(tmp_path / "tokenizer.json", unicode="17")
        same = Tokenizer.from_file(tmp_path / "tokenizer.json", unicode="8")  # what every tokenizer has
        assert same.to_str() == Tokenizer.from_file(tmp_path / "tokenizer.json").to_str()
    for pattern in (r"\w+", r"[\p{Han}]+", r"\bx"):
        with pytest.raises(ValueError, match=r"has no meaning in Unicode 17 here"):
            Split(pattern, "isolated", is_regex=True, unicode="17")


NAMED = "gpt2", "cl100k_base", "o200k_base", "qwen", "llama3", "tekken"


def words(pre_tokenizer: Any, text: str) -> list[str]:
    return [word for word, _ in traced_words(pre_tokenizer, text)]


@pytest.mark.parametrize("name", NAMED)
def test_patterns_have_the_categories_of_either(tmp_path: Path, name: str) -> None:
    Tokenizer.untrained("none", name).save(tmp_path / "older.json")
    older, newer = (Tokenizer.from_file(tmp_path / "older.json", unicode=version) for version in ("8", "17"))
    newer.save(tmp_path / "newer.json")
    assert Tokenizer.from_file(tmp_path / "newer.json").pre_tokenizer == newer.pre_tokenizer != older.pre_tokenizer
    assert newer.unicode_versions["categories"] == "17.0.0"
    assert newer.to_str().replace(',"unicode":"17"', "") == older.to_str()  # which HF reads
    assert words(newer.pre_tokenizer, "b\u088f !\u088f")[0] == "b\u088f"
    assert words(older.pre_tokenizer, "b\u088f !\u088f")[0] == "b"
    assert words(newer.pre_tokenizer, "a\U00011de0") == ["a", "\U00011de0"]
