# SPDX-License-Identifier: Apache-2.0
"""Statistics of a split against its ledger entry: each number has a case that breaks it."""

import numpy as np
import pyarrow as pa
import pytest

from tests.ledger_entries import entry_of
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.statistics.tally import Statistics, check_agreement


def counted(n_documents=3, n_chars=50, n_words=8, rows=((2, 3, 4), (2, 2, 2), (2, 2, 1)), n_cut=0):
    statistics = Statistics(5, 1)
    ids = np.array([i for row in rows for i in row], np.int32)
    offsets = np.array([0, *np.cumsum([len(row) for row in rows])])
    statistics.update(
        pa.array(["x " * 7 + "x" * (n_chars - 14)] + [""] * (len(rows) - 1)), ids, offsets[:-1], offsets[1:]
    )
    statistics.add_layout(np.diff(offsets) + n_cut, np.diff(offsets), 0, 0)
    statistics.add({"n_words": n_words})
    return statistics


def test_entries_are_checked_against_statistics():
    check_agreement(entry_of(), counted())
    for name, message in [
        ("token_counts", "sum of the tokens' counts 10 != tokens 9"),
        ("length_counts", "sum of the lengths' counts 4 != documents 3"),
    ]:
        statistics = counted()
        getattr(statistics, name)[2] += 1
        with pytest.raises(BooksError, match=message):
            check_agreement(entry_of(), statistics)
    statistics = counted()
    statistics.token_counts[:2] = [1, 0]
    with pytest.raises(BooksError, match="count of the unknown token 0 != unknown tokens 1"):
        check_agreement(entry_of(), statistics)
    with pytest.raises(BooksError, match="sum of the unknown words' counts 0 != unknown words 3"):
        check_agreement(entry_of(n_oov_words=3), counted())
