# SPDX-License-Identifier: Apache-2.0
"""Splits of a small job with their entries in the ledger, which add up."""

import dataclasses
from pathlib import Path

from tokenmill.pipeline.books import lists, manifest
from tokenmill.pipeline.books.counts import PieceCounts
from tokenmill.pipeline.books.job_books import JobBooks
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.ledger import FileRecord, LedgerEntry
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.splits import Piece, Split


def config_of(**sections):
    base = {"input": {"paths": ["a/*.jsonl"]}, "tokenizer": {"file": "vocab.txt"}, "output": {"path": "out"}}
    return Config.model_validate({name: base[name] | sections.get(name, {}) for name in base})


JOB = Job.of("tokenize", config_of(), "digest")


def pieces(*sizes, **changes):
    return tuple(
        dataclasses.replace(Piece(f"/c/{name}", name, n, "v", "jsonl", "none", 0, n), **changes) for name, n in sizes
    )


def read_of(split, n_bytes, n_rejected):
    """Yields what was read of each piece: all but the last to its end, the rejects at the end of the last."""
    for i, piece in enumerate(split.pieces):
        is_last = i == len(split.pieces) - 1
        n_read = n_bytes if is_last else piece.n_bytes
        n_bytes -= n_read
        n_bad = n_rejected if is_last else 0
        n_documents = (n_read - n_bad) // 10
        yield PieceCounts(
            n_records=n_documents + n_bad,
            n_documents=n_documents,
            rejected={"not_json": n_bad} if n_bad else None,
            n_bytes=n_read,
            n_document_bytes=10 * n_documents,
            n_rejected_bytes=n_bad,
            n_skipped_bytes=n_read - n_bad - 10 * n_documents,
            n_chars=5 * n_documents,
            n_spaced_words=n_documents,
            n_text_tokens=2 * n_documents,
            n_tokens=2 * n_documents,
            sha256=piece.name,
        )


def entry_of(split, n_bytes, n_rejected=0, suffix=".parquet", n_splits=2):
    """Returns the entry of a split of which every document has 10 bytes and 2 tokens, and every reject 1 byte."""
    n_documents = (n_bytes - n_rejected) // 10
    number = f"{split.index:05d}-of-{n_splits:05d}"
    return LedgerEntry(
        split_id=split.id,
        index=split.index,
        tokenizer="digest",
        pieces=split.pieces,
        counts={
            "": {
                "n_records": n_documents + n_rejected,
                "n_documents": n_documents,
                **({"rejected:not_json": n_rejected} if n_rejected else {}),
                "n_bytes": n_bytes,
                "n_document_bytes": 10 * n_documents,
                "n_rejected_bytes": n_rejected,
                "n_skipped_bytes": n_bytes - n_rejected - 10 * n_documents,
                "n_chars": 5 * n_documents,
                "n_words": n_documents,
                "n_spaced_words": n_documents,
                "n_text_tokens": 2 * n_documents,
                "n_tokens": 2 * n_documents,
            }
        },
        inputs=tuple(read_of(split, n_bytes, n_rejected)),
        shard=FileRecord(f"tokens-{number}{suffix}", 99, "aa", n_documents, 2 * n_documents),
        documents=FileRecord(f"documents/documents-{number}.parquet", 8, "ab", n_documents, 2 * n_documents),
        rejects=FileRecord(f"rejected/rejects-{number}.parquet", 7, "bb", n_rejected) if n_rejected else None,
        statistics=FileRecord(f"_ledger/{split.id}.arrow", 3, "cc"),
    )


SPLITS = [Split(0, "0" * 16, pieces(("a", 100))), Split(1, "1" * 16, pieces(("b", 40), ("c", 13)))]

ENTRIES = [entry_of(SPLITS[0], 100), entry_of(SPLITS[1], 53, n_rejected=3)]


def built(entries=ENTRIES, job=JOB, output="nowhere"):
    """Returns the manifest of a job that left these entries."""
    files = [FileRecord("vocab/vocab.txt", 5, "dd"), FileRecord("stats.json", 6, "ee")]
    listed = lists.Lists(str(output))
    books = JobBooks(listed.take)
    for entry in entries:
        books.add(entry)
    books.close()
    return manifest.build(job, manifest.sums(books), listed.finish(), tokenizer={"digest": "digest"}, files=files)


def write(folder, *names):
    for name in names:
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def names_in(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())
