# SPDX-License-Identifier: Apache-2.0
"""Words of texts: as `str.split` cuts them, counted exactly, bounded, and compared one by one."""

import pyarrow as pa

from tokenmill.pipeline.comparing import sums
from tokenmill.pipeline.comparing.sums import WORDS, Words


def test_the_rarest_words_are_left_out_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr(sums, "MAX_WORDS", 4)
    counted = Words()
    counted.add_counts(pa.table([["de"] * 6, list("abcdef"), [5, 1, 4, 3, 2, 6]], schema=WORDS))
    assert [row["word"] for row in counted.table().to_pylist()] == ["f", "a", "c"]
    assert counted.n_left_out == 6
