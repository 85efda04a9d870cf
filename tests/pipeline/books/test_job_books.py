# SPDX-License-Identifier: Apache-2.0
"""The books of a whole job and of each file: sums and identities, and every byte of a file read once."""

import bz2
import dataclasses
import gzip
import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.finished_splits import built, entry_of, pieces
from tokenmill.pipeline.books.counts import Accounts, PieceCounts
from tokenmill.pipeline.books.job_books import JobBooks, identities
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits
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
