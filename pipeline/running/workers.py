# SPDX-License-Identifier: Apache-2.0
"""Worker processes for runners, here or on other machines: Beam's worker pool service, one process per worker.

A runner whose environment is EXTERNAL asks a service at `HOST:PORT` for its workers. `tokenmill workers` serves them to
runners elsewhere; on Flink and Spark one such service runs beside each of their own workers. A job with `--mode
processes` has a service of its own, in the process of the command, and Beam's FnApiRunner asks that one.

Beam has such a service too (`worker_pool_main`), but its workers (Beam 2.77) never learn the job's options, so a
filesystem that needs any is unusable; worker processes are started by whatever `python` is first on the PATH; and
their timer flushes elements that are half written (`runners.NEVER_MS`).

Anyone who can start a worker can run code: Beam's protocol sends pickled functions and authenticates nobody. So a
service listens on the loopback interface unless told otherwise, and that of a local job wants a secret, too.
"""

import collections
import contextlib
import hmac
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped]
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import ExternalWorkerHandler, WorkerHandler
from apache_beam.transforms import environments

_log = logging.getLogger(__name__)
_PROGRAM = "tokenmill.pipeline.running.worker_process"
_SECRET = "secret"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

_handlers: dict[str, "_LocalHandler"] = {}
"""FnApiRunner's ends of the workers that jobs of this process have at present, by the id of the worker."""


