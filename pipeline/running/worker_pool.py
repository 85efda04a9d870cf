# SPDX-License-Identifier: Apache-2.0
"""Local workers for Beam's FnApiRunner: threads of this process, or processes with threads of their own.

FnApiRunner can start workers itself, but not in a way to build on (Beam 2.77):

- its threads flush half-written elements from a timer, which corrupts data as soon as a stage takes over a second;
- its processes are started through a shell from an unquoted path, find our packages only in some working directories,
  and one that dies before it has connected leaves the job hanging;
- both print every traceback to stderr, one per worker, before the job has even failed.

Here a pool starts the same `SdkHarness` with flushing by size alone (no timer, so nothing to race with), and is made
known to the runner as an environment of its own. The other end of a worker process is `worker_process.py`.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    FNAPI_RUNNER_CAPABILITIES,
    GrpcServer,
    GrpcWorkerHandler,
    WorkerHandler,
)
from apache_beam.runners.worker import sdk_worker, statesampler
from apache_beam.transforms import environments

_URN = "tokenmill:environment:worker_pool:v1"
_PROGRAM = "tokenmill.pipeline.running.worker_process"
_STATE_CACHE_BYTES = 100 << 20

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class WorkerPool:
    """Starts the workers that a job asks for, and knows whether one of them died."""

    failure: str | None = None
    """Why a worker ended although nobody stopped it; None if none did."""

    def start(self, handler: "PoolWorkerHandler") -> None:
        """Starts a worker that connects to `handler.control_address` as `handler.worker_id`."""
        raise NotImplementedError

    def stop(self, handler: "PoolWorkerHandler") -> None:
        """Waits until the worker has released its connection, which is closed already, if that matters."""


class _Harness(sdk_worker.SdkHarness):
    """Beam's worker, but it prints no traceback per failed bundle: the runner gets it, and the user sees it once."""

    host = ""
    """Where it is, for errors; empty: where the job was started."""

    def _execute(
        self,
        task: Callable[[], beam_fn_api_pb2.InstructionResponse],
        request: beam_fn_api_pb2.InstructionRequest,
    ) -> None:
        with statesampler.instruction_id(request.instruction_id):
            try:
                response = task()
            except BaseException:  # in any case the runner waits for an answer
                where = f" (on host {self.host!r})" if self.host else ""
                response = beam_fn_api_pb2.InstructionResponse(
                    instruction_id=request.instruction_id, error=traceback.format_exc().rstrip() + where
                )
            self._responses.put(response)


def start_harness(
    worker_id: str,
    control_address: str,
    on_error: Callable[[Exception], None],
    capabilities: Iterable[str] = FNAPI_RUNNER_CAPABILITIES,
    host: str = "",
) -> threading.Thread:
    """Starts the worker `worker_id` in a thread; calls `on_error` when it cannot go on. Its errors name the `host`."""

    def run() -> None:
        try:
            harness = _Harness(
                control_address,
                worker_id=worker_id,
                state_cache_size=_STATE_CACHE_BYTES,
                data_buffer_time_limit_ms=0,  # by size only: a timer would cut elements in half
                runner_capabilities=frozenset(capabilities),
            )
            harness.host = host
            harness.run()
        except Exception as error:  # nobody waits for this thread, but the runner waits for its answers
            on_error(error)

    # Connecting takes a while, so it is done in the thread: workers then start side by side.
    thread = threading.Thread(target=run, name=f"tokenmill-{worker_id}", daemon=True)
    thread.start()
    return thread


class ThreadPool(WorkerPool):
    """Workers as threads of this process: for kernels and Arrow, which release the GIL."""

    def __init__(self) -> None:
        self._threads: dict[str, threading.Thread] = {}

    def start(self, handler: "PoolWorkerHandler") -> None:
        """Starts a worker thread."""
        self._threads[handler.worker_id] = start_harness(handler.worker_id, handler.control_address, handler.abort)

    def stop(self, handler: "PoolWorkerHandler") -> None:
        """Waits for the thread of `handler`."""
        self._threads.pop(handler.worker_id).join()


class ProcessPool(WorkerPool):
    """Workers as threads of `n_processes` processes, which get them in turn: one each, or several each.

    The processes are started at once, before the job is built, because a Python with Beam takes a second to start.
    A context manager: leaving it ends them. A thread ends with its connection.
    """

    def __init__(self, n_processes: int, options: Mapping[str, Any], *, debug: bool = False) -> None:
        """Starts `n_processes` processes that know the pipeline options `options`, a JSON-able mapping."""
        self._closing = threading.Event()
        self._handlers: list[list[PoolWorkerHandler]] = [[] for _ in range(n_processes)]
        self._n_started = 0
        self._processes = [spawn_worker_process(options, debug=debug, speaks=not i) for i in range(n_processes)]
        for i, process in enumerate(self._processes):
            threading.Thread(target=self._watch, args=(i, process), daemon=True).start()

    def start(self, handler: "PoolWorkerHandler") -> None:
        """Starts a worker thread in the process whose turn it is."""
        i = self._n_started % len(self._processes)
        self._n_started += 1
        self._handlers[i].append(handler)
        start_worker_in(self._processes[i], handler.worker_id, handler.control_address, FNAPI_RUNNER_CAPABILITIES)

    def __enter__(self) -> "ProcessPool":
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        end_worker_processes(self._processes)

    def _watch(self, i: int, process: "subprocess.Popen[str]") -> None:
        code = process.wait()
        if self._closing.is_set():
            return
        self.failure = _describe_death(code)
        # Repeated, because a worker that never connected has no channel whose end the runner could notice, and the
        # runner may ask it something only later.
        while True:
            for handler in list(self._handlers[i]):
                handler.abort(RuntimeError(self.failure))
            if self._closing.wait(0.2):
                return


