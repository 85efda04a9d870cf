# SPDX-License-Identifier: Apache-2.0
"""Workers for runners elsewhere: the service, through Beam's portable protocol, and how it ends."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import apache_beam as beam
import grpc
import psutil
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, endpoints_pb2
from apache_beam.testing.util import assert_that, equal_to

from tokenmill.pipeline.running import workers
from tokenmill.pipeline.running.messages import explain

ROOT = Path(__file__).parents[3]


@pytest.fixture
def service():
    """Yields the process of `tokenmill workers` and the address it serves."""
    command = [sys.executable, "-m", "tokenmill", "workers", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        yield process, process.stdout.readline().strip()
        process.kill()


def _describe_worker(number):
    from apache_beam.options.value_provider import RuntimeValueProvider

    return (number, os.getppid(), RuntimeValueProvider.runtime_options["s3_region_name"])


def test_a_runner_gets_its_workers_and_they_know_the_options_of_the_job(service):
    process, address = service
    options = [
        "--runner=PortableRunner",
        "--job_endpoint=embed",
        "--environment_type=EXTERNAL",
        f"--environment_config={address}",
        "--s3_region_name=here",
    ]
    with beam.Pipeline(options=PipelineOptions(options)) as pipeline:
        rows = pipeline | beam.Create([1, 2]) | beam.Reshuffle() | beam.Map(_describe_worker)
        assert_that(rows, equal_to([(1, process.pid, "here"), (2, process.pid, "here")]))
    deadline = time.monotonic() + 20
    while psutil.Process(process.pid).children():  # the runner is done with them
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _fail(_):
    raise OSError(28, "No space left on device", "/tmp/file")


def test_an_error_of_a_worker_says_on_which_host(service):
    _, address = service
    options = ["--job_endpoint=embed", "--environment_type=EXTERNAL", f"--environment_config={address}"]
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=PortableRunner", *options]))
    _ = pipeline | beam.Create([1]) | beam.Map(_fail)
    with pytest.raises(RuntimeError) as failed:
        pipeline.run().wait_until_finish()
    told = explain(failed.value)
    assert told == f"[Errno 28] No space left on device: '/tmp/file' (on host {socket.gethostname()!r})"


def test_a_worker_that_cannot_start_is_an_error_and_nobody_waits_for_it(monkeypatch):
    monkeypatch.setattr(workers, "_PROGRAM", "tokenmill.pipeline.is_not_there")
    answer = workers.Workers().StartWorker(beam_fn_api_pb2.StartWorkerRequest(worker_id="one"), None)
    assert answer.error == (
        "RuntimeError: a worker process ended by itself with exit code 1; its log says why "
        f"(on host {socket.gethostname()!r})"
    )


def test_workers_of_a_local_job_are_for_that_job_only():
    with workers.local(0) as (_, environment), grpc.insecure_channel(environment.url) as channel:
        stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
        for params in ({}, {"secret": "guessed"}):
            answer = stub.StartWorker(beam_fn_api_pb2.StartWorkerRequest(worker_id="one", params=params))
            assert answer.error == "PermissionError: these workers are for another job"


def test_a_worker_starts_on_a_full_disk(tmp_path):
    # No folder can be written to, as `tempfile` sees it.
    (tmp_path / "sitecustomize.py").write_text(
        "import tempfile\ndef refuse(): raise FileNotFoundError\ntempfile._get_default_tempdir = refuse\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, "-P", "-m", "tokenmill.pipeline.running.worker_process"]
    done = subprocess.run(command, input="", env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "ready\n"


def test_workers_end_with_their_service(service):
    process, address = service
    request = beam_fn_api_pb2.StartWorkerRequest(
        worker_id="one", control_endpoint=endpoints_pb2.ApiServiceDescriptor(url="localhost:1")
    )
    with grpc.insecure_channel(address) as channel:
        stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
        assert stub.StartWorker(request).error == ""
        (worker,) = psutil.Process(process.pid).children()
        unknown = beam_fn_api_pb2.StopWorkerRequest(worker_id="never started")
        assert stub.StopWorker(unknown).error == ""
    process.kill()
    process.wait()
    assert worker.wait(20) is None or not worker.is_running()


def test_a_port_that_is_taken_is_a_mistake():
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "tokenmill", "workers", "--host", "127.0.0.1", "--port", port]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
