# SPDX-License-Identifier: Apache-2.0
"""Masks of 64 bytes and the tables of Unicode say the same."""

import numpy as np
import pytest

from tokenmill.tokenizer.normalizers import BertNormalizer
from tokenmill.tokenizer.unicode import data as unicode_data
from tokenmill.tokenizer.unicode import tables as unicode_tables


def test_a_table_that_says_something_else_of_ascii_than_the_masks_is_refused(monkeypatch):
    """One sign less, and a word would have other ids in a text of 300 characters than in one of 10."""

    array = unicode_data.array

    def without_underscore(of):
        runs = array(of)
        if of != "bert/punctuation":
            return runs
        kept = [part for a, b in runs.tolist() for part in ((a, min(b, 0x5E)), (max(a, 0x60), b)) if part[0] <= part[1]]
        return np.array(sorted(set(kept)), np.int32)

    monkeypatch.setattr(unicode_data, "array", without_underscore)
    unicode_tables.property_table.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"character '_' is of class .*ascii_blocks"):
            unicode_tables.bert_tables.__wrapped__(**BertNormalizer().options())
    finally:
        unicode_tables.property_table.cache_clear()
