# SPDX-License-Identifier: Apache-2.0
"""The program of one worker process, which `workers.Workers` starts.

It writes a line when it is ready, and reads one that says which worker it is. The process ends with its worker, and
when stdin does, so no worker outlives its service, however that ended.
"""

import json
import os
import re
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from typing import Any

from tokenmill.pipeline import storage
from tokenmill.pipeline.running.messages import configure_logging, silence_workers
from tokenmill.pipeline.running.outlets import outlive_readers
from tokenmill.tokenizer.compiling.waiting import waiting

_PROVISION_SECONDS = 30
_STATE_CACHE_BYTES = 100 << 20


def main() -> None:
    """Runs the worker that stdin names, until it or stdin ends."""
    outlive_readers()
    configure_logging(debug="--debug" in sys.argv)
    waiting.speaks = "--speaks" in sys.argv
    _do_without_temporary_directory()
    import grpc  # type: ignore[import-untyped]
    import pyarrow as pa
    from apache_beam.runners.worker import sdk_worker  # noqa: F401  # this takes long, so it comes before "ready"

    pa.set_cpu_count(1)  # workers run in parallel already
    print("ready", flush=True)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nobody reads on
    line = sys.stdin.readline()
    if not line:
        return
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    code = 0
    try:
        _work(**json.loads(line))
    except grpc.RpcError:  # if the connection broke, the driver has ended, and nobody is left to tell
        code = 1
    except Exception:
        traceback.print_exc()
        code = 1
    # Bundles may still run in daemon threads; what they have not committed does not count.
    os._exit(code)


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


def _do_without_temporary_directory() -> None:
    """Lets Beam be imported where a disk is full: a part of it asks for the directory, and needs none."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        tempfile.tempdir = os.path.abspath(os.sep)


def _work(worker_id: str, control: str, provision: str, host: str) -> None:
    """Runs the worker `worker_id` for the runner at `control`; its errors name the `host`, if it is given."""
    from apache_beam.portability.api import beam_fn_api_pb2 as api
    from apache_beam.runners.worker import sdk_worker

    class Harness(sdk_worker.SdkHarness):
        def _execute(self, task: Callable[[], api.InstructionResponse], request: Any) -> None:
            def with_host() -> api.InstructionResponse:
                try:
                    return task()
                except BaseException as error:
                    error.add_note(f"(on host {host!r})")
                    raise

            super()._execute(with_host if host else task, request)

    options, capabilities = _ask_runner(worker_id, provision) if provision else ({}, [])
    _set_options(options)
    silence_workers()
    Harness(
        control,
        worker_id=worker_id,
        state_cache_size=_STATE_CACHE_BYTES,
        data_buffer_time_limit_ms=0,  # by size only: a timer would cut elements in half
        runner_capabilities=frozenset(capabilities),
    ).run()


def _ask_runner(worker_id: str, address: str) -> tuple[dict[str, Any], list[str]]:
    """Returns the options of the job and the capabilities of its runner, which every worker may ask the runner for.

    A worker must not use a shortcut of the protocol that its runner does not know.
    """
    import grpc
    from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
    from google.protobuf import json_format  # type: ignore[import-untyped]

    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=_PROVISION_SECONDS)
        answer = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel).GetProvisionInfo(
            beam_provision_api_pb2.GetProvisionInfoRequest(),
            metadata=[("worker_id", worker_id)],
            timeout=_PROVISION_SECONDS,
        )
    options = json_format.MessageToDict(answer.info.pipeline_options)
    names = {key: re.sub(r"^beam:option:(.*):v1$", r"\1", key) for key in options}
    return {names[key]: value for key, value in options.items()}, list(answer.info.runner_capabilities)


def _set_options(options: dict[str, Any]) -> None:
    """Sets this process up as Beam's own worker program would: filesystems and picklers know the options of the job."""
    from apache_beam.internal import pickler
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
    from apache_beam.options.value_provider import RuntimeValueProvider

    parsed = PipelineOptions.from_dictionary(options)
    RuntimeValueProvider.set_runtime_options(options)
    FileSystems.set_options(parsed)
    storage.configure([f"--{name}={value}" for name, value in options.items()])
    pickler.set_library(parsed.view_as(SetupOptions).pickle_library)


if __name__ == "__main__":
    main()
