# SPDX-License-Identifier: Apache-2.0
"""A Flink cluster for tests: job manager, two task managers with a worker pool each, and Beam's job server.

Everything is a process of its own. As root each task manager lives, with its workers, in a network namespace: another
machine as far as the network is concerned. The jars come through Maven, once, into `build/flink/jars`.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
POM = Path(__file__).with_name("flink-pom.xml")
FOLDER = ROOT / "build/flink"
N_TASK_MANAGERS = 2
WORKER_PORT = 50000
FETCH_SECONDS = 1200
START_SECONDS = 120

# Flink 1.19 opens these by its own start scripts, which are not among the jars.
_OPENED = [
    "java.base/java.lang",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.io",
    "java.base/java.nio",
    "java.base/java.text",
    "java.base/java.time",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/sun.nio.ch",
]
_JAVA = [
    "java",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    *(f"--add-opens={each}=ALL-UNNAMED" for each in _OPENED),
]

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
    "restart-strategy.fixed-delay.delay": "1 s",
}


class NotHereError(Exception):
    """The cluster cannot be started on this machine; the message says why."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    job_endpoint: str
    rest: str
    pools: tuple[subprocess.Popen, ...]
    pool_logs: tuple[Path, ...]
    in_namespaces: bool

    def beam_options(self) -> list[str]:
        """What follows `--` to run a job here, with a worker beside each task manager."""
        return [
            "--runner=PortableRunner",
            f"--job_endpoint={self.job_endpoint}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{WORKER_PORT}",
            f"--parallelism={N_TASK_MANAGERS}",
        ]

    def workers(self) -> list[list[psutil.Process]]:
        """The worker processes of each pool."""
        return [psutil.Process(pool.pid).children() for pool in self.pools]


def fetch_jars() -> str:
    """Returns the class path of the cluster; Maven copies the jars to `build/flink` where they are not there yet."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise NotHereError(f"needs {program} on the PATH")
    if not (FOLDER / "complete").exists():
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        command = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(POM),
            goal,
            "-DincludeScope=runtime",
            f"-DoutputDirectory={FOLDER}/jars",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
        if done.returncode != 0:
            raise NotHereError(f"Maven could not fetch Flink and Beam's job server: {done.stdout[-500:]}")
        (FOLDER / "complete").touch()
    return f"{FOLDER}/jars/*"


@contextlib.contextmanager
def start(folder: Path) -> Iterator[Cluster]:
    """Starts a cluster whose files are in `folder`, waits until it can run jobs, and ends it."""
    jars = fetch_jars()
    with contextlib.ExitStack() as stack:
        in_namespaces = os.geteuid() == 0 and shutil.which("ip") is not None
        prefixes: list[list[str]] = [[]] * N_TASK_MANAGERS
        host, hosts = "127.0.0.1", ["127.0.0.1"] * N_TASK_MANAGERS
        if in_namespaces:
            names, host, hosts = stack.enter_context(_namespaces(N_TASK_MANAGERS))
            prefixes = [["ip", "netns", "exec", name] for name in names]
        rpc_port, rest_port, job_port = _free_ports(3)
        config = _CONFIG | {
            "jobmanager.rpc.address": host,
            "jobmanager.rpc.port": rpc_port,
            "rest.address": host,
            "rest.port": rest_port,
            "io.tmp.dirs": str(folder / "tmp"),
        }
        (folder / "tmp").mkdir(parents=True)
        (folder / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in config.items()))

        def launch(name: str, command: list[str]) -> subprocess.Popen:
            with open(folder / f"{name}.log", "wb") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
            stack.callback(_end, process)
            return process

        def java(name: str, main: str, *arguments: str, prefix: list[str] = [], heap: int = 384) -> subprocess.Popen:  # noqa: B006
            return launch(name, [*prefix, *_JAVA, f"-Xmx{heap}m", "-cp", jars, f"org.apache.{main}", *arguments])

        entry = "flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        everything = [java("job-manager", entry, "--configDir", str(folder))]
        pools = []
        for i, prefix in enumerate(prefixes):
            main = "flink.runtime.taskexecutor.TaskManagerRunner"
            arguments = ["--configDir", str(folder), "-D", f"taskmanager.host={hosts[i]}"]
            everything.append(java(f"task-manager-{i}", main, *arguments, prefix=prefix, heap=400))
            if in_namespaces or i == 0:  # without namespaces both task managers ask the same pool
                serve = [sys.executable, "-m", "pipeline", "workers", "--port", str(WORKER_PORT), "--debug"]
                pools.append(launch(f"pool-{i}", [*prefix, *serve]))
        driver = "beam.runners.flink.FlinkJobServerDriver"
        ports = [f"--job-port={job_port}", "--artifact-port=0", "--expansion-port=0", "--job-host=localhost"]
        artifacts = f"--artifacts-dir={folder}/artifacts"
        everything.append(java("job-server", driver, f"--flink-master={host}:{rest_port}", artifacts, *ports))
        logs = tuple(folder / f"pool-{i}.log" for i in range(len(pools)))
        cluster = Cluster(f"localhost:{job_port}", f"http://{host}:{rest_port}", tuple(pools), logs, in_namespaces)
        _wait_until_ready(cluster, [*everything, *pools], job_port)
        yield cluster


def _wait_until_ready(cluster: Cluster, processes: list[subprocess.Popen], job_port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        dead = [process.args for process in processes if process.poll() is not None]
        if dead:
            raise RuntimeError(f"ended by itself: {dead[0]}; its log is beside config.yaml")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{cluster.rest}/overview", timeout=5) as answer:
            all_there = json.load(answer)["taskmanagers"] == N_TASK_MANAGERS
            served = all(b"localhost:" in log.read_bytes() for log in cluster.pool_logs)
            socket.create_connection(("localhost", job_port), 1).close()
            if all_there and served:
                return
        time.sleep(0.5)
    raise RuntimeError(f"the cluster was not ready after {START_SECONDS} s")


@contextlib.contextmanager
def _namespaces(n: int) -> Iterator[tuple[list[str], str, list[str]]]:
    """Yields the names of `n` network namespaces, the address of this machine for them, and the address of each."""
    key = os.getpid() % 250
    bridge, subnet = f"tmill{key}", f"10.213.{key}"
    names = [f"tokenmill-{os.getpid()}-{i}" for i in range(n)]
    with contextlib.ExitStack() as stack:

        def ip(*arguments: str) -> None:
            done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise NotHereError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")

        def undo(*arguments: str) -> None:
            stack.callback(subprocess.run, ["ip", *arguments], capture_output=True, check=False)

        ip("link", "add", bridge, "type", "bridge")
        undo("link", "delete", bridge)
        ip("address", "add", f"{subnet}.1/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for i, name in enumerate(names):
            ip("netns", "add", name)
            undo("netns", "delete", name)
            outside, inside = f"{bridge}o{i}", f"{bridge}i{i}"
            ip("link", "add", outside, "type", "veth", "peer", "name", inside)
            undo("link", "delete", outside)
            ip("link", "set", outside, "master", bridge, "up")
            ip("link", "set", inside, "netns", name)
            ip("-n", name, "address", "add", f"{subnet}.{10 + i}/24", "dev", inside)
            ip("-n", name, "link", "set", inside, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names, f"{subnet}.1", [f"{subnet}.{10 + i}" for i in range(n)]


def _free_ports(n: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for each in sockets:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in sockets]


def _end(process: subprocess.Popen) -> None:
    process.kill()  # the workers of a pool end when its pipes to them do
    process.wait()
