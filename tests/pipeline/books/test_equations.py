# SPDX-License-Identifier: Apache-2.0
"""What must be equal in an entry of the ledger and its statistics: each identity has a case that breaks it."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from tests.ledger_entries import READ, entry_of
from tokenmill.pipeline.books import job_books
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.books.sums import SortedRuns, Sums
from tokenmill.pipeline.statistics.tally import Statistics, check_agreement


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_records": 6}, r"records read 6 != documents \+ rejected \+ filtered 5"),
        ({"filtered": {"short": 1}}, r"records read 5 != documents \+ rejected \+ filtered 6"),
        (
            {"n_bytes": 99},
            r"bytes read 99 != bytes of documents \+ rejected bytes \+ filtered bytes \+ skipped bytes 100",
        ),
        ({"n_skipped_bytes": 4}, "bytes read 100 != .* 99"),
        ({"n_filtered_bytes": 1}, "bytes read 100 != .* 101"),
        ({"n_tokens": 10}, r"tokens \+ cut tokens 10 != tokens of text \+ special tokens \+ added tokens 9"),
        ({"n_tokens": 10, "n_text_tokens": 10}, "tokens of the shard 9 != tokens 10"),
        ({"n_cut_tokens": 1}, r"tokens \+ cut tokens 10 != tokens of text \+ special tokens \+ added tokens 9"),
        ({"n_special_tokens": 3}, r"tokens \+ cut tokens 9 != tokens of text \+ special tokens \+ added tokens 12"),
        ({"n_added_tokens": 3}, r"tokens \+ cut tokens 9 != tokens of text \+ special tokens \+ added tokens 12"),
        ({"rejects": None}, "rows of rejects 0 != rejected 2"),
        ({"shard": dataclasses.replace(entry_of().shard, rows=2)}, "rows of the shard 2 != documents 3"),
    ],
)
def test_every_identity_is_checked(changes, message):
    job_books.check_balance(entry_of())
    with pytest.raises(BooksError, match=f"split 0123456789abcdef: {message}"):
        job_books.check_balance(entry_of(**changes))


def test_the_books_of_a_file_must_balance_and_be_the_split_s():
    lost = dataclasses.replace(READ, n_documents=2)
    with pytest.raises(BooksError, match=r"'a\.jsonl': records read 5 != documents \+ rejected \+ filtered 4"):
        job_books.check_balance(entry_of(inputs=(lost,)))
    with pytest.raises(BooksError, match=r"rejected:.* != sum over its files"):
        job_books.check_balance(entry_of(inputs=(dataclasses.replace(READ, rejected={"not_object": 2}),)))
    with pytest.raises(BooksError, match="0 inputs are counted, of 1 pieces"):
        job_books.check_balance(entry_of(inputs=()))


def shard_of(**changes):
    """Returns an entry with an index beside the shard, and packing or windows that fit."""
    return entry_of(companions=(FileRecord("tokens-00002-of-00004.idx", 1, "a", 3, 9),), **changes)


PACKED = {"n_documents": 3, "n_tokens": 9, "n_sequences": 2, "n_separators": 3}
WINDOWS = {"n_documents": 3, "n_tokens": 9, "n_windows": 4, "n_repeated": 2, "n_special": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"companions": (FileRecord("a.idx", 1, "a", 3, 8),)}, "a.idx: tokens of the shard 8 != tokens 9"),
        ({"documents": FileRecord("d", 1, "a", 2, 9)}, "documents listed 2 != documents 3"),
        ({"documents": FileRecord("d", 1, "a", 3, 8)}, "tokens of documents listed 8 != tokens 9"),
        ({"packing": PACKED}, "rows of the shard 3 != sequences 2"),
        ({"packing": PACKED}, r"tokens of the shard 9 != tokens \+ separators 12"),
        ({"packing": PACKED | {"n_documents": 2}}, "documents packed 2 != documents 3"),
        ({"packing": PACKED | {"n_tokens": 8}}, "tokens packed 8 != tokens 9"),
        ({"windows": WINDOWS}, "rows of the shard 3 != windows 4"),
        ({"windows": WINDOWS}, r"tokens of the shard 9 != tokens \+ repeated \+ special 12"),
        ({"windows": WINDOWS | {"n_documents": 2}}, "documents in windows 2 != documents 3"),
        ({"windows": WINDOWS | {"n_tokens": 8}}, "tokens in windows 8 != tokens 9"),
        (
            {"runs": SortedRuns((), Sums(n_documents=3, n_tokens=9, n_oov_tokens=0))},
            "unknown tokens sorted 0 != unknown tokens 1",
        ),
    ],
)
def test_rows_are_checked_against_documents(changes, message):
    job_books.check_balance(shard_of())
    with pytest.raises(BooksError, match=message):
        job_books.check_balance(entry_of(**changes))


def counted():
    """Returns statistics of three documents, of 50 characters, 8 words and 9 tokens, of which one is unknown."""
    statistics = Statistics(5, 1)
    ids, offsets = np.array([2, 3, 4, 2, 2, 2, 2, 2, 1], np.int32), np.array([0, 3, 6, 9])
    statistics.update(pa.array(["x " * 7 + "x" * 36, "", ""]), ids, offsets[:-1], offsets[1:])
    statistics.add_layout(np.diff(offsets), np.diff(offsets), 0, 0)
    statistics.add({"n_words": 8})
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
