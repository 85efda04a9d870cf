# SPDX-License-Identifier: Apache-2.0
"""Plans a crawl of a million files that do not exist, and closes its books, to measure the cost at this size.

The files are in a filesystem registered with Beam: a listing with sizes like those of a crawl, log-normal with a heavy
tail, and a few bytes as the content of every file. The code that plans, describes and adds up is that of every job.
"""

import argparse
import functools
import hashlib
import io
import itertools
import math
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from benchmarks import corpora, report
from tokenmill.pipeline import storage
from tokenmill.pipeline.books import job_record, manifest
from tokenmill.pipeline.books.counts import PieceCounts, sum_of
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.ledger import FileRecord, LedgerEntry
from tokenmill.pipeline.books.lists import files_of_lists
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.filenames import PLAN, documents_name, entry_name, shard_name, statistics_name
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.jobs import finish, planning
from tokenmill.pipeline.proving import verify
from tokenmill.pipeline.proving.report import VerifyReport
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.statistics.tally import Statistics
from tokenmill.tokenizer import Tokenizer

_MEDIAN_BYTES = 1 << 20
_SIGMA = 2.0
_MOST_BYTES = 8 << 30
_N_CRAWLS = 52
_PAGE_FILES = 1000
_SIZES = {"1 GB": 1e9, "100 GB": 1e11, "10 TB": 1e13}
PATTERNS = [f"crawl://data/CC-MAIN-2026-{tens}?/*/*" for tens in range(6)]
"""Patterns are listed side by side; each is listed page by page, one after the other."""


class Crawl:
    """`crawl://data/...`: files of JSON lines, of which only names, sizes and first bytes exist."""

    n_files = 0
    latency = 0.0
    """Seconds until a file is open and its first bytes are there, or a page of 1,000 names; other requests wait in the
    meantime, too."""

    def get_file_info(self, place: Any) -> Any:
        """Returns what is in a folder, and waits for each page of it; of a pattern, that there is no such file."""
        if isinstance(place, str):
            return fs.FileInfo(place, fs.FileType.NotFound)
        folders = [f"data/CC-MAIN-2026-{crawl:02d}" for crawl in range(_N_CRAWLS)]
        if place.base_dir == "data" and not place.recursive:
            return [fs.FileInfo(folder, fs.FileType.Directory) for folder in folders]
        base = f"{place.base_dir}/"
        crawls = [crawl for crawl, folder in enumerate(folders) if base.startswith(f"{folder}/") or base == "data/"]
        found = [file for crawl in crawls for file in _listing(self.n_files, crawl) if file.path.startswith(base)]
        if place.base_dir in folders and not place.recursive:
            segments = sorted({file.path.rpartition("/")[0] for file in found})
            return [fs.FileInfo(segment, fs.FileType.Directory) for segment in segments]
        for _ in range(0, len(found), _PAGE_FILES):
            time.sleep(self.latency)
        return found

    def open_input_file(self, place: str) -> Any:
        """Returns the first bytes of a file."""
        if self.latency:
            time.sleep(self.latency)
        return io.BytesIO(b"\x1f\x8b\x08\0" if place.endswith(".gz") else b'{"text": "the mill"}\n')


@functools.lru_cache(maxsize=4)  # its segments are listed one after another
def _listing(n_files: int, crawl: int) -> list[Any]:
    rng, found = random.Random(crawl), []
    for i in range(crawl, n_files, _N_CRAWLS):
        n_bytes = min(_MOST_BYTES, int(_MEDIAN_BYTES * math.exp(rng.gauss(0, _SIGMA))))
        suffix = "jsonl.gz" if i % 4 == 0 else "jsonl"
        path = f"data/CC-MAIN-2026-{crawl:02d}/segment-{i // 1000:06d}/part-{i:08d}.{suffix}"
        found.append(fs.FileInfo(path, fs.FileType.File, size=n_bytes, mtime_ns=(1_760_000_000 + i) * 10**9))
    return found


def main(arguments: list[str]) -> int:
    """Measures; returns the exit code."""
    parser = report.parser("scale", __doc__)
    parser.add_argument("--files", type=int, default=1_000_000, help="files of the crawl (default 1,000,000)")
    parser.add_argument("--split-mb", type=int, default=64, help="input.split_bytes in MiB (default 64)")
    parser.add_argument(
        "--vocabulary", type=int, default=30_000, help="entries (default 30,000): 3 bytes of each split's statistics"
    )
    parser.add_argument("--latency-ms", type=float, default=0, help="of each request to the store (default 0)")
    parser.add_argument("--only-plan", action="store_true", help="list and cut, and nothing else")
    parser.add_argument("--local", action="store_true", help="list a folder of so many files, and nothing else")
    parser.add_argument("--words", action="store_true", help="how distinct words grow with text, and nothing else")
    parser.add_argument("--folder", help="where the ledger is written (default: the temporary folder)")
    options = parser.parse_args(arguments)
    print(report.describe("tokenmill", "apache-beam"))
    if options.words:
        _grow_words()
        return 0
    if options.local:
        _list_local(options)
        return 0
    with tempfile.TemporaryDirectory(prefix="tokenmill-scale-", dir=options.folder) as folder:
        # A process for each machine of a cluster that would do it, so that none has the memory of another.
        for step in (_plan,) if options.only_plan else (_plan, _work, _finish):
            process = multiprocessing.get_context("spawn").Process(target=step, args=(options, folder))
            process.start()
            process.join()
            if process.exitcode:
                return 1
    return 0


