# SPDX-License-Identifier: Apache-2.0
"""Runs of ideographs, which a scanner takes many at a time, end where the pattern says so."""

import itertools

import numpy as np
import regex
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer.kernels.ideographs import IDEOGRAPHS
from tokenmill.tokenizer.pre_tokenizers import Split
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS
from tokenmill.tokenizer.ragged import text_rows

PATTERN = TIKTOKEN_PATTERNS["o200k_base"]
# The first and the last of them, characters of three bytes beside them, and of other lengths.
CHARACTERS = "\u4e00\u4e01\u9f7f\u9f80\u4dff\u3007\ue000\uffff\u0800aé\U00020000 "


@given(
    st.text(st.sampled_from(CHARACTERS), max_size=3),
    st.text(st.characters(min_codepoint=IDEOGRAPHS.start, max_codepoint=IDEOGRAPHS.stop - 1), max_size=70),
    st.text(st.sampled_from(CHARACTERS), max_size=30),
    st.text(st.sampled_from(CHARACTERS), max_size=30),
)
def test_runs_end_with_them_or_with_the_row(before: str, run: str, after: str, other_row: str) -> None:
    rows = [before + run + after, other_row]
    words = Split(PATTERN, "isolated", is_regex=True).split_rows(text_rows(rows), np.ones(2, np.bool_))
    ends = itertools.pairwise(words.row_offsets.tolist())
    assert [[words.word(i).decode() for i in range(a, b)] for a, b in ends] == [
        regex.findall(PATTERN, row) for row in rows
    ]