class Workers(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """The service: starts a process when a runner asks for a worker, ends it when the runner is done with it."""

    def __init__(self, *, n_ahead: int = 0, secret: str = "", debug: bool = False) -> None:
        """Starts the first processes.

        Args:
          n_ahead: so many are started before anybody asks for them, side by side: a Python with Beam takes a second.
          secret: what a runner must know to get a worker; "": nothing.
          debug: whether the workers log what Beam does.
        """
        self.failure: str | None = None
        """Why a worker of a job of this process ended although the job went on; None if none did."""
        self._secret, self._debug = secret, debug
        self._lock = threading.Lock()
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._ahead = collections.deque(self._spawn(speaks=not i) for i in range(n_ahead))

    def StartWorker(  # noqa: N802  # the name in Beam's protocol
        self, request: beam_fn_api_pb2.StartWorkerRequest, context: Any
    ) -> beam_fn_api_pb2.StartWorkerResponse:
        """Starts a worker; an error goes back to the runner as text."""
        began = time.monotonic()
        try:
            if not hmac.compare_digest(request.params.get(_SECRET, ""), self._secret):
                raise PermissionError("these workers are for another job")
            with self._lock:
                process = self._ahead.popleft() if self._ahead else self._spawn()
                self._processes[request.worker_id] = process
            self._give(process, request)
        except Exception as error:  # whatever it is, the runner waits for an answer
            self.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id=request.worker_id), context)
            _log.warning("worker %s could not be started: %r", request.worker_id, error)
            return beam_fn_api_pb2.StartWorkerResponse(error=f"{type(error).__name__}: {error}")
        threading.Thread(target=self._watch, args=(request.worker_id, process), daemon=True).start()
        seconds = time.monotonic() - began
        _log.info("started worker %s, process %d, in %.1f s", request.worker_id, process.pid, seconds)
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(  # noqa: N802
        self, request: beam_fn_api_pb2.StopWorkerRequest, context: Any
    ) -> beam_fn_api_pb2.StopWorkerResponse:
        """Ends a worker, if it has not ended already."""
        with self._lock:
            process = self._processes.pop(request.worker_id, None)
        _end([process] if process is not None else [])
        return beam_fn_api_pb2.StopWorkerResponse()

    def close(self) -> None:
        """Ends all workers."""
        with self._lock:
            processes = [*self._processes.values(), *self._ahead]
            self._processes.clear()
            self._ahead.clear()
        _end(processes)

    def _spawn(self, *, speaks: bool = True) -> "subprocess.Popen[str]":
        """Starts a process of this Python and these packages for a worker; it writes a line when it is ready for one.

        `speaks`: see `Waiting`.
        """
        flags = [*(["--debug"] if self._debug else []), *(["--speaks"] if speaks else [])]
        return subprocess.Popen(
            # -P: the working directory must not decide which `tokenizer` or `pipeline` is imported; PYTHONPATH does.
            [sys.executable, "-P", "-m", _PROGRAM, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | _ONE_THREAD | {"PYTHONPATH": os.pathsep.join(_import_paths())},
            text=True,
            # A separate process group: Ctrl-C is for the driver, which then ends its workers.
            process_group=0 if os.name == "posix" else None,
        )

    def _give(self, process: "subprocess.Popen[str]", request: beam_fn_api_pb2.StartWorkerRequest) -> None:
        """Tells a process which worker it is, once it is ready."""
        assert process.stdin is not None
        assert process.stdout is not None
        if not process.stdout.readline():
            # A runner that gets no error waits for the worker to connect, some for ever.
            self.failure = _describe_end(process.wait())
            raise RuntimeError(f"{self.failure}; its log says why (on host {socket.gethostname()!r})")
        worker = {
            "worker_id": request.worker_id,
            "control": request.control_endpoint.url,
            "provision": request.provision_endpoint.url,
            # A user of a runner elsewhere wants to know where something went wrong.
            "host": "" if self._secret else socket.gethostname(),
        }
        with contextlib.suppress(BrokenPipeError):  # it died; the thread that watches it reports that
            process.stdin.write(json.dumps(worker) + "\n")
            process.stdin.flush()

    def _watch(self, worker_id: str, process: "subprocess.Popen[str]") -> None:
        code = process.wait()  # zero if the runner closed the connection, as some do instead of stopping the worker
        with self._lock:
            is_ours = self._processes.pop(worker_id, None) is not None
        _end([process])
        is_elsewhere = worker_id not in _handlers  # its runner notices the lost connection, and may ask for another
        if is_ours and code and is_elsewhere:
            _log.warning("worker %s ended by itself: exit code %d", worker_id, code)
        # FnApiRunner (Beam 2.77) notices only if it waits for data of a worker that has sent some. Repeated, because it
        # may ask the dead worker something only later.
        while is_ours and (handler := _handlers.get(worker_id)) is not None:
            self.failure = _describe_end(code)
            handler.abort(RuntimeError(self.failure))
            time.sleep(0.2)


@WorkerHandler.register_environment(common_urns.environments.EXTERNAL.urn, beam_runner_api_pb2.ExternalPayload)
class _LocalHandler(ExternalWorkerHandler):
    """FnApiRunner's end of a worker; Beam's own neither finds a worker without DNS, nor gives up one that died."""

    def __init__(self, external_payload: Any, *others: Any) -> None:
        self._is_here = external_payload.endpoint.url.startswith("localhost:")
        super().__init__(external_payload, *others)

    def host_from_worker(self) -> str:
        """Returns the name under which a worker finds this process, also where that of the machine is not known."""
        return "localhost" if self._is_here else str(super().host_from_worker())

    def start_worker(self) -> None:
        """Called by the runner when it needs this worker."""
        _handlers[self.worker_id] = self
        super().start_worker()

    def close(self) -> None:
        """Called by the runner when it is done with this worker."""
        _handlers.pop(self.worker_id, None)
        super().close()

    def abort(self, error: Exception) -> None:
        """Ends the waiting for this worker, which has died."""
        # Both are closed, because the runner waits on either. They may raise because the worker is gone, which the
        # caller knows, or because a dictionary changed meanwhile, which is why the caller tries again.
        with contextlib.suppress(Exception):
            self.control_conn.abort(error)
        with contextlib.suppress(Exception):
            self.data_conn.close()


@contextlib.contextmanager
def local(n_workers: int, *, debug: bool = False) -> Iterator[tuple[Workers, environments.Environment]]:
    """Serves `n_workers` worker processes to a job of this process; yields them and the environment of its graph."""
    workers = Workers(n_ahead=n_workers, secret=secrets.token_hex(16), debug=debug)
    with _served(workers, "localhost", 0) as (_, port):
        yield (
            workers,
            environments.ExternalEnvironment(
                f"localhost:{port}", {_SECRET: workers._secret}, environments.python_sdk_capabilities()
            ),
        )


def serve(host: str, port: int, tell: Callable[[str, int], None], *, debug: bool = False) -> None:
    """Serves workers at `host:port` until interrupted; port 0 takes a free port. Calls `tell` with host and port.

    Raises:
      OSError: when the address cannot be listened on.
    """
    with _served(Workers(debug=debug), host, port) as (server, bound):
        tell(host, bound)
        server.wait_for_termination()


@contextlib.contextmanager
def _served(workers: Workers, host: str, port: int) -> Iterator[tuple[Any, int]]:
    """Serves while the block runs; yields the server and its port."""
    server = grpc.server(ThreadPoolExecutor(16, thread_name_prefix="workers"), options=[("grpc.so_reuseport", 0)])
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(workers, server)
    try:
        try:
            bound = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError:  # what gRPC raises when it cannot listen
            bound = 0
        if not bound:
            raise OSError(f"cannot listen on {host}:{port}; the port may be taken: choose another with --port")
        server.start()
        yield server, bound
    finally:
        workers.close()
        server.stop(grace=None)


def _end(processes: Iterable["subprocess.Popen[str]"]) -> None:
    """Kills worker processes: every commit is atomic, so there is nothing to wait for."""
    processes = list(processes)
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # type: ignore[union-attr]  # stdin=PIPE
        process.stdout.close()  # type: ignore[union-attr]  # stdout=PIPE


def _describe_end(code: int) -> str:
    if code >= 0:
        return f"a worker process ended by itself with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = "; the machine may be out of memory: try fewer --workers" if name == "SIGKILL" else ""
    return f"a worker process was killed by {name}{hint}"


def _import_paths() -> list[str]:
    """Returns the folders this process imports from, absolute and in order, so that workers find the same modules."""
    # Last comes our own folder: we may have been imported from the working directory, or by a finder not in `sys.path`.
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    return list(dict.fromkeys([*(os.path.abspath(path) for path in sys.path if path), ours]))
