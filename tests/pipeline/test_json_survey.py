# SPDX-License-Identifier: Apache-2.0
"""What the survey of JSON lines says against regular expressions that say the same."""

import re

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.readers.json_survey import HAS_NUL, MAY_NOT_BE_FINITE, is_deeper, survey
from pipeline.readers.lines import find_lines

PARTS = ('"', "\\", "[", "{", "]", "}", "NaN", "Inf", "-Inf", ":", ",", " ", "\t", "a", "N", "I", "0" * 60, "\0", "é")
LINES = st.lists(st.sampled_from(PARTS), max_size=60).map(lambda parts: "".join(parts).encode())


@given(lines=st.lists(LINES, min_size=1, max_size=5))
@example(lines=[b'{"a":' + b" " * 55 + b"NaN}", b"[" * 70])
def test_marks_and_brackets_are_those_of_each_line(lines):
    data = b"\n".join(lines)
    values = np.frombuffer(data, np.uint8)
    starts, _, nexts = find_lines(data)
    marks, n_brackets = np.zeros(len(starts), np.uint8), np.empty(len(starts), np.int64)
    survey(values, starts, nexts, marks, n_brackets)
    for k, (start, stop) in enumerate(zip(starts, nexts, strict=True)):
        line = data[start:stop]
        assert bool(marks[k] & HAS_NUL) == (b"\0" in line)
        assert bool(marks[k] & MAY_NOT_BE_FINITE) == bool(re.search(rb"[:,\[][ \t\r]*-?(NaN|Inf)", line))
        assert n_brackets[k] == len(re.findall(rb"[\[{]", line))


@given(line=LINES, max_depth=st.integers(0, 6))
@example(line=b'["' + b"x" * 100 + b'\\"[[[["]', max_depth=1)
def test_depth_is_that_outside_of_strings(line, max_depth):
    depth = deepest = 0
    for bracket in re.sub(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("|\\?$)', b"", line, flags=re.DOTALL):
        depth += (bracket in b"[{") - (bracket in b"]}")
        deepest = max(deepest, depth)
    assert is_deeper(np.frombuffer(line, np.uint8), max_depth) == (deepest > max_depth)
