# SPDX-License-Identifier: Apache-2.0
"""A Flink cluster for tests: job manager, task managers with a worker pool each, and Beam's job server.

Everything is a process of its own, and each task manager, with its workers, may be on a host of its own (`hosts`). The
jars come through Maven, once, into `build/flink/jars`.
"""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.hosts import Host

ROOT = Path(__file__).parents[2]
POM = Path(__file__).with_name("flink-pom.xml")
FOLDER = ROOT / "build/flink"
N_TASK_MANAGERS = 2
WORKER_PORT = 50000
FETCH_SECONDS = 1200
START_SECONDS = 120

# Flink 1.19 opens these by its own start scripts, which are not among the jars.
_OPENED = [
    "java.base/java.lang", "java.base/java.lang.reflect", "java.base/java.net", "java.base/java.io",
    "java.base/java.nio", "java.base/java.text", "java.base/java.time", "java.base/java.util",
    "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic", "java.base/sun.nio.ch",
]  # fmt: skip
_JAVA = [
    "java", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.showDateTime=true",
    *(f"--add-opens={each}=ALL-UNNAMED" for each in _OPENED),
]  # fmt: skip

# No start script computes the sizes of a task manager either: all of them are given.
_CONFIG = {
    "jobmanager.bind-host": "0.0.0.0",
    "jobmanager.memory.process.size": "512m",
    "rest.bind-address": "0.0.0.0",
    "taskmanager.bind-host": "0.0.0.0",
    "taskmanager.numberOfTaskSlots": 1,
    "taskmanager.cpu.cores": 1.0,
    "taskmanager.memory.framework.heap.size": "64m",
    "taskmanager.memory.framework.off-heap.size": "64m",
    "taskmanager.memory.task.heap.size": "256m",
    "taskmanager.memory.task.off-heap.size": "64m",
    "taskmanager.memory.managed.size": "64m",
    "taskmanager.memory.network.min": "128m",
    "taskmanager.memory.network.max": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "64m",
    "taskmanager.memory.jvm-overhead.max": "64m",
    # A worker that dies fails its task; without this the task fails the job.
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 3,
    "restart-strategy.fixed-delay.delay": "5 s",
}


