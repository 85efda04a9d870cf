# SPDX-License-Identifier: Apache-2.0
"""Measures what statistics and report cost: the processor time of the functions that make them, as a share of the job.

Statistics cannot be switched off, so every job of a round takes the time of these functions while it runs, each in the
thread that calls it. What the encode loop spends on counting words is measured after the job, with and without a tally.
For 1 GB: `./run.sh bench insight --mb 1000 --limit 8`, with 3 GB of room. What is made once, the report and the tables
to decode with, weighs more in a small job.
"""

import argparse
import functools
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import corpora, report, tokenizers
from tokenmill.tokenizer import Tokenizer

_ROWS = 1000
SECTIONS: dict[str, dict[str, Any]] = {"plain": {}, "languages": {"languages": {"rules": "builtin"}}}


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code, 1 where a job takes more than `--limit`."""
    parser = argparse.ArgumentParser(prog="./run.sh bench insight", description=__doc__, allow_abbrev=False)
    parser.add_argument("--mb", type=float, default=200, help="size of the input (default 200)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    parser.add_argument("--workers", type=int, default=2, help="threads of every job (default 2)")
    parser.add_argument("--limit", type=float, default=100, help="percent that are allowed (default: any)")
    parser.add_argument("--folder", help="where to put input and outputs (default: temporary)")
    parser.add_argument("--save", action="store_true", help="keep the raw samples under benchmarks/results/")
    options = parser.parse_args(arguments)
    facts = report.machine() | report.versions("tokenmill", "apache-beam", "pyarrow", "numba")
    print(report.describe(facts))
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="tokenmill-bench-") as folder:
        return _measure(options, Path(folder), facts)


def _measure(options: argparse.Namespace, folder: Path, facts: dict[str, str]) -> int:
    texts, shared = corpora.load(), corpora.shared_folder()
    subjects = {"GPT-2": tokenizers.load_gpt2(shared / "vocab")} if shared is not None else {}
    subjects["WordPiece"] = tokenizers.trained(texts)
    corpora.write_jsonl(texts, folder / "warm-up", 300_000, 2)
    corpora.write_jsonl(texts, folder / "input", int(options.mb * 1e6), 2)
    jobs = {}
    for name, tokenizer in subjects.items():
        tokenizer.save(folder / f"{name}.json")
        for kind, sections in SECTIONS.items():
            content = {"tokenizer": {"file": f"{folder}/{name}.json"}, "output": {"path": str(folder / "out")}}
            jobs[f"{name}, {kind}"] = path = folder / f"{name}-{kind}.yaml"
            path.write_text(json.dumps({"input": {"paths": []}, **content, **sections}), "utf-8")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    for number in range(-1, options.rounds):  # the first round compiles
        for name, path in jobs.items():
            source = "warm-up" if number < 0 else "input"
            arguments = [f"{folder}/{source}/*.jsonl", str(path), str(options.workers)]
            command = [sys.executable, "-m", "benchmarks.insight", "job", *arguments]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
            if number >= 0:
                found[name].append(json.loads(done.stdout.splitlines()[-1]))
    shares = {name: statistics.median(100 * (1 - run["the rest"] / run["all"]) for run in found[name]) for name in jobs}
    rows = [
        [part, *(f"{statistics.median(run[part] for run in runs):.3f}" for runs in found.values())]
        for part in next(iter(found.values()))[0]
    ]
    rows.append(["percent of all", *(f"{share:.2f}" for share in shares.values())])
    print(f"\nprocessor seconds of a job over {options.mb:g} MB, medians of {options.rounds} rounds\n")
    print(report.table(["", *jobs], rows))
    if options.save:
        print(f"\nraw samples: {report.save('insight', facts, [{'mb': options.mb, 'runs': found}])}")
    return int(max(shares.values()) > options.limit)


class _Clock(threading.local):
    """Whether a thread is in one of the functions already: calls inside it are not timed separately."""

    is_running = False


def run(source: str, config: str, workers: str) -> dict[str, float]:
    """Runs a job on some files in this process; returns the processor seconds of each part, of the rest, and of all."""
    from tokenmill.pipeline import cli
    from tokenmill.pipeline.books.counts import Counts
    from tokenmill.pipeline.jobs import finish
    from tokenmill.pipeline.reporting import page
    from tokenmill.pipeline.statistics import words
    from tokenmill.pipeline.statistics.sample import Sample
    from tokenmill.pipeline.statistics.tally import Statistics
    from tokenmill.pipeline.tokenizing import writing

    parts = {
        "characters and words": [(words, "count")],
        "tokens and lengths": [(Statistics, "update"), (Statistics, "add_layout"), (Statistics, "add_tally")],
        "languages": [(Counts, "add_by")],
        "sample": [(Sample, "add"), (Sample, "counts")],
        "files of splits": [
            *((Statistics, name) for name in ("to_bytes", "from_bytes", "merge", "__init__")),
            (writing, "check_agreement"),
        ],
        "vocabulary": [(finish, "token_counts"), (finish, "summarize")],
        "report": [(page, "draw")],
    }
    spent, clock, lock = dict.fromkeys(parts, 0.0), _Clock(), threading.Lock()

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if clock.is_running:
                return function(*args, **options)
            clock.is_running, started = True, time.thread_time()
            try:
                return function(*args, **options)
            finally:
                clock.is_running = False
                with lock:
                    spent[part] += time.thread_time() - started

        return call

    for part, functions in parts.items():
        for place, name in functions:
            found = vars(place)[name]
            is_of_class = isinstance(found, classmethod)
            call = timed(part, found.__func__ if is_of_class else found)
            setattr(place, name, classmethod(call) if is_of_class else call)
    options = ["--set", f"input.paths=[{source}]", "--workers", workers, "--mode", "threads", "--overwrite", "--quiet"]
    if code := cli.main(["tokenize", config, *options]):
        raise SystemExit(code)
    total = time.process_time()
    spent["tally"] = _tally(source, config)
    return {**spent, "the rest": total - sum(spent.values()), "all": total}


def _tally(source: str, config: str) -> float:
    """Returns by how much longer the texts of a job take to encode with a tally, in seconds."""
    tokenizer = Tokenizer.from_file(json.loads(Path(config).read_text("utf-8"))["tokenizer"]["file"])
    paths = list(Path(source).parent.iterdir())
    with paths[0].open("rb") as lines:
        texts = [json.loads(line)["text"] for line in itertools.islice(lines, 8 * _ROWS)]
    columns = [pa.array(texts[start : start + _ROWS], pa.large_string()) for start in range(0, len(texts), _ROWS)]
    tally, seconds = tokenizer.new_tally(), []
    for _ in range(8):
        marks = [time.thread_time()]
        for each in (None, tally):
            for column in columns:
                tokenizer.encode_bare(column, each)
            marks.append(time.thread_time())
        seconds.append((marks[1] - marks[0], marks[2] - marks[1]))
    # The least of each: the difference is small against what other processes add.
    without, with_tally = map(min, zip(*seconds, strict=True))
    share = sum(path.stat().st_size for path in paths) / sum(column.nbytes for column in columns)
    return (with_tally - without) * share


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        print(json.dumps(run(*sys.argv[2:])))
        sys.exit(0)
    sys.exit(main(sys.argv[1:]))
