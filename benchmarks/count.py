# SPDX-License-Identifier: Apache-2.0
"""Measures the count job: how fast it is, and how much memory it takes, on text and on words that are all different.

Text is the corpora of the other benchmarks, repeated. The distinct words are made up: ten letters each, and every tenth
of them occurs twice. Each job is a process of its own, so its time includes its start-up; processor time is that of all
its processes. Before a number is printed the counts are checked: for text they must be the same bytes with one worker
and with two; for the made-up words they must be what was written.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import corpora, report, timing

_WORDS_PER_DOCUMENT = 2_000
_DOCUMENTS_AT_ONCE = 500
_LETTERS = 10


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = report.parser("count", __doc__)
    parser.add_argument("--mb", type=float, default=500, help="size of the text (default 500)")
    parser.add_argument("--distinct", type=float, default=5, help="millions of distinct words (default 5)")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2], help="workers of each run (default 1 2)")
    parser.add_argument(
        "--pre-tokenizers", nargs="*", default=["bert", "cl100k_base", "whitespace_metaspace"], metavar="NAME",
        help="how the text is split into words (default: bert cl100k_base whitespace_metaspace)",
    )  # fmt: skip
    parser.add_argument("--folder", help="where to put input and outputs, thrice the input (default: temporary)")
    options = parser.parse_args(arguments)
    print(report.describe("tokenmill", "apache-beam", "pyarrow", "numba", "numpy"))
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="tokenmill-bench-") as folder:
        rows = _measure(options, Path(folder))
    header = ["input", "words are", "workers", "seconds", "MB/s", "CPU seconds", "MB per CPU second",
              "largest process MiB", "distinct"]  # fmt: skip
    print("\n" + report.table(header, rows))
    return int(any("counts differ" in row for row in rows))


def _measure(options: argparse.Namespace, folder: Path) -> list[list[str]]:
    rows: list[list[str]] = []

    def add(name: str, words: str, workers: int, n_bytes: int, counted: _Counted, equal: bool) -> None:
        run, counts = counted
        cpu = run.processor_seconds
        if not equal:
            rows.append([name, words, str(workers), "counts differ", "-", "-", "-", "-", "-"])
            return
        speeds = (f"{each:.1f}" for s in (run.seconds, cpu) for each in (s, n_bytes / s / 1e6))
        memory = f"{run.largest_process_bytes / 2**20:.0f}"
        distinct = f"{counts['totals']['n_distinct_words'] + counts['pruned']['n_words']:,}"
        rows.append([name, words, str(workers), *speeds, memory, distinct])

    warm_up = corpora.write_jsonl(corpora.load(), folder / "warm-up", 100_000, 1)
    if options.mb:
        files = corpora.write_jsonl(corpora.load(), folder / "text", int(options.mb * 1e6), max(options.workers))
        n_bytes = sum(path.stat().st_size for path in files)
        for words in options.pre_tokenizers:
            _count(folder, f"{warm_up[0].parent}", words, 1)
            digests = set()
            for workers in options.workers:
                counted = _count(folder, f"{folder / 'text'}", words, workers)
                digests.add(counted[1]["digest"])
                add("text", words, workers, n_bytes, counted, len(digests) == 1)
    if options.distinct:
        path = folder / "distinct" / "words.jsonl"
        n_words, n_twice = write_distinct(path, int(options.distinct * 1e6))
        for workers in options.workers:
            limit = n_twice + n_words // 100  # fewer than there are, so that words that occur once must go
            counted = _count(folder, str(path.parent), "whitespace", workers, max_words=limit)
            counts = counted[1]
            expected = {"bound": 1, "n_words": n_words - n_twice, "n_occurrences": n_words - n_twice}
            equal = counts["totals"]["n_distinct_words"] == n_twice and counts["pruned"] == expected
            add("distinct words", f"whitespace, max_words {limit:,}", workers, path.stat().st_size, counted, equal)
            print(f"distinct words: left out {counts['pruned']}, kept {counts['totals']['n_distinct_words']:,}")
    return rows


_Counted = tuple[timing.ProcessRun, Any]
"""A run, and its `counts.json`."""


def _count(folder: Path, source: str, words: str, workers: int, max_words: int | None = None) -> _Counted:
    output = Path(tempfile.mkdtemp(dir=folder, prefix="out-"))
    config = folder / "count.yaml"
    normalizer = "bert" if words == "bert" else "none"
    content = {
        "input": {"paths": [f"{source}/*.jsonl"]},
        "counts": {"max_words": max_words},
        "tokenizer": {"train": {"normalizer": normalizer, "pre_tokenizer": words}, "lowercase": words == "bert"},
        "output": {"path": str(output)},
    }
    config.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
    command = [sys.executable, "-m", "tokenmill.pipeline.cli", "count", str(config), "--workers", str(workers)]
    # One worker per process, so that the memory of a worker can be measured.
    command += ["--mode", "processes"] if workers > 1 else []
    run = timing.run_process(command, environment=os.environ, log=folder / "count.log")
    counts = json.loads((output / "counts" / "counts.json").read_text(encoding="utf-8"))
    return run, counts


def write_distinct(path: Path, n_words: int) -> tuple[int, int]:
    """Writes JSON lines of `n_words` different words, every tenth of them twice; returns both numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    n_twice = n_words // 10
    n_all = n_words + n_twice
    step = _WORDS_PER_DOCUMENT * _DOCUMENTS_AT_ONCE
    with path.open("wb") as file:
        for first in range(0, n_all, step):
            numbers = np.arange(first, min(first + step, n_all))
            letters = _spell(np.where(numbers < n_words, numbers, (numbers - n_words) * 10))
            for start in range(0, len(letters), _WORDS_PER_DOCUMENT):
                text = letters[start : start + _WORDS_PER_DOCUMENT].tobytes().decode().rstrip()
                file.write(b'{"text": "%s"}\n' % text.encode())
    return n_words, n_twice


def _spell(numbers: Any) -> Any:
    """Returns a word of ten letters and a space for each number, uint8[n, 11]; all differ and are in no order."""
    mixed = numbers.astype(np.uint64)
    mask = np.uint64((1 << 40) - 1)
    for factor in (0x9E3779B97F, 0xC2B2AE3D27):  # odd, so that no two numbers become one
        mixed = (mixed * np.uint64(factor)) & mask
        mixed ^= mixed >> np.uint64(19)
    letters = np.full((len(numbers), _LETTERS + 1), ord(" "), np.uint8)
    for i in range(_LETTERS):
        letters[:, i] = ord("a") + ((mixed >> np.uint64(4 * i)) & np.uint64(15)).astype(np.uint8)
    return letters


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
