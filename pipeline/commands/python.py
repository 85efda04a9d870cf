# SPDX-License-Identifier: Apache-2.0
"""`tokenmill.run`, `plan` and `verify`: the commands of these names, for a scheduler, a script or a notebook.

They take what the commands take, raise where these end with another exit code than 0, and print nothing but warnings,
and progress if asked.
"""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from tokenmill.pipeline.commands.reporting import Mistake
from tokenmill.pipeline.config.file import ConfigSource
from tokenmill.pipeline.proving.report import VerifyReport


class JobError(RuntimeError):
    """A job that began and failed. What it has committed is kept: `resume=True` goes on from there."""


@dataclasses.dataclass(frozen=True)
class JobResult:
    """A finished job."""

    output: str
    """Its folder."""
    seconds: float
    """Wall-clock."""
    warnings: tuple[str, ...]
    """What it warned of before it began, as of files that are left out, and what its summary warns of."""
    record: Mapping[str, Any] = dataclasses.field(repr=False)
    """What `tokenmill run --json` prints: `totals`, `balance`, `tokenizer`, `versions`, ..."""

    @property
    def totals(self) -> Mapping[str, int]:
        """`n_documents`, `n_tokens`, `reject_rows` and so on, as in the manifest."""
        totals: Mapping[str, int] = self.record["totals"]
        return totals


def run(
    config: ConfigSource,
    *,
    job: Literal["run", "count", "train", "tokenize"] = "run",
    resume: bool = False,
    overwrite: bool = False,
    workers: int | None = None,
    mode: Literal["inline", "threads", "processes"] | None = None,
    beam_args: Sequence[str] = (),
    progress: bool = False,
) -> JobResult:
    """Runs a job: trains a vocabulary if the config says so, then tokenizes, as `tokenmill run` does.

        result = tokenmill.run("job.yaml", overwrite=True)
        result.totals["n_tokens"]

    Args:
      config: the config.
      job: part of what the config says, as the command of this name.
      resume, overwrite: go on with what this job left in the output folder, or remove what an earlier one left there.
      workers, mode: of local runs, as `--workers` and `--mode`.
      beam_args: Beam's options, as after `--`.
      progress: show progress on stderr; in a notebook, as one line that changes.

    Raises:
      ValueError, OSError: if the job cannot begin, with the message of the command line. JobError: if it fails.
    """
    if resume and overwrite:
        raise ValueError("run: resume goes on with a job, overwrite removes it; give one")
    began = time.monotonic()
    with _plainly():
        from tokenmill.pipeline import storage
        from tokenmill.pipeline.commands.execution import Request
        from tokenmill.pipeline.commands.jobs import record
        from tokenmill.pipeline.reporting.summary import warnings
        from tokenmill.pipeline.running.messages import explain

        storage.configure(beam_args)
        request = Request.of(job, config, beam_args=beam_args, mode=mode, workers=workers, quiet=not progress)
        output = request.config.output.path
        try:
            told, _ = request.run("resume" if resume else "overwrite" if overwrite else "new")
        except Mistake:
            raise
        except Exception as error:  # a runner, its workers and any file system may raise anything
            raise JobError(explain(error, output)) from error
    seconds = time.monotonic() - began
    return JobResult(output, seconds, (*told, *warnings(output, request.config)), record(output, seconds))


def plan(
    config: ConfigSource,
    *,
    job: Literal["run", "count", "train", "tokenize"] = "run",
    workers: int | None = None,
    mode: Literal["inline", "threads", "processes"] | None = None,
) -> dict[str, Any]:
    """Returns what `tokenmill plan --json` prints: estimates of a job, with bounds, from a sample of its input.

    Args:
      config, job, workers, mode: as for `run`.

    Raises:
      ValueError, OSError: if the job could not begin, or would fail.
    """
    with _plainly():
        from tokenmill.pipeline import storage
        from tokenmill.pipeline.commands.execution import Request
        from tokenmill.pipeline.estimating.report import to_record

        storage.configure(())
        return to_record(Request.of(job, config, mode=mode, workers=workers, quiet=True).estimate())


def verify(target: ConfigSource, *, deep: bool = False, share: float | None = None) -> VerifyReport:
    """Reads an output folder again and proves its manifest, as `tokenmill verify` does.

        assert tokenmill.verify("out").is_proven

    Args:
      target: the folder; or the config of its job, a mapping or a path that ends with .yaml or .yml.
      deep: also tokenize a sample of the splits again, from the input, and compare.
      share: the share of splits and documents for that, from 0 to 1; None: 0.01; at least 3 splits and 200 documents.

    Raises:
      ValueError, OSError: if it is no folder of a job, or not that of this config.
    """
    from tokenmill.pipeline.commands.results import find_output, prove

    if share is not None and not (deep and 0 <= share <= 1):
        raise ValueError(f"verify: share says how much deep tokenizes again, from 0 to 1; got {share!r}, deep={deep}")
    output, inputs = find_output(target)
    return prove(output, deep, share, inputs)[0]


@contextmanager
def _plainly() -> Iterator[None]:
    """Raises the error behind a `Mistake`, which is the command line's; keeps Beam from saying what is no news."""
    from tokenmill.pipeline.running.messages import without_repetitions

    try:
        with without_repetitions():
            yield
    except Mistake as mistake:
        raise (mistake.__cause__ or ValueError(str(mistake))) from None
