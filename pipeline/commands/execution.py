# SPDX-License-Identifier: Apache-2.0
"""Jobs as somebody asks for them: checked, planned, tried, run.

`Request` is what commands ask for. `run`, `plan` and `verify` are for Python: they take what the commands take, raise
where these end with another exit code than 0, and print nothing but warnings, and progress if asked.
"""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tokenmill.pipeline import filenames
from tokenmill.pipeline.commands.reporting import Mistake, mistakes, say

if TYPE_CHECKING:
    from apache_beam import Pipeline

    from tokenmill.pipeline.config.file import ConfigSource
    from tokenmill.pipeline.config.job import Config, JobName
    from tokenmill.pipeline.estimating.report import Told
    from tokenmill.pipeline.jobs.planning import JobPlan
    from tokenmill.pipeline.output.folders import Mode
    from tokenmill.pipeline.output.ownership import Lease
    from tokenmill.pipeline.proving.report import VerifyReport
    from tokenmill.pipeline.running.runner_jobs import RunnerJob
    from tokenmill.pipeline.running.runners import Mode as RunnerMode
    from tokenmill.pipeline.running.runners import RunnerSettings

_PATIENCE_SECONDS = 2.0


@dataclass(frozen=True)
class Request:
    """A job that somebody asks for."""

    job: "JobName"
    config: "Config"
    beam_args: Sequence[str] = ()
    mode: "RunnerMode | None" = None
    workers: int | None = None
    quiet: bool = False
    """Whether no progress is shown on stderr."""
    debug: bool = False

    @classmethod
    def of(cls, job: "JobName", source: "ConfigSource", overrides: Sequence[str] = (), **where: Any) -> "Request":
        """Returns a request for a job of a config; `where` has the other attributes.

        Raises:
          OSError, ValueError: if one of them is wrong; the input is not looked at.
        """
        from tokenmill.pipeline.config.file import load_config

        request = cls(job, load_config(source, overrides, job), **where)
        request._choose_runner()
        return request

    def _choose_runner(self, n_splits: int | None = None) -> "RunnerSettings":
        from tokenmill.pipeline.running.runners import choose_runner

        return choose_runner(self.beam_args, mode=self.mode, workers=self.workers, n_splits=n_splits)

    def plan(self) -> "tuple[JobPlan, RunnerSettings]":
        """Returns the plan of the job and where it runs, and says what it warns of.

        Shows how far it is from `_PATIENCE_SECONDS` on.

        Raises:
          Mistake: if the job cannot begin.
        """
        from tokenmill.pipeline.jobs.planning import plan_job
        from tokenmill.pipeline.running import display, progress

        watched = progress.Progress([progress.Stage("listing files", "", {})])
        is_shown = not self.quiet
        shown = display.show(watched, sys.stderr, after=_PATIENCE_SECONDS) if is_shown else contextlib.nullcontext()
        with mistakes(), progress.reporting_to(watched), shown:
            plan = plan_job(self.job, self.config)
            settings = self._choose_runner(len(plan.splits))
        for warning in plan.warnings:
            say(f"warning: {warning}")
        return plan, settings

    def estimate(self) -> "Told":
        """Tries the job on a sample of its input.

        Raises:
          Mistake: if the job could not begin. OSError, ValueError: if it would fail.
        """
        from tokenmill.pipeline.estimating import forecast, report

        plan, settings = self.plan()
        return report.Told.of(forecast.forecast(plan, settings), settings.workers)

    def _check_output(self, mode: "Mode") -> None:
        """Refuses a folder that another job owns or has filled: now, because listing the input may take minutes."""
        from tokenmill.pipeline.jobs.same_job import difference
        from tokenmill.pipeline.output import folders
        from tokenmill.pipeline.output.ownership import check_free

        output = self.config.output.path
        with mistakes():
            check_free(output)
            if mode == "new":
                with contextlib.suppress(NotADirectoryError):  # `own` tells of a file in its place
                    folders.check_empty(output, lambda there: difference(there, self.config, self.job))

    def run(self, mode: "Mode", *, detach: bool = False) -> "tuple[Sequence[str], RunnerJob | None]":
        """Plans and runs the job.

        Args:
          detach: return once a runner elsewhere has the job.

        Returns:
          What was warned of before the job began, and the job of the runner if it was detached.

        Raises:
          Mistake: if it cannot begin. Whatever a runner or a file system raises, if it fails.
        """
        from tokenmill.pipeline.output.ownership import own

        began, output = time.time(), self.config.output.path
        self._check_output(mode)
        plan, settings = self.plan()

        import apache_beam as beam

        from tokenmill.pipeline.books.reject_limits import RejectLimits
        from tokenmill.pipeline.jobs import planning
        from tokenmill.pipeline.running import display, progress, runner_jobs
        from tokenmill.pipeline.running.runners import check_beam_args, open_runner
        from tokenmill.pipeline.transforms import jobs

        watched = progress.Progress(plan.stages(), RejectLimits.of(plan.config.input))
        with contextlib.ExitStack() as stack:
            with mistakes():
                check_beam_args(settings)
                # Owned until the last worker is gone.
                lease = stack.enter_context(own(output, self.job, watched.cancel))
                runner, options = stack.enter_context(open_runner(settings, debug=self.debug))
                if detach:
                    runner_jobs.check_detachable(options)
                gone = planning.prepare(plan, mode)
            for warning in gone:
                say(f"warning: {warning}")
            if not self.quiet:
                say(f"{plan.name}: {_amount(plan)}, {settings}", display.seen(sys.stderr))
            pipeline = beam.Pipeline(runner=runner, options=options)
            jobs.build(pipeline, dataclasses.replace(plan, lease=lease))
            if settings.in_process:
                stack.enter_context(progress.reporting_to(watched))
            else:
                watched.look_at(output)
            if not self.quiet and not detach:
                stack.enter_context(display.show(watched, sys.stderr))
            try:
                state, given = _run(pipeline, lease, detach)
            except BaseException:
                # After Ctrl-C, too: workers in this process go on until they are told, and stop at their next batch.
                watched.cancel()
                raise
            if given is None and state != "DONE":
                raise RuntimeError(f"{settings} ended the job in state {state}; its own log says why")
            if given is None and plan.tokenizes:
                _record_times(plan, began, watched.lengths(time.monotonic()))
        return (*plan.warnings, *gone), given


