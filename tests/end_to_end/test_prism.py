# SPDX-License-Identifier: Apache-2.0
"""What a job on Prism does when something dies, and what it says; that its bytes are right, test_determinism says."""

import os
import signal
import time

import psutil
import pytest

pytestmark = [pytest.mark.prism, pytest.mark.xdist_group("prism")]


@pytest.fixture
def sections(corpus):
    return {
        "input": {"paths": [str(corpus / "*")], "split_bytes": 2000},
        "tokenizer": {"train": {"vocab_size": 300, "min_frequency": 1}},
    }


@pytest.fixture
def external(prism, worker_service):
    service, address = worker_service
    return service, ["--", *prism, "--environment_type=EXTERNAL", f"--environment_config={address}"]


@pytest.fixture
def loopback(prism):
    return None, ["--", *prism, "--environment_type=LOOPBACK"]


def wait_until(is_so, running):
    deadline = time.monotonic() + 100
    while not is_so():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for_the_first_split(job, running):
    wait_until(lambda: any(job.output.glob("_counts/splits/_ledger/*.json")), running)


def finish_and_compare(job, make_job, sections, *options):
    running = job.start("run", "--resume", *options)
    _, messages = running.communicate(timeout=100)
    assert running.returncode == 0, messages
    undisturbed = make_job("undisturbed", **sections)
    assert undisturbed.run("run", "--mode", "inline") == 0
    assert job.files() == undisturbed.files()


def test_the_job_of_a_killed_driver_ends_by_itself_and_is_resumed(make_job, sections, external):
    service, options = external
    job = make_job("job", **sections)
    running = job.start("run", *options, forked=False)
    wait_for_the_first_split(job, running)
    others = [*psutil.Process(running.pid).children(), *psutil.Process(service.pid).children()]
    assert len(others) >= 2  # Prism and a worker
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert not (job.output / "manifest.json").exists()
    _, alive = psutil.wait_procs(others, timeout=60)  # they may do the rest of the job before they notice
    assert alive == []
    finish_and_compare(job, make_job, sections, *options)


def test_a_killed_worker_fails_the_job_which_is_resumed(make_job, sections, external):
    service, options = external
    job = make_job("job", **sections)
    running = job.start("run", *options, forked=False)
    wait_for_the_first_split(job, running)
    for worker in psutil.Process(service.pid).children():
        os.kill(worker.pid, signal.SIGKILL)
    _, messages = running.communicate(timeout=100)
    assert running.returncode == 1, messages
    assert "SDK worker disconnected" in messages
    assert "tokenmill: what is committed is kept: --resume goes on from there" in messages
    assert "PrismRunner:" not in messages
    finish_and_compare(job, make_job, sections, *options)


def test_ctrl_c_is_one_line(make_job, sections, loopback):
    _, options = loopback
    job = make_job("job", **sections)
    running = job.start("run", *options, forked=False)
    wait_for_the_first_split(job, running)
    (server,) = psutil.Process(running.pid).children()
    running.send_signal(signal.SIGINT)
    _, messages = running.communicate(timeout=100)
    assert running.returncode == 130, messages
    assert all(line.startswith("tokenmill: ") for line in messages.splitlines()), messages
    assert "tokenmill: stopped; what is committed is kept" in messages
    assert not server.is_running()
    finish_and_compare(job, make_job, sections, *options)


@pytest.mark.parametrize("workers", ["external", "loopback"])
def test_a_job_that_fails_says_why_in_the_last_line(workers, request, make_job, sections, corpus):
    (corpus / "g.jsonl").write_text('{"no": "text"}\n')
    job = make_job("job", **sections)
    _, options = request.getfixturevalue(workers)
    running = job.start("run", "--set", "input.max_rejected=0", *options, forked=False)
    _, messages = running.communicate(timeout=100)
    assert running.returncode == 1, messages
    assert all(line.startswith("tokenmill: ") for line in messages.splitlines()), messages
    assert " records read were rejected, more than input.max_rejected 0" in messages


def test_without_a_worker_service_the_job_ends(make_job, sections, prism):
    job = make_job("job", **sections)
    running = job.start("run", "--", *prism, "--environment_type=EXTERNAL", "--environment_config=localhost:1")
    _, messages = running.communicate(timeout=100)
    assert running.returncode == 1, messages
    assert "unable to start sdk worker localhost:1" in messages
    assert "tokenmill: failed: the runner or its job server cannot be reached: " in messages
