# SPDX-License-Identifier: Apache-2.0
"""What a process says on stderr while it waits for kernels, so that no pause is taken for a hang.

It says when it begins to compile, every ten seconds how long it has waited, and in the end how long that was in all.
Kernels that another process compiles count, too. While a progress display says that it waits, it adds no lines.
"""

import atexit
import contextlib
import sys
import threading
import time
from collections.abc import Iterator

_LEAST, _EVERY, _STEP = 1.0, 10.0, 0.2
"""Seconds: of a wait whose length is said, and after which it is over; between lines; between looks at the clock."""


class Waiting:
    """All waits of a process; those of several threads at once count once."""

    def __init__(self) -> None:
        self.speaks = True
        """False in a worker that has a sibling which says that it waits for another process."""
        self._n_displays = 0
        self._lock = threading.RLock()
        self._n, self._seconds, self._told, self._has_begun = 0, 0.0, 0.0, False
        self._since = self._ended = self._said = 0.0
        self._teller: threading.Thread | None = None

    @property
    def seconds(self) -> float:
        """How long this process has waited, until now."""
        return self._seconds + (time.monotonic() - self._since if self._n else 0.0)

    @property
    def is_on(self) -> bool:
        """Whether a thread of this process is waiting now."""
        return self._n > 0

    @contextlib.contextmanager
    def displayed(self) -> Iterator[None]:
        """While the block runs, something else shows whether the process waits; the sum is told after it."""
        with self._lock:
            self._n_displays += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_displays -= 1

    @contextlib.contextmanager
    def wait(self, line: str = "") -> Iterator[None]:
        """Counts the time in the block. `line` is said the first time; "": another process compiles."""
        if sys.stderr is None or not (line or self.speaks):
            yield
            return
        with self._lock:
            now = time.monotonic()
            if line and not self._has_begun:
                self._has_begun = True
                self._say(line)
            if not self._n:
                self._since = now
            self._n += 1
            if self._teller is None:
                self._said = now
                self._teller = threading.Thread(target=self._tell, daemon=True)
                self._teller.start()
        try:
            yield
        finally:
            with self._lock:
                self._n -= 1
                self._ended = time.monotonic()
                if not self._n:
                    self._seconds += self._ended - self._since

    def _tell(self) -> None:
        while True:
            time.sleep(_STEP)
            with self._lock:
                now = time.monotonic()
                if self._n_displays:
                    continue
                if self._n and now - self._said >= _EVERY:
                    self._said = now
                    self._say(f"waiting for kernels, {self.seconds - self._told:.0f} s so far ...")
                elif not self._n and now - self._ended >= _LEAST:
                    self._tell_sum()
                    self._teller = None
                    return

    def _tell_sum(self) -> None:
        if self._seconds - self._told >= _LEAST:
            self._say(f"waited {self._seconds - self._told:.1f} s for kernels, which are now kept")
            self._told = self._seconds

    def end(self) -> None:
        """Says what has not been said; no thread must write while Python ends."""
        self._lock.acquire()
        self._tell_sum()

    @staticmethod
    def _say(line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads
            print(f"tokenmill: {line}", file=sys.stderr, flush=True)


waiting = Waiting()
atexit.register(waiting.end)
