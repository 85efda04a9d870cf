# SPDX-License-Identifier: Apache-2.0
"""Commands forked from a process that has imported everything are as those of a Python of their own."""

import os
import signal
import subprocess
import sys

import pytest

from tests import forking

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")

SEEN = """
import json, os, signal, sys, threading
print(json.dumps([sys.argv, sys.stdin.read(), os.getcwd(), os.environ["SEEN"], len(os.listdir("/proc/self/task")),
    str(signal.getsignal(signal.SIGINT)), __name__, os.getpgid(0), len(os.listdir("/proc/self/fd")),
    [stream.seekable() for stream in (sys.stdin, sys.stdout, sys.stderr)]]))
print("told", file=sys.stderr)
{end}
"""


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "sys.exit('no')", "raise KeyError", "os.kill(os.getpid(), 9)"])
def test_a_command_sees_and_ends_as_one_of_a_python_of_its_own(tmp_path, end):
    program = SEEN.format(end=f"sys.stdout.flush(); {end}")
    (tmp_path / "seen.py").write_text(program, encoding="utf-8")
    environment = os.environ | {"SEEN": "ü", "PYTHONPATH": str(tmp_path)}

    def run(python, *words):
        done = subprocess.run(
            [python, *words, "a b", "é"],
            input="in", cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr.splitlines()[:1], done.stderr.splitlines()[-1:]

    for words in (
        (["-c", program], ["seen.py"], ["-m", "seen"], ["-B", "-c", program]) if not end else (["-m", "seen"],)
    ):
        expected = run(sys.executable, *words)
        assert run(forking.python(), *words) == expected
        assert expected[2] == ["told"]


@pytest.fixture
def _interruptible():
    """Commands inherit that SIGINT is ignored, as it is in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_signals_reach_it_and_it_ends_with_who_asked():
    program = "import sys, time; print('ready', flush=True); time.sleep(100)"
    command = [forking.python(), "-c", program]
    for number, code in (
        (signal.SIGINT, (1, -signal.SIGINT)),
        (signal.SIGTERM, (-signal.SIGTERM,)),
        (signal.SIGKILL, (-signal.SIGKILL,)),
    ):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
            assert running.stdout.readline() == "ready\n"
            running.send_signal(number)
            assert running.stdout.read() == ""  # its end of the pipe is closed: it is gone
            assert running.wait(10) in code
