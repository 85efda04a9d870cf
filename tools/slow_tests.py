# SPDX-License-Identifier: Apache-2.0
"""Chooses the tests that `./run.sh test --quick` leaves out: the slowest, until the others fit into a budget.

    ./run.sh test --junitxml=build/tests.xml
    .venv/bin/python -m tools.slow_tests build/tests.xml

writes `tests/slow.txt`, a test function on each line, those of the files that take longest first; the times of its
parameters are added up. The whole suite runs what is listed in this order, before the other tests. Measure on an idle
machine, and with no kernels compiled: a test that compiles a kernel is slow for everyone who changes it.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

REPOSITORY = Path(__file__).resolve().parents[1]


def _file(name: str) -> str:
    return name.partition("::")[0]


def main(arguments: list[str]) -> int:
    """Writes the list; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.slow_tests", description=__doc__, allow_abbrev=False)
    parser.add_argument("times", type=Path, help="what --junitxml wrote")
    parser.add_argument("--budget", type=float, default=160, help="processor seconds of what is left (default 160)")
    options = parser.parse_args(arguments)
    seconds: Counter[str] = Counter()
    for case in ElementTree.parse(options.times).getroot().iter("testcase"):
        path = case.attrib["classname"].replace(".", "/") + ".py"
        seconds[f"{path}::{case.attrib['name'].partition('[')[0]}"] += float(case.attrib["time"])
    slow, left = [], sum(seconds.values())
    for name, n in seconds.most_common():
        if left <= options.budget:
            break
        slow.append(name)
        left -= n
    files: Counter[str] = Counter()
    for name in slow:
        files[_file(name)] += seconds[name]
    slow.sort(key=lambda name: (-files[_file(name)], name))
    (REPOSITORY / "tests" / "slow.txt").write_text("".join(f"{name}\n" for name in slow), encoding="utf-8")
    print(f"{len(slow):,} of {len(seconds):,} test functions left out; those that stay take {left:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
