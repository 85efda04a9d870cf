# SPDX-License-Identifier: Apache-2.0
"""Identifies this process across machines, and tells whether a recorded process is still alive.

A process id says little by itself: it is reused after a while, and means another process in another container. So it
is kept together with the start time of the process, the boot id of the machine, and the namespace of the id.
"""

import contextlib
import os
import platform
import subprocess
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Process:
    """A process on some machine; a field is "" if the operating system does not provide it."""

    host: str
    machine: str
    """The id that the machine was given when it was installed."""
    boot: str
    """An id that changes each time the machine starts; containers have the one of their machine."""
    namespace: str
    """The namespace of the process id; containers usually have one each."""
    pid: int
    started: str
    """When it started, as the operating system writes it."""

    @classmethod
    def current(cls) -> Self:
        """Returns this process."""
        pid = os.getpid()
        namespace = ""
        with contextlib.suppress(OSError):
            namespace = os.readlink("/proc/self/ns/pid")
        return cls(
            host=platform.node(),
            machine=_read("/etc/machine-id"),
            boot=_read("/proc/sys/kernel/random/boot_id") or _ask("sysctl", "-n", "kern.bootsessionuuid"),
            namespace=namespace,
            pid=pid,
            started=_start_of(pid) or "",
        )

    def is_dead(self, here: "Process") -> bool | None:
        """Returns whether this process has ended, as seen by the process `here`; None if that cannot be told."""
        if not self.boot or not here.boot:
            return None
        if self.boot != here.boot:
            # After a restart none of a machine's earlier processes are alive; of another machine nothing is known.
            is_same = bool(self.machine) and (self.host, self.machine) == (here.host, here.machine)
            return True if is_same else None
        if self.namespace != here.namespace:
            return None
        return _start_of(self.pid) != self.started


def _start_of(pid: int) -> str | None:
    """Returns when a process started; None if there is none, or only a zombie."""
    if os.path.exists("/proc/self/stat"):
        # "pid (name) state parent ...", and the name may hold anything; see proc(5) for the numbers of fields.
        state, *fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split() or [""]
        return fields[18] if state not in ("", "Z", "X") else None
    state, _, started = _ask("ps", "-o", "stat=,lstart=", "-p", str(pid)).partition(" ")
    return started.strip() if state and not state.startswith("Z") else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _ask(*command: str) -> str:
    try:
        # The answers are compared, so they must not depend on language or time zone.
        environment = os.environ | {"LC_ALL": "C", "TZ": "UTC"}
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
