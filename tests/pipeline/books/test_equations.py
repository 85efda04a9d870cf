# SPDX-License-Identifier: Apache-2.0
"""What must be equal in an entry of the ledger: each identity has a case that breaks it."""

import dataclasses

import pytest

from tests.ledger_entries import READ, entry_of
from tokenmill.pipeline.books import job_books
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.books.sums import SortedRuns, Sums


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