def _list_local(options: argparse.Namespace) -> None:
    """Plans folders of 1,000 files and of ten times as many each, up to `--files`; a third has no known name."""
    n_made, sizes = 0, [*(10**k for k in range(3, 9) if 10**k < options.files), options.files]
    with tempfile.TemporaryDirectory(prefix="tokenmill-scale-", dir=options.folder) as folder:
        for n_files in sizes:
            for i in range(n_made, n_files):
                place = f"{folder}/{i // 1000:06d}"
                if i % 1000 == 0:
                    os.mkdir(place)
                with open(f"{place}/{i:08d}.{('txt', 'jsonl', 'rs')[i % 3]}", "wb") as handle:
                    handle.write(b'{"text": "the mill"}\n')
            n_made = n_files
            excluded = [f"{folder}/{i // 1000:06d}/{i:08d}.txt" for i in range(0, n_files, 3)]
            for name, exclude in (("a third of unknown names", []), ("and a third left out by name", excluded)):
                config = InputConfig(paths=[folder], exclude=exclude)
                _measured(f"{n_files:>10,} files, {name}", lambda config=config: plan_splits(config, ""))


def _grow_words() -> None:
    """Counts the words of real text as it grows, and continues the curve by Heaps' law: words = k * bytes ** beta."""
    tokenizer = Tokenizer.for_bert(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    print(f"{'text':>14}{'MB':>8}" + "".join(f"{n:>12}" for n in ("distinct", "beta", *(f"at {n}" for n in _SIZES))))
    for corpus in corpora.load():
        order = random.Random(0).sample(corpus.texts, len(corpus.texts))
        counter, n_bytes, points = tokenizer.new_word_counter(), 0, list[tuple[int, int]]()
        for text in order:
            counter.update(pa.array([text]))
            n_bytes += len(text.encode())
            if not points or n_bytes > 1.25 * points[-1][0]:
                points.append((n_bytes, counter.n_distinct))
        points.append((n_bytes, counter.n_distinct))
        x, y = np.log(np.array([point for point in points if point[0] > n_bytes / 16], float)).T
        beta, k = np.polyfit(x, y, 1)
        wrong = float(np.abs(np.expm1(k + beta * x - y)).max())
        grown = "".join(f"{math.exp(k) * size**beta / 1e6:>10,.1f} M" for size in _SIZES.values())
        measured = f"{corpus.name:>14}{n_bytes / 1e6:8.1f}{counter.n_distinct:>12,}{beta:>12.3f}"
        print(f"{measured}{grown}   fit within {wrong:.1%}")


def list_crawl(n_files: int, latency: float = 0.0) -> None:
    """Makes this process list the crawl wherever it lists a store; `latency` as `Crawl.latency`."""
    Crawl.n_files, Crawl.latency = n_files, latency
    storage._open_store = lambda *_: Crawl()  # type: ignore[assignment]


def _config(options: argparse.Namespace, folder: str) -> Config:
    list_crawl(options.files, options.latency_ms / 1000)
    return Config.model_validate(
        {
            "input": {"paths": PATTERNS, "split_bytes": options.split_mb << 20},
            "tokenizer": {"file": "x"},
            "output": {"path": folder},
        }
    )


def _tokenizer(options: argparse.Namespace) -> Tokenizer:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return Tokenizer.for_bert([*specials, *(f"word{i}" for i in range(options.vocabulary - len(specials)))])


def _plan(options: argparse.Namespace, folder: str) -> None:
    config, tokenizer = _config(options, folder), _tokenizer(options)
    job = job_record.Job.of("tokenize", config, tokenizer.digest)
    splits = _measured("driver: plan", lambda: plan_splits(config.input, job.digest))
    n_bytes = splits.n_bytes
    print(f"  {options.files:,} files, {n_bytes / 1e12:.2f} TB, {len(splits):,} splits")
    plan = planning.JobPlan("tokenize", config, job, splits, tokenizer=tokenizer, counting_json=None)
    _measured("driver: write plan.jsonl", lambda: planning.prepare(plan, "new"))


def _work(options: argparse.Namespace, folder: str) -> None:
    """Writes what workers would leave in the ledger; shards are not written."""
    tokenizer = _tokenizer(options)
    digest, weights = tokenizer.digest, 1 / np.arange(1, tokenizer.n_ids + 1)
    n = sum(1 for _ in planning.read_plan(_plan_path(folder)))

    def write() -> int:
        n_bytes = 0
        for split in planning.read_plan(_plan_path(folder)):
            entry = _entry(split, digest, n)
            statistics = _statistics(entry, weights)
            written = entry.to_json(), statistics.to_bytes()
            for name, data in zip((entry_name(split.id), statistics_name(split.id)), written, strict=True):
                n_bytes += len(data)
                with open(f"{folder}/{name}", "wb") as handle:
                    handle.write(data)
        return n_bytes

    n_bytes = _measured("workers: write all entries and statistics", write)
    print(f"  {n_bytes / 1e6:,.0f} MB of ledger, {n_bytes / n:,.0f} bytes a split")


def _finish(options: argparse.Namespace, folder: str) -> None:
    config, tokenizer = _config(options, folder), _tokenizer(options)
    job = job_record.Job.of("tokenize", config, tokenizer.digest)
    splits = _measured(
        "last step: read plan.jsonl",
        lambda: PlannedSplits(planning.read_plan(_plan_path(folder))),
    )
    starts = range(0, len(splits), finish.CHUNK_ENTRIES)

    def add_up() -> None:
        ids = splits.ids()
        for number in range(len(starts)):
            some = itertools.islice(ids, finish.CHUNK_ENTRIES)
            finish.add_up_chunk(config, job, tokenizer, "splits", number, some)

    _measured(f"workers: add up {len(starts):,} parts of the ledger", add_up)
    _measured(
        "last step: join parts, balance, statistics, lists, manifest",
        lambda: finish.finish_output(
            finish.Folder(config, job, splits, tokenizer, n_added_up={"splits": len(starts), "shards": 0})
        ),
    )
    found = manifest.read(folder)
    size = os.path.getsize(f"{folder}/manifest.json")
    sizes = {file.file: f"{file.n_bytes / 1e6:,.0f} MB" for file in files_of_lists(found)}
    print(f"  manifest.json {size / 1e3:,.0f} kB, {found['totals']['n_documents']:,} documents; {sizes}")
    told = VerifyReport()
    _measured("verify: ledger and lists, but no shards, as there are none", lambda: _prove(folder, found, told))
    if told.problems:
        sys.exit("\n".join(told.problems[:10]))


def _prove(folder: str, found: Mapping[str, Any], told: VerifyReport) -> None:
    listed, tokens = (
        verify.ListedAgain(found),
        Statistics(found["tokenizer"]["vocab_size"], found["tokenizer"]["unk_id"]),
    )
    again = finish.Totals(folder, listed, tokens, is_shuffled=False)
    for split_id in manifest.split_ids(found):
        entry = LedgerEntry.read(folder, split_id)
        assert entry is not None
        again.add(entry)
    again.close()
    verify.compare_sums(found, again, told)
    told.problems += listed.problems()


def _plan_path(folder: str) -> str:
    return f"{folder}/{PLAN}"


def _measured(name: str, function: Any) -> Any:
    started, cpu = time.monotonic(), time.process_time()
    result = function()
    seconds, peak = time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name}: {seconds:.1f} s, {time.process_time() - cpu:.1f} s of CPU; peak RSS {peak:,.0f} MiB",
        flush=True,
    )
    return result


