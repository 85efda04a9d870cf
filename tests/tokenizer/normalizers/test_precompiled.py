# SPDX-License-Identifier: Apache-2.0
"""A character map's kernel against its reference in plain Python."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests import charsmaps, strategies
from tests.reference import precompiled as reference
from tokenmill.tokenizer.normalizers import Precompiled

MAPS = [charsmaps.small(), charsmaps.build({bytes([b]): "x" for b in range(1, 256)})]
TEXTS = st.one_of(st.text(st.sampled_from(charsmaps.GRAPHEMES + charsmaps.MARKS), max_size=30), strategies.texts())


@given(texts=st.lists(TEXTS, max_size=6), charsmap=st.sampled_from(MAPS))
def test_columns_are_those_of_the_reference(texts: list[str], charsmap: bytes) -> None:
    normalizer = Precompiled(charsmap)
    found = normalizer.normalize_arrow(pa.array(texts, pa.large_string())).to_pylist()
    assert found == [reference.normalize(text, normalizer) for text in texts]


@given(data=st.binary(max_size=400), texts=st.lists(st.text(max_size=20), max_size=3))
def test_a_broken_map_means_the_same_to_both(data: bytes, texts: list[str]) -> None:
    trie = data[: len(data) // 4 * 4]
    if trie:
        normalizer = Precompiled(len(trie).to_bytes(4, "little") + trie + "é\0中\0".encode())
        found = normalizer.normalize_arrow(pa.array(texts, pa.large_string())).to_pylist()
        assert found == [reference.normalize(text, normalizer) for text in texts]
