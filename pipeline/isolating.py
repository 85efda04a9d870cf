# SPDX-License-Identifier: Apache-2.0
"""Work on many rows that fails for a few of them: what fails is halved until a row at fault is alone."""

from collections.abc import Callable, Iterator
from typing import TypeVar

Result = TypeVar("Result")


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
