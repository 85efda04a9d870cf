# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine, for tests: Linux namespaces on a bridge. Needs root and `ip`.

A host is what has namespaces of its own for the network, and with a disk of its own also for mounts, processes and its
name. It can read this machine's files, as an image that it was started from, and write to its own `/tmp` alone. It
lives as long as its first process, which ends with the test: with it go its processes, its disk and its cable.
"""

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

# Whatever is a disk can only be read; then there are small ones in memory. What is virtual stays as it is.
_OWN_DISK = """
while read -r _ place type _; do
  case $type in ext*|xfs|btrfs|overlay|zfs|nfs*) mount -o remount,bind,ro "$place" || exit;; esac
done < /proc/mounts
for place in /dev/shm /tmp; do mount -t tmpfs -o size=$1,mode=1777 tmpfs $place || exit; done
hostname "$2"
printf '127.0.0.1 localhost\\n%s %s\\n' "$3" "$2" > /tmp/names && mount --bind /tmp/names /etc/hosts || exit
"""

_numbers = itertools.count(os.getpid())


class NotHereError(Exception):
    """Hosts cannot be made on this machine; the message says why."""


@dataclass(frozen=True)
class Host:
    """One of several hosts."""

    name: str
    address: str
    cable: str
    """The end of its cable on this machine, a network interface."""
    prefix: tuple[str, ...]
    """What a command begins with to run there, in the working directory that this process had."""
    first: psutil.Process
    """Its first process."""
    has_own_disk: bool

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command there, and returns what became of it."""
        return subprocess.run([*self.prefix, *command], capture_output=True, text=True, check=False)

    def processes(self) -> list[psutil.Process]:
        """Its processes, if it has a disk of its own; none once it has crashed."""
        try:
            own = os.stat(f"/proc/{self.first.pid}/ns/pid").st_ino
        except OSError:
            return []
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{process.pid}/ns/pid").st_ino == own:
                    found.append(process)
        return found

    def fill_disk(self) -> None:
        """Leaves no byte on its own disk."""
        self.run("sh", "-c", "cat /dev/zero > /tmp/filler")

    def crash(self) -> None:
        """Ends it as a power cut does: all its processes at once, and its disk is gone."""
        self.first.kill()

    def slow_down(self, rate: str) -> None:
        """Lets its cable carry no more than `rate`, as `tc` writes it, in either direction."""
        shape = ["root", "tbf", "rate", rate, "burst", "32kbit", "latency", "1s"]
        _run("tc", "qdisc", "add", "dev", self.cable, *shape)
        _run(*self.prefix, "tc", "qdisc", "add", "dev", "eth0", *shape)


@contextlib.contextmanager
def several(n: int, disk: str | None = None) -> Iterator[tuple[str, list[Host]]]:
    """Yields the address of this machine for hosts, and `n` of them, whose disks hold `disk`, as `64m`; None: ours.

    Raises:
      NotHereError: if there can be none here.
    """
    for program in ("ip", "tc", "unshare", "nsenter"):
        if os.geteuid() != 0 or shutil.which(program) is None:
            raise NotHereError(f"needs Linux, root and {program} on the PATH, to make hosts with networks of their own")
    number = next(_numbers) % 250
    bridge, subnet = f"tmill{number}", f"10.213.{number}"
    with contextlib.ExitStack() as stack:
        _run("ip", "link", "add", bridge, "type", "bridge")
        stack.callback(subprocess.run, ["ip", "link", "delete", bridge], capture_output=True, check=False)
        _run("ip", "address", "add", f"{subnet}.1/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        found = [stack.enter_context(_host(i, bridge, f"{subnet}.{10 + i}", disk)) for i in range(n)]
        yield f"{subnet}.1", found


@contextlib.contextmanager
def _host(i: int, bridge: str, address: str, disk: str | None) -> Iterator[Host]:
    name, own = f"{bridge}-{i}", ["--net"]
    if disk is not None:
        own += ["--mount", "--uts", "--pid"]
    # It reads until its input ends, which is when this process ends, however that does.
    script = (_OWN_DISK if disk is not None else "") + "echo ready; exec cat"
    options = ["--fork", "--mount-proc"] if disk is not None else []
    command = ["unshare", *own, *options, "sh", "-c", script, "sh", disk or "", name, address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        if started.stdout.readline() != "ready\n":
            raise NotHereError("namespaces or mounts are refused here, as in a container without the rights")
        first = psutil.Process(started.pid)
        if disk is not None:
            (first,) = first.children()
        prefix = ("nsenter", f"--target={first.pid}", "--wd", *own)
        cable = f"{bridge}o{i}"
        _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(first.pid))
        _run("ip", "link", "set", cable, "master", bridge, "up")
        for what in (["address", "add", f"{address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            _run(*prefix, "ip", *what)
        _run(*prefix, "ip", "link", "set", "lo", "up")
        try:
            yield Host(name, address, cable, prefix, first, disk is not None)
        finally:  # the kernel would remove it too, but in its own time
            subprocess.run(["ip", "link", "delete", cable], capture_output=True, check=False)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotHereError(f"{' '.join(command)}: {done.stderr.strip()}")
