# SPDX-License-Identifier: Apache-2.0
"""Plans a crawl of a million files that do not exist, and closes its books, to see what a driver costs at that size.

The files live in a filesystem registered with Beam: a listing with sizes like those of a crawl, log-normal with a heavy
tail, and a few bytes for whoever opens a file. The code that plans, describes and adds up is that of every job.
"""

import argparse
import io
import math
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem, MatchResult

from benchmarks import report
from pipeline.books import equations, job_record, ledger, manifest
from pipeline.books.input_counts import PieceCounts
from pipeline.books.ledger import FileRecord, LedgerEntry
from pipeline.config.job import Config
from pipeline.input.splitting import plan_splits
from pipeline.jobs import planning
from pipeline.splits import Split

_MEDIAN_BYTES = 1 << 20
_SIGMA = 2.0
_MOST_BYTES = 8 << 30


class CrawlFileSystem(FileSystem):  # type: ignore[misc]  # Beam has no types
    """`crawl://<n>/...`: n files of JSON lines, of which only names, sizes and first bytes exist."""

    n_files = 0

    @classmethod
    def scheme(cls) -> str:
        """Returns the scheme by which Beam finds this filesystem."""
        return "crawl"

    def match(self, patterns: list[str], limits: Any = None) -> list[Any]:
        """Lists all files, whatever the pattern."""
        return [MatchResult(patterns[0], list(_listing(self.n_files)))]

    def open(self, path: str, mime_type: str = "", compression_type: str = "") -> Any:
        """Returns the first bytes of a file."""
        return io.BytesIO(b"\x1f\x8b\x08\0" if path.endswith(".gz") else b'{"text": "the mill"}\n')

    def exists(self, path: str) -> bool:
        """Returns False: this is only asked for patterns."""
        return "*" not in path

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise BeamIOError("the crawl can only be listed")

    join = split = mkdirs = has_dirs = _list = create = copy = rename = size = last_updated = checksum = delete = (
        _refuse
    )
    metadata = _refuse


def _listing(n_files: int) -> Iterator[Any]:
    rng = random.Random(0)
    for i in range(n_files):
        n_bytes = min(_MOST_BYTES, int(_MEDIAN_BYTES * math.exp(rng.gauss(0, _SIGMA))))
        suffix = "jsonl.gz" if i % 4 == 0 else "jsonl"
        path = f"crawl://data/CC-MAIN-2026-{i % 52:02d}/segment-{i // 1000:06d}/part-{i:08d}.{suffix}"
        yield FileMetadata(path, n_bytes, 1_760_000_000.0 + i)


def main(arguments: list[str]) -> int:
    """Measures; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run.sh bench scale", description=__doc__, allow_abbrev=False)
    parser.add_argument("--files", type=int, default=1_000_000, help="files of the crawl (default 1,000,000)")
    options = parser.parse_args(arguments)
    print(report.describe(report.machine() | report.versions("tokenmill", "apache-beam")))
    CrawlFileSystem.n_files = options.files
    with tempfile.TemporaryDirectory(prefix="tokenmill-scale-") as folder:
        config = Config.model_validate(
            {"input": {"paths": ["crawl://data/*/*/*"]}, "tokenizer": {"file": "x"}, "output": {"path": folder}}
        )
        job = job_record.Job.of("tokenize", config, "digest")
        splits = _measured("plan", lambda: plan_splits(config.input, job.digest))
        n_bytes = sum(split.n_bytes for split in splits)
        print(f"  {options.files:,} files, {n_bytes / 1e12:.2f} TB, {len(splits):,} splits")
        plan = planning.JobPlan("tokenize", config, job, splits, tokenizer=None, counting_json=None)
        _measured("prepare: plan.jsonl", lambda: planning.prepare(plan, "new"))
        _measured("dealing out: read plan.jsonl", lambda: sum(len(line) for line in planning.read_plan(plan.plan_path)))
        size = _measured("ledger: write and read every entry as JSON", lambda: _ledger_bytes(splits))
        print(f"  {size / 1e6:,.0f} MB of entries, {size / len(splits):,.0f} bytes each")
        entries = [_entry(split) for split in splits]
        built = _measured("manifest: add up and balance", lambda: manifest.build(job, splits, entries))
        written = _measured("manifest: as JSON", lambda: sum(map(len, ledger.json_pieces(built))))
        print(f"  {written / 1e6:,.0f} MB of manifest, {written / options.files:,.0f} bytes per file")
    return 0


def _measured(name: str, function: Any) -> Any:
    started, cpu = time.monotonic(), time.process_time()
    result = function()
    seconds, peak = time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name}: {seconds:.1f} s, {time.process_time() - cpu:.1f} s of CPU; peak RSS {peak:,.0f} MiB",
        flush=True,
    )
    return result


def _ledger_bytes(splits: list[Split]) -> int:
    n_bytes = 0
    for split in splits:
        data = _entry(split).to_json()
        n_bytes += len(data)
        equations.check_balance(LedgerEntry.from_json(data))
    return n_bytes


def _entry(split: Split) -> LedgerEntry:
    """Returns the entry of a split as a job would leave it: 1,000 bytes and 250 tokens to a document."""
    inputs = tuple(
        PieceCounts(
            n_records=n // 1000,
            n_documents=n // 1000,
            n_bytes=n,
            n_document_bytes=n // 1000 * 1000,
            n_skipped_bytes=n % 1000,
            n_chars=n,
            n_text_tokens=n // 1000 * 250,
            n_tokens=n // 1000 * 250,
            sha256="0" * 64,
        )
        for n in (piece.stop - piece.start for piece in split.pieces)
    )
    total = sum(inputs, PieceCounts())
    return LedgerEntry(
        split_id=split.id,
        index=split.index,
        tokenizer="digest",
        pieces=split.pieces,
        n_records=total.n_records,
        n_documents=total.n_documents,
        rejected={},
        filtered={},
        n_bytes=total.n_bytes,
        n_document_bytes=total.n_document_bytes,
        n_rejected_bytes=0,
        n_filtered_bytes=0,
        n_skipped_bytes=total.n_skipped_bytes,
        n_chars=total.n_chars,
        n_words=total.n_documents * 180,
        n_text_tokens=total.n_text_tokens,
        n_cut_tokens=0,
        n_cut_documents=0,
        n_special_tokens=0,
        n_added_tokens=0,
        n_tokens=total.n_tokens,
        n_oov_tokens=0,
        inputs=inputs,
        shard=FileRecord("tokens", 1, "0" * 64, total.n_documents, total.n_documents * 250),
        documents=FileRecord("documents", 1, "0" * 64, total.n_documents, total.n_documents * 250),
        rejects=None,
        statistics=FileRecord("statistics", 1, "0" * 64),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
