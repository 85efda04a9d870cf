# SPDX-License-Identifier: Apache-2.0
"""Changes one operator or constant of the packages at a time, and prints the changes that no test notices.

    .venv/bin/python -m tools.mutants --n 20 --seed 1 --record build/mutants.jsonl
    .venv/bin/python -m tools.mutants --again build/mutants.jsonl

How many of random small faults survive says how much a suite protects: record which test notices each before tests go,
and try the same changes again after. Each change is made in a copy of the working tree. There the test that noticed it
last time runs, and where it is gone or passes, those that import the place, the nearest first, until one fails or their
time is over. In kernels a comparison of a bound is relaxed by one as any other is.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests import tiers
from tools import nearest

ROOT = nearest.ROOT
SECONDS, STUCK_SECONDS = 90, 600
"""How long the tests of a change may run, and when one that does not end counts as noticed, as its loop never does."""
_N_FIRST = 8
"""Of the nearest test files: to collect all others takes longer than most changes live."""
_OTHERS: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*",
    ast.Mod: "*", ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&", ast.And: "or", ast.Or: "and",
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A stretch of a line of a file, and what to write there."""

    path: str
    line: int
    start: int
    stop: int
    new: str

    def changed(self, text: str) -> str:
        """Returns the text of the file with the change; columns are bytes of UTF-8, as those of `ast`."""
        lines = text.splitlines(keepends=True)
        line = lines[self.line - 1].encode()
        lines[self.line - 1] = (line[: self.start] + self.new.encode() + line[self.stop :]).decode()
        return "".join(lines)


def _operators(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST, ast.AST]]:
    """Yields the operators of an expression, with what stands left and right of each."""
    if isinstance(node, ast.Compare):
        yield from zip(node.ops, [node.left, *node.comparators], node.comparators, strict=False)
    elif isinstance(node, ast.BinOp):
        yield node.op, node.left, node.right
    elif isinstance(node, ast.BoolOp):
        yield from ((node.op, left, right) for left, right in zip(node.values, node.values[1:], strict=False))


