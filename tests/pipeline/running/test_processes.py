# SPDX-License-Identifier: Apache-2.0
"""Whether another process still lives, as far as it can be told from here."""

import dataclasses
import os
import shutil
import subprocess
import sys

import pytest

from tokenmill.pipeline.running.processes import Process

HERE = Process.current()


def started_by_us(*command):
    """A process that says who it is, and the pipe to end it by."""
    program = "\n".join(
        [
            "import sys",
            "from tokenmill.pipeline.running.processes import Process",
            "print(Process.current(), flush=True)",
            "sys.stdin.read()",
        ]
    )
    running = subprocess.Popen(
        [*command, sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return running, eval(running.stdout.readline(), {"Process": Process})


def test_this_process_is_alive():
    assert Process.current() == HERE
    assert HERE.pid == os.getpid()
    assert HERE.is_dead(HERE) is False


def test_another_process_is_alive_until_it_is_killed():
    running, process = started_by_us()
    assert dataclasses.replace(process, pid=HERE.pid, started=HERE.started) == HERE
    assert process.is_dead(HERE) is False
    running.kill()
    # Not waited for, it is still in the table of processes.
    assert os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT) is not None
    assert process.is_dead(HERE) is True
    running.communicate()
    assert process.is_dead(HERE) is True


def test_a_number_that_was_given_again_is_another_process():
    assert dataclasses.replace(HERE, started="1").is_dead(HERE) is True


@pytest.mark.parametrize(
    ("changed", "is_dead"),
    [
        ({"host": "other", "machine": "m", "boot": "b"}, None),
        ({"machine": "m", "boot": "b"}, None),
        ({"machine": "", "boot": "b"}, None),
        ({"boot": ""}, None),
        ({"namespace": "pid:[1]"}, None),
        ({"host": "other", "namespace": "pid:[1]", "pid": 1}, None),
        ({"boot": "b"}, True),  # the same machine, started again
        ({"boot": "b", "namespace": "pid:[1]"}, True),
    ],
)
def test_what_cannot_be_told_is_not_guessed(changed, is_dead):
    here = dataclasses.replace(HERE, machine="installed once")
    assert dataclasses.replace(here, **changed).is_dead(here) is is_dead


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no `ps` to ask")
def test_without_proc_the_system_is_asked(monkeypatch):
    # As on macOS, whose `ps` and `sysctl` say the same.
    exists, opened = os.path.exists, open
    monkeypatch.setattr("os.path.exists", lambda path: not str(path).startswith("/proc/") and exists(path))
    monkeypatch.setattr("builtins.open", lambda path, *a, **k: opened(str(path).replace("/proc/", "/absent/"), *a, **k))
    running, process = started_by_us()
    here = Process.current()
    assert here.started
    process = dataclasses.replace(process, boot="b", started=_start_by_ps(process.pid))
    assert process.is_dead(dataclasses.replace(here, boot="b", namespace=process.namespace)) is False
    running.kill()
    running.communicate()
    assert process.is_dead(dataclasses.replace(here, boot="b", namespace=process.namespace)) is True


def _start_by_ps(pid):
    command, environment = ["ps", "-o", "lstart=", "-p", str(pid)], os.environ | {"LC_ALL": "C", "TZ": "UTC"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.strip()
