# SPDX-License-Identifier: Apache-2.0
"""The tiers of the tests, as `tiers.toml` has them, and what `./run.sh test --quick` takes of them.

`conftest.py` asks here which tests to leave out, and in which order the others run.
"""

import functools
import itertools
import re
import tomllib
from pathlib import Path

from tools import nearest

TABLE = Path(__file__).with_name("tiers.toml")
MARKS = ("flink", "installation", "prism")
"""Marks of tests that need what few machines have: they are in the tier `all`, wherever they stand."""


@functools.cache
def table() -> dict[str, str]:
    """Returns the tier of each pattern of the table: a folder, a file, a function, or some of its parameters."""
    listed = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    rows = [(pattern, "commit") for pattern in listed["commit"]]
    rows += [(pattern, "all") for patterns in listed["all"].values() for pattern in patterns]
    assert len(dict(rows)) == len(rows), "a pattern stands twice in tiers.toml"
    assert all(listed["all"].values()), "a reason in tiers.toml has no patterns"
    return dict(rows)


@functools.cache
def _expression(pattern: str) -> re.Pattern[str]:
    ends = "" if pattern.endswith("/") else "$" if "[" in pattern else r"(?=::|\[|$)"
    return re.compile(re.escape(pattern).replace(r"\*", ".*") + ends)


@functools.cache
def of(name: str) -> str | None:
    """Returns the tier of a file or of a test by its id; that of the longest pattern that fits, or None."""
    fitting = [pattern for pattern in table() if _expression(pattern).match(name)]
    return table()[max(fitting, key=len)] if fitting else None


def file_of(name: str) -> str:
    """Returns the file of a test by its id."""
    return name.partition("::")[0]


def near(names: list[str], changed: list[str]) -> list[int]:
    """Returns the places of the tests that depend on changed files, the nearest first; all if nothing has changed."""
    if not changed:
        return list(range(len(names)))
    ranks = {file: rank for rank, file in enumerate(nearest.tests_of(changed))}
    return sorted((i for i, name in enumerate(names) if file_of(name) in ranks), key=lambda i: ranks[file_of(names[i])])


def dealt(names: list[str], n_workers: int) -> list[int]:
    """Returns the places of the tests so that all workers, who begin with equal shares, begin with the first files."""
    shares: list[list[int]] = [[] for _ in range(n_workers)]
    for number, (_, places) in enumerate(itertools.groupby(range(len(names)), lambda i: file_of(names[i]))):
        turn = number % (2 * n_workers)  # to and fro: the last of one round is the first of the next
        shares[min(turn, 2 * n_workers - 1 - turn)] += places
    return [place for share in shares for place in share]
