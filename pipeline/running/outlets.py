# SPDX-License-Identifier: Apache-2.0
"""Lets a process go on when nobody reads its stdout or stderr any more."""

import io
import os
import sys
from typing import Any

_unread: set[int] = set()
"""File descriptors whose readers have left."""


class _Outlet(io.FileIO):
    """A pipe whose reader may leave, as `| head` does; later output is dropped.

    An exception would end a job that has work to do, or hide a command's exit code. And it could be raised anywhere:
    here, in argparse, in rich, in a thread that shows progress, or when the interpreter ends.
    """

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # as FileIO has it, not as typing.IO has
        try:
            return super().write(data)
        except BrokenPipeError:
            _unread.add(self.fileno())
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())
            return super().write(data)


def outlive_readers() -> None:
    """Lets this process go on, and end with its own exit code, when the reader of its stdout or stderr has left."""
    sys.stdout, sys.stderr = _outlive(sys.stdout), _outlive(sys.stderr)


def _outlive(stream: Any) -> Any:
    if stream is None or stream.isatty():  # Python has closed it, or there is no pipe
        return stream
    outlet = io.BufferedWriter(_Outlet(stream.fileno(), "wb", closefd=False))
    return io.TextIOWrapper(outlet, stream.encoding, stream.errors, line_buffering=stream.line_buffering)


def is_read() -> bool:
    """Returns whether stdout still has a reader, as far as is known; if not, a command that only prints may end."""
    return 1 not in _unread
