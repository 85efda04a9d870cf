# SPDX-License-Identifier: Apache-2.0
"""Which tests `./run.sh test --quick` leaves out: the slowest, until the others take no more than a budget.

    ./run.sh test --junitxml=build/tests.xml
    .venv/bin/python -m tools.slow_tests build/tests.xml

writes `tests/slow.txt`, a test function on each line, its parameters taken together. Measure with nothing else on the
machine, and with no kernels compiled: what compiles one is slow for whoever has changed it.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

REPOSITORY = Path(__file__).resolve().parents[1]


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
    (REPOSITORY / "tests" / "slow.txt").write_text("".join(f"{name}\n" for name in sorted(slow)), encoding="utf-8")
    print(f"{len(slow):,} of {len(seconds):,} test functions left out; those that stay take {left:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
