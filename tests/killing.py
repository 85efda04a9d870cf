# SPDX-License-Identifier: Apache-2.0
"""A job through the command line that dies on the way, as by a power cut, or stands still there."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests import forking

ROOT = Path(__file__).parents[1]

# The n-th time that a file is about to get its final name something happens first.
PROGRAM = """
import os, signal, sys, time
from tokenmill.__main__ import main
from tokenmill.pipeline import storage

# A shell that starts the tests in the background lets its children ignore Ctrl-C, and nohup lets them ignore SIGHUP.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
n_left, action, signs = int(sys.argv[1]), *sys.argv[2:4]
rename = storage.rename

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def pause():
    open(signs + ".paused", "w").close()
    while not os.path.exists(signs + ".go"):
        time.sleep(0.02)

def rename_later(source, destination):
    global n_left
    n_left -= 1
    if n_left == 0:
        {"die": die, "pause": pause}[action]()
    rename(source, destination)

storage.rename = rename_later
del sys.argv[1:4]
sys.exit(main())
"""


def run_killed(n_renames: int, *arguments: str, before: str = "") -> int:
    """Runs `tokenmill` with these arguments in a process of its own, after this code; returns its exit code."""
    command = [forking.python(), "-c", before + PROGRAM, str(n_renames), "die", "", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=100, check=False).returncode


@contextlib.contextmanager
def paused(n_renames: int, signs: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Starts `tokenmill` with these arguments and yields its process once it stands still; `go(signs)` lets it go on.

    Args:
      n_renames: it stands still before so many files get their final names.
      signs: a path whose extensions are the signs to give and to get.
      arguments: of `tokenmill`.
    """
    for sign in (".paused", ".go"):
        signs.with_name(signs.name + sign).unlink(missing_ok=True)
    command = [sys.executable, "-c", PROGRAM, str(n_renames), "pause", str(signs), *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        try:
            deadline = time.monotonic() + 100
            while not os.path.exists(f"{signs}.paused"):
                assert running.poll() is None, running.stdout.read()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield running
        finally:
            running.kill()


def go(signs: Path) -> None:
    """Lets a paused process go on."""
    signs.with_name(signs.name + ".go").touch()
