# SPDX-License-Identifier: Apache-2.0
"""Word counts for tests of trainers: tables from rows, small words that meet in many ways, rows shuffled and split."""

from collections.abc import Iterable

import pyarrow as pa
from hypothesis import strategies as st


def table(rows: Iterable[tuple[str | bytes, int]]) -> pa.Table:
    """A table of word counts, in the order of the rows; text becomes UTF-8."""
    words, counts = [], []
    for word, count in rows:
        words.append(word.encode() if isinstance(word, str) else word)
        counts.append(count)
    return pa.table({"word": pa.array(words, pa.large_binary()), "count": pa.array(counts, pa.int64())})


def small() -> st.SearchStrategy[dict[str, int]]:
    """Words of few characters, which meet in many ways; words of "#" even make the same token in two ways."""
    return st.sampled_from(["ab", "#a", "#ab", "<a>", "abcdeé花😀#"]).flatmap(
        lambda alphabet: st.dictionaries(
            st.text(alphabet, min_size=1, max_size=24),
            st.integers(1, 4) | st.sampled_from([10**6, 2**31, 10**15]),
            min_size=1,
            max_size=14,
        )
    )


def small_marked() -> st.SearchStrategy[dict[str, int]]:
    """Words as `Metaspace` makes them, of few characters and of several scripts."""
    return st.sampled_from(["ab", "▁ab", "▁abcd花カ1é\u0301б<"]).flatmap(
        lambda alphabet: st.dictionaries(
            st.text(alphabet, min_size=1, max_size=14),
            st.integers(1, 4) | st.sampled_from([50, 2**33, 10**15]),
            min_size=1,
            max_size=14,
        )
    )
