# SPDX-License-Identifier: Apache-2.0
"""A real Flink cluster with two task managers, each with workers in a network of its own, writes the same bytes.

Runs with `pytest -m flink tests/end_to_end/test_flink.py`, where there are Java 11 or later and Maven, which fetches
the jars once, into `build/flink`.
"""

import contextlib
import os
import signal
import time

import pytest

from tests.end_to_end import flink_cluster, hosts

pytestmark = [pytest.mark.flink, pytest.mark.xdist_group("flink")]


@pytest.fixture(scope="module")
def cluster(request, tmp_path_factory):
    if not flink_cluster.is_asked_for(request.config):
        pytest.skip("starts a Flink cluster: only with -m flink, which fetches its jars through Maven first")
    with contextlib.ExitStack() as stack:
        machines = "127.0.0.1", []
        with contextlib.suppress(hosts.NotHereError):
            machines = stack.enter_context(hosts.several(flink_cluster.N_TASK_MANAGERS))
        try:
            started = stack.enter_context(flink_cluster.start(tmp_path_factory.mktemp("flink"), *machines))
        except flink_cluster.NotHereError as why:
            pytest.skip(str(why))
        yield started


def sections(corpus):
    paths = [str(corpus / "*.jsonl*"), str(corpus / "*.txt"), str(corpus / "*.parquet")]
    training = {"train": {"vocab_size": 300, "min_frequency": 1}, "oov": "contain"}
    return {"input": {"paths": paths, "split_bytes": 4000}, "tokenizer": training}


def n_workers_started(cluster):
    return [log.read_text().count("started worker") for log in cluster.pool_logs]


def test_flink_with_two_task_managers_gives_the_same_bytes(cluster, corpus, make_job):
    reference = make_job("reference", **sections(corpus))
    assert reference.run("run", "--mode", "inline") == 0
    job = make_job("flink", **sections(corpus))
    done = job.start("run", "--", *cluster.beam_options())
    _, messages = done.communicate(timeout=300)
    assert done.returncode == 0, messages
    assert job.files() == reference.files()
    started = n_workers_started(cluster)
    assert all(started), f"workers that each pool was asked for: {started}"


def test_a_shuffle_on_flink_gives_the_same_bytes(cluster, corpus, make_job):
    settings = ["--set", "output.shuffle.shards=5", "--set", "output.shuffle.seed=7"]
    settings += ["--set", "output.packing={length: 32, separator: '[SEP]'}"]
    reference = make_job("reference", **sections(corpus))
    assert reference.run("run", *settings, "--mode", "inline") == 0
    job = make_job("flink", **sections(corpus))
    done = job.start("run", *settings, "--", *cluster.beam_options())
    _, messages = done.communicate(timeout=300)
    assert done.returncode == 0, messages
    assert len(list(job.output.glob("tokens-*-of-00005.parquet"))) == 5
    assert job.files() == reference.files()


def test_the_work_of_a_killed_worker_is_done_again(cluster, corpus, make_job):
    reference = make_job("reference", **sections(corpus))
    assert reference.run("run", "--mode", "inline") == 0
    before = sum(n_workers_started(cluster))
    job = make_job("killed", **sections(corpus))
    done = job.start("run", "--", *cluster.beam_options())
    # As soon as a split is counted the workers are at it; one of them, wherever it is, dies.
    deadline = time.monotonic() + 120
    while not any(job.output.glob("_counts/splits/_ledger/*.json")):
        assert done.poll() is None, done.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    victim = next(worker for workers in cluster.workers() for worker in workers)
    os.kill(victim.pid, signal.SIGKILL)
    assert not (job.output / "manifest.json").exists()
    _, messages = done.communicate(timeout=300)
    assert done.returncode == 0, messages
    assert job.files() == reference.files()
    assert sum(n_workers_started(cluster)) > before + flink_cluster.N_TASK_MANAGERS
    assert job.run("verify") == 0
