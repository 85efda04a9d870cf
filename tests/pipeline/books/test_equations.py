# SPDX-License-Identifier: Apache-2.0
"""What must be equal in an entry of the ledger: each identity has a case that breaks it."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from pipeline.books import equations
from pipeline.books.ledger import BooksError
from pipeline.statistics.tally import Statistics
from tests.ledger_entries import READ, entry_of


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_records": 6}, r"records read 6 != documents \+ rejected \+ filtered 5"),
        ({"filtered": {"short": 1}}, r"records read 5 != documents \+ rejected \+ filtered 6"),
        ({"n_bytes": 99}, r"bytes read 99 != bytes of documents \+ rejected \+ filtered \+ skipped 100"),
        ({"n_skipped_bytes": 4}, "bytes read 100 != .* 99"),
        ({"n_filtered_bytes": 1}, "bytes read 100 != .* 101"),
        ({"n_tokens": 10}, r"tokens \+ cut 10 != tokens of text \+ special \+ added 9"),
        ({"n_tokens": 10, "n_text_tokens": 10}, "tokens of the shard 9 != tokens 10"),
        ({"n_cut_tokens": 1}, r"tokens \+ cut 10 != tokens of text \+ special \+ added 9"),
        ({"n_special_tokens": 3}, r"tokens \+ cut 9 != tokens of text \+ special \+ added 12"),
        ({"n_added_tokens": 3}, r"tokens \+ cut 9 != tokens of text \+ special \+ added 12"),
        ({"rejects": None}, "rows of rejects 0 != rejected 2"),
        ({"shard": dataclasses.replace(entry_of().shard, rows=2)}, "rows of the shard 2 != documents 3"),
    ],
)
def test_every_identity_is_checked(changes, message):
    equations.check_balance(entry_of())
    with pytest.raises(BooksError, match=f"split 0123456789abcdef: {message}"):
        equations.check_balance(entry_of(**changes))


def counted(n_documents=3, n_chars=50, n_words=8, rows=((2, 3, 4), (2, 2, 2), (2, 2, 1)), n_cut=0):
    statistics = Statistics(5, 1)
    ids = np.array([i for row in rows for i in row], np.int32)
    offsets = np.array([0, *np.cumsum([len(row) for row in rows])])
    statistics.update(pa.array(["x" * n_chars] + [""] * (len(rows) - 1)), ids, offsets[:-1], offsets[1:])
    statistics.add_layout(np.diff(offsets) + n_cut, np.diff(offsets), 0, 0)
    statistics.n_words = n_words
    return statistics


def test_entries_are_checked_against_statistics():
    equations.check_balance(entry_of(), counted())
    for statistics, message in [
        (counted(rows=((2,) * 8, (1,))), "documents counted 2 != documents 3"),
        (counted(n_chars=49), "characters counted 49 != characters 50"),
        (counted(n_cut=1), "cut tokens counted 3 != cut tokens 0"),
        (counted(n_cut=1), "cut documents counted 3 != cut documents 0"),
        (counted(n_words=7), "words counted 7 != words 8"),
        (counted(rows=((2,) * 8, (1,), (2,))), "tokens counted 10 != tokens 9"),
        (counted(rows=((2,) * 7, (1,), (1,))), "unknown tokens counted 2 != unknown tokens 1"),
    ]:
        with pytest.raises(BooksError, match=message):
            equations.check_balance(entry_of(), statistics)
    for name, message in [
        ("token_counts", "sum of the tokens' counts 10 != tokens 9"),
        ("length_counts", "sum of the lengths' counts 4 != documents 3"),
    ]:
        statistics = counted()
        getattr(statistics, name)[2] += 1
        with pytest.raises(BooksError, match=message):
            equations.check_balance(entry_of(), statistics)
    statistics = counted()
    statistics.token_counts[:2] = [1, 0]
    with pytest.raises(BooksError, match="count of the unknown token 0 != unknown tokens 1"):
        equations.check_balance(entry_of(), statistics)
    statistics = counted()
    statistics.n_oov_words = 3
    with pytest.raises(BooksError, match="sum of the unknown words' counts 0 != unknown words 3"):
        equations.check_balance(entry_of(), statistics)


def test_a_balance_names_all_that_is_wrong():
    with pytest.raises(BooksError) as raised:
        equations.check_balance(entry_of(n_records=6, n_bytes=99))
    assert [line.partition(" != ")[0].partition(": ")[2] for line in str(raised.value).splitlines()] == [
        "records read 6",
        "bytes read 99",
        "n_records 6",
        "n_bytes 99",
    ]


def test_the_books_of_a_file_must_balance_and_be_the_split_s():
    lost = dataclasses.replace(READ, n_documents=2)
    with pytest.raises(BooksError, match=r"'a\.jsonl': records read 5 != documents \+ rejected \+ filtered 4"):
        equations.check_balance(entry_of(inputs=(lost,)))
    with pytest.raises(BooksError, match=r"rejected .* != sum over its files"):
        equations.check_balance(entry_of(inputs=(dataclasses.replace(READ, rejected={"not_object": 2}),)))
    with pytest.raises(BooksError, match="0 inputs are counted, of 1 pieces"):
        equations.check_balance(entry_of(inputs=()))