def _statistics(entry: LedgerEntry, weights: np.ndarray) -> Statistics:
    """Returns statistics that agree with an entry, and differ from split to split."""
    statistics = Statistics(weights.size, 1)
    shifted = np.roll(weights, entry.index)
    statistics.token_counts[:] += (shifted * entry.n_tokens / weights.sum()).astype(np.int64)
    statistics.token_counts[1] = 0
    statistics.token_counts[5] += entry.n_tokens - statistics.token_counts.sum()
    statistics.length_counts[250] += entry.n_documents
    return statistics


def _entry(split: Split, tokenizer: str, n_splits: int) -> LedgerEntry:
    """Returns the entry of a split as a job would leave it: 1,000 bytes and 250 tokens to a document."""
    inputs = tuple(
        PieceCounts(
            n_records=n // 1000,
            n_documents=n // 1000,
            n_bytes=n,
            n_document_bytes=n // 1000 * 1000,
            n_skipped_bytes=n % 1000,
            n_chars=n,
            n_spaced_words=n // 1000 * 150,
            n_text_tokens=n // 1000 * 250,
            n_tokens=n // 1000 * 250,
            sha256=hashlib.sha256(split.id.encode()).hexdigest(),
        )
        for n in (piece.stop - piece.start for piece in split.pieces)
    )
    total = sum(inputs, PieceCounts())
    sha256 = hashlib.sha256(split.id.encode()).hexdigest()
    return LedgerEntry(
        split_id=split.id,
        index=split.index,
        tokenizer=tokenizer,
        pieces=split.pieces,
        counts={"": {**sum_of(inputs), "n_words": total.n_documents * 180}},
        inputs=inputs,
        shard=FileRecord(shard_name(split.index, n_splits, ".parquet"), 1, sha256, total.n_documents, total.n_tokens),
        documents=FileRecord(documents_name(split.index, n_splits), 1, sha256, total.n_documents, total.n_tokens),
        rejects=None,
        statistics=FileRecord(statistics_name(split.id), 1, sha256),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
