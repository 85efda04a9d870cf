# SPDX-License-Identifier: Apache-2.0
"""Whole processes with this tree and with another commit of it, in turn: what a change costs those who wait for a job.

    ./run.sh bench jobs b65bcec

The cases: `tokenize` jobs from five documents to 100 MB of JSON lines, over thousands of small files, packed, shuffled
and of conversations; counting words of text, and words that are all different; `plan` and `verify`; the quickstart with
nothing compiled; loading a tokenizer; calls with strings. Each tree has a cache of compiled code of its own; a library
that only the other one needs must be on PYTHONPATH (pygal for b65bcec). The outputs are compared first. A cell is
processor seconds, or microseconds for calls with strings: medians of the rounds, and their ratio; below 1 this tree is
faster. The last columns are the peak memory of the largest process, in MiB.
"""

import argparse
import dataclasses
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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


class Taken(NamedTuple):
    """What one run of a case took."""

    cost: float
    n_bytes: int
    """Peak resident memory of the largest process."""
    made: str
    """What has to be equal."""


Case = Callable[[Tree], Taken]


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
        print(f"| {'':28} |     now |   other | ratio | MiB now | other |")
        print(f"| {'-' * 28} | ------: | ------: | ----: | ------: | ----: |")
        for title, (rounds, case) in _cases(folder, vocab, options).items():
            if options.only and not any(word in title for word in options.only):
                continue
            samples = _measure(case, trees, rounds)
            if equal := len({each.made for taken in samples.values() for each in taken}) == 1:
                now, other = (statistics.median(each.cost for each in samples[key]) for key in trees)
                memory = (statistics.median(each.n_bytes for each in samples[key]) / 2**20 for key in trees)
                told = "{:7.0f} | {:5.0f}".format(*memory)
                print(f"| {title:28} | {now:7.2f} | {other:7.2f} | {now / other:5.2f} | {told} |", flush=True)
            else:
                print(f"| {title:28} | outputs differ |", flush=True)
            differ |= not equal
    return int(differ)


def _measure(case: Case, trees: dict[str, Tree], rounds: int) -> dict[str, list[Taken]]:
    samples: dict[str, list[Taken]] = {key: [] for key in trees}
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
    end, text = "<|endoftext|>", f"{folder / '10 MB'}/*.jsonl"
    packing = {"length": 2048, "strategy": "best_fit", "separator": end}
    for title, output in {"packed": {"packing": packing}, "shuffled": {"shuffle": {}}}.items():
        found[f"job, GPT-2, 10 MB, {title}"] = options.rounds, _job(text, gpt2, output=output)
    (folder / "chat.jinja").write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}" + end + "{% endfor %}")
    chat = {"input": {"messages_field": "messages"}, "chat": {"template": str(folder / "chat.jinja")}}
    found["job, GPT-2, 10 MB of chat"] = options.rounds, _job(f"{_write_chats(folder, rows)}", gpt2, **chat)
    found["count, 10 MB"] = options.rounds, _count(text, {"pre_tokenizer": "o200k_base"})
    distinct = _write_distinct(folder / "distinct.jsonl", 1_000_000)
    found["count, a million words"] = options.rounds, _count(f"{distinct}", {"pre_tokenizer": "whitespace"})
    found["plan, GPT-2, 10 MB"] = options.rounds, _job(text, gpt2, command="plan")
    found["verify, GPT-2, 10 MB"] = options.rounds, _verify(_job(text, gpt2))
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


def _write_chats(folder: Path, rows: list[str]) -> Path:
    """Writes 10 MB of conversations of two messages each."""
    path, written = folder / "chat.jsonl", 0
    with path.open("w", encoding="utf-8") as file:
        for asked, answer in itertools.cycle(zip(rows[::2], rows[1::2], strict=False)):
            messages = [{"role": "user", "content": asked[:300]}, {"role": "assistant", "content": answer[:1500]}]
            written += file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
            if written > 10_000_000:
                return path
    raise AssertionError("there are rows")


def _write_distinct(path: Path, n: int) -> Path:
    """Writes words that are all different, in no order; `n` is no multiple of the factor."""
    words = [f"{i * 7_368_787 % n:x}".translate(str.maketrans("0123456789", "ghijklmnop")) for i in range(n)]
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, n, 1000):
            file.write(json.dumps({"text": " ".join(words[start : start + 1000])}) + "\n")
    return path


def _run(tree: Tree, command: str, config: Any) -> timing.ProcessRun:
    if command != "verify":
        shutil.rmtree(tree.output, ignore_errors=True)
    path = tree.output.with_suffix(".yaml")
    path.write_text(json.dumps(config | {"output": {"path": str(tree.output), **config.get("output", {})}}))
    return tree.run("-m", "tokenmill", command, str(path))


def _job(pattern: str, tokenizer: Path, command: str = "tokenize", **sections: Any) -> Case:
    given = sections.get("input", {})
    config = {**sections, "input": {"paths": [pattern], **given}, "tokenizer": {"file": str(tokenizer)}}

    def run(tree: Tree) -> Taken:
        taken = _run(tree, command, config)
        return Taken(taken.processor_seconds, taken.largest_process_bytes, _written(tree))

    return run


def _verify(job: Case) -> Case:
    def run(tree: Tree) -> Taken:
        if not (tree.output / "manifest.json").exists():
            job(tree)
        taken = tree.run("-m", "tokenmill", "verify", str(tree.output))
        return Taken(taken.processor_seconds, taken.largest_process_bytes, "")

    return run


def _count(pattern: str, train: dict[str, str]) -> Case:
    config = {"input": {"paths": [pattern]}, "tokenizer": {"train": {"normalizer": "none", **train}}}

    def run(tree: Tree) -> Taken:
        taken = _run(tree, "count", config)
        counts = json.loads((tree.output / "counts" / "counts.json").read_text(encoding="utf-8"))
        return Taken(taken.processor_seconds, taken.largest_process_bytes, json.dumps(counts["totals"]))

    return run


def _first_run(corpus: Path) -> Case:
    """The quickstart's job with nothing compiled."""

    def run(tree: Tree) -> Taken:
        shutil.rmtree(tree.cache, ignore_errors=True)
        shutil.rmtree(tree.output, ignore_errors=True)
        changed = ["--set", f"input.paths=[{corpus}/*.jsonl]", "--set", f"output.path={tree.output}"]
        taken = tree.run("-m", "tokenmill", "run", str(tree.path / "configs" / "quickstart.yaml"), *changed)
        return Taken(taken.processor_seconds, taken.largest_process_bytes, _written(tree))

    return run


def _written(tree: Tree) -> str:
    return str(pipeline.totals_of("tokenmill", tree.output))


def _python(program: str, *arguments: str) -> Case:
    def run(tree: Tree) -> Taken:
        # A commit may be from before the packages had a name in front.
        package = "tokenmill.tokenizer" if (tree.path / "tokenmill" / "tokenizer").exists() else "tokenizer"
        taken = tree.run("-c", program, package, *arguments)
        lines = tree.log.read_text(encoding="utf-8").splitlines()
        ids, cost = next(line for line in lines if line.startswith("[")).rsplit(" ", 1)
        return Taken(float(cost), taken.largest_process_bytes, ids)

    return run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
