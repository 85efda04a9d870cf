# SPDX-License-Identifier: Apache-2.0
"""Exit codes, mistakes of the user, lines on stderr, and JSON on stdout."""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

DONE, FAILED, MISTAKE, STOPPED = 0, 1, 2, 130
"""Exit codes: success; the job failed or a check did; a mistake of the user; stopped by Ctrl-C."""


class Mistake(Exception):  # noqa: N818  # what the user got wrong, one line each
    """A mistake that the user has to correct before the command can start."""


@contextlib.contextmanager
def mistakes() -> Iterator[None]:
    """Turns errors in the block, which checks things before any work, into a `Mistake`."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise Mistake(str(error)) from error


def say(line: str, stream: TextIO | None = None) -> None:
    """Prints a line to stderr, or to `stream`, after the name of the program."""
    with contextlib.suppress(OSError):  # the disk behind it is full, or nobody reads: no reason to stop
        print(f"tokenmill: {line}", file=stream or sys.stderr, flush=True)


def print_result(options: argparse.Namespace, record: Any, lines: Iterable[object], default: Any = None) -> None:
    """Prints a record as JSON if `--json` is given, else lines."""
    if options.json:
        print_json(record, default)
        return
    for line in lines:
        print(line)


def print_json(found: Any, default: Callable[[Any], Any] | None = None) -> None:
    """Prints plain JSON to stdout; `default` makes it of other values."""
    print(json.dumps(found, ensure_ascii=False, indent=1, default=default))
