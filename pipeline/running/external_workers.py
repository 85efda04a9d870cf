# SPDX-License-Identifier: Apache-2.0
"""Workers for runners on other machines: Beam's worker pool service, one process per worker.

A runner with `--environment_type=EXTERNAL` asks a service for its workers, at `--environment_config=HOST:PORT`; on
Flink and Spark one such service runs beside each of their own workers. `tokenmill workers` is that service. Beam has
one too (`worker_pool_main`), but its workers (Beam 2.77) never learn the job's options, so a filesystem that needs any
is unusable; and worker processes are started by whatever `python` is first on the PATH.

Anyone who can reach the port can run code: Beam's protocol sends pickled functions and authenticates nobody. So the
service listens on the loopback interface unless told otherwise.
"""

import logging
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped]
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
)
from google.protobuf import json_format  # type: ignore[import-untyped]

from tokenmill.pipeline.running.worker_pool import end_worker_processes, spawn_worker_process, start_worker_in

_log = logging.getLogger(__name__)
_PROVISION_SECONDS = 30


class ExternalWorkers(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """The service: starts a process when a runner asks for a worker, ends it when the runner is done with it."""

    def __init__(self, *, debug: bool = False) -> None:
        self._debug = debug
        self._lock = threading.Lock()
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def StartWorker(  # noqa: N802  # the name in Beam's protocol
        self, request: beam_fn_api_pb2.StartWorkerRequest, context: Any
    ) -> beam_fn_api_pb2.StartWorkerResponse:
        """Starts a worker; an error goes back to the runner as text."""
        began = time.monotonic()
        try:
            options, capabilities = _ask_runner(request)
            process = spawn_worker_process(options, debug=self._debug, tells=True)
            with process.stdout:  # type: ignore[union-attr]  # a pipe
                if not process.stdout.readline():  # type: ignore[union-attr]
                    # A runner that is told of a worker waits for it to connect, some for ever.
                    host, code = socket.gethostname(), process.wait()
                    end_worker_processes([process])
                    raise RuntimeError(f"the process ended with exit code {code}; its log says why (on host {host!r})")
            with self._lock:
                self._processes[request.worker_id] = process
            threading.Thread(target=self._watch, args=(request.worker_id, process), daemon=True).start()
            start_worker_in(process, request.worker_id, request.control_endpoint.url, capabilities, is_only=True)
        except Exception as error:  # whatever it is, the runner waits for an answer
            _log.warning("worker %s could not be started: %r", request.worker_id, error)
            return beam_fn_api_pb2.StartWorkerResponse(error=f"{type(error).__name__}: {error}")
        seconds = time.monotonic() - began
        _log.info("started worker %s, process %d, in %.1f s", request.worker_id, process.pid, seconds)
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(  # noqa: N802
        self, request: beam_fn_api_pb2.StopWorkerRequest, context: Any
    ) -> beam_fn_api_pb2.StopWorkerResponse:
        """Ends a worker, if it has not ended already."""
        with self._lock:
            process = self._processes.pop(request.worker_id, None)
        if process is not None:
            end_worker_processes([process])
        return beam_fn_api_pb2.StopWorkerResponse()

    def close(self) -> None:
        """Ends all workers."""
        with self._lock:
            processes = list(self._processes.values())
            self._processes.clear()
        end_worker_processes(processes)

    def _watch(self, worker_id: str, process: "subprocess.Popen[str]") -> None:
        code = process.wait()  # zero if the runner closed the connection, as some do instead of stopping the worker
        with self._lock:
            died = self._processes.get(worker_id) is process
            if died:
                del self._processes[worker_id]
        if died and code:  # nobody stopped it; its runner notices the lost connection and may ask for another
            _log.warning("worker %s ended by itself: exit code %d", worker_id, code)


def serve(host: str, port: int, tell: Callable[[str, int], None], *, debug: bool = False) -> None:
    """Serves workers at `host:port` until interrupted; port 0 takes a free port. Calls `tell` with host and port.

    Raises:
      OSError: when the address cannot be listened on.
    """
    workers = ExternalWorkers(debug=debug)
    server = grpc.server(ThreadPoolExecutor(16, thread_name_prefix="workers"), options=[("grpc.so_reuseport", 0)])
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(workers, server)
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError:  # what gRPC raises when it cannot listen
        bound = 0
    if not bound:
        raise OSError(f"cannot listen on {host}:{port}; the port may be taken: choose another with --port")
    server.start()
    tell(host, bound)
    try:
        server.wait_for_termination()
    finally:
        workers.close()
        server.stop(grace=None)


def _ask_runner(request: beam_fn_api_pb2.StartWorkerRequest) -> tuple[dict[str, Any], list[str]]:
    """Returns the options of the job and the capabilities of its runner, which every worker may ask the runner for."""
    address = request.provision_endpoint.url
    if not address:
        return {}, []
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=_PROVISION_SECONDS)
        stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        answer = stub.GetProvisionInfo(
            beam_provision_api_pb2.GetProvisionInfoRequest(),
            metadata=[("worker_id", request.worker_id)],
            timeout=_PROVISION_SECONDS,
        )
    options = json_format.MessageToDict(answer.info.pipeline_options)
    names = {key: re.sub(r"^beam:option:(.*):v1$", r"\1", key) for key in options}
    return {names[key]: value for key, value in options.items()}, list(answer.info.runner_capabilities)
