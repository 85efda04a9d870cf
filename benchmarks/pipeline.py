# SPDX-License-Identifier: Apache-2.0
"""Compares the tokenize job, JSON lines to shards, with what people use instead, at several sizes of the input.

The others are: a script of 20 lines with gigatoken and pyarrow; datatrove's DocumentTokenizer; `datasets.map` with
`to_parquet`; and the floor, which is our job with copied ids in place of tokenizing.

All have the same tokenizer, input files and number of workers, and are measured in the same run. Each job is a process
of its own, so its time includes its start-up. The ids that it wrote are read back and compared as a multiset of
documents; if they differ there is no number, and the exit code is 1.
"""

import argparse
import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks import corpora, peers, report, timing, tokenizers
from tokenmill.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Totals:
    """What a job wrote, whatever the order of its documents.

    Documents without a token are left out: datatrove drops them when it reads.
    """

    documents: int
    tokens: int
    checksum: int
    """The sum over documents, modulo 2**64, of 64 bits of a hash of the ids."""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = report.parser("pipeline", __doc__, rounds=2)
    parser.add_argument(
        "--mb", type=float, nargs="+", default=[1, 10, 100], help="sizes of the input (default 1 10 100)"
    )
    parser.add_argument(
        "--tokenizer", choices=["gpt2", "bert"], default="gpt2",
        help="default: gpt2 if there is a larger data folder; gigatoken has no bert",
    )  # fmt: skip
    parser.add_argument("--workers", type=int, default=2, help="workers of every job (default 2)")
    parser.add_argument(
        "--peers", nargs="*", default=list(peers.PIPELINES), choices=list(peers.PIPELINES), help="default: all"
    )
    parser.add_argument(
        "--folder", help="where to put input and outputs, about three times the input (default: temporary)"
    )
    options = parser.parse_args(arguments)
    print(
        report.describe(
            "tokenmill", "apache-beam", "gigatoken", "datatrove", "datasets", "tokenizers", "pyarrow", "numba"
        )
    )
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="tokenmill-bench-") as folder:
        return _measure(options, Path(folder))


def _measure(options: argparse.Namespace, folder: Path) -> int:
    texts = corpora.load()
    name, tok = _tokenizer(options.tokenizer, texts)
    tok.save(folder / "tokenizer.json")
    (folder / "for_peers.json").write_text(peers.for_peers(tok.to_str()), encoding="utf-8")
    corpora.write_jsonl(texts, folder / "warm-up", 100_000, options.workers)
    mixed = ", ".join(f"{corpus.name} {corpus.digest}" for corpus in texts)
    print(f"input: JSON lines in {options.workers} files, from {mixed}")
    print(f"tokenizer: {name}, digest {tok.digest[:12]}; {options.workers} workers; start-up is in every number\n")
    jobs = ["tokenmill", "floor"]
    for peer in options.peers:
        if lacking := peers.missing(peer):
            print(f"{peer} is left out: {', '.join(lacking)} not installed; ./run.sh bench installs it")
        elif peer == "gigatoken" and name != "GPT-2":
            print("gigatoken is left out: it has no WordPiece")
        else:
            jobs.append(peer)
    for job in ("record", *jobs):
        _run(job, folder, "warm-up", options)  # compiles our kernels, brings everybody's libraries into memory
    equal = [_measure_size(options, folder, jobs, mb) for mb in options.mb]
    return int(not all(equal))


def _tokenizer(kind: str, texts: list[corpora.Corpus]) -> tuple[str, Tokenizer]:
    shared = corpora.shared_folder()
    if kind == "gpt2" and shared is not None:
        return "GPT-2", tokenizers.load_gpt2(shared / "vocab")
    return next(tokenizers.load(texts))


def _measure_size(options: argparse.Namespace, folder: Path, jobs: list[str], mb: float) -> bool:
    source = f"input-{mb:g}"
    files = corpora.write_jsonl(corpora.load(), folder / source, int(mb * 1e6), options.workers)
    n_bytes = sum(path.stat().st_size for path in files)
    _run("record", folder, source, options)
    runs: dict[str, list[timing.ProcessRun]] = {job: [] for job in jobs}
    totals: dict[str, Totals] = {}
    for round_number in range(options.rounds):
        for job in jobs:
            runs[job].append(_run(job, folder, source, options))
            print(f"{mb:g} MB, round {round_number + 1}: {job} {runs[job][-1].seconds:.1f} s", flush=True)
            totals.setdefault(job, totals_of(job, folder / job))
    shutil.rmtree(folder / source)
    _report(n_bytes, runs, totals)
    return len(set(totals.values())) == 1


