# SPDX-License-Identifier: Apache-2.0
"""Encoding and counting with this tree against another commit of it: what a change costs, tokenizer by tokenizer.

    ./run.sh bench commits 04096f7 --tokenizers gpt2 xlnet

The other commit is checked out under `build/commits/`. Each tree measures in a process of its own, with its own
`benchmarks/tokenizers.py`, on one core; the two take turns, so that a slow moment of the machine hits both. Ids are
compared first: where they differ, there is no number. A cell is MB/s of processor time with this tree, and how many
times that is of the other's speed; below 1, this tree is slower.
"""

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

# Runs as a script in the other tree too, whose packages these are; a commit may know no later ones.
from benchmarks import corpora, peers, report, tokenizers

KINDS = ("warm", "cold", "count")
"""The text again, the text with a tokenizer that has seen no word, and counting its words."""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code, 1 where ids differ."""
    texts = corpora.load()
    makers = tokenizers.subjects(texts)
    names = [corpus.name for corpus in texts]
    parser = report.parser("commits", __doc__, rounds=3)
    parser.add_argument("commit", help="what to compare with: a commit, a tag or a branch")
    parser.add_argument(
        "--tokenizers", nargs="+", metavar="NAME", choices=list(makers), help=f"only these: {' '.join(makers)}"
    )
    parser.add_argument("--corpora", nargs="+", metavar="NAME", choices=names, help=f"only these: {' '.join(names)}")
    parser.add_argument("--mb", type=float, default=12, help="use this many MB of each corpus (default 12)")
    options = parser.parse_args(arguments)
    print(report.describe("numba", "numpy", "pyarrow"))
    trees = {"now": corpora.REPOSITORY, "other": check_out(options.commit)}
    chosen = options.tokenizers or list(makers)
    equal = [_compare(name, trees, options.corpora or names, options) for name in chosen]
    return int(not all(equal))


def check_out(commit: str) -> Path:
    """Returns a work tree of a commit under `build/`, which is made if it is not there."""
    git = ["git", "-C", str(corpora.REPOSITORY)]
    revision = subprocess.run(
        [*git, "rev-parse", "--verify", f"{commit}^{{commit}}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    tree = corpora.REPOSITORY / "build" / "commits" / revision[:12]
    if not tree.is_dir():
        subprocess.run([*git, "worktree", "prune"], check=True)
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(tree), revision], check=True)
    return tree


def _compare(name: str, trees: dict[str, Path], chosen: Sequence[str], options: argparse.Namespace) -> bool:
    """Measures one tokenizer with both trees, in turn; prints a table and returns whether all ids are equal."""
    rows, all_equal = [], True
    with contextlib.ExitStack() as stack:
        ask = {tree: stack.enter_context(_measuring(path, name, options.mb)) for tree, path in trees.items()}
        for corpus in chosen:
            answers: dict[str, list[dict[str, Any]]] = {tree: [] for tree in trees}
            for _ in range(options.rounds):
                for tree, answer in ask.items():
                    answers[tree].append(answer(corpus))
            equal = len({(a["ids"], a["words"]) for of in answers.values() for a in of}) == 1
            all_equal &= equal
            cells = [_cell(answers, kind) if equal else "ids differ" for kind in KINDS]
            rows.append([corpus, *cells])
    print("\n" + report.table([name, *(f"{kind}, MB/s" for kind in KINDS)], rows), flush=True)
    return all_equal


def _cell(answers: dict[str, list[dict[str, Any]]], kind: str) -> str:
    speeds = {tree: statistics.median(a["n_bytes"] / a[kind] / 1e6 for a in of) for tree, of in answers.items()}
    return f"{speeds['now']:.0f} ({speeds['now'] / speeds['other']:.2f}x)"


@contextlib.contextmanager
def _measuring(tree: Path, name: str, mb: float) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Gives a function that measures one round on a corpus, in a process that has the packages of `tree`."""
    command = [sys.executable, "-P", str(Path(__file__).resolve()), name, str(mb)]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    if (data := corpora.shared_folder()) is not None:
        environment["TOKENMILL_SHARED"] = str(data.parent)
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=tree, env=environment, **pipes)
    assert process.stdin is not None
    assert process.stdout is not None

    def measure(corpus: str) -> dict[str, Any]:
        print(corpus, file=process.stdin, flush=True)
        answer = process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{tree}: the process that measures {name} on {corpus} has ended")
        return json.loads(answer)

    with process:
        yield measure
        process.stdin.close()


def _serve(name: str, mb: float) -> None:
    """Answers each corpus named on standard input with one round: seconds of processor time, and what came out."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    peers.stay_on_one_core()
    texts = {corpus.name: corpus for corpus in corpora.load()}
    with contextlib.redirect_stdout(None):  # What it says of peers is no answer.
        tok = tokenizers.subjects(list(texts.values()))[name]().tokenizer
    given = ""
    for line in sys.stdin:
        if line.strip() != given:
            given = line.strip()
            corpus = texts[given].first(int(mb * 1e6))
            column = pa.array(corpus.texts, pa.large_string())
            # Has seen this text and no other. The first time this compiles, and reads what is compiled.
            tok = _fresh(tok)
            tok.encode_arrow(column)
            tok.new_word_counter().update(column)
        fresh, counter = _fresh(tok), tok.new_word_counter()
        cold, _ = _timed(lambda fresh=fresh, column=column: fresh.encode_arrow(column))
        warm, ids = _timed(lambda tok=tok, column=column: tok.encode_arrow(column))
        count, _ = _timed(lambda counter=counter, column=column: counter.update(column))
        words = counter.to_table().sort_by([(field, "ascending") for field in counter.to_table().column_names])
        answer = {"n_bytes": corpus.n_bytes, "warm": warm, "cold": cold, "count": count}
        print(json.dumps(answer | {"ids": _digest(ids.flatten()), "words": _digest(words["word"])}), flush=True)


def _fresh(tok: Any) -> Any:
    """Returns a tokenizer like another that is ready and has seen no word."""
    import pyarrow as pa

    fresh = type(tok).from_str(tok.to_str())
    fresh.encode_arrow(pa.array([""], pa.large_string()))
    return fresh


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    result = function()
    return time.process_time() - started, result


def _digest(column: Any) -> str:
    sha = hashlib.sha256()
    for value in column.to_pylist():
        sha.update(f"{value}\0".encode())
    return sha.hexdigest()


if __name__ == "__main__":
    if sys.flags.safe_path:
        _serve(sys.argv[1], float(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1:]))