def spawn_worker_process(
    options: Mapping[str, Any], *, debug: bool = False, tells: bool = False, speaks: bool = True
) -> "subprocess.Popen[str]":
    """Starts a process for workers, of this Python and these packages, that knows the pipeline options `options`.

    With `tells` it writes a line to its stdout, a pipe, when it is ready for workers. `speaks`: see `Waiting`.
    """
    # -P: the working directory must not decide which `tokenizer` or `pipeline` is imported; PYTHONPATH does.
    command = [sys.executable, "-P", "-m", _PROGRAM]
    environment = os.environ | _ONE_THREAD | {"PYTHONPATH": os.pathsep.join(_import_paths())}
    # A separate process group: Ctrl-C is for the driver, which then ends its workers.
    group = 0 if os.name == "posix" else None
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if tells else None,
        env=environment,
        text=True,
        process_group=group,
    )
    _send(process, {"options": dict(options), "debug": debug, "tells": tells, "speaks": speaks})
    return process


def end_worker_processes(processes: Iterable["subprocess.Popen[str]"]) -> None:
    """Kills processes of `spawn_worker_process`: every commit is atomic, so there is nothing to wait for."""
    processes = list(processes)
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # type: ignore[union-attr]  # stdin=PIPE


def start_worker_in(
    process: "subprocess.Popen[str]",
    worker_id: str,
    control_address: str,
    capabilities: Iterable[str],
    *,
    is_only: bool = False,
) -> None:
    """Starts a worker thread in a process of `spawn_worker_process`, for the runner at `control_address`.

    `capabilities` are that runner's: a worker must not use a shortcut of the protocol that its runner does not know.
    With `is_only` the process ends with this worker.
    """
    worker = {"worker_id": worker_id, "control_address": control_address}
    _send(process, worker | {"capabilities": sorted(capabilities), "is_only": is_only})


def _send(process: "subprocess.Popen[str]", message: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died; the thread that watches it reports that
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()


def _describe_death(code: int) -> str:
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = "; the machine may be out of memory: try fewer --workers" if name == "SIGKILL" else ""
        return f"a worker process was killed by {name}{hint}"
    return f"a worker process ended by itself with exit code {code}"


def _import_paths() -> list[str]:
    """Returns the folders this process imports from, absolute and in order, so that workers find the same modules."""
    # Last comes our own folder: we may have been imported from the working directory, or by a finder not in `sys.path`.
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    return list(dict.fromkeys([*(os.path.abspath(path) for path in sys.path if path), ours]))


_pools: dict[str, WorkerPool] = {}


@contextlib.contextmanager
def environment_of(pool: WorkerPool) -> Iterator["PoolEnvironment"]:
    """Makes `pool` known to runners of this process as the environment that it yields."""
    key = f"pool-{id(pool)}"
    _pools[key] = pool
    try:
        yield PoolEnvironment(key, capabilities=environments.python_sdk_capabilities())
    finally:
        del _pools[key]


@environments.Environment.register_urn(_URN, bytes)
class PoolEnvironment(environments.Environment):
    """The environment of a graph whose workers come from a pool of this process."""

    def __init__(
        self,
        key: str,
        capabilities: Sequence[str] = (),
        artifacts: Sequence[beam_runner_api_pb2.ArtifactInformation] = (),
        resource_hints: Mapping[str, bytes] | None = None,
    ) -> None:
        super().__init__(capabilities, artifacts, resource_hints)
        self._key = key

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PoolEnvironment)
            and environments.Environment.__eq__(self, other)
            and self._key == other._key
        )

    def __hash__(self) -> int:
        return hash((super().__hash__(), self._key))

    def to_runner_api_parameter(self, context: object) -> tuple[str, bytes]:
        """Returns the name under which the runner finds the pool."""
        return _URN, self._key.encode()

    @staticmethod
    def from_runner_api_parameter(
        payload: bytes,
        capabilities: Sequence[str],
        artifacts: Sequence[beam_runner_api_pb2.ArtifactInformation],
        resource_hints: Mapping[str, bytes],
        context: object,
    ) -> "PoolEnvironment":
        """Returns the environment that `to_runner_api_parameter` described."""
        return PoolEnvironment(payload.decode(), capabilities, artifacts, resource_hints)


@WorkerHandler.register_environment(_URN, bytes)
class PoolWorkerHandler(GrpcWorkerHandler):
    """The runner's end of one worker."""

    def __init__(self, payload: bytes, state: Any, provision_info: Any, grpc_server: GrpcServer) -> None:
        super().__init__(state, provision_info, grpc_server)
        self._pool = _pools[payload.decode()]

    def start_worker(self) -> None:
        """Called by the runner when it needs this worker."""
        self._pool.start(self)

    def stop_worker(self) -> None:
        """Called by the runner after it has closed the connection."""
        self._pool.stop(self)

    def abort(self, error: Exception) -> None:
        """Ends the waiting for this worker, which has died."""
        # Both are closed, because the runner waits on either. They may raise because the worker is gone, which the
        # caller knows, or because a dictionary changed meanwhile, which is why the caller tries again.
        with contextlib.suppress(Exception):
            self.control_conn.abort(error)
        with contextlib.suppress(Exception):
            self.data_conn.close()
