# SPDX-License-Identifier: Apache-2.0
"""What is counted for each file of a split."""

import bz2
import gzip
import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books import quantities
from tokenmill.pipeline.books.counts import Accounts, PieceCounts, filtered, rejected
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits

LINES = b'\xef\xbb\xbf{"text": "a"}\n\nno json\n{"text": "ccc"}\n'


def read(folder, batch_bytes=1 << 20, **settings):
    """Returns the counts of every piece by name; one split."""
    (split,) = plan_splits(InputConfig(paths=[str(folder / "*")], **settings), "salt")
    accounts = Accounts(len(split.pieces))
    for batch in read_split(split, InputConfig(paths=["x"], **settings), batch_bytes):
        accounts.add(batch.pieces)
    return {piece.name: counts for piece, counts in zip(split.pieces, accounts.finish(), strict=True)}


@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_every_file_has_its_own_counts_and_checksum(tmp_path, batch_bytes):
    (tmp_path / "a.jsonl").write_bytes(LINES)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(LINES, mtime=0))
    (tmp_path / "c.txt.bz2").write_bytes(bz2.compress(b"one\n\ntwo\n"))
    (tmp_path / "d.jsonl").write_bytes(b"")
    pq.write_table(pa.table({"text": ["x", None, "yyy"]}), tmp_path / "e.parquet")
    found = read(tmp_path, batch_bytes)
    lines = PieceCounts(
        n_records=3,
        n_documents=2,
        rejected={"not_json": 1},
        n_bytes=len(LINES),
        n_document_bytes=len(LINES) - 3 - 1 - 8,
        n_rejected_bytes=8,
        n_skipped_bytes=4,
        sha256=hashlib.sha256(LINES).hexdigest(),
    )
    assert found["a.jsonl"] == found["b.jsonl.gz"] == lines
    assert found["c.txt.bz2"].sha256 == hashlib.sha256(b"one\n\ntwo\n").hexdigest()
    assert found["d.jsonl"] == PieceCounts(sha256=hashlib.sha256(b"").hexdigest())
    assert found["e.parquet"].sha256 == hashlib.sha256(b"xyyy").hexdigest()
    assert found["e.parquet"].rejected == {"null_text": 1}
    assert not any(counts.imbalances() for counts in found.values())


DOCUMENTS = pa.record_batch(
    [pa.array(column, field.type) for column, field in zip(
        [["x", "y", "z"], ["", "", ""], [0, 0, 1], [0, 2, 0], [1, 2, 4]], schemas.DOCUMENTS, strict=True
    )],
    schema=schemas.DOCUMENTS,
)  # fmt: skip
"""Two of the first piece of a split, and one of the second."""


def two_accounts():
    accounts = Accounts(2)
    accounts.add([(0, PieceCounts(n_records=3, n_documents=3, n_bytes=6, n_document_bytes=6, sha256="a"))])
    accounts.add([(1, PieceCounts(n_records=1, n_documents=1, n_bytes=4, n_document_bytes=4, sha256="b"))])
    return accounts


def test_filtered_documents_move_from_one_account_to_the_other():
    accounts = two_accounts()
    accounts.add(filtered(DOCUMENTS, quantities.SAMPLE))
    accounts.add(filtered(DOCUMENTS.slice(0, 0), quantities.OTHER_LANGUAGE))
    first, second = accounts.finish()
    found = first.n_documents, first.filtered, first.n_document_bytes, first.n_filtered_bytes
    assert found == (1, {quantities.SAMPLE: 2}, 3, 3)
    assert (second.n_documents, second.filtered, second.n_filtered_bytes) == (0, {quantities.SAMPLE: 1}, 4)
    assert not first.imbalances()
    assert not second.imbalances()
    assert (first + second).filtered == {quantities.SAMPLE: 3}


def test_documents_given_up_later_move_to_the_rejected():
    accounts = two_accounts()
    accounts.add(rejected(DOCUMENTS.slice(1), "text_timeout"))
    first, second = accounts.finish()
    assert (first.n_documents, first.rejected, first.n_rejected_bytes) == (2, {"text_timeout": 1}, 2)
    assert (second.n_documents, second.rejected, second.n_rejected_bytes) == (0, {"text_timeout": 1}, 4)
    assert not first.imbalances()
    assert not second.imbalances()
