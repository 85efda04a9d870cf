# SPDX-License-Identifier: Apache-2.0
"""Jobs that go on without their command: `--detach`, `attach`, and who may use the folder meanwhile."""

import contextlib
import dataclasses
import json
import socket
import subprocess
import sys
import time
from concurrent import futures

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2 as api
from apache_beam.portability.api import beam_job_api_pb2_grpc as services

from tests import prism as prism_program
from tokenmill.pipeline.cli import main
from tokenmill.pipeline.output import ownership
from tokenmill.pipeline.output.ownership import OWNER, own
from tokenmill.pipeline.running.runner_jobs import RUNNER_JOB, RunnerJob, stop


class Servicer(services.JobServiceServicer):
    """A job server that knows one job, whose state the test sets."""

    state = "RUNNING"
    cancels = True

    def GetState(self, request, context):  # noqa: N802  # gRPC's name
        if request.job_id != "job-1":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such job")
        return api.JobStateEvent(state=api.JobState.Enum.Value(self.state))

    def Cancel(self, request, context):  # noqa: N802  # gRPC's name
        if not self.cancels:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "not here")
        self.state = "CANCELLED"
        return api.CancelJobResponse(state=api.JobState.CANCELLED)


@pytest.fixture
def server():
    servicer, running = Servicer(), grpc.server(futures.ThreadPoolExecutor(2))
    services.add_JobServiceServicer_to_server(servicer, running)
    servicer.endpoint = f"localhost:{running.add_insecure_port('localhost:0')}"
    running.start()
    yield servicer
    running.stop(None).wait()


@pytest.fixture
def folder(tmp_path, server):
    """A folder that a command has left to its job."""
    output = str(tmp_path / "out")
    with own(output, "run") as lease:
        RunnerJob(lease.nonce, server.endpoint, "job-1", True).write(output)
    return output


def owns(output):
    with own(output, "run") as lease:
        lease.check()


@pytest.fixture(params=[True, False], ids=["locks", "no locks"])
def locks(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(ownership, "SETTLE_SECONDS", 0)
        monkeypatch.setattr(ownership, "_lock", lambda *_: None)


def test_a_folder_left_to_a_job_is_free_when_the_job_is_over(tmp_path, folder, server, locks):
    with pytest.raises(ValueError, match=r"job job-1 .* is RUNNING; `tokenmill attach .*` waits for it"):
        owns(folder)
    assert "job job-1" in ownership.living_owner(folder)
    server.state = "FAILED"
    assert ownership.living_owner(folder) is None
    owns(folder)
    assert [*(tmp_path / "out").iterdir()] == []


def test_the_job_may_publish_in_the_folder_left_to_it(tmp_path, server):
    output = str(tmp_path / "out")
    with own(output, "run") as lease:
        RunnerJob(lease.nonce, server.endpoint, "job-1", True).write(output)
    lease.check()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [OWNER, RUNNER_JOB]


def test_a_folder_is_not_taken_from_a_job_that_cannot_be_asked_for(tmp_path, folder):
    lost = dataclasses.replace(RunnerJob.read(folder), endpoint="localhost:1")
    lost.write(folder)
    with pytest.raises(ValueError, match=rf"if that still runs: .*if the job is gone for good, delete {RUNNER_JOB}"):
        owns(folder)
    (tmp_path / "out" / RUNNER_JOB).write_text("{}")
    with pytest.raises(ValueError, match=r"_runner_job.json' does not say which job a runner has"):
        owns(folder)
    (tmp_path / "out" / RUNNER_JOB).unlink()
    owns(folder)


def test_a_job_that_its_server_does_not_know_is_over(folder):
    dataclasses.replace(RunnerJob.read(folder), job_id="job-2").write(folder)
    owns(folder)


def test_the_job_of_an_earlier_owner_says_nothing_of_a_later_one(folder, server):
    dataclasses.replace(RunnerJob.read(folder), nonce="other").write(folder)
    owns(folder)


@pytest.mark.parametrize("cancels", [True, False])
def test_a_job_that_cannot_be_stopped_keeps_the_folder(tmp_path, server, cancels):
    output, server.cancels = str(tmp_path / "out"), cancels
    with own(output, "run") as lease:
        job = RunnerJob(lease.nonce, server.endpoint, "job-1", False)
        job.write(output)
        stop(job, output)
    with contextlib.nullcontext() if cancels else pytest.raises(ValueError, match="job-1"):
        owns(output)


def test_attach_cancels_a_job_and_frees_its_folder(folder, server, capsys):
    assert main(["attach", folder, "--cancel"]) == 130
    assert server.state == "CANCELLED"
    assert "stopped; what is committed is kept" in capsys.readouterr().err
    owns(folder)


def test_attach_tells_of_a_failed_job_and_of_a_folder_without_one(folder, server, capsys):
    server.state = "FAILED"
    assert main(["attach", folder]) == 1
    assert "the runner ended the job in state FAILED" in capsys.readouterr().err
    assert main(["attach", folder]) == 2
    assert "so no job of it is on a runner elsewhere" in capsys.readouterr().err


def test_only_a_job_that_lives_on_is_detached(make_job, corpus, capsys):
    sections = {"input": {"paths": [str(corpus / "*")]}, "tokenizer": {"train": {"vocab_size": 300}}}
    job = make_job("job", **sections)
    assert job.run("run", "--detach") == 2
    assert "--detach needs a runner and workers that live on" in capsys.readouterr().err
    assert not (job.output / OWNER).exists()


def answers(port):
    with socket.socket() as asking:
        return asking.connect_ex(("localhost", port)) == 0


@pytest.fixture(params=["python", pytest.param("prism", marks=pytest.mark.prism)])
def job_server(request, tmp_path):
    """Yields the address of a job server in a process of its own."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    if request.param == "python":
        module = "apache_beam.runners.portability.local_job_service_main"
        command = [sys.executable, "-m", module, f"--port={port}", f"--staging_dir={tmp_path}"]
    else:
        command = [str(prism_program.find(build=True)), f"--job_port={port}", "--serve_http=false"]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as running:
        deadline = time.monotonic() + 60
        while not answers(port):  # asked without gRPC, which might break the processes that the test starts
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield f"localhost:{port}"
        running.terminate()


def test_a_detached_job_writes_what_a_job_inline_writes(make_job, corpus, job_server, worker_service, capfd):
    sections = {
        "input": {"paths": [str(corpus / "*")], "split_bytes": 2000},
        "tokenizer": {"train": {"vocab_size": 300, "min_frequency": 1}},
    }
    job = make_job("job", **sections)
    runner = ["--runner=PortableRunner", f"--job_endpoint={job_server}"]
    workers = ["--environment_type=EXTERNAL", f"--environment_config={worker_service[1]}"]
    submitted = job.start("run", "--detach", "--json", "--", *runner, *workers)
    out, err = submitted.communicate(timeout=200)
    assert submitted.returncode == 0, err
    assert "`tokenmill attach" in err
    assert json.loads(out)["job_id"] == RunnerJob.read(str(job.output)).job_id
    again = job.start("run", "--resume", "--mode", "inline")
    _, err = again.communicate(timeout=200)
    assert again.returncode == 2 or not (job.output / RUNNER_JOB).exists(), err  # the job may be over by then
    if again.returncode == 2:
        assert "`tokenmill attach" in err
        assert main(["attach", str(job.output)]) == 0
        assert "run: done" in capfd.readouterr().out
    assert not (job.output / RUNNER_JOB).exists()
    undisturbed = make_job("undisturbed", **sections)
    assert undisturbed.run("run", "--mode", "inline") == 0
    assert job.files() == undisturbed.files()