class NotHereError(Exception):
    """The cluster cannot be started on this machine; the message says why."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    job_endpoint: str
    rest: str
    n_task_managers: int
    pools: tuple[subprocess.Popen, ...]
    pool_logs: tuple[Path, ...]

    def beam_options(self, parallelism: int | None = None) -> list[str]:
        """What follows `--` to run a job here, with a worker beside each task manager, or so many of these."""
        return [
            "--runner=PortableRunner",
            f"--job_endpoint={self.job_endpoint}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{WORKER_PORT}",
            f"--parallelism={parallelism or self.n_task_managers}",
        ]

    def workers(self) -> list[list[psutil.Process]]:
        """The worker processes of each pool."""
        return [psutil.Process(pool.pid).children() for pool in self.pools]


def is_asked_for(config: pytest.Config) -> bool:
    """Whether the tests that start a cluster are to run: nothing is fetched, and no network made, unasked."""
    return "flink" in config.getoption("markexpr").replace("not flink", "")


def fetch_jars() -> str:
    """Returns the class path of the cluster; Maven copies the jars to `build/flink` where they are not there yet."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise NotHereError(f"needs {program} on the PATH")
    if not (FOLDER / "complete").exists():
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        command = [
            "mvn", "-q", "-B", "-f", str(POM), goal, "-DincludeScope=runtime", f"-DoutputDirectory={FOLDER}/jars",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
        if done.returncode != 0:
            raise NotHereError(f"Maven could not fetch Flink and Beam's job server: {done.stdout[-500:]}")
        (FOLDER / "complete").touch()
    return f"{FOLDER}/jars/*"


@contextlib.contextmanager
def start(folder: Path, here: str = "127.0.0.1", hosts: Sequence[Host] = ()) -> Iterator[Cluster]:
    """Starts a cluster whose files are in `folder`, waits until it can run jobs, and ends it.

    Args:
      folder: of this machine.
      here: the address of this machine, where the job manager and Beam's job server run.
      hosts: with a task manager each. If there are none, `N_TASK_MANAGERS` are on this machine, and one worker pool.
    """
    jars = fetch_jars()
    with contextlib.ExitStack() as stack:
        rpc_port, rest_port, job_port = _free_ports(3)
        config = _CONFIG | {
            "jobmanager.rpc.address": here,
            "jobmanager.rpc.port": rpc_port,
            "rest.address": here,
            "rest.port": rest_port,
        }
        # Flink wants the file, and hosts with disks of their own see no other folder.
        (FOLDER / "empty").mkdir(exist_ok=True)
        (FOLDER / "empty/config.yaml").touch()

        def launch(name: str, command: Sequence[str]) -> subprocess.Popen:
            with open(folder / f"{name}.log", "wb") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
            stack.callback(_end, process)
            return process

        def java(name: str, main: str, *arguments: str, prefix: Sequence[str] = ()) -> subprocess.Popen:
            return launch(name, [*prefix, *_JAVA, "-cp", jars, f"org.apache.{main}", *arguments])

        def flink(name: str, main: str, more: dict[str, str], prefix: Sequence[str] = ()) -> subprocess.Popen:
            settings = [word for key, value in (config | more).items() for word in ("-D", f"{key}={value}")]
            arguments = ["--configDir", str(FOLDER / "empty"), *settings]
            return java(name, f"flink.runtime.{main}", *arguments, prefix=prefix)

        shared = {"io.tmp.dirs": str(folder / "tmp")}
        (folder / "tmp").mkdir(parents=True)
        everything = [flink("job-manager", "entrypoint.StandaloneSessionClusterEntrypoint", shared)]
        pools = []
        for i, host in enumerate(hosts or [None] * N_TASK_MANAGERS):
            disk = {"io.tmp.dirs": "/tmp"} if host is not None and host.has_own_disk else shared
            address = {"taskmanager.host": host.address if host is not None else here}
            prefix = host.prefix if host is not None else ()
            everything.append(flink(f"task-manager-{i}", "taskexecutor.TaskManagerRunner", disk | address, prefix))
            if host is not None or i == 0:
                serve = [sys.executable, "-m", "tokenmill", "workers", "--port", str(WORKER_PORT), "--debug"]
                pools.append(launch(f"pool-{i}", [*prefix, *serve]))
        driver = "beam.runners.flink.FlinkJobServerDriver"
        ports = [f"--job-port={job_port}", "--artifact-port=0", "--expansion-port=0", "--job-host=localhost"]
        artifacts = f"--artifacts-dir={folder}/artifacts"
        everything.append(java("job-server", driver, f"--flink-master={here}:{rest_port}", artifacts, *ports))
        logs = tuple(folder / f"pool-{i}.log" for i in range(len(pools)))
        n_task_managers = len(hosts) or N_TASK_MANAGERS
        cluster = Cluster(f"localhost:{job_port}", f"http://{here}:{rest_port}", n_task_managers, tuple(pools), logs)
        _wait_until_ready(cluster, [*everything, *pools], job_port)
        yield cluster


def _wait_until_ready(cluster: Cluster, processes: list[subprocess.Popen], job_port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        dead = [process.args for process in processes if process.poll() is not None]
        if dead:
            raise RuntimeError(f"ended by itself: {dead[0]}; its log is in the folder of the cluster")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{cluster.rest}/overview", timeout=5) as answer:
            all_there = json.load(answer)["taskmanagers"] == cluster.n_task_managers
            served = all(b"localhost:" in log.read_bytes() for log in cluster.pool_logs)
            socket.create_connection(("localhost", job_port), 1).close()
            if all_there and served:
                return
        time.sleep(0.5)
    raise RuntimeError(f"the cluster was not ready after {START_SECONDS} s")


def _free_ports(n: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for each in sockets:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in sockets]


def _end(process: subprocess.Popen) -> None:
    process.kill()  # the workers of a pool end when its pipes to them do
    process.wait()
