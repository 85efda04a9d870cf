# SPDX-License-Identifier: Apache-2.0
"""The program of one local worker process; `worker_pool.ProcessPool` starts it and talks to it over stdin.

The first line has the pipeline options, every further line one worker to start. The process ends when stdin does, so
no worker outlives its driver, however the driver ended.
"""

import json
import os
import socket
import sys
import tempfile
import threading
import traceback

from tokenmill.pipeline.running.outlets import outlive_readers
from tokenmill.pipeline.running.runners import configure_logging
from tokenmill.tokenizer.compiling.waiting import waiting


def main() -> None:
    """Runs workers until stdin ends."""
    outlive_readers()
    received = json.loads(sys.stdin.readline())
    configure_logging(debug=received["debug"])
    waiting.speaks = received["speaks"]
    _do_without_temporary_directory()
    _prepare(received["options"])
    if received["tells"]:
        print("ready", flush=True)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nobody reads on

    from tokenmill.pipeline.running.worker_pool import start_harness

    for line in sys.stdin:
        worker = json.loads(line)
        is_only = worker["is_only"]  # for a runner elsewhere, whose user wants to know where something went wrong
        host = socket.gethostname() if is_only else ""
        names = worker["worker_id"], worker["control_address"]
        thread = start_harness(*names, _give_up, worker["capabilities"], host)
        if is_only:
            threading.Thread(target=_end_with, args=(thread,), daemon=True).start()
    # Bundles may still run in daemon threads; what they have not committed does not count.
    os._exit(0)


def _do_without_temporary_directory() -> None:
    """Lets Beam be imported where a disk is full: a part of it asks for the directory, and needs none."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        tempfile.tempdir = os.path.abspath(os.sep)


def _prepare(options: dict[str, object]) -> None:
    """Sets this process up as Beam's own worker program would: tells filesystems and picklers its options."""
    import pyarrow as pa
    from apache_beam.internal import pickler
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
    from apache_beam.options.value_provider import RuntimeValueProvider

    pa.set_cpu_count(1)  # workers run in parallel already
    parsed = PipelineOptions.from_dictionary(options)
    RuntimeValueProvider.set_runtime_options(options)
    FileSystems.set_options(parsed)
    pickler.set_library(parsed.view_as(SetupOptions).pickle_library)


def _end_with(thread: threading.Thread) -> None:
    thread.join()
    os._exit(0)


def _give_up(error: Exception) -> None:
    import grpc  # type: ignore[import-untyped]

    # If the connection broke, the driver has ended, and nobody is left to tell.
    if not isinstance(error, grpc.RpcError):
        traceback.print_exception(error)
    os._exit(1)


if __name__ == "__main__":
    main()
