# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for tests, spoken to by its DevTools protocol over two pipes; nothing but the standard library.

`TOKENMILL_CHROMIUM` names it, or it is on the PATH under one of its names.
"""

import base64
import fcntl
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")

_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe")
_NOISE = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


def find() -> str | None:
    """Returns where Chromium is; None if it is not here."""
    return os.environ.get("TOKENMILL_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A Chromium that lives until `close`."""

    def __init__(self, program: str, profile: Path) -> None:
        """Starts it; `profile` is a folder for what it writes."""
        ours, theirs = os.pipe(), os.pipe()
        # It reads commands from descriptor 3 and writes to 4; ours must be neither.
        reads, writes = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (theirs[0], ours[1]))
        actions = [(os.POSIX_SPAWN_DUP2, reads, 3), (os.POSIX_SPAWN_DUP2, writes, 4)]
        actions += [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
        command = [program, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        self._pid = os.posix_spawn(program, command, os.environ, file_actions=actions)
        for fd in (reads, writes, theirs[0], ours[1]):
            os.close(fd)
        self._in, self._out = os.fdopen(theirs[1], "wb"), os.fdopen(ours[0], "rb")
        self._n_calls, self._buffer = 0, b""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """Ends it."""
        self._in.close()
        self._out.close()
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol; what happens meanwhile is kept in `events`.

        Raises:
          RuntimeError: if Chromium refuses it, or is gone.
        """
        self._n_calls += 1
        message: dict[str, Any] = {"id": self._n_calls, "method": method, "params": parameters}
        if not method.startswith("Target."):
            message["sessionId"] = self._session
        self._in.write(json.dumps(message).encode() + b"\0")
        self._in.flush()
        while True:
            answer = self._next()
            if answer.get("id") != self._n_calls:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                found: dict[str, Any] = answer["result"]
                return found

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = self._out.read1()
            if not read:
                raise RuntimeError("chromium has ended")
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, path: Path, width: int, *, dark: bool = False, media: str = "screen") -> None:
        """Opens a page of a file in a window so many pixels wide, from now on with no other event in `events`."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def evaluate(self, script: str) -> Any:
        """Returns what a script in the page gives, or what its promise does."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def noise(self) -> list[dict[str, Any]]:
        """Returns what the page has said on the console, and errors."""
        return [event for event in self.events if event["method"] in _NOISE]

    def requests(self) -> list[str]:
        """Returns the addresses that were asked for, that of the page included."""
        sent = (event for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def picture(self, path: Path) -> None:
        """Writes the whole page as PNG."""
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))
