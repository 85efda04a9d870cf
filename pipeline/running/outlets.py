# SPDX-License-Identifier: Apache-2.0
"""Standard streams that no data and no environment can break.

A process goes on when its streams are closed, or when nobody reads them any more. What it prints does not act on a
terminal, whatever names, texts and vocabularies contain, and is printed in any encoding.
"""

import codecs
import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

_unread: dict[int, OSError] = {}
"""File descriptors that take nothing more, and why: their reader has left, or the disk is full."""

_opened: list[Any] = []
"""Streams in place of closed ones; what is put around one has only its descriptor, and it must not be collected."""


class _Outlet(io.FileIO):
    """A pipe whose reader may leave, as `| head` does, or a file whose disk may be full; later output is dropped.

    An exception would end a job that has work to do, or hide a command's exit code. And it could be raised anywhere:
    here, in argparse, in rich, in a thread that shows progress, or when the interpreter ends.
    """

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # as FileIO has it, not as typing.IO has
        try:
            return super().write(data)
        except OSError as error:
            _unread[self.fileno()] = error
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())
            return super().write(data)


def outlive_readers() -> None:
    """Lets this process go on, and end with its own exit code, when the reader of its stdout or stderr has left.

    Streams that are closed become the null device.
    """
    _open_closed()
    sys.stdout, sys.stderr = _outlive(sys.stdout), _outlive(sys.stderr)


def _outlive(stream: TextIO) -> TextIO:
    if stream.isatty():  # there is no pipe
        return stream
    outlet = io.BufferedWriter(_Outlet(stream.fileno(), "wb", closefd=False))
    return io.TextIOWrapper(outlet, stream.encoding, stream.errors, line_buffering=bool(stream.line_buffering))


def is_read() -> bool:
    """Returns whether stdout still has a reader, as far as is known; if not, a command that only prints may end."""
    return 1 not in _unread


def lost() -> str:
    """Returns why part of what went to stdout is lost, which is no news where a reader has left; "" if nothing is."""
    sys.stdout.flush()
    error = _unread.get(1)
    return "" if error is None or isinstance(error, BrokenPipeError) else error.strerror or str(error)


def _open_closed() -> None:
    """Gives this process the null device for each standard stream that it was started without."""
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            try:
                os.fstat(descriptor)
            except OSError:  # else the next file to be opened gets it, and is sent what native code has to say
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            _opened.append(open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # it stays open
            setattr(sys, name, _opened[-1])


_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that act on a terminal: control characters but for tab and line feed, and those that reorder text."""


def visible(text: str) -> str:
    r"""Returns a text with escapes in place of the characters that act on a terminal.

    >>> visible("\x1b[2J")
    '\\u001b[2J'
    """
    return _ACTING.sub(lambda found: _escaped(found[0]), text)


def _escaped(text: str) -> str:
    """Returns the escapes of characters as JSON has them, so that a line of JSON stays one."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return _escaped(error.object[error.start : error.end]), error.end


codecs.register_error("tokenmill.escape", _escape_unencodable)


class _Guarded:
    """A text stream on which nothing that is written acts; `styled` is the stream below, for colours and the like."""

    def __init__(self, styled: Any) -> None:
        self.styled = styled

    def write(self, text: str) -> int:
        self.styled.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.styled, name)


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """Lets the block print any text, whatever is in it, on whatever stdout and stderr this process has."""
    _open_closed()
    guarded = []
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="tokenmill.escape")
        guarded.append(_Guarded(stream))
    with contextlib.redirect_stdout(guarded[0]), contextlib.redirect_stderr(guarded[1]):
        yield
