# SPDX-License-Identifier: Apache-2.0
"""Unicode's own conformance test of the normal forms, for text steps. Tokenizers follow HF's older tables instead.

`NormalizationTest.txt` of the Unicode Character Database, plain or as `.bz2`, in the folder that `TOKENMILL_UNICODE`
names, by default where Debian's package `unicode-data` puts it. What it says stays true in later versions of Unicode.
"""

import bz2
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import unicodedata2

from tokenmill.tokenizer.text import TextChain

pytestmark = pytest.mark.parity

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
# Which of the five columns each form turns into which, from the head of the file: (from, to), counted from 0.
RULES = {
    "NFC": [(0, 1), (1, 1), (2, 1), (3, 3), (4, 3)],
    "NFD": [(0, 2), (1, 2), (2, 2), (3, 4), (4, 4)],
    "NFKC": [(i, 3) for i in range(5)],
    "NFKD": [(i, 4) for i in range(5)],
}


@pytest.fixture(scope="module")
def cases() -> list[tuple[str, ...]]:
    return list(_read_cases())


def _read_cases() -> Iterator[tuple[str, ...]]:
    """Yields (character of part 1 or "", five columns)."""
    folder = Path(os.environ.get("TOKENMILL_UNICODE", "/usr/share/unicode"))
    name = folder / "NormalizationTest.txt"
    packed = folder / "NormalizationTest.txt.bz2"
    if not name.exists() and not packed.exists():
        pytest.skip(f"needs NormalizationTest.txt of Unicode, which is not in {folder}")
    text = name.read_text("utf-8") if name.exists() else bz2.decompress(packed.read_bytes()).decode()
    part = ""
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("@"):
            part = line
        elif line:
            columns = tuple("".join(chr(int(c, 16)) for c in each.split()) for each in line.split(";")[:5])
            yield columns[0] if part == "@Part1" else "", *columns


def normalize(form: str, texts: list[str]) -> list[str]:
    return TextChain.from_config([form.lower()]).apply(pa.array(texts))[0].to_pylist()


@pytest.mark.parametrize("form", FORMS)
def test_the_columns_turn_into_each_other(form: str, cases: list[tuple[str, ...]]) -> None:
    assert len(cases) > 15_000
    for source, target in RULES[form]:
        texts = [columns[source] for _, *columns in cases]
        expected = [columns[target] for _, *columns in cases]
        assert normalize(form, texts) == expected
        # In a text of several: what is next to a case must not matter, a starter that never composes between them.
        joined = normalize(form, ["|".join(texts)])
        assert joined == ["|".join(expected)]


@pytest.mark.parametrize("form", FORMS)
def test_characters_that_are_not_listed_stay(form: str, cases: list[tuple[str, ...]]) -> None:
    listed = {character for character, *_ in cases}
    texts = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and chr(c) not in listed]
    found = normalize(form, texts)
    changed = [text for text, normal in zip(texts, found, strict=True) if text != normal]
    # Characters that Unicode has given out since this version of the file.
    assert changed == [text for text in texts if unicodedata2.normalize(form, text) != text]
