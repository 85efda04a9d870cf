# SPDX-License-Identifier: Apache-2.0
"""What is counted for each file of a split."""

import bz2
import gzip
import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline.books.counts import Accounts, PieceCounts
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
