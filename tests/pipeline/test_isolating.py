# SPDX-License-Identifier: Apache-2.0
"""Rows at fault are found alone, and their neighbours keep their results."""

from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline.isolating import isolate


@given(bad=st.sets(st.integers(0, 40)), n=st.integers(0, 40), few=st.integers(1, 5), has_failed=st.booleans())
def test_each_row_is_yielded_once_in_order_and_only_few_with_one_at_fault(bad, n, few, has_failed):
    def work(start, stop):
        asked.append((start, stop))
        if bad & {*range(start, stop)}:
            raise ValueError(start, stop)
        return list(range(start, stop))

    asked = []
    found = list(isolate(work, n, ValueError, few, has_failed))
    assert [row for start, stop, _ in found for row in range(start, stop)] == list(range(n))
    for start, stop, result in found:
        if isinstance(result, ValueError):
            assert stop - start <= few
            assert bad & {*range(start, stop)}
        else:
            assert result == list(range(start, stop))
    assert ((0, n) in asked) == (not has_failed or n <= few)
