# SPDX-License-Identifier: Apache-2.0
"""Runs of ideographs end where a look at one character after another says so."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenizer.kernels.compiling import kernel
from tokenizer.kernels.ideographs import IDEOGRAPHS, ideographs_end

# The first and the last of them, characters of three bytes beside them, and of other lengths.
CHARACTERS = "\u4e00\u4e01\u9f7f\u9f80\u4dff\u3007\ue000\uffff\u0800aé\U00020000 "
MOST_AT_ONCE = 48
"""Bytes."""


@kernel
def _end(data, i, end):
    return ideographs_end(data, i, end)


@given(
    st.text(st.sampled_from(CHARACTERS), max_size=3),
    st.text(st.characters(min_codepoint=IDEOGRAPHS.start, max_codepoint=IDEOGRAPHS.stop - 1), max_size=70),
    st.text(st.sampled_from(CHARACTERS), max_size=30),
    st.text(st.sampled_from(CHARACTERS), max_size=30),
)
def test_runs_end_with_them_or_with_the_row(before: str, run: str, after: str, other_row: str) -> None:
    start, stop = len(before.encode()), len((before + run + after).encode())
    data = np.frombuffer((before + run + after + other_row).encode(), np.uint8)
    expected = start + 3 * len(run)
    for character in after:
        if not IDEOGRAPHS.start <= ord(character) < IDEOGRAPHS.stop:
            break
        expected += 3
    found = _end(data, start, stop)
    if expected + MOST_AT_ONCE <= data.size:
        assert found == expected
    else:  # where the data end it may be said to end before
        assert start <= found <= expected
        assert (expected - found) % 3 == 0