def places(path: str, text: str) -> list[Place]:
    """Returns where a file can be changed: operators that stand on one line, numbers, and truth values."""
    found = []
    lines = text.splitlines()
    tree = ast.parse(text)
    without_effect = {id(part) for node in ast.walk(tree) for part in _without_effect(node)}
    for node in ast.walk(tree):
        if id(node) in without_effect:
            continue
        for operator, left, right in _operators(node):
            if left.end_lineno != right.lineno or type(operator) not in _OTHERS:
                continue
            between = lines[right.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
            old = between.strip(" ()")  # brackets stay where they are
            if old:
                start = left.end_col_offset + between.index(old)
                found.append(Place(path, right.lineno, start, start + len(old), _OTHERS[type(operator)]))
        if isinstance(node, ast.Constant) and type(node.value) in (int, bool) and node.end_lineno == node.lineno:
            new = str(not node.value if isinstance(node.value, bool) else node.value + 1)
            found.append(Place(path, node.lineno, node.col_offset, node.end_col_offset or 0, new))
    return found


def _without_effect(node: ast.AST) -> Iterator[ast.AST]:
    """Yields what stands in annotations, where `|` and numbers mean types, and `strict` of `zip`, which only checks."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        yield node.value
    for name in ("annotation", "returns"):
        if isinstance(of := getattr(node, name, None), ast.AST):
            yield from ast.walk(of)


def chosen(n: int, seed: int, only: str = "") -> list[Place]:
    """Returns so many places, drawn alike from both packages, of files whose path begins with `only`."""
    by_package = [
        [place for path, text in nearest.texts().items() if path.startswith(package) and path.startswith(only)
         for place in places(path, text)]
        for package in ("tokenizer/", "pipeline/")
    ]  # fmt: skip
    chance = random.Random(seed)
    drawn = [chance.sample(each, min(len(each), n)) for each in by_package]
    mixed = [place for pair in zip(*drawn, strict=False) for place in pair] if all(drawn) else [*drawn[0], *drawn[1]]
    return mixed[:n]


class Copy:
    """A copy of the working tree, in which tests of changed sources run."""

    def __init__(self, folder: Path) -> None:
        """Copies the files that git knows or would add, and the kernels that are compiled, as links."""
        self.root = folder / "tree"
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        for name in names:
            if (ROOT / name).exists():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name, follow_symlinks=False)
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        kernels = Path(os.environ.get("TOKENMILL_CACHE_DIR", Path(caches, "tokenmill/tests")))
        if kernels.is_dir():  # those of changed sources do not get among them
            shutil.copytree(kernels, folder / "kernels", copy_function=os.link)
        self.environment = {
            "TOKENMILL_SHARED": str(ROOT.parent / "shared"),
            "TOKENMILL_EXAMPLES": "10",
            **os.environ,
            "TOKENMILL_CACHE_DIR": str(folder / "kernels"),
            "PYTHONPATH": str(self.root),
        }

    def tries(self, place: Place, text: str, last: str, seconds: float) -> str:
        """Changes a place and runs tests until one fails or the time is over; returns that which fails, or nothing."""
        ends = time.monotonic() + seconds
        tests = [test for test in nearest.tests_of([place.path]) if tiers.of(test) != "all"]  # else that would go first
        (self.root / place.path).write_text(place.changed(text), encoding="utf-8")
        try:
            for some in ([last] if "::" in last else [], tests[:_N_FIRST], tests[_N_FIRST:]):
                left = ends - time.monotonic()
                if some and left > 0 and (noticed := self.notices(some, left)):
                    return noticed
            return ""
        finally:
            (self.root / place.path).write_text(text, encoding="utf-8")

    def notices(self, tests: list[str], seconds: float = SECONDS) -> str:
        """Runs tests until one fails or the time is over; returns the first that fails, or nothing."""
        options = ("-x", "-q", "--no-header", "-p", "no:cacheprovider", f"--quick={seconds}", "--tb=no", "-rfE")
        command = [sys.executable, "-m", "pytest", *options, *tests]
        try:
            run = subprocess.run(
                command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False,
                timeout=STUCK_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "does not end"
        is_gone = run.returncode == 4 and "not found: " in run.stderr  # 4 is also a conftest that cannot be imported
        if run.returncode in (0, 5) or is_gone:  # 5: all are of another tier
            return ""
        lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if lines:
            return lines[0].split(" - ")[0].partition(" ")[2]
        return f"pytest ends with {run.returncode}: {run.stderr[-200:]}"


def recorded(path: Path) -> Iterator[tuple[Place, str]]:
    """Yields the changes of a record whose line still stands in its file, and the test that noticed each."""
    for record in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        old, noticed = record.pop("old"), record.pop("noticed").removeprefix("FAILED ")
        place = Place(**record)
        lines = nearest.texts().get(place.path, "").splitlines()
        same = [number for number, line in enumerate(lines, start=1) if line == old]
        if same:
            yield replace(place, line=min(same, key=lambda number: abs(number - place.line))), noticed


def main(arguments: list[str]) -> int:
    """Tries the changes; returns the number of those that survive, at most 1."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__, allow_abbrev=False)
    parser.add_argument("--n", type=int, default=300, help="how many changes (default 300)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default 0)")
    parser.add_argument("--only", default="", help="of files whose path begins so, such as tokenizer/kernels")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of the tests of each (default {SECONDS})")
    parser.add_argument("--record", type=Path, help="a file to write the changes to, and which test notices each")
    parser.add_argument("--again", type=Path, help="a file that --record has written: tries its changes")
    options = parser.parse_args(arguments)
    n_survivors: Counter[str] = Counter()
    n_tried: Counter[str] = Counter()
    tried = (
        list(recorded(options.again))
        if options.again
        else [(place, "") for place in chosen(options.n, options.seed, options.only)]
    )
    with tempfile.TemporaryDirectory(prefix="tokenmill-mutants-") as folder:
        copy = Copy(Path(folder))
        for place, last in tried:
            text, package = nearest.texts()[place.path], place.path.partition("/")[0]
            noticed = copy.tries(place, text, last, options.seconds)
            n_tried[package] += 1
            n_survivors[package] += not noticed
            old, new = (each.splitlines()[place.line - 1] for each in (text, place.changed(text)))
            print(f"{'survives' if not noticed else 'noticed '}  {place.path}:{place.line}  {noticed}", flush=True)
            if not noticed:
                print(f"    - {old.strip()}\n    + {new.strip()}", flush=True)
            if options.record:
                with options.record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**asdict(place), "old": old, "noticed": noticed}) + "\n")
    for package, n in sorted(n_tried.items()):
        print(f"{package}: {n_survivors[package]} of {n} survive")
    return min(1, sum(n_survivors.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