def _run(job: str, folder: Path, source: str, options: argparse.Namespace) -> timing.ProcessRun:
    output = folder / job
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    command = _command(job, folder / source, folder, output, options.workers)
    environment = os.environ | peers.ONE_THREAD | {"HF_HOME": str(folder / "hf")}
    if job == "gigatoken":
        environment["RAYON_NUM_THREADS"] = str(options.workers)
    return timing.run_process(command, environment=environment, log=folder / f"{job}.log")


def _report(n_bytes: int, runs: dict[str, list[timing.ProcessRun]], totals: dict[str, Totals]) -> None:
    """Prints the table of one size."""
    ours, written = runs["tokenmill"], totals["tokenmill"]
    print(f"\n{n_bytes / 1e6:,.1f} MB, {written.documents:,} documents, {written.tokens:,} tokens\n")
    our_seconds = timing.Timing(tuple(run.seconds for run in ours))
    our_processor = timing.Timing(tuple(run.processor_seconds for run in ours))
    rows = []
    for job, job_runs in runs.items():
        if totals[job] != written:
            print(f"{job} wrote other ids: {totals[job]}, tokenmill {written}", file=sys.stderr)
            rows.append([job, "ids differ", *["-"] * 7])
            continue
        seconds = timing.Timing(tuple(run.seconds for run in job_runs))
        processor = timing.Timing(tuple(run.processor_seconds for run in job_runs))
        rows.append(
            [
                job,
                f"{seconds.median:.1f}",
                f"{our_seconds.times_faster_than(seconds):.2f}x",
                f"{processor.median:.1f}",
                f"{our_processor.times_faster_than(processor):.2f}x",
                f"{n_bytes / seconds.median / 1e6:.2f}",
                f"{seconds.spread:.0%}",
                f"{max(run.largest_process_bytes for run in job_runs) / 2**20:.0f}",
                f"{max(run.all_processes_bytes for run in job_runs) / 2**20:.0f}",
            ]
        )
    header = [
        "job", "seconds", "times ours", "processor s", "times ours", "MB/s", "spread", "largest process MiB",
        "all processes MiB",
    ]  # fmt: skip
    print(report.table(header, rows) + "\n")


def _command(job: str, source: Path, folder: Path, output: Path, workers: int) -> list[str]:
    if job not in ("tokenmill", "floor", "record"):
        arguments = (source, folder / "for_peers.json", output, workers)
        return [sys.executable, "-m", "benchmarks.peers", job, *map(str, arguments)]
    config = folder / "tokenmill.yaml"
    content = {
        "input": {"paths": [f"{source}/*.jsonl"], "format": "jsonl"},
        "tokenizer": {"file": str(folder / "tokenizer.json")},
        "output": {"path": str(output / "out")},
    }
    config.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
    arguments = ["tokenize", str(config), "--workers", str(workers)]
    if job == "tokenmill":
        return [sys.executable, "-m", "tokenmill.pipeline.cli", *arguments]
    # Kept beside the outputs, because every run begins by removing those.
    ids = folder / "ids"
    ids.mkdir(exist_ok=True)
    return [sys.executable, "-m", "benchmarks.floor", "record" if job == "record" else "copy", str(ids), *arguments]


def totals_of(job: str, output: Path) -> Totals:
    documents = (_datatrove_rows if job == "datatrove" else _parquet_rows)(output)
    n_documents = n_tokens = checksum = 0
    for ids in documents:
        n_documents += len(ids) > 0
        n_tokens += len(ids)
        digest = hashlib.blake2b(ids.astype("<i4").tobytes(), digest_size=8).digest() if len(ids) else b""
        checksum = (checksum + int.from_bytes(digest, "little")) % 2**64
    return Totals(n_documents, n_tokens, checksum)


def _parquet_rows(output: Path) -> Iterator[np.ndarray]:
    for path in sorted(output.rglob("tokens*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(columns=["input_ids"]):
            column = batch.column(0)
            values, offsets = column.values.to_numpy(zero_copy_only=False), column.offsets.to_numpy()
            for start, stop in itertools.pairwise(offsets):
                yield values[start:stop]


def _datatrove_rows(output: Path) -> Iterator[np.ndarray]:
    for path in sorted(output.glob("tokens/*.ds")):
        ends = np.fromfile(f"{path}.index", "<u8").astype(np.int64)
        n_bytes = path.stat().st_size
        tokens = np.fromfile(path, "<u2" if n_bytes == 2 * ends[-1] else "<u4")
        for start, stop in itertools.pairwise(np.append(0, ends)):
            yield tokens[start:stop]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