def _amount(plan: "JobPlan") -> str:
    from tokenmill.pipeline.running import display

    n = len(plan.splits)
    if plan.counts_given and not n:
        return f"the counts in {plan.counts_given}"
    return f"{display.megabytes(plan.n_bytes)} in {n} {'split' if n == 1 else 'splits'}"


def _run(pipeline: "Pipeline", lease: "Lease", detach: bool) -> "tuple[str, RunnerJob | None]":
    """Runs a graph that finishes the folder of `lease`; returns its last state, and its runner's job if detached."""
    from tokenmill.pipeline.running import runner_jobs

    given: RunnerJob | None = None
    try:
        result = pipeline.run()
        given = runner_jobs.submitted(result, pipeline.options, lease.nonce, detached=detach)
        if given is not None:
            given.write(lease.output)
            if detach:
                return "RUNNING", given
        return str(result.wait_until_finish()), None
    except BaseException as error:
        if given is not None:
            runner_jobs.stop(given, lease.output)
        if isinstance(error, Exception):
            with contextlib.suppress(OSError):
                lease.check()  # if another command took the folder, this is the reason, whatever error it led to
        raise


def _record_times(plan: "JobPlan", began: float, stages: Sequence[tuple[str, float]]) -> None:
    """Writes `clock.json` and the report of a finished job; if that fails, the job is complete all the same."""
    from tokenmill.pipeline.running import clock

    output, name = plan.config.output.path, filenames.CLOCK
    try:
        clock.gather(output, len(plan.splits), began, stages, time.time() - began, plan.config.given())
        if plan.config.output.report:
            from tokenmill.pipeline.books.parts import folders_of
            from tokenmill.pipeline.reporting import page

            name = filenames.REPORT
            for folder in folders_of(output):
                page.draw(folder)
    except (OSError, ValueError) as error:
        say(f"warning: {name} could not be written: {error}")


def record(output: str, seconds: float) -> dict[str, Any]:
    """Returns what `--json` prints of a finished job: its folder and its counts."""
    from tokenmill.pipeline.books import manifest, parts

    is_one = not parts.is_in_parts(output)
    found = manifest.read(output) if is_one else parts.read(output)
    names = ("job", "job_digest", "tokenizer" if is_one else "parts", "totals", "balance", "versions")
    return {"output": output, "seconds": seconds, **{name: found[name] for name in names}}


class JobError(RuntimeError):
    """A job that began and failed. What it has committed is kept: `resume=True` goes on from there."""


@dataclass(frozen=True)
class JobResult:
    """A finished job."""

    output: str
    """Its folder."""
    seconds: float
    """Wall-clock."""
    warnings: tuple[str, ...]
    """What it warned of before it began, as of files that are left out, and what its summary warns of."""
    record: Mapping[str, Any] = field(repr=False)
    """What `tokenmill run --json` prints: `totals`, `balance`, `tokenizer`, `versions`, ..."""

    @property
    def totals(self) -> Mapping[str, int]:
        """`n_documents`, `n_tokens`, `reject_rows` and so on, as in the manifest."""
        totals: Mapping[str, int] = self.record["totals"]
        return totals


def run(
    config: "ConfigSource",
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
    config: "ConfigSource",
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
        from tokenmill.pipeline.estimating.report import to_record

        storage.configure(())
        return to_record(Request.of(job, config, mode=mode, workers=workers, quiet=True).estimate())


def verify(target: "ConfigSource", *, deep: bool = False, share: float | None = None) -> "VerifyReport":
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


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Raises the error behind a `Mistake`, which is the command line's; keeps Beam from saying what is no news."""
    from tokenmill.pipeline.running.messages import without_repetitions

    try:
        with without_repetitions():
            yield
    except Mistake as mistake:
        raise (mistake.__cause__ or ValueError(str(mistake))) from None
