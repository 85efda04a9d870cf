# SPDX-License-Identifier: Apache-2.0
"""The books of a whole job: sums and identities, and every byte of a file read once."""

import dataclasses

import pytest

from tests.finished_splits import built, entry_of, pieces
from tokenmill.pipeline.books.job_books import JobBooks, identities
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.splits import Split


def check_inputs(entries):
    """Raises if what was read of the files of a job does not add up."""
    books = JobBooks(lambda kind, record: None)
    for entry in entries:
        books.add(entry)
    books.close()
    if books.problems:
        raise BooksError("\n".join(books.problems))


def test_totals_that_do_not_balance_are_refused():
    totals = built()["totals"]
    identities(totals)
    words = {"n_records": "records read", "n_bytes": "bytes read", "shard_rows": "rows of the shard"}
    words |= {"shard_tokens": "tokens of the shard", "reject_rows": "rows of rejects"}
    for name, said in words.items():
        with pytest.raises(BooksError, match=f"^the job: {said}"):
            identities(totals | {name: totals[name] + 1})


def test_every_byte_of_a_cut_file_is_read_once():
    def cut(*n_read):
        ranges = [(0, 40), (40, 80), (80, 100)]
        splits = [
            Split(i, str(i) * 16, (dataclasses.replace(pieces(("big", 100))[0], start=start, stop=stop),))
            for i, (start, stop) in enumerate(ranges)
        ]
        check_inputs([entry_of(split, n) for split, n in zip(splits, n_read, strict=True)])

    cut(40, 40, 20)
    cut(57, 33, 10)  # a record belongs to the range it begins in
    for n_read, total in [((40, 40, 19), 99), ((40, 41, 20), 101)]:
        with pytest.raises(BooksError, match=f"'/c/big': {total} bytes read of 100"):
            cut(*n_read)
