# SPDX-License-Identifier: Apache-2.0
"""An entry of the ledger that balances, and the files that it names."""

import dataclasses
import hashlib

from tokenmill.pipeline import filenames
from tokenmill.pipeline.books.counts import PieceCounts, flatten
from tokenmill.pipeline.books.ledger import FileRecord, LedgerEntry
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.splits import Piece, Split

PIECE = Piece("/corpus/a.jsonl", "a.jsonl", 100, "100-7", "jsonl", "none", 0, 100)

SPLIT = Split(2, "0123456789abcdef", (PIECE,))

READ = PieceCounts(
    n_records=5,
    n_documents=3,
    rejected={"not_json": 2},
    n_bytes=100,
    n_document_bytes=70,
    n_rejected_bytes=25,
    n_skipped_bytes=5,
    n_chars=50,
    n_spaced_words=8,
    n_text_tokens=9,
    n_tokens=9,
    n_oov_tokens=1,
    sha256="aa",
)


def entry_of(**changes):
    """Returns an entry that balances: 3 documents, 2 rejects, 100 bytes, 9 tokens."""
    entry = LedgerEntry(
        split_id=SPLIT.id,
        index=2,
        tokenizer="t",
        pieces=SPLIT.pieces,
        inputs=(READ,),
        counts={
            "": {
                "n_records": 5, "n_documents": 3, "rejected:not_json": 2, "n_bytes": 100, "n_document_bytes": 70,
                "n_rejected_bytes": 25, "n_filtered_bytes": 0, "n_skipped_bytes": 5, "n_chars": 50, "n_words": 8,
                "n_spaced_words": 8, "n_text_tokens": 9, "n_cut_tokens": 0, "n_cut_documents": 0,
                "n_special_tokens": 0, "n_added_tokens": 0, "n_tokens": 9, "n_oov_tokens": 1,
            }
        },
        shard=FileRecord("tokens-00002-of-00004.parquet", 5, hashlib.sha256(b"shard").hexdigest(), 3, 9),
        documents=FileRecord(
            "documents/documents-00002-of-00004.parquet", 4, hashlib.sha256(b"docs").hexdigest(), 3, 9
        ),
        rejects=FileRecord("rejected/rejects-00002-of-00004.parquet", 7, hashlib.sha256(b"rejects").hexdigest(), 2),
        statistics=FileRecord("_ledger/0123456789abcdef.arrow", 2, hashlib.sha256(b"st").hexdigest()),
    )  # fmt: skip
    return changed(entry, **changes)


def changed(entry, **changes):
    """Returns an entry with other fields, or other numbers of what has no field; "rejected" and such by name."""
    fields = {field.name for field in dataclasses.fields(entry)}
    numbers = {name: changes.pop(name) for name in [*changes] if name not in fields}
    kept = {name: n for name, n in entry.counts[""].items() if name.partition(":")[0] not in numbers}
    return dataclasses.replace(entry, counts={**entry.counts, "": {**kept, **flatten(numbers)}}, **changes)


def commit(output, entry=None):
    """Commits an entry with files as `entry_of` records them."""
    with Staging(output, SPLIT.id) as staging:
        for name, data, rows, tokens in [
            ("tokens-00002-of-00004.parquet", b"shard", 3, 9),
            ("documents/documents-00002-of-00004.parquet", b"docs", 3, 9),
            ("rejected/rejects-00002-of-00004.parquet", b"rejects", 2, None),
            ("_ledger/0123456789abcdef.arrow", b"st", None, None),
        ]:
            file = staging.create(name)
            file.write(data)
            file.finish(rows, tokens)
        staging.commit(entry or entry_of())


def committed(output, **changes):
    arguments = {"split": SPLIT, "n_splits": 4, "suffix": ".parquet", "tokenizer": "t"} | changes
    place = arguments["split"].index, arguments["n_splits"]
    names = [filenames.shard_name(*place, arguments["suffix"]), filenames.documents_name(*place)]
    return LedgerEntry.committed(output, arguments["split"], arguments["tokenizer"], names)
