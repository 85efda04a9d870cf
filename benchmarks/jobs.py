# SPDX-License-Identifier: Apache-2.0
"""Whole processes with this tree and with another commit of it, in turn: what a change costs those who wait for a job.

    ./run.sh bench jobs b65bcec

The cases: `tokenize` jobs from five documents to 100 MB of JSON lines, and over thousands of small files; the
quickstart with nothing compiled; loading a tokenizer; calls with strings. Each tree has a cache of compiled code of its
own; a library that only the other one needs must be on PYTHONPATH (pygal for b65bcec). The outputs are compared first.
A cell is processor seconds, or microseconds for calls with strings: medians of the rounds. The last column is their
ratio; below 1 this tree is faster.
"""

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import commits, corpora, pipeline, report, timing, tokenizers
from tokenmill.pipeline.quickstart import build_corpus

_TOKENIZER = """
import importlib, json, sys, time
tok = importlib.import_module(sys.argv[1]).Tokenizer.from_file(sys.argv[2])
"""
_LOAD = f"""{_TOKENIZER}
print(tok.encode("The mill grinds text into tokens; it's 2026.").ids, time.process_time())
"""
_CALLS = f"""{_TOKENIZER}
texts = json.load(open(sys.argv[3]))
one = len(texts) == 1
found = [tok.encode(texts[0]).ids] if one else [each.ids for each in tok.encode_batch(texts)]
times = []
for _ in range(5):
    n, passed, began = 0, 0.0, time.process_time()
    while passed < 0.05 or n == 0:
        tok.encode(texts[0]) if one else tok.encode_batch(texts)
        n, passed = n + 1, time.process_time() - began
    times.append(passed / n * 1e6)
print(found, sorted(times)[2])
"""


@dataclasses.dataclass(frozen=True)
class Tree:
    """One of the two commits."""

    path: Path
    cache: Path
    output: Path

    def run(self, *command: str) -> timing.ProcessRun:
        """Runs Python with this tree's packages; what it prints is in `log`."""
        packages = os.pathsep.join(filter(None, [str(self.path), os.environ.get("PYTHONPATH", "")]))
        ours = {"PYTHONPATH": packages, "TOKENMILL_CACHE_DIR": str(self.cache), "PYTHONDONTWRITEBYTECODE": ""}
        return timing.run_process([sys.executable, "-P", *command], environment=os.environ | ours, log=self.log)

    @property
    def log(self) -> Path:
        """The file with the output of the last command."""
        return self.output.with_suffix(".log")


