# SPDX-License-Identifier: Apache-2.0
"""Jobs on a runner elsewhere, which go on when the command that submitted them has ended.

A job server of Beam, such as Prism's or Flink's, is asked by the id that it gave the job. `_runner_job.json` in the
output folder says which job that is, beside `_owner.json`.
"""

import dataclasses
import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from pydantic import TypeAdapter

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import json_files

RUNNER_JOB = "_runner_job.json"
"""The name of the file."""

_ANSWER_SECONDS = 20
_OVER = frozenset({"STOPPED", "DONE", "FAILED", "CANCELLED", "UPDATED", "DRAINED", "GONE"})


@dataclass(frozen=True)
class RunnerJob:
    """A job that a runner elsewhere was given."""

    nonce: str
    """Of the owner that submitted it, as in `_owner.json`."""
    endpoint: str
    """Address of the job server."""
    job_id: str
    detached: bool
    """Whether the command has left the folder to the job."""

    @classmethod
    def read(cls, output: str) -> Self | None:
        """Returns the job that a folder names; None if it names none.

        Raises:
          ValueError: if the file cannot be read.
        """
        path = storage.join(output, RUNNER_JOB)
        if not storage.exists(path):
            return None
        try:
            return cls(**vars(json_files.parse(storage.read_text(path), TypeAdapter(RunnerJob), RUNNER_JOB)))
        except ValueError as error:
            advice = "if no job of this folder is on a runner, delete it"
            raise ValueError(f"{path!r} does not say which job a runner has ({error}); {advice}") from error

    def write(self, output: str) -> None:
        """Writes the file."""
        storage.write_atomic(storage.join(output, RUNNER_JOB), json.dumps(asdict(self), indent=1).encode())

    def state(self) -> str:
        """Returns what the runner calls the state of the job, such as RUNNING or DONE; GONE if it knows no such job.

        Raises:
          OSError: if the runner cannot be asked.
        """
        import grpc  # type: ignore[import-untyped]
        from apache_beam.portability.api import beam_job_api_pb2 as api

        try:
            found = self._ask("GetState", api.GetJobStateRequest(job_id=self.job_id))
        except grpc.RpcError as error:
            # Beam's server in Python has no such code, but fails with the KeyError of its look-up.
            code, details = error.code(), str(error.details())
            if code == grpc.StatusCode.NOT_FOUND or (code == grpc.StatusCode.UNKNOWN and self.job_id in details):
                return "GONE"
            raise OSError(f"the job server {self.endpoint!r} does not answer: {details}") from None
        return str(api.JobState.Enum.Name(found.state))

    def cancel(self) -> None:
        """Tells the runner to stop the job."""
        from apache_beam.portability.api import beam_job_api_pb2 as api

        self._ask("Cancel", api.CancelJobRequest(job_id=self.job_id))

    def _ask(self, method: str, request: Any) -> Any:
        import grpc
        from apache_beam.portability.api import beam_job_api_pb2_grpc as api

        with grpc.insecure_channel(self.endpoint) as channel:
            return getattr(api.JobServiceStub(channel), method)(request, timeout=_ANSWER_SECONDS)

    def __str__(self) -> str:
        return f"job {self.job_id} of the runner at {self.endpoint}"


def is_over(state: str) -> bool:
    """Returns whether a job in this state has ended, however it did."""
    return state in _OVER


def submitted(result: Any, options: Any, nonce: str, *, detached: bool) -> RunnerJob | None:
    """Returns the job that a runner was given; None if it ends with this process, or its runner has no job server.

    Args:
      result: what `Pipeline.run` returned.
      nonce: of the owner of the output folder.
      detached: `RunnerJob.detached`.
    """
    from apache_beam.options.pipeline_options import PortableOptions

    endpoint, job_id = options.view_as(PortableOptions).job_endpoint, getattr(result, "_job_id", None)
    if job_id is None or endpoint in (None, "", "embed"):
        return None
    return RunnerJob(nonce, endpoint, job_id, detached)


def check_detachable(options: Any) -> None:
    """Raises ValueError if a job with these pipeline options would end with the command."""
    from apache_beam.options.pipeline_options import PortableOptions

    portable = options.view_as(PortableOptions)
    if portable.job_endpoint in (None, "", "embed") or portable.environment_type == "LOOPBACK":
        raise ValueError(
            "--detach needs a runner and workers that live on without the command, as in -- --runner=PortableRunner "
            "--job_endpoint=HOST:PORT --environment_type=EXTERNAL --environment_config=HOST:PORT"
        )


def stop(job: RunnerJob, output: str) -> None:
    """Stops a job whose command ends early; if that cannot be done, the folder is left to the job."""
    try:
        if not is_over(job.state()):
            job.cancel()
    except Exception:  # whatever gRPC raises
        dataclasses.replace(job, detached=True).write(output)
