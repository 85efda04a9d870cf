# SPDX-License-Identifier: Apache-2.0
"""The command `tokenmill`, which `python -m tokenmill` is, too."""

import gc
import signal
import sys

from tokenmill.pipeline import cli
from tokenmill.pipeline.commands.jobs import JOBS
from tokenmill.pipeline.commands.reporting import DONE, FAILED, MISTAKE, say
from tokenmill.pipeline.running.outlets import lost, outlive_readers


def main() -> int:
    """Runs the command that this process was started with, and returns its exit code."""
    outlive_readers()
    if sys.flags.optimize > 1:
        say("Beam needs docstrings: run Python without -OO, and with PYTHONOPTIMIZE at most 1")
        return MISTAKE
    # Schedulers send SIGTERM, a terminal that closes SIGHUP, and kill some time after it: until then a job can cancel
    # what it has started elsewhere. `nohup` has SIGHUP ignored.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    # Beam and numba bring a million objects, which are no garbage. Looking for some in them whenever 700 more are there
    # takes a third of what a small job takes beyond importing Beam.
    gc.set_threshold(500_000, 20, 100)
    code = cli.main()
    if reason := lost():
        say(f"warning: what this command prints could not be written to stdout: {reason}")
        code = code or (DONE if sys.argv[1] in JOBS else FAILED)  # a job has done its work
    return code


if __name__ == "__main__":
    sys.exit(main())