Case = Callable[[Tree], tuple[float, str]]
"""Runs once; returns the cost, and what has to be equal."""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code, 1 where the outputs differ."""
    parser = report.parser("jobs", __doc__, rounds=3)
    parser.add_argument("commit", help="what to compare with: a commit, a tag or a branch")
    parser.add_argument("--files", type=int, default=5000, help="small files (default 5,000)")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only cases that have one of these in their name")
    options = parser.parse_args(arguments)
    vocab = corpora.vocabularies()
    print(report.describe("numba", "numpy", "pyarrow", "apache-beam"))
    differ = False
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as name:
        folder = Path(name)
        paths = {"now": corpora.REPOSITORY, "other": commits.check_out(options.commit)}
        trees = {key: Tree(path, folder / f"{key}-cache", folder / f"{key}-out") for key, path in paths.items()}
        print(f"| {'':28} |     now | other commit |       |\n| {'-' * 28} | ------: | -----------: | ----: |")
        for title, (rounds, case) in _cases(folder, vocab, options).items():
            if options.only and not any(word in title for word in options.only):
                continue
            samples = _measure(case, trees, rounds)
            if equal := len({found for each in samples.values() for _, found in each}) == 1:
                now, other = (statistics.median(cost for cost, _ in samples[key]) for key in trees)
                print(f"| {title:28} | {now:7.2f} | {other:12.2f} | {now / other:5.2f} |", flush=True)
            else:
                print(f"| {title:28} | outputs differ |", flush=True)
            differ |= not equal
    return int(differ)


def _measure(case: Case, trees: dict[str, Tree], rounds: int) -> dict[str, list[tuple[float, str]]]:
    samples: dict[str, list[tuple[float, str]]] = {key: [] for key in trees}
    for round_number in range(-1 if rounds > 1 else 0, rounds):  # The first round compiles, and fills caches.
        for key, tree in trees.items():
            taken = case(tree)
            if round_number >= 0:
                samples[key].append(taken)
    return samples


def _cases(folder: Path, vocab: Path, options: argparse.Namespace) -> dict[str, tuple[int, Case]]:
    """Returns the rounds and the function of each case, by its title."""
    gpt2, bert = folder / "gpt2.json", vocab / "bert-base-uncased.txt"
    tokenizers.load_gpt2(vocab).save(gpt2)
    texts = corpora.load()
    rows = [text for corpus in texts for text in corpus.texts if text]
    found: dict[str, tuple[int, Case]] = {}
    for mb, title in ((0.01, "five documents"), (1, "1 MB"), (10, "10 MB"), (100, "100 MB")):
        corpora.write_jsonl(texts, folder / title, int(mb * 1e6), 2)
        for name, path in {"GPT-2": gpt2, "BERT": bert}.items():
            found[f"job, {name}, {title}"] = options.rounds, _job(f"{folder / title}/*.jsonl", path)
    (folder / "small").mkdir()
    for number in range(options.files):
        (folder / "small" / f"{number:06d}.txt").write_text(rows[number % len(rows)][:4000] + "\n", encoding="utf-8")
    found[f"job, GPT-2, {options.files:,} small files"] = options.rounds, _job(f"{folder / 'small'}/*.txt", gpt2)
    build_corpus(folder / "quickstart")
    found["quickstart, compiles all"] = 1, _first_run(folder / "quickstart")
    for name, path in {"GPT-2": gpt2, "BERT": bert, "XLNet": vocab / "xlnet.model"}.items():
        found[f"load, {name}"] = options.rounds, _python(_LOAD, str(path))
    line = " ".join(rows)[:200_000]
    for n in (1, 32, 2000):
        several = folder / f"{n}.json"
        several.write_text(json.dumps([line[100 * i : 100 * i + 100] for i in range(n)]), encoding="utf-8")
        found[f"{n:,} x 100 characters, µs"] = options.rounds, _python(_CALLS, str(gpt2), str(several))
    return found


def _job(pattern: str, tokenizer: Path) -> Case:
    def run(tree: Tree) -> tuple[float, str]:
        shutil.rmtree(tree.output, ignore_errors=True)
        config: Any = {"input": {"paths": [pattern]}, "tokenizer": {"file": str(tokenizer)}}
        path = tree.output.with_suffix(".yaml")
        path.write_text(json.dumps(config | {"output": {"path": str(tree.output)}}), encoding="utf-8")
        return tree.run("-m", "tokenmill", "tokenize", str(path)).processor_seconds, _written(tree)

    return run


def _first_run(corpus: Path) -> Case:
    """The quickstart's job with nothing compiled."""

    def run(tree: Tree) -> tuple[float, str]:
        shutil.rmtree(tree.cache, ignore_errors=True)
        shutil.rmtree(tree.output, ignore_errors=True)
        changed = ["--set", f"input.paths=[{corpus}/*.jsonl]", "--set", f"output.path={tree.output}"]
        config = str(tree.path / "configs" / "quickstart.yaml")
        return tree.run("-m", "tokenmill", "run", config, *changed).processor_seconds, _written(tree)

    return run


def _written(tree: Tree) -> str:
    return str(pipeline.totals_of("tokenmill", tree.output))


def _python(program: str, *arguments: str) -> Case:
    def run(tree: Tree) -> tuple[float, str]:
        # A commit may be from before the packages had a name in front.
        package = "tokenmill.tokenizer" if (tree.path / "tokenmill" / "tokenizer").exists() else "tokenizer"
        tree.run("-c", program, package, *arguments)
        lines = tree.log.read_text(encoding="utf-8").splitlines()
        ids, cost = next(line for line in lines if line.startswith("[")).rsplit(" ", 1)
        return float(cost), ids

    return run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
