# SPDX-License-Identifier: Apache-2.0
"""One command at a time owns an output folder; of a dead one it is taken, by one only."""

import contextlib
import errno
import fcntl
import json
import os
import platform
import subprocess
import sys
import threading
import time

import pytest

from tests.finished_splits import JOB, built, names_in, write
from tokenmill.pipeline.output import ownership
from tokenmill.pipeline.output.folders import prepare_output, publish
from tokenmill.pipeline.output.ownership import OWNER, own


@pytest.fixture(params=["locks", "no locks"])
def locks(request, monkeypatch):
    """Filesystems with locks, and those without, which do as object stores."""
    if request.param == "no locks":

        def refuse(*_):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(fcntl, "flock", refuse)
        monkeypatch.setattr(ownership, "SETTLE_SECONDS", 0.1)
        monkeypatch.setattr(ownership, "SILENT_SECONDS", 1.0)
        monkeypatch.setattr(ownership, "BEAT_SECONDS", 0.1)
    return request.param


def left_by(folder, machine="other", nonce="0" * 32):
    """Writes what another owner has left."""
    folder.mkdir(exist_ok=True)
    record = {"nonce": nonce, "command": "run", "since": "2001-02-03 04:05:06 UTC"}
    (folder / OWNER).write_text(json.dumps(record | {"host": "elsewhere", "pid": 17, "machine": machine}))


def test_a_folder_is_owned_for_the_length_of_a_block(tmp_path, locks):
    output = tmp_path / "absent" / "out"
    with own(str(output), "run") as lease:
        assert names_in(output) == [OWNER]
        lease.check()
    assert names_in(output) == []
    with pytest.raises(KeyboardInterrupt), own(str(output), "run"):
        raise KeyboardInterrupt
    assert names_in(output) == []


def test_a_second_command_is_told_whose_it_is(tmp_path, locks):
    with own(str(tmp_path), "tokenize"):
        for _ in range(2):
            with pytest.raises(ValueError, match="is in use") as raised, own(str(tmp_path), "run"):
                pass
            assert f"tokenize, process {os.getpid()} on {platform.node()!r}, since 2" in str(raised.value)
            assert "wait until it is done, stop it, or choose another folder" in str(raised.value)
        assert names_in(tmp_path) == [OWNER]
        assert "process" in ownership.living_owner(str(tmp_path))
        if locks == "locks":
            with pytest.raises(ValueError, match="is in use: tokenize, process"):
                ownership.check_free(str(tmp_path))
    ownership.check_free(str(tmp_path))
    assert ownership.living_owner(str(tmp_path)) is None
    with own(str(tmp_path), "run"):
        pass


def test_an_owner_of_another_machine_lives_while_it_renews_its_file(tmp_path, locks, monkeypatch, caplog):
    monkeypatch.setattr(ownership, "SILENT_SECONDS", 30.0)
    monkeypatch.setattr(ownership, "BEAT_SECONDS", 0.1)
    left_by(tmp_path)
    os.utime(tmp_path / OWNER, (0, 0))
    renewed = threading.Timer(0.5, os.utime, (tmp_path / OWNER,))
    renewed.start()
    with pytest.raises(ValueError, match=r"is in use: run, process 17 on 'elsewhere', since 2001-02-03 04:05:06 UTC"):
        own(str(tmp_path), "run").__enter__()
    assert "unless that is dead, which takes 30 s to tell" in caplog.text
    assert names_in(tmp_path) == [OWNER]
    assert ownership.living_owner(str(tmp_path)) == "run, process 17 on 'elsewhere', since 2001-02-03 04:05:06 UTC"
    os.utime(tmp_path / OWNER, (0, 0))
    assert ownership.living_owner(str(tmp_path)) is None


def test_an_owner_of_another_machine_that_is_silent_is_dead_whatever_the_clocks_say(tmp_path, locks, monkeypatch):
    monkeypatch.setattr(ownership, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(time, "time", lambda: 4e9)  # a machine whose clock is ahead by decades
    left_by(tmp_path)
    with own(str(tmp_path), "run") as lease:
        lease.check()
    assert names_in(tmp_path) == []


def test_the_lock_of_this_machine_says_that_its_owner_is_dead(tmp_path):
    left_by(tmp_path, machine=ownership._machine())
    assert ownership.living_owner(str(tmp_path)) is None
    started = time.monotonic()
    with own(str(tmp_path), "run") as lease:
        lease.check()
        assert ownership.living_owner(str(tmp_path)) is not None
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"nonce": 1}', b"\xff"])
def test_a_file_that_says_nothing_is_nobodys(tmp_path, locks, data):
    (tmp_path / OWNER).write_bytes(data)
    assert ownership.living_owner(str(tmp_path)) is None
    with own(str(tmp_path), "run") as lease:
        lease.check()
    assert names_in(tmp_path) == []


