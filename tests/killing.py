# SPDX-License-Identifier: Apache-2.0
"""A job through the command line that dies on the way, as by a power cut."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# The n-th time that a file is about to get its final name the process is killed.
KILLED = """
import os, signal, sys
from pipeline import storage
from pipeline.cli import main

n_left = int(sys.argv[1])
rename = storage.rename

def rename_or_die(source, destination):
    global n_left
    n_left -= 1
    if n_left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, destination)

storage.rename = rename_or_die
sys.exit(main(sys.argv[2:]))
"""


def run_killed(n_renames: int, *arguments: str) -> int:
    """Runs `tokenmill` with these arguments in a process of its own; returns its exit code."""
    command = [sys.executable, "-c", KILLED, str(n_renames), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=100, check=False).returncode
