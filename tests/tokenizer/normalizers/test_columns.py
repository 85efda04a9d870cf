# SPDX-License-Identifier: Apache-2.0
"""Every normalizer's kernel against its reference implementation, which also aligns; fast exits; linear time; what is
refused."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import charsmaps, strategies
from tests.reference.tracing import normalized, original
from tokenmill.tokenizer import normalizers
from tokenmill.tokenizer.ragged import text_rows
from tokenmill.tokenizer.traced import Traced

ALL = {
    "NFC": normalizers.NFC(),
    "NFD": normalizers.NFD(),
    "NFKC": normalizers.NFKC(),
    "NFKD": normalizers.NFKD(),
    "Lowercase": normalizers.Lowercase(),
    "StripAccents": normalizers.StripAccents(),
    "Nmt": normalizers.Nmt(),
    "ByteLevel": normalizers.ByteLevel(),
    "Strip": normalizers.Strip(),
    "Strip left": normalizers.Strip(right=False),
    "Replace byte": normalizers.Replace("a", "▁▁"),
    "Replace byte by more": normalizers.Replace(" ", "twelve bytes"),
    "Replace literal": normalizers.Replace("é中", "x"),
    "Replace overlapping": normalizers.Replace("aa", ""),
    "Replace Regex": normalizers.Replace(r"\s+|$", "_", is_regex=True),
    "Prepend": normalizers.Prepend("▁"),
    "Prepend long": normalizers.Prepend("more than eight bytes"),
    "Precompiled": normalizers.Precompiled(charsmaps.small()),
    "BertNormalizer": normalizers.BertNormalizer(),
    "BertNormalizer cased": normalizers.BertNormalizer(lowercase=False, clean_text=False),
    "Sequence": normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(), normalizers.Prepend("▁")]),
}
HOSTILE = st.text(st.sampled_from(charsmaps.MARKS + charsmaps.GRAPHEMES + " aaéééß中中玫"), max_size=50)


def columns() -> st.SearchStrategy[pa.Array]:
    """Columns of every kind, and long ones of characters that interact."""
    return st.one_of(strategies.text_columns(), st.lists(HOSTILE, max_size=6).map(pa.array))


@pytest.mark.parametrize("name", ALL)
def test_columns_equal_the_reference_implementation(name: str) -> None:
    normalizer = ALL[name]

    @given(columns())
    def check(column: pa.Array) -> None:
        column = column.cast(pa.string()) if pa.types.is_null(column.type) else column
        expected = [normalized(normalizer, original(t or "")) for t in column.to_pylist()]
        assert normalizer.normalize_arrow(column).to_pylist() == [e.text for e in expected]
        found = normalizer.trace(Traced.original(text_rows(column))).texts()
        assert [[*map(list, each)] for each in found] == [[*map(list, each)] for each in expected]

    check()


@pytest.mark.parametrize("name", ["NFC", "NFD", "NFKC", "NFKD"])
@pytest.mark.parametrize("run", ["\u0301\u0323", "\u0323\u0301\u0345\u0334", "\u0344", "\u3099"])
def test_a_megabyte_of_combining_characters_takes_linear_time(name: str, run: str) -> None:
    normalizer = ALL[name]
    # Sorted by insertion, as `unicodedata` does, they would take minutes.
    marks = 500_000 // len(run)
    start = normalizer.normalize_str("e" + run * marks)
    assert start.startswith(normalizer.normalize_str(f"e{run}")[:1])
    assert normalizer.normalize_str(start) == start
    assert normalizer.normalize_str("e" + run * 100) == normalized(normalizer, original("e" + run * 100)).text


def test_the_largest_growth_fits() -> None:
    assert normalizers.NFKC().normalize_str("\ufdfa" * 1000) == "صلى الله عليه وسلم" * 1000
    assert normalizers.NFD().normalize_str("\u0390" * 1000) == "\u03b9\u0308\u0301" * 1000
    assert normalizers.NFC().normalize_str("é\u0323" * 1000) == "\u1eb9\u0301" * 1000
    assert normalizers.ByteLevel().normalize_str("\x00" * 1000) == "Ā" * 1000


def test_which_run_python_for_every_row() -> None:
    slow = {name for name, normalizer in ALL.items() if not normalizer.is_fast}
    assert slow == {"Replace Regex"}
    assert not normalizers.Sequence([normalizers.NFC(), ALL["Replace Regex"]]).is_fast
    assert not normalizers.Replace("", "x").is_fast


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="trie of 0 units does not fit into 0 bytes"):
        normalizers.Precompiled(b"")
    with pytest.raises(ValueError, match="trie of 25 units does not fit into 12 bytes"):
        normalizers.Precompiled(b"\x64\0\0\0" + bytes(8))
    with pytest.raises(ValueError, match="texts after the trie are not UTF-8"):
        normalizers.Precompiled(b"\4\0\0\0" + bytes(4) + b"\xff\0")
    with pytest.raises(ValueError, match=r"pattern '\(' is no regular expression"):
        normalizers.Replace("(", "", is_regex=True)
    with pytest.raises(TypeError, match=r"normalizers\[1\]: expected a normalizer, got 'NFC'"):
        normalizers.Sequence([normalizers.NFC(), "NFC"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="expected an Arrow array of strings"):
        normalizers.NFC().normalize_arrow(pa.array([1]))


def test_the_length_of_each_row_is_known_before_a_character_map_writes(monkeypatch):
    """It is compared with what a text may grow to, so it must not be what was in the memory before."""
    monkeypatch.setattr(np, "empty", lambda n, dtype: (np.arange(n) << 40).astype(dtype))
    texts = [charsmaps.GRAPHEMES, "", "the mill", charsmaps.GRAPHEMES * 9]
    normalizer = normalizers.Precompiled(charsmaps.small())
    rows = normalizer.normalize_rows(text_rows(pa.array(texts)))
    lengths = [len(normalized(normalizer, original(text)).text.encode()) for text in texts]
    assert np.diff(rows.offsets).tolist() == lengths != [len(text.encode()) for text in texts]
