# SPDX-License-Identifier: Apache-2.0
"""What a process says on stderr while it waits for kernels, so that no pause is taken for a hang.

It says when it begins to compile, and when it ends, how long it has waited in all. Kernels that another process
compiles count, too. What a wheel brings along is not waited for.
"""

import atexit
import contextlib
import sys
import threading
import time
from collections.abc import Iterator

_LEAST = 1.0
"""Seconds of waiting that are worth a line."""


class Waiting:
    """All waits of a process; those of several threads at once count once."""

    def __init__(self) -> None:
        self.speaks = True
        """False in a worker that has a sibling which says that it waits for another process."""
        self._lock = threading.Lock()
        self._n, self._seconds, self._since, self._has_begun = 0, 0.0, 0.0, False

    @property
    def seconds(self) -> float:
        """How long this process has waited, until now."""
        return self._seconds + (time.monotonic() - self._since if self._n else 0.0)

    @property
    def is_on(self) -> bool:
        """Whether a thread of this process is waiting now."""
        return self._n > 0

    @contextlib.contextmanager
    def wait(self, line: str = "") -> Iterator[None]:
        """Counts the time in the block. `line` is said the first time; "": another process compiles."""
        if sys.stderr is None or not (line or self.speaks):
            yield
            return
        with self._lock:
            if line and not self._has_begun:
                self._has_begun = True
                self._say(line)
            if not self._n:
                self._since = time.monotonic()
            self._n += 1
        try:
            yield
        finally:
            with self._lock:
                if self._n == 1:
                    self._seconds = self.seconds
                self._n -= 1

    def end(self) -> None:
        """Says how long it was."""
        if self.seconds >= _LEAST:
            self._say(f"waited {self.seconds:.1f} s for kernels, which are now kept")

    @staticmethod
    def _say(line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads
            print(f"tokenmill: {line}", file=sys.stderr, flush=True)


waiting = Waiting()
atexit.register(waiting.end)
