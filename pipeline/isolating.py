# SPDX-License-Identifier: Apache-2.0
"""Work on many rows or files: what fails is halved until a row at fault is alone, and threads work ahead in order."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_AT_A_TIME = 64
"""Statistics of a split take up to 2 MB for a large vocabulary."""


def isolate(
    work: Callable[[int, int], Result],
    n_rows: int,
    errors: type[Exception] | tuple[type[Exception], ...],
    few: int = 1,
    has_failed: bool = False,
) -> Iterator[tuple[int, int, Result | Exception]]:
    """Yields stretches of rows in order, with what `work(start, stop)` returned, or with the error that it raised.

    Args:
      work: works on the rows from `start` to `stop`, without side effects.
      n_rows: how many there are.
      errors: what it raises if a row is at fault; other errors are not caught.
      few: a stretch of so few rows, or less, is not halved.
      has_failed: work on all rows together has failed before.
    """
    stretches = [(0, n_rows)]
    while stretches:
        start, stop = stretches.pop()
        is_known = has_failed and stop - start == n_rows > few
        try:
            result: Result | Exception | None = None if is_known else work(start, stop)
        except errors as error:
            result = error
        if (is_known or isinstance(result, Exception)) and stop - start > few:
            middle = (start + stop) // 2
            stretches += [(middle, stop), (start, middle)]
        elif result is not None:
            yield start, stop, result


def in_turn(
    function: Callable[[Item], Result], items: Iterable[Item], *, waits: bool = False, n_ahead: int = _AT_A_TIME
) -> Iterator[Result]:
    """Yields the result of `function` for each item, in the order of the items; threads compute results ahead.

    Args:
      function: called by several threads at the same time; an exception from it is raised here.
      items: iterated by the calling thread, `n_ahead` of them before the first result.
      waits: whether `function` waits for a remote store, so that more threads than processors are useful.
      n_ahead: at most this many results wait to be taken.
    """
    items = iter(items)
    with ThreadPoolExecutor(32 if waits else min(8, os.cpu_count() or 1)) as pool:
        while group := list(itertools.islice(items, n_ahead)):
            yield from pool.map(function, group)
