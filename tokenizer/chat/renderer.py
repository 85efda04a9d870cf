# SPDX-License-Identifier: Apache-2.0
"""The process that renders chat templates, from outside: it is started when it is needed, and again if it dies."""

import atexit
import datetime
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenmill.tokenizer.chat.errors import TemplateError, TemplateLimitError

MAX_SECONDS = 5.0
"""The most processor time that a template may take for one conversation, or for being compiled."""
MAX_MEMORY = 1 << 30
"""The most bytes of memory of the process, where the system has such a limit: macOS does not keep it."""
LIMIT_CODES = (-signal.SIGPROF, 3)
"""How the process ends that takes too much time, and too much memory."""
_LENGTH = 8
"""Bytes of the length in front of each request and answer."""

# The packages around `rendering` are not imported: that would take longer than Jinja does.
_START = """
import sys, types
sys.path[:] = {path!r}
for name, folders in {packages!r}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = folders
from tokenmill.tokenizer.chat.rendering import serve
serve({seconds!r}, {memory!r})
"""


class _Renderer:
    """A process that renders until it takes more than it may, or this one ends."""

    def __init__(self) -> None:
        packages = {"tokenmill": [], "tokenmill.tokenizer": [], __package__: [str(Path(__file__).parent)]}
        code = _START.format(path=sys.path, packages=packages, seconds=MAX_SECONDS, memory=MAX_MEMORY)
        # Ctrl-C does not reach it in a session of its own; it ends when its stdin does.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if self._read() is None:
            raise OSError(f"{sys.executable} -c {code!r} does not start: exit code {self.end()}")

    def ask(self, request: bytes, n: int) -> list[Any]:
        """Returns the `n` answers to a request, one if the template is broken, or too few if the process dies of it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(len(request).to_bytes(_LENGTH, "little") + request)
            self._process.stdin.flush()
        except BrokenPipeError:
            return []
        found: list[Any] = []
        while len(found) < n and not any(found[:1]) and (answer := self._read()) is not None:
            found.append(json.loads(answer.decode("utf-8", "surrogatepass")))
        return found

    def _read(self) -> bytes | None:
        assert self._process.stdout is not None
        length = int.from_bytes(self._process.stdout.read(_LENGTH), "little")
        content = self._process.stdout.read(length)
        return content if length and len(content) == length else None

    def end(self) -> int:
        """Ends the process; returns its exit code."""
        self._process.kill()
        self._process.communicate()
        return self._process.returncode


class _State:
    """The process of this one, which threads use in turn."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.renderer: _Renderer | None = None

    def end(self) -> int | None:
        renderer, self.renderer = self.renderer, None
        return None if renderer is None else renderer.end()


_state = _State()
os.register_at_fork(after_in_child=_state.__init__)  # type: ignore[misc] # the process belongs to the parent
atexit.register(_state.end)


def render(
    source: str,
    date: datetime.date | None,
    jobs: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
    *,
    is_traced: bool,
) -> list[Any]:
    """Compiles a template and renders conversations, (messages, arguments), in another process.

    Returns:
      For each what `rendering` answers, a list that begins with "text", "traced", "refused" or "failed"; or "limit" if
      the process died of it.

    Raises:
      TemplateError: if it is no template, or what is given is no data; TemplateLimitError: if compiling it takes too
      much; OSError: if the process does not start.
    """
    found: list[Any] = []
    is_alone = is_second = False
    while True:
        some = jobs[len(found) : len(found) + 1 if is_alone else None]
        answers, code = _ask((source, date, is_traced, some), 1 + len(some))
        if any(answers[:1]):
            raise TemplateError(f"not a chat template: {answers[0]}")
        found += answers[1:]
        # Which of several it died of is not known: they are rendered one by one, up to that one. And nobody is blamed
        # for a process that somebody else has ended, unless it dies of the same again.
        is_blamed = code is not None and len(some) <= 1 and (code in LIMIT_CODES or is_second)
        if is_blamed:
            why = f"more than {MAX_SECONDS:g} s of processor time or {MAX_MEMORY >> 20:,} MiB of memory"
            if not some:
                raise TemplateLimitError(f"not a chat template: compiling it takes {why}")
            found.append(["limit", f"the template takes {why} for this conversation"])
        if len(found) == len(jobs) and (code is None or is_blamed):
            return found
        is_alone = (is_alone or code is not None) and not is_blamed
        is_second = code is not None and len(some) <= 1 and not is_blamed


def _ask(request: Any, n: int) -> tuple[list[Any], int | None]:
    """Returns the answers to a request, and with which code the process ended if there are too few."""
    try:
        content = pickle.dumps(request, protocol=5)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise TemplateError(f"messages and arguments of a template are data as JSON has them: {error}") from None
    with _state.lock:
        found: list[Any] = []
        code = None
        try:
            _state.renderer = _state.renderer or _Renderer()
            found = _state.renderer.ask(content, n)
        finally:
            # It died, or this was interrupted and there are answers that nobody has read.
            if len(found) < n and not any(found[:1]):
                code = _state.end()
    return found, code
