# SPDX-License-Identifier: Apache-2.0
"""The books of several folders together: every record and every byte in one of them."""

import pytest

from tokenmill.pipeline.books import parts
from tokenmill.pipeline.books.counts import flatten
from tokenmill.pipeline.books.quantities import OF_INPUT, BooksError, imbalances
from tokenmill.pipeline.books.rules import OTHER_PART


def totals(n_documents, n_document_bytes, rejected=0, filtered=None, **other):
    """Of one of two folders that have read 10 records and 100 bytes, 4 of them blank."""
    names = (*parts._EACH_HAS_ALL, *parts._ADDED)
    n_left = 10 - n_documents - rejected - sum((filtered or {}).values())
    return {
        **dict.fromkeys(names, 0),
        "n_records": 10,
        "n_bytes": 100,
        "n_skipped_bytes": 4,
        "n_documents": n_documents,
        "n_document_bytes": n_document_bytes,
        "rejected": {"not_json": rejected} if rejected else {},
        "n_rejected_bytes": 9 * rejected,
        "filtered": {**(filtered or {}), OTHER_PART: n_left},
        "n_filtered_bytes": 96 - n_document_bytes - 9 * rejected,
    } | other


def test_what_is_a_document_somewhere_counts_once():
    found = parts.add_up({"tokenizer=default": totals(6, 57, rejected=1), "tokenizer=zh": totals(3, 30)})
    assert (found["n_documents"], found["rejected"], found["filtered"]) == (9, {"not_json": 1}, {})
    assert (found["n_document_bytes"], found["n_filtered_bytes"]) == (87, 0)
    assert imbalances(OF_INPUT, flatten(found)) == []


def test_what_all_filter_counts_once():
    filtered = {"sample": 2}
    found = parts.add_up(
        {"tokenizer=default": totals(5, 50, filtered=filtered), "tokenizer=zh": totals(3, 30, filtered=filtered)}
    )
    assert (found["filtered"], found["n_filtered_bytes"]) == ({"sample": 2}, 16)
    assert imbalances(OF_INPUT, flatten(found)) == []


def test_a_record_that_no_folder_has_is_noticed():
    found = parts.add_up({"tokenizer=default": totals(6, 66), "tokenizer=zh": totals(3, 30)})
    assert imbalances(OF_INPUT, flatten(found)) == ["records read 10 != documents + rejected + filtered 9"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (totals(3, 30, n_records=11), r"tokenizer=zh: n_records 11 != 10 of tokenizer=default"),
        (totals(3, 30, filtered={"sample": 1}), r"tokenizer=zh: filtered:sample 1 != 0 of tokenizer=default"),
        (totals(4, 31), r"all parts: documents and rejects leave -1 of 100 bytes, but rules filter nothing"),
        (totals(4, 29), r"all parts: documents and rejects leave 1 of 100 bytes, but rules filter nothing"),
    ],
)
def test_folders_that_do_not_agree_are_named(other, message):
    with pytest.raises(BooksError, match=message):
        parts.add_up({"tokenizer=default": totals(6, 66), "tokenizer=zh": other})
