# SPDX-License-Identifier: Apache-2.0
"""How a command ends and what it says on the way: exit codes, mistakes, lines on stderr."""

import contextlib
import sys
from collections.abc import Iterator

DONE, FAILED, MISTAKE, STOPPED = 0, 1, 2, 130
"""Exit codes."""


class Mistake(Exception):  # noqa: N818  # what the user got wrong, one line each
    """Something to correct before the job can start."""


@contextlib.contextmanager
def mistakes() -> Iterator[None]:
    """Turns errors of the checks before any work into a `Mistake`."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise Mistake(str(error)) from error


def say(line: str) -> None:
    """Prints a line to stderr, after the name of the program."""
    print(f"tokenmill: {line}", file=sys.stderr, flush=True)