def test_who_was_thought_dead_learns_it_and_leaves_the_folder_to_the_other(tmp_path, locks, monkeypatch):
    monkeypatch.setattr(ownership, "BEAT_SECONDS", 0.01)
    lost = []
    with own(str(tmp_path), "run", lambda: lost.append(1)) as lease:
        deadline = time.monotonic() + 10
        os.utime(tmp_path / OWNER, (0, 0))
        while os.stat(tmp_path / OWNER).st_mtime == 0:  # it is renewed
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (tmp_path / OWNER).unlink()
        left_by(tmp_path)
        while not lost:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(ValueError, match="was taken over by run, process 17 on 'elsewhere'"):
            lease.check()
    assert lost == [1]
    assert names_in(tmp_path) == [OWNER]


@pytest.mark.parametrize("is_there", [True, False])
def test_nothing_is_published_in_a_folder_that_was_lost(tmp_path, is_there):
    prepare_output(str(tmp_path), JOB, "new", n_splits=2, suffix=".parquet")
    stale = "tokens-00001-of-00002.parquet"
    write(tmp_path, stale)
    with own(str(tmp_path), "run") as lease:
        (tmp_path / OWNER).unlink()
        if is_there:
            left_by(tmp_path)
        with pytest.raises(ValueError, match="was taken over by run, process 17" if is_there else "has lost its"):
            publish(str(tmp_path), JOB, built(), suffix=".parquet", lease=lease)
    assert "manifest.json" not in names_in(tmp_path)
    assert stale in names_in(tmp_path)


# Waits for the file "go", tries, says how it went, and then holds on until its input ends.
CONTENDER = """
import os, sys, time
from tokenmill.pipeline.output import ownership

output, has_locks = sys.argv[1], sys.argv[2] == "locks"
if not has_locks:
    import errno, fcntl

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = refuse
    ownership.SILENT_SECONDS, ownership.BEAT_SECONDS = 2.0, 0.1
print("ready", flush=True)
while not os.path.exists(output + ".go"):
    pass
try:
    with ownership.own(output, "run") as lease:
        print("owner", flush=True)
        sys.stdin.read()
        lease.check()
except ValueError as error:
    print(error, flush=True)
"""


@contextlib.contextmanager
def contenders(n, output, locks):
    command = [sys.executable, "-c", CONTENDER, str(output), locks]
    with contextlib.ExitStack() as stack:
        running = []
        for _ in range(n):
            one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for end in (one.wait, one.stdout.close, one.stdin.close, one.kill):
                stack.callback(end)
            running.append(one)
        assert [one.stdout.readline() for one in running] == ["ready\n"] * n
        yield running


@pytest.mark.parametrize("of_the_dead", [False, True])
@pytest.mark.parametrize("kind", ["locks", "no locks"])
def test_of_many_at_once_exactly_one_wins(tmp_path, kind, of_the_dead):
    output = tmp_path / "out"
    if of_the_dead:
        left_by(output, ownership._machine())
    with contenders(4, output, kind) as running:
        (tmp_path / "out.go").touch()
        said = [one.stdout.readline() for one in running]
        assert said.count("owner\n") == 1
        assert all("is in use: run, process" in line for line in said if line != "owner\n")
        winner = running[said.index("owner\n")]
        assert json.loads((output / OWNER).read_text())["pid"] == winner.pid
        winner.stdin.close()
        assert winner.wait() == 0
    assert names_in(output) == []


@pytest.mark.parametrize("kind", ["locks", "no locks"])
def test_the_folder_of_an_owner_that_is_killed_is_taken(tmp_path, kind, monkeypatch):
    output = tmp_path / "out"
    (tmp_path / "out.go").touch()
    if kind == "no locks":
        monkeypatch.setattr(ownership, "SETTLE_SECONDS", 0.1)
        monkeypatch.setattr(ownership, "SILENT_SECONDS", 1.0)
        monkeypatch.setattr(ownership, "BEAT_SECONDS", 0.1)
        monkeypatch.setattr(ownership, "_lock", lambda *_: None)
    with contenders(1, output, kind) as (running,):
        assert running.stdout.readline() == "owner\n"
        with pytest.raises(ValueError, match=f"is in use: run, process {running.pid} on"):
            own(str(output), "run").__enter__()
        running.kill()
        running.wait()
        assert names_in(output) == [OWNER]
        with own(str(output), "run") as lease:
            lease.check()
    assert names_in(output) == []
