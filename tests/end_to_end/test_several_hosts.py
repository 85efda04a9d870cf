# SPDX-License-Identifier: Apache-2.0
"""Four hosts that share nothing but an object store: one crashes, one is slow, one has a full disk.

Flink's job manager, the S3 server and the command are on this machine; each host has a network, processes and a disk of
its own, with a task manager and a pool of workers (`hosts`). Runs as root on Linux, where there are versitygw and what
`test_flink.py` needs: `pytest -m flink tests/end_to_end/test_several_hosts.py`.
"""

import contextlib
import json
import random
import re
import subprocess
import time

import pytest

from tests.end_to_end import flink_cluster, hosts, s3_server
from tests.end_to_end.s3_server import keys, objects, visible

boto3 = pytest.importorskip("boto3", reason="needs boto3")

pytestmark = [pytest.mark.flink, pytest.mark.xdist_group("flink")]

N_HOSTS = 4
N_SPLITS = 12
DISK = "640m"
"""Flink keeps the jars of each job there, 152 MB, and some of its own."""
SECONDS = 1800
"""For a job. It takes two or three minutes on two cores that have nothing else to do."""
LETTERS = "etaoinshrdlu玫瑰"


@pytest.fixture(scope="module")
def machines(request):
    """Yields the address of this machine, and four hosts with small disks of their own."""
    if not flink_cluster.is_asked_for(request.config):
        pytest.skip("makes networks and starts a Flink cluster: only with -m flink, as root")
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(hosts.several(N_HOSTS, DISK))
        except hosts.NotHereError as why:
            pytest.skip(str(why))
        yield found


@pytest.fixture(scope="module")
def store(machines, tmp_path_factory):
    """Yields the address of an S3 server, and its client; the bucket has 12 files of 1 MB."""
    here, _ = machines
    with contextlib.ExitStack() as stack:
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in s3_server.ACCOUNT.items():
            environment.setenv(name, value)
        try:
            address = stack.enter_context(s3_server.start(tmp_path_factory.mktemp("store"), here))
        except s3_server.NotHereError as why:
            pytest.skip(str(why))
        client = boto3.client("s3", endpoint_url=address)
        client.create_bucket(Bucket="bucket")
        s3_server.upload(client, make_corpus(tmp_path_factory.mktemp("corpus")))
        yield address, client


def make_corpus(folder):
    chance = random.Random(1)
    words = ["".join(chance.choices(LETTERS, k=chance.randint(2, 9))) for _ in range(20_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    for i in range(N_SPLITS):
        texts = [" ".join(chance.choices(words, weights, k=200)) for _ in range(700)]
        lines = [json.dumps({"id": f"{i}-{j}", "text": text}, ensure_ascii=False) for j, text in enumerate(texts)]
        (folder / f"{i:02}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def cluster(machines, store, tmp_path_factory):
    here, found = machines
    try:
        with flink_cluster.start(tmp_path_factory.mktemp("flink"), here, found) as started:
            yield started
    except flink_cluster.NotHereError as why:
        pytest.skip(str(why))


def is_at_work(host):
    return any("worker_process" in " ".join(process.cmdline()) for process in host.processes())


def n_committed(client):
    return sum(bool(re.fullmatch(r"out/_ledger/[0-9a-f]{16}\.json", key)) for key in keys(client, "out/_ledger/"))


def wait_until(condition, job):
    """Waits for something that happens while a job runs."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_hosts_share_nothing_and_leave_nothing(machines, tmp_path):
    def interfaces():
        return subprocess.check_output(["ip", "link"], text=True)

    (tmp_path / "file").touch()
    with hosts.several(2, "1m") as (_, (one, other)):
        assert one.run("hostname").stdout == f"{one.name}\n"
        assert one.run("test", "-e", str(tmp_path / "file")).returncode == 1
        assert "Read-only" in one.run("touch", str(flink_cluster.ROOT / "file")).stderr
        assert one.run("touch", "/tmp/here").returncode == 0
        assert other.run("test", "-e", "/tmp/here").returncode == 1
        one.fill_disk()
        assert "No space left" in one.run("cp", "/bin/sh", "/tmp/more").stderr
        with subprocess.Popen([*other.prefix, "sleep", "1000"]) as sleeper:
            other.crash()
            assert sleeper.wait(20) != 0
        assert one.cable in interfaces()
    assert not one.first.is_running()
    assert one.name.rpartition("-")[0] not in interfaces()


def test_hosts_that_share_only_a_store_write_the_same_bytes_whatever_befalls_them(
    machines, store, cluster, make_job, tmp_path
):
    _, found = machines
    address, client = store
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS[:-1])]
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in vocab), encoding="utf-8")
    sections = {
        "input": {"paths": ["s3://bucket/corpus/*.jsonl"], "split_bytes": 2 << 20},
        "tokenizer": {"file": str(tmp_path / "vocab.txt"), "oov": "contain"},
    }
    to_store = f"--s3_endpoint_url={address}"
    # The undisturbed job. What it compiles is on the hosts too, which cannot keep anything themselves.
    reference = make_job("reference", output={"path": "s3://bucket/reference"}, **sections)
    assert reference.run("tokenize", "--mode", "inline", "--", to_store) == 0
    job = make_job("job", output={"path": "s3://bucket/out"}, **sections)
    # Of the four slots three are taken; another one is needed for what was on the host that crashes.
    # Flink may keep workers from one part of the graph to the next.
    beam_options = [to_store, "--environment_cache_millis=60000"]
    with job.start("tokenize", "--", *cluster.beam_options(N_HOSTS - 1), *beam_options) as running:
        try:
            wait_until(lambda: n_committed(client) and sum(map(is_at_work, found)) == N_HOSTS - 1, running)
            slow, full, doomed = filter(is_at_work, found)
            (spare,) = set(found) - {slow, full, doomed}
            slow.slow_down("40mbit")
            full.fill_disk()
            wait_until(lambda: n_committed(client) >= N_SPLITS // 4, running)
            doomed.crash()
            assert n_committed(client) < N_SPLITS
            _, messages = running.communicate(timeout=SECONDS)
        finally:
            running.kill()
    if running.returncode != 0:
        # Flink writes to the full disk what it needs to start a task again, and gives up after some attempts. Without
        # that host the job goes on where it was.
        assert "No space left on device" in messages
        kept = {name: data for name, data in objects(client, "out/").items() if name.startswith("tokens-")}
        assert len(kept) >= N_SPLITS // 4
        full.crash()
        with job.start("tokenize", "--resume", "--", *cluster.beam_options(N_HOSTS - 2), *beam_options) as running:
            _, messages = running.communicate(timeout=SECONDS)
        assert running.returncode == 0, messages
        assert kept.items() <= objects(client, "out/").items()
    assert "started worker" in cluster.pool_logs[found.index(spare)].read_text()
    assert visible(objects(client, "out/")) == visible(objects(client, "reference/"))
    assert not [key for key in keys(client) if key.endswith(".tmp") or "/_tmp/" in key]
    assert job.run("verify", "--deep", "--", to_store) == 0
